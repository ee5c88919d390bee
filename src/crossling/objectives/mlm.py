r"""Masked language modelling.

    L_MLM(x) = - sum over i in M of log p(x_i | x without M)            M: the masked positions

TLM (Conneau and Lample 2019) is the same on a joined translation pair: see tlm.py.
"""
# B sequences, L positions, D width, V vocabulary, M masked positions

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from crossling.data.batches import Batch, Corrupted, Example
from crossling.model.transformer import CrosslingModel, LMHead
from crossling.objectives.objective import Network, valid
from crossling.vocabulary.vocabulary import BOS, EOS, UNK


@dataclass(frozen=True)
class MLM:
    stream: ClassVar[Literal["text", "pairs"]] = "text"
    term: ClassVar[str] = "mlm"
    inputs: ClassVar[tuple[str, ...]] = ("ids",)
    whole: ClassVar[bool] = False

    rate: float = 0.15  # |M| / |x|
    keep: float = 0.1  # of M: stays as it is
    random: float = 0.1  # of M: becomes a random piece; the rest becomes <mask>
    tokens: int = 1_048_576  # of one step
    length: int = 512
    weight: float = 1.0

    @property
    def weights(self) -> dict[str, float]:
        return {self.term: self.weight}

    def examples(self, expected_length: float) -> int:
        return max(1, round(self.tokens / expected_length))

    def parts(self, encoder: CrosslingModel, generator_layers: int) -> dict[str, Callable[[], nn.Module]]:  # noqa: ARG002
        return {"lm_head": lambda: LMHead(encoder.config)}

    def corrupt(self, example: Example, rng: np.random.Generator, mask: int) -> Corrupted:
        return corrupted(example.alone(), rng, mask, self.rate, self.keep, self.random)

    def counts(self, batch: Batch) -> dict[str, int]:
        masked = int(batch["masked"].sum())
        return {self.term: masked, f"{self.term}_accuracy": masked}

    def loss(self, net: Network, batch: Batch) -> dict[str, Tensor]:
        hidden_BLD = net.encoder(batch["ids"], valid(batch["ids"])).last_hidden_state
        logits_MV = net.parts["lm_head"](hidden_BLD[batch["masked"]], net.encoder.embeddings.tokens.weight).float()
        return self.prediction(logits_MV, batch["targets"][batch["masked"]])

    def prediction(self, logits_MV: Tensor, targets_M: Tensor) -> dict[str, Tensor]:
        right = (logits_MV.argmax(-1) == targets_M).sum()
        return {
            self.term: F.cross_entropy(logits_MV, targets_M, reduction="sum"),
            f"{self.term}_accuracy": right,
        }


def corrupted(
    ids: np.ndarray, rng: np.random.Generator, mask: int, rate: float, keep: float = 0.0, random: float = 0.0
) -> Corrupted:
    """The masked ids, where they are masked, and what stood there. Special tokens are never chosen.

    The number of masked positions is rate x length, rounded up or down at random so that the rate holds on average,
    and at least one.
    """
    candidates = np.flatnonzero((ids != BOS) & (ids != EOS))
    chosen = rng.permutation(candidates)[: max(1, int(rate * len(candidates) + rng.random()))]
    masked = np.zeros(len(ids), dtype=bool)
    masked[chosen] = True
    hidden = np.array(ids)
    fate = rng.random(len(chosen))
    hidden[chosen[fate >= keep]] = mask
    strangers = chosen[(fate >= keep) & (fate < keep + random)]
    hidden[strangers] = rng.integers(UNK + 1, mask, size=len(strangers))
    return {"ids": hidden, "targets": ids, "masked": masked}
