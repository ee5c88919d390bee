r"""Cross-attention masked language modelling (VECO §2, Eq. 1).

    L(x, y) = - log P(x | x^; s) - log P(x | y^, x^; s, c)
              - log P(y | y^; s) - log P(y | x^, y^; s, c)              x^, y^: x and y with some tokens masked

s are the weights of the encoder, c those of its cross-attention. Two streams run over the same weights: H by
self-attention alone, and S with cross-attention plugged into every layer, whose keys and values are the last layer's H
of the other sequence, without gradient (Eq. 6 to 9). In each layer the query of cross-attention is what self-attention
gave, as in the decoders the authors released; their Eq. 6 takes the output of the layer below.

x and y are two adjacent segments of a document (CAMLM) or the two sides of a translation pair (CATLM).
"""
# N pairs, R rows of x and as many of y, B = 2R rows, L positions, D width, V vocabulary, M masked positions

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from crossling.data.batches import Corrupted, Examples
from crossling.data.noise import Noise
from crossling.data.packing import Batch, Sequences
from crossling.objectives.mlm import MLM, at, predicted, prediction
from crossling.objectives.objective import Network
from crossling.vocabulary.vocabulary import EOS


@dataclass(frozen=True)
class CAMLM(MLM):
    term: ClassVar[str] = "ca_mlm"

    tokens: int = 524_288  # of one step
    length: int = 512  # tokens of x and y together
    weight: float = 1.0  # of each of the four terms
    stop_gradient: bool = True  # H is a constant to the stream S

    @property
    def terms(self) -> dict[str, str]:
        """x and y from H, x and y from S: where each is masked."""
        return {f"{self.term}_{side}{stream}": side for stream in ("", "_cross") for side in ("x", "y")}

    @property
    def weights(self) -> dict[str, float]:
        return dict.fromkeys(self.terms, self.weight)

    def corrupt(self, examples: Examples, noise: Noise, mask: int) -> Corrupted:
        return self._pairs(adjacent(examples), noise, mask)

    def _pairs(self, pairs: Examples, noise: Noise, mask: int) -> Corrupted:
        inputs = {}
        for side, sequences in {"x": pairs.alone(), "y": pairs.translations()}.items():
            hidden = self.masked(sequences, noise, mask, purpose=side)
            tokens = {"ids": side, "targets": f"{side}_targets", "masked": f"{side}_masked"}
            inputs[side] = Sequences(hidden.lengths_N, {tokens[name]: each for name, each in hidden.tokens.items()})
        return Corrupted(inputs, paired=True)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {
            name: int(batch[f"{side}_masked"].sum()) for term, side in self.terms.items() for name in predicted(term)
        }

    def loss(self, net: Network, batch: Batch) -> dict[str, Tensor]:
        ids_BL, segments_BL = (torch.cat([batch[f"x{what}"], batch[f"y{what}"]]) for what in ("", "_segments"))
        own_BLD = net.encoder(ids_BL, segments=segments_BL).last_hidden_state
        both_BLD = net.encoder(
            ids_BL,
            segments=segments_BL,
            encoder_hidden_states=_exchanged(own_BLD.detach() if self.stop_gradient else own_BLD),
            encoder_segments=_exchanged(segments_BL),
        ).last_hidden_state
        table_VD = net.encoder.embeddings.tokens.weight
        sums: dict[str, Tensor] = {}
        for term, (side, hidden_RLD) in zip(self.terms, _sides(own_BLD, both_BLD), strict=True):
            place_M = batch[f"{side}_masked_at"]
            targets_M = at(batch[f"{side}_targets"], place_M)
            found = net.parts["lm_head"].predict(at(hidden_RLD, place_M), table_VD, targets_M)
            sums |= prediction(term, found, targets_M, len(table_VD))
        return sums


@dataclass(frozen=True)
class CATLM(CAMLM):
    stream: ClassVar[Literal["text", "pairs"]] = "pairs"
    term: ClassVar[str] = "ca_tlm"

    rate: float = 0.25
    length: int = 128

    def corrupt(self, examples: Examples, noise: Noise, mask: int) -> Corrupted:
        return self._pairs(examples, noise, mask)


def adjacent(blocks: Examples) -> Examples:
    """Each block in two, at the end of the sentence nearest to its middle."""
    halves = []
    for ids in blocks.ids:
        ends = np.flatnonzero(ids[:-1] == EOS) + 1
        cut = int(ends[np.abs(2 * ends - len(ids)).argmin()]) if len(ends) else len(ids) // 2
        halves.append((ids[:cut], ids[cut:]))
    return Examples([first for first, _ in halves], [second for _, second in halves])


def _exchanged(rows: Tensor) -> Tensor:
    """The rows of y where those of x were, and the other way round."""
    return torch.cat(rows.chunk(2)[::-1])


def _sides(*streams_BLD: Tensor) -> Iterator[tuple[str, Tensor]]:
    for stream_BLD in streams_BLD:
        yield from zip(("x", "y"), stream_BLD.chunk(2), strict=True)
