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
import torch.nn.functional as F
from torch import Tensor

from crossling.data.batches import Corrupted, Examples
from crossling.data.noise import Noise
from crossling.data.packing import Batch, Sequences
from crossling.model.heads import LMHead, RTDHead
from crossling.model.prediction import Predicted
from crossling.model.shape import Shape
from crossling.model.tables import couple
from crossling.model.transformer import CrosslingModel
from crossling.objectives.mlm import at, masked, predicted, prediction
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
            own = {"num_hidden_layers": shape.generator_layers, "universal_layer": None, "cross_attention": False}
            network = CrosslingModel(encoder.config.but(**own, dropout=0.0, attention_dropout=0.0))
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
        targets_BL, targets_M = batch["targets"], at(batch["targets"], batch["masked_at"])
        found, corrupt_BL, scores_BL = self.detect(net, batch)
        present_BL, replaced_BL = valid(targets_BL), corrupt_BL != targets_BL
        each_BL = F.binary_cross_entropy_with_logits(scores_BL, replaced_BL.float(), reduction="none")
        return {
            **prediction(self.generator_term, found, targets_M, net.encoder.config.vocab_size),
            self.term: each_BL.where(present_BL, 0.0).sum(),
            f"{self.term}_replaced": replaced_BL.sum(),
            f"{self.term}_accuracy": (((scores_BL > 0) == replaced_BL) & present_BL).sum(),
        }

    def detect(self, net: Network, batch: Batch) -> tuple[Predicted, Tensor, Tensor]:
        """What the generator says at M, the text with its samples in it, and how replaced each token of that looks."""
        place_M, segments = batch["masked_at"], batch["ids_segments"]
        generator = net.parts["generator"]
        hidden_MD = at(generator(batch["ids"], segments=segments).last_hidden_state, place_M)
        found = net.parts["generator_head"].predict(
            hidden_MD, generator.embeddings.tokens.weight, at(batch["targets"], place_M), at(batch["noise"], place_M)
        )
        corrupt_BL = batch["targets"].flatten().scatter(0, place_M, found.drawn_M).view_as(batch["targets"])
        scores_BL = net.parts["rtd_head"](net.encoder(corrupt_BL, segments=segments).last_hidden_state).float()
        return found, corrupt_BL, scores_BL


def with_noise(sequences: Sequences, noise: Noise) -> Sequences:
    """One uniform number per position decides what the generator's softmax draws there: drawn on the host, so that
    it is a function of the example's place in the global batch and nothing else."""
    drawn_P = noise.tokens("sample", sequences.numbers, sequences.places).astype(np.float32)
    # A number just below 1 may round up to it.
    return Sequences(
        sequences.lengths_N, {**sequences.tokens, "noise": np.minimum(drawn_P, 1 - 2**-24, dtype=np.float32)}
    )
