r"""Multilingual and translation replaced token detection (MRTD and TRTD; XLM-E §2 and §3.1; ELECTRA).

    L_G(x) = - sum over i in M of log p_G(x_i | x with M masked)                                          (1)
    x'_i ~ p_G(x_i | x with M masked)  for i in M,    x'_i = x_i  elsewhere                               (2)
    L_D(x) = - sum over all i of log p_D(z_i | x')               z_i: was x'_i replaced?                  (3)
    L = L_G + lambda L_D
    L_TRTD(e, f) = L_MRTD([e; f])                                [e; f]: <s> e </s> f </s>                (4, 5)

Both losses are means, as in ELECTRA's code and unlike its equations: lambda = 50 belongs to means. A sample that equals
the original token counts as original. Special tokens are scored too, padding is not. The generator loss of TRTD is TLM.
"""
# B rows, L positions, P tokens of all sequences, D width, V vocabulary, M masked positions

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from crossling.core.settings import AT_LEAST_0, AT_LEAST_1, PROBABILITY, Bounds
from crossling.data.batches import LENGTH_MULTIPLE, CorruptedExamples, Stream, TokenizedExamples
from crossling.data.keyed_random import KeyedRandom
from crossling.data.packing import Batch, Sequences
from crossling.model.model_shape import ModelShape
from crossling.objectives import cost
from crossling.objectives.mlm import gather_targets, mask_tokens, prediction_sums, prediction_terms
from crossling.objectives.objective import ModuleBuilders, PretrainingObjective
from crossling.vocabulary.special_tokens import SpecialTokens

if TYPE_CHECKING:
    from torch import Tensor

    from crossling.model.encoder_model import CrosslingModel
    from crossling.model.kernels.prediction import TokenPrediction
    from crossling.model.native_encoder import NativeEncoder
    from crossling.objectives.training_network import Network


