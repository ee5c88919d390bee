"""XLM-E (Chi et al., ACL 2022) in one plain training loop, from the parts of crossling.

XLM-E trains two encoders, as ELECTRA does. A small generator fills in masked tokens. A discriminator, the model that is
kept, decides for every token whether the generator has replaced it. It reads text in many languages (MRTD) and
translation pairs (TRTD), where a replaced token can be found by looking at the translation.

    python examples/xlm_e_minimal.py --shards SHARDS --steps 2000

`crossling tokenize` makes the shards. This script prints the same losses as `crossling pretrain xlm_e --size tiny`,
which adds checkpoints, logging, mixed precision and several GPUs.
"""
# B rows, L positions, M masked positions, D width, V vocabulary

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossling.data.batches import Batches
from crossling.data.packing import Batch
from crossling.data.shards import Shards
from crossling.model.encoder_model import CrosslingModel
from crossling.model.gather import gather_positions
from crossling.model.model_shape import SIZES, ModelShape
from crossling.objectives import MRTD, TRTD, Network
from crossling.sampling import Sampling
from crossling.train.optimizer import OptimizerSettings

SEED = 0
PEAK_LR = 2e-3
WARMUP = 0.1  # fraction of all steps
MAX_GRADIENT_NORM = 1.0


def build_network(objective: MRTD, shape: ModelShape, vocabulary_size: int) -> Network:
    """Return the discriminator with a generator of fewer layers and a head for each.

    Both encoders share one table of token embeddings.
    """
    torch.manual_seed(SEED)
    discriminator = CrosslingModel(shape.to_config(vocabulary_size))
    modules = objective.modules(discriminator, shape)  # generator, generator_head, rtd_head
    return Network(discriminator, {name: build() for name, build in modules.items()})


def replaced_token_detection(net: Network, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the summed losses of the generator and of the discriminator."""
    original_BL, segments_BL, masked_M = batch["targets"], batch["ids_segments"], batch["masked_at"]

    # (1) The generator predicts the masked tokens:  L_G = - sum over i in M of log p_G(x_i | x with M masked)
    # (2) and samples from its prediction:           x'_i ~ p_G(x_i | x with M masked)
    generator = net.parts["generator"]
    prediction = net.parts["generator_head"].predict(
        generator(batch["ids"], segments=segments_BL, positions=masked_M).last_hidden_state,
        generator.embeddings.tokens.weight,
        gather_positions(original_BL, masked_M),
        gather_positions(batch["noise"], masked_M),  # uniform numbers, with which it samples
    )
    corrupted_BL = original_BL.flatten().scatter(0, masked_M, prediction.sampled_M).view_as(original_BL)

    # (3) The discriminator finds the replaced ones: L_D = - sum over i of log p_D(z_i | x'),  z_i = (x'_i != x_i)
    #     A sample that equals the original token counts as original. Padding is not scored.
    replaced_BL = corrupted_BL != original_BL
    logits_BL = net.parts["rtd_head"](net.encoder(corrupted_BL, segments=segments_BL).last_hidden_state).float()
    loss_BL = F.binary_cross_entropy_with_logits(logits_BL, replaced_BL.float(), reduction="none")
    return prediction.loss, loss_BL.where(segments_BL > 0, 0.0).sum()


def learning_rate(step: int, steps: int) -> float:
    """Return the learning rate: linear warm-up to the peak, then linear decay to 0."""
    warmup = round(WARMUP * steps)
    if step < warmup:
        return PEAK_LR * (step + 1) / warmup
    return PEAK_LR * (steps - step) / max(1, steps - warmup)


def train(
    shards: Shards,
    steps: int,
    *,
    shape: ModelShape = SIZES["tiny"],
    tokens: int = 4096,
    length: int = 128,
) -> Iterator[dict[str, float]]:
    """Train XLM-E and yield the mean losses of every step.

    Args:
        shards: Tokenized text and translation pairs.
        steps: Training steps.
        shape: Size of the encoders.
        tokens: Tokens per step, of text and of pairs each.
        length: Maximum tokens per sequence.
    """
    # MRTD on text, TRTD on translation pairs <s> e </s> f </s>:    L = L_G + lambda L_D  for each, with lambda = 50
    objectives = {
        "mrtd": MRTD(rate=0.15, lambda_=50.0, tokens=tokens, length=length),
        "trtd": TRTD(rate=0.15, lambda_=50.0, tokens=tokens, length=length),
    }
    # Languages are sampled with p_l proportional to n_l^0.7, so that small ones are read more often.
    # Blocks of text are filled to their length, across documents.
    sampling = Sampling(text_alpha=0.7, pair_alpha=0.7, full_blocks=True)
    batches = Batches(shards, objectives, sampling, seed=SEED, micro_tokens=65_536)

    net = build_network(objectives["mrtd"], shape, shards.vocabulary_size).train()
    # AdamW without weight decay of biases and layer norms.
    optimizer = OptimizerSettings(beta1=0.9, beta2=0.98, epsilon=1e-6, decay=0.01).build(net)

    for step in range(steps):
        work = batches[step]  # micro-batches, and the counts by which each sum is divided
        sums: dict[str, float] = {}
        weights: dict[str, float] = {}
        for (name, batch), seed in zip(work.micro_batches, work.seeds, strict=True):
            torch.manual_seed(seed)  # dropout
            losses = replaced_token_detection(net, batch)
            loss_weights = objectives[name].loss_weights  # {"mlm": 1, "mrtd": 50} or {"tlm": 1, "trtd": 50}
            terms = dict(zip(loss_weights, losses, strict=True))
            # Each loss is a mean over the whole step, so a step can be split into any number of micro-batches.
            torch.stack(
                [loss_weights[term] / work.counts[term] * loss for term, loss in terms.items()]
            ).sum().backward()
            for term, loss in terms.items():
                sums[term] = sums.get(term, 0.0) + loss.item()
            weights |= loss_weights

        nn.utils.clip_grad_norm_(net.parameters(), MAX_GRADIENT_NORM)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        optimizer.step()
        optimizer.zero_grad()

        means = {term: value / work.counts[term] for term, value in sums.items()}
        yield {"loss": sum(weights[term] * mean for term, mean in means.items()), **means}


def main() -> None:
    """Train on the shards that the command line names, and print the losses."""
    parser = argparse.ArgumentParser(description="Train a tiny XLM-E and print its losses.")
    parser.add_argument("--shards", type=Path, required=True, help="Folder written by crossling tokenize.")
    parser.add_argument("--steps", type=int, default=2000, help="Training steps. [default: 2000]")
    arguments = parser.parse_args()
    for step, losses in enumerate(train(Shards.open(arguments.shards), arguments.steps), start=1):
        print(f"step {step}  " + "  ".join(f"{name} {value:.4f}" for name, value in losses.items()), flush=True)


if __name__ == "__main__":
    main()
