r"""Multilingual replaced token detection (XLM-E §2 and §3.1; ELECTRA).

    L_G(x) = - sum over i in M of log p_G(x_i | x with M masked)                                          (1)
    x'_i ~ p_G(x_i | x with M masked)  for i in M,    x'_i = x_i  elsewhere                               (2)
    L_D(x) = - sum over all i of log p_D(z_i | x')               z_i: was x'_i replaced?                  (3)
    L = L_G + lambda L_D

Means of both, as ELECTRA's code (and not its equations) has it: lambda = 50 belongs to means. A sample that happens
to equal the original counts as original. Special tokens are scored too, padding is not.
"""
# B sequences, L positions, D width, V vocabulary, M masked positions

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from crossling.data.batches import Corrupted, Examples
from crossling.data.noise import Noise
from crossling.data.packing import Batch, Sequences
from crossling.model.heads import LMHead, RTDHead
from crossling.model.shape import Shape
from crossling.model.tables import couple
from crossling.model.transformer import CrosslingModel
from crossling.objectives.mlm import masked, predicted, prediction
from crossling.objectives.objective import Network, Objective, Parts, valid


@dataclass(frozen=True)
class MRTD(Objective):
    stream: ClassVar[Literal["text", "pairs"]] = "text"
    generator_term: ClassVar[str] = "mlm"
    term: ClassVar[str] = "mrtd"

    rate: float = 0.15  # |M| / |x|; every masked position becomes <mask>
    span: float = 1.0  # tokens masked in a row, on average
    lambda_: float = 50.0  # weight of the discriminator's mean loss
    tokens: int = 1_048_576  # of one step
    length: int = 512

    @property
    def weights(self) -> dict[str, float]:
        return {self.generator_term: 1.0, self.term: self.lambda_}

    def examples(self, expected_length: float) -> int:
        return max(1, round(self.tokens / expected_length))

    def parts(self, encoder: CrosslingModel, shape: Shape) -> Parts:
        def generator() -> CrosslingModel:
            """The same width, fewer layers, no dropout (XLM-E App. A, XY-LENT §5)."""
            config = encoder.config.but(
                num_hidden_layers=shape.generator_layers, universal_layer=None, dropout=0.0, cross_attention=False
            )
            network = CrosslingModel(config)
            couple(encoder.embeddings, network.embeddings, shape.token_table)
            return network

        return {
            "generator": generator,
            "generator_head": lambda: LMHead(encoder.config),
            "rtd_head": lambda: RTDHead(encoder.config),
        }

    def corrupt(self, examples: Examples, noise: Noise, mask: int) -> Corrupted:
        return Corrupted({"ids": self.masked(examples.alone(), noise, mask)})

    def masked(self, sequences: Sequences, noise: Noise, mask: int) -> Sequences:
        return with_noise(masked(sequences, noise, mask, self.rate, span=self.span), noise)

    def counts(self, batch: Batch) -> dict[str, int]:
        chosen, tokens = int(batch["masked"].sum()), int(valid(batch["targets"]).sum())
        watched = (self.term, f"{self.term}_replaced", f"{self.term}_accuracy")
        return dict.fromkeys(predicted(self.generator_term), chosen) | dict.fromkeys(watched, tokens)

    def loss(self, net: Network, batch: Batch) -> dict[str, Tensor]:
        masked_BL, targets_BL = batch["masked"], batch["targets"]
        logits_MV, corrupt_BL, scores_BL = self.detect(net, batch)
        present, replaced_BL = valid(targets_BL), corrupt_BL != targets_BL
        return {
            **prediction(self.generator_term, logits_MV, targets_BL[masked_BL]),
            self.term: F.binary_cross_entropy_with_logits(
                scores_BL[present], replaced_BL[present].float(), reduction="sum"
            ),
            f"{self.term}_replaced": replaced_BL.sum(),
            f"{self.term}_accuracy": ((scores_BL > 0) == replaced_BL)[present].sum(),
        }

    def detect(self, net: Network, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """The generator's logits at M, the text with its samples in it, and how replaced each token of that looks."""
        masked_BL, segments = batch["masked"], batch["ids_segments"]
        generator = net.parts["generator"]
        hidden_BLD = generator(batch["ids"], segments=segments).last_hidden_state
        logits_MV = net.parts["generator_head"](hidden_BLD[masked_BL], generator.embeddings.tokens.weight).float()
        corrupt_BL = batch["targets"].masked_scatter(masked_BL, sample(logits_MV.detach(), batch["noise"][masked_BL]))
        scores_BL = net.parts["rtd_head"](net.encoder(corrupt_BL, segments=segments).last_hidden_state).float()
        return logits_MV, corrupt_BL, scores_BL


def with_noise(sequences: Sequences, noise: Noise) -> Sequences:
    """One uniform number per position decides what the generator's softmax draws there: drawn on the host, so that
    it is a function of the example's place in the global batch and nothing else."""
    drawn_P = noise.tokens("sample", sequences.numbers, sequences.places).astype(np.float32)
    # A number just below 1 may round up to it.
    return Sequences(
        sequences.lengths_N, {**sequences.tokens, "noise": np.minimum(drawn_P, 1 - 2**-24, dtype=np.float32)}
    )


@torch.no_grad()
def sample(logits_MV: Tensor, noise_M: Tensor) -> Tensor:
    """One draw per row from softmax(logits) at temperature 1, by inverting the cumulative distribution at `noise`."""
    cumulative_MV = torch.softmax(logits_MV.float(), -1).cumsum(-1)
    # The last entry is 1 up to rounding; scaling by it keeps every draw inside the vocabulary.
    drawn_M = torch.searchsorted(cumulative_MV, noise_M[:, None] * cumulative_MV[:, -1:], right=True).squeeze(-1)
    return drawn_M.clamp(max=logits_MV.shape[-1] - 1)