@dataclass(frozen=True, kw_only=True)
class MRTD(PretrainingObjective):
    """Multilingual replaced token detection on blocks of text.

    Args:
        rate: Masking rate of the generator. Every masked token becomes `<mask>`.
        span: Mean length of masked spans in tokens.
        lambda_: Weight of the discriminator's mean loss. On the command line it is called `lambda`.
        tokens: Batch size: tokens per step over all processes.
        length: Longest sequence in tokens.

    Example:
        >>> objective = crossling.MRTD(rate=0.15, lambda_=50.0)
    """

    stream: ClassVar[Stream] = "text"
    generator_term: ClassVar[str] = "mlm"
    term: ClassVar[str] = "mrtd"

    rate: Annotated[float, PROBABILITY] = 0.15
    span: Annotated[float, AT_LEAST_1] = 1.0
    lambda_: Annotated[float, AT_LEAST_0] = 50.0
    tokens: Annotated[int, AT_LEAST_1] = 1_048_576
    length: Annotated[int, Bounds(at_least=LENGTH_MULTIPLE)] = 512

    @property
    def loss_weights(self) -> dict[str, float]:
        return {self.generator_term: 1.0, self.term: self.lambda_}

    def examples_per_step(self, mean_length: float) -> int:
        return max(1, round(self.tokens / mean_length))

    def modules(self, encoder: CrosslingModel | NativeEncoder, shape: ModelShape) -> ModuleBuilders:
        from crossling.model.embedding import couple_token_tables
        from crossling.model.encoder_model import CrosslingModel
        from crossling.model.native_encoder import NativeEncoder, build_shorter, masked_lm_class
        from crossling.model.native_heads import build_lm_head, build_rtd_head

        @cache  # the head may be part of the generator
        def generator() -> CrosslingModel | NativeEncoder:
            """Build a generator of the same width with fewer layers and no dropout (XLM-E App. A, XY-LENT §5)."""
            network: CrosslingModel | NativeEncoder
            if isinstance(encoder, NativeEncoder):
                config = encoder.model.config
                network = build_shorter(encoder, shape.generator_layers, masked_lm_class(config, config.model_type))
            else:
                own = {"num_hidden_layers": shape.generator_layers, "universal_layer": None, "cross_attention": False}
                network = CrosslingModel(encoder.config.replace(**own, dropout=0.0, attention_dropout=0.0))
            couple_token_tables(encoder.embeddings, network.embeddings, shape.token_table)
            return network

        return {
            "generator": generator,
            "generator_head": lambda: build_lm_head(generator()),
            "rtd_head": lambda: build_rtd_head(encoder),
        }

    def corrupt(self, examples: TokenizedExamples, noise: KeyedRandom, special: SpecialTokens) -> CorruptedExamples:
        sequences = examples.sequences() if self.stream == "text" else examples.joined_sequences()
        masked = mask_tokens(sequences, noise, special, rate=self.rate, span=self.span)
        return CorruptedExamples({"ids": add_sampling_noise(masked, noise)})

    def counts(self, batch: Batch) -> dict[str, int]:
        masked, tokens = int(batch["masked"].sum()), int((batch["ids_segments"] > 0).sum())
        terms = (self.term, f"{self.term}_replaced", f"{self.term}_accuracy")
        return dict.fromkeys(prediction_terms(self.generator_term), masked) | dict.fromkeys(terms, tokens)

    def loss(self, net: Network, batch: Batch) -> dict[str, Tensor]:
        import torch.nn.functional as F

        targets_BL, targets_M = batch["targets"], gather_targets(batch["targets"], batch["masked_at"])
        prediction, corrupted_BL, logits_BL = self.detect(net, batch)
        present_BL, replaced_BL = batch["ids_segments"] > 0, corrupted_BL != targets_BL
        loss_BL = F.binary_cross_entropy_with_logits(logits_BL, replaced_BL.float(), reduction="none")
        return {
            **prediction_sums(self.generator_term, prediction, targets_M, net.encoder.config.vocab_size),
            self.term: loss_BL.where(present_BL, 0.0).sum(),
            f"{self.term}_replaced": replaced_BL.sum(),
            f"{self.term}_accuracy": (((logits_BL > 0) == replaced_BL) & present_BL).sum(),
        }

    def detect(self, net: Network, batch: Batch) -> tuple[TokenPrediction, Tensor, Tensor]:
        """Return the generator's prediction at M, the text with its samples, and the discriminator's logits."""
        import torch.nn.functional as F

        from crossling.model.gather import gather_positions

        targets_BL, position_M, segments = batch["targets"], batch["masked_at"], batch["ids_segments"]
        generator = net.parts["generator"]
        hidden_MD = generator(batch["ids"], segments=segments, positions=position_M).last_hidden_state
        targets_M, noise_M = gather_targets(targets_BL, position_M), gather_positions(batch["noise"], position_M)
        table_VD = generator.embeddings.tokens.weight
        prediction = net.parts["generator_head"].predict(hidden_MD, table_VD, targets_M, noise_M)
        # Padding positions are one past the end.
        corrupted_P = F.pad(targets_BL.flatten(), (0, 1)).scatter(0, position_M, prediction.sampled_M)
        corrupted_BL = corrupted_P[:-1].view_as(targets_BL)
        logits_BL = net.parts["rtd_head"](net.encoder(corrupted_BL, segments=segments).last_hidden_state).float()
        return prediction, corrupted_BL, logits_BL

    def flops_per_token(self, net: Network, length: float) -> float:
        layers = cost.encoder_flops(net.encoder, length) + cost.encoder_flops(net.parts["generator"], length)
        generator_head = cost.lm_head_flops(net.encoder, net.parts["generator_head"]) * self.rate
        rtd_head = 2 * cost.matrix_weights(net.parts["rtd_head"])
        return cost.FORWARD_AND_BACKWARD * (layers + generator_head + rtd_head)

    def activation_bytes(self, net: Network, gradient_checkpointing: bool) -> float:
        # The block that is recomputed is one of the encoder: those of the generator, without dropout, take no more.
        generator = cost.stored_bytes(net.parts["generator"], gradient_checkpointing, predicted=self.rate)
        return generator + cost.peak_bytes(net.encoder, gradient_checkpointing)

    def head_memory(self, net: Network, gradient_checkpointing: bool) -> cost.HeadMemory:
        generator = cost.stored_bytes(net.parts["generator"], gradient_checkpointing, predicted=self.rate)
        return cost.HeadMemory(self.rate, generator)


@dataclass(frozen=True, kw_only=True)
class TRTD(MRTD):
    """Translation replaced token detection: MRTD on joined translation pairs, with the settings of MRTD.

    Example:
        >>> objective = crossling.TRTD(rate=0.15, lambda_=50.0)
    """

    stream: ClassVar[Stream] = "pairs"
    generator_term: ClassVar[str] = "tlm"
    term: ClassVar[str] = "trtd"


def add_sampling_noise(sequences: Sequences, noise: KeyedRandom) -> Sequences:
    """Add one uniform number per position, with which the generator's distribution is sampled there.

    The numbers are computed on the host, so they depend only on the position of the example in the global batch.
    """
    noise_P = noise.per_token("sample", sequences.sequence_ids, sequences.positions).astype(np.float32)
    # A number just below 1 may be rounded up to 1.
    noise_P = np.minimum(noise_P, 1 - 2**-24, dtype=np.float32)
    return Sequences(sequences.lengths_N, {**sequences.tokens, "noise": noise_P})
