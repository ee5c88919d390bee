r"""Masked language modelling.

    L_MLM(x) = - sum over i in M of log p(x_i | x without M)            M: the masked positions

TLM (Conneau and Lample 2019) is the same on a joined translation pair: see tlm.py.
"""
# N sequences, P tokens of them all, C candidates, B rows, L positions, D width, V vocabulary, M masked positions

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from crossling.data.batches import Corrupted, Examples
from crossling.data.noise import Noise, places
from crossling.data.packing import Batch, Sequences
from crossling.model.transformer import CrosslingModel, LMHead
from crossling.objectives.objective import Network
from crossling.vocabulary.vocabulary import BOS, EOS, UNK


@dataclass(frozen=True)
class MLM:
    stream: ClassVar[Literal["text", "pairs"]] = "text"
    term: ClassVar[str] = "mlm"
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

    def corrupt(self, examples: Examples, noise: Noise, mask: int) -> Corrupted:
        return Corrupted({"ids": masked(examples.alone(), noise, mask, self.rate, self.keep, self.random)})

    def counts(self, batch: Batch) -> dict[str, int]:
        chosen = int(batch["masked"].sum())
        return {self.term: chosen, f"{self.term}_accuracy": chosen}

    def loss(self, net: Network, batch: Batch) -> dict[str, Tensor]:
        hidden_BLD = net.encoder(batch["ids"], segments=batch["ids_segments"]).last_hidden_state
        logits_MV = net.parts["lm_head"](hidden_BLD[batch["masked"]], net.encoder.embeddings.tokens.weight).float()
        return self.prediction(logits_MV, batch["targets"][batch["masked"]])

    def prediction(self, logits_MV: Tensor, targets_M: Tensor) -> dict[str, Tensor]:
        right = (logits_MV.argmax(-1) == targets_M).sum()
        return {
            self.term: F.cross_entropy(logits_MV, targets_M, reduction="sum"),
            f"{self.term}_accuracy": right,
        }


def masked(
    sequences: Sequences,
    noise: Noise,
    mask: int,
    rate: float,
    keep: float = 0.0,
    random: float = 0.0,
    purpose: str = "",
) -> Sequences:
    """The masked ids, where they are masked, and what stood there. Special tokens are never chosen.

    The number of masked positions of a sequence is rate x length, rounded up or down at random so that the rate holds
    on average, and at least one.
    """
    ids_P, number_P, place_P = sequences.tokens["ids"], sequences.numbers, sequences.places
    candidate_C = np.flatnonzero((ids_P != BOS) & (ids_P != EOS))
    candidates_N = np.bincount(number_P[candidate_C], minlength=len(sequences.lengths_N))
    chosen_N = np.maximum(1, (rate * candidates_N + noise.each(f"{purpose}round")).astype(np.int64))
    # In a random order of each sequence's candidates the first ones are chosen.
    number_C, place_C = noise.order(f"{purpose}choose", number_P[candidate_C], place_P[candidate_C])
    first_C = places(candidates_N) < chosen_N[number_C]
    start_N = np.cumsum(sequences.lengths_N) - sequences.lengths_N
    chosen_M = (start_N[number_C] + place_C)[first_C]
    masked_P = np.zeros(len(ids_P), dtype=np.bool_)
    masked_P[chosen_M] = True
    fate_M, stranger_M = (
        noise.tokens(f"{purpose}{what}", number_P[chosen_M], place_P[chosen_M]) for what in ("fate", "stranger")
    )
    hidden_P = ids_P.copy()
    hidden_P[chosen_M[fate_M >= keep]] = mask
    random_M = (fate_M >= keep) & (fate_M < keep + random)
    hidden_P[chosen_M[random_M]] = UNK + 1 + (stranger_M[random_M] * (mask - UNK - 1)).astype(np.int64)
    return Sequences(sequences.lengths_N, {"ids": hidden_P, "targets": ids_P, "masked": masked_P})
