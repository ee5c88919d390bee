r"""Masked language modelling.

    L_MLM(x) = - sum over i in M of log p(x_i | x without M)            M: the masked positions

TLM (Conneau and Lample 2019) is the same on a joined translation pair: see tlm.py. Both maximise a lower bound of
mutual information (InfoXLM Eq. 1 and 2), which is watched beside the loss:

    I(c; x) >= log |V| - L_MLM                                          c: the context of the masked token x
"""
# N sequences, P tokens of them all, C candidates, B rows, L positions, D width, V vocabulary, M masked positions

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from crossling.data.batches import Corrupted, Examples
from crossling.data.noise import Noise, places
from crossling.data.packing import Batch, Sequences
from crossling.model.heads import LMHead
from crossling.model.prediction import Predicted
from crossling.model.shape import Shape
from crossling.model.transformer import CrosslingModel
from crossling.objectives.objective import Network, Objective, Parts
from crossling.vocabulary.vocabulary import BOS, EOS, UNK


@dataclass(frozen=True)
class MLM(Objective):
    stream: ClassVar[Literal["text", "pairs"]] = "text"
    term: ClassVar[str] = "mlm"

    rate: float = 0.15  # |M| / |x|
    keep: float = 0.1  # of M: stays as it is
    random: float = 0.1  # of M: becomes a random piece; the rest becomes <mask>
    span: float = 1.0  # tokens masked in a row, on average
    tokens: int = 1_048_576  # of one step
    sequences: int | None = None  # of one step, in place of tokens
    length: int = 512
    weight: float = 1.0

    @property
    def weights(self) -> dict[str, float]:
        return {self.term: self.weight}

    def examples(self, expected_length: float) -> int:
        return self.sequences or max(1, round(self.tokens / expected_length))

    def parts(self, encoder: CrosslingModel, shape: Shape) -> Parts:  # noqa: ARG002
        return {"lm_head": lambda: LMHead(encoder.config)}

    def corrupt(self, examples: Examples, noise: Noise, mask: int) -> Corrupted:
        return Corrupted({"ids": self.masked(examples.alone(), noise, mask)})

    def masked(self, sequences: Sequences, noise: Noise, mask: int, purpose: str = "") -> Sequences:
        return masked(sequences, noise, mask, self.rate, self.keep, self.random, self.span, purpose)

    def counts(self, batch: Batch) -> dict[str, int]:
        return dict.fromkeys(predicted(self.term), int(batch["masked"].sum()))

    def loss(self, net: Network, batch: Batch) -> dict[str, Tensor]:
        hidden_BLD = net.encoder(batch["ids"], segments=batch["ids_segments"]).last_hidden_state
        hidden_MD, targets_M = at(hidden_BLD, batch["masked_at"]), at(batch["targets"], batch["masked_at"])
        found = net.parts["lm_head"].predict(hidden_MD, net.encoder.embeddings.tokens.weight, targets_M)
        return prediction(self.term, found, targets_M, net.encoder.config.vocab_size)


def predicted(term: str) -> tuple[str, str, str]:
    """The sums that predicting tokens gives."""
    return term, f"{term}_accuracy", f"{term}_bound"


def prediction(term: str, found: Predicted, targets_M: Tensor, pieces: int) -> dict[str, Tensor]:
    """The loss, how many are right, and the bound on mutual information that the loss stands for (in nats)."""
    bound = len(targets_M) * math.log(pieces) - found.loss.detach()
    return dict(zip(predicted(term), (found.loss, found.right, bound), strict=True))


def at(values_BL: Tensor, place_M: Tensor) -> Tensor:
    """The values at some places of the flattened rows, [M, ...]."""
    return values_BL.flatten(0, 1).index_select(0, place_M)


def masked(
    sequences: Sequences,
    noise: Noise,
    mask: int,
    rate: float,
    keep: float = 0.0,
    random: float = 0.0,
    span: float = 1.0,
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
    if span > 1:
        chosen_M = _spans(sequences, candidate_C, chosen_N, noise, span, purpose)
    else:
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


def _spans(
    sequences: Sequences, candidate_C: np.ndarray, chosen_N: np.ndarray, noise: Noise, span: float, purpose: str
) -> np.ndarray:
    """Whole spans in a random order until enough is chosen; the last one may be cut short.

    Every sequence is cut into spans first: one ends after each token with probability 1 / span, so their lengths are
    geometric with that mean, and before each special token.
    """
    # C candidates, S spans
    number_C, place_C = sequences.numbers[candidate_C], sequences.places[candidate_C]
    begins_C = noise.tokens(f"{purpose}span", number_C, place_C) < 1 / span
    begins_C |= np.diff(candidate_C, prepend=-2) > 1  # a new sequence, or a special token between
    span_C = np.cumsum(begins_C) - 1
    length_S, number_S = np.bincount(span_C), number_C[begins_C]
    order_S = np.lexsort((noise.tokens(f"{purpose}choose", number_S, place_C[begins_C]), number_S))
    # How much the spans before it, in that order, have used of the sequence's number.
    used_S = np.cumsum(length_S[order_S]) - length_S[order_S]
    used_S -= used_S[np.searchsorted(number_S[order_S], number_S[order_S])]
    taken_S = np.empty_like(length_S)
    taken_S[order_S] = np.clip(chosen_N[number_S[order_S]] - used_S, 0, length_S[order_S])
    # Of a span that is cut short any part may stay, or the first tokens of a sequence would be masked too often.
    chance_S = noise.tokens(f"{purpose}cut", number_S, place_C[begins_C])
    first_S = (chance_S * (length_S - taken_S + 1)).astype(np.int64)
    place_C = places(length_S) - first_S[span_C]
    return candidate_C[(place_C >= 0) & (place_C < taken_S[span_C])]
