r"""Cross-attention masked language modelling (VECO §2, Eq. 1).

    L(x, y) = - log P(x | x^; s) - log P(x | y^, x^; s, c)
              - log P(y | y^; s) - log P(y | x^, y^; s, c)              x^, y^: x and y with some tokens masked

s are the weights of the encoder, c those of its cross-attention. Two streams use the same weights. H has
self-attention alone. S has cross-attention plugged into every layer, whose keys and values are the last layer's H of
the other sequence, without gradient (Eq. 6 to 9). The query of cross-attention is the output of self-attention, as in
the decoders that the authors released. Their Eq. 6 takes the output of the layer below (`model.cross_query=hidden`).

x and y are two adjacent segments of a document (CAMLM) or the two sides of a translation pair (CATLM). Both are in one
row, as two packed sequences: x_k has the number 2k + 1 and y_k the number 2k + 2.
"""
# N pairs, P tokens of all sequences, B rows, L positions, D width, V vocabulary, M masked positions

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from crossling.core.settings import AT_LEAST_0, AT_LEAST_1, PROBABILITY, Bounds
from crossling.data.batches import LENGTH_MULTIPLE, CorruptedExamples, Stream, TokenizedExamples
from crossling.data.keyed_random import KeyedRandom
from crossling.data.packing import Batch, Sequences
from crossling.objectives import cost
from crossling.objectives.mlm import MLM, gather_targets, prediction_sums, prediction_terms
from crossling.vocabulary.special_tokens import SpecialTokens

if TYPE_CHECKING:
    from torch import Tensor

    from crossling.objectives.training_network import Network


@dataclass(frozen=True, kw_only=True)
class CAMLM(MLM):
    """Cross-attention MLM on two adjacent segments of a document. Other settings are those of MLM.

    Args:
        tokens: Batch size: tokens per step over all processes.
        length: Longest pair of sequences in tokens, both sides together.
        weight: Weight of each of the four loss terms.
        stop_gradient: Treat the states of the paired sequence as constants.

    Example:
        >>> objective = crossling.CAMLM(rate=0.15)
    """

    term: ClassVar[str] = "ca_mlm"

    tokens: Annotated[int, AT_LEAST_1] = 524_288
    length: Annotated[int, Bounds(at_least=LENGTH_MULTIPLE)] = 512
    weight: Annotated[float, AT_LEAST_0] = 1.0
    stop_gradient: bool = True

    @property
    def terms(self) -> dict[str, str]:
        """Side of each loss term: x and y predicted from H, then x and y predicted from S."""
        return {f"{self.term}_{side}{stream}": side for stream in ("", "_cross") for side in ("x", "y")}

    @property
    def loss_weights(self) -> dict[str, float]:
        return dict.fromkeys(self.terms, self.weight)

    def corrupt(self, examples: TokenizedExamples, noise: KeyedRandom, special: SpecialTokens) -> CorruptedExamples:
        # Each side begins with <s>.
        pairs = split_blocks(examples, self.length - 2, special.eos) if self.stream == "text" else examples
        sides = {"x": pairs.sequences(), "y": pairs.translation_sequences()}
        masked = [self.mask(sequences, noise, special, purpose=side) for side, sequences in sides.items()]
        return CorruptedExamples({"ids": _join_sides(*masked)}, sequences_per_example=2)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {
            name: int(batch[f"{side}_masked"].sum())
            for term, side in self.terms.items()
            for name in prediction_terms(term)
        }

    def loss(self, net: Network, batch: Batch) -> dict[str, Tensor]:
        import torch

        from crossling.model.gather import gather_positions

        ids_BL, segments_BL = batch["ids"], batch["ids_segments"]
        masked = [batch[f"{side}_masked_at"] for side in ("x", "y")]
        h_BLD = net.encoder(ids_BL, segments=segments_BL).last_hidden_state
        s_MD = net.encoder(
            ids_BL,
            segments=segments_BL,
            encoder_hidden_states=h_BLD.detach() if self.stop_gradient else h_BLD,
            encoder_segments=_swap_sides(segments_BL),
            positions=torch.cat(masked),
        ).last_hidden_state
        predicted = [*(gather_positions(h_BLD, each_M) for each_M in masked), *s_MD.split([*map(len, masked)])]
        table_VD = net.encoder.embeddings.tokens.weight
        sums: dict[str, Tensor] = {}
        for (term, side), hidden_MD in zip(self.terms.items(), predicted, strict=True):
            targets_M = gather_targets(batch["targets"], batch[f"{side}_masked_at"])
            prediction = net.parts["lm_head"].predict(hidden_MD, table_VD, targets_M)
            sums |= prediction_sums(term, prediction, targets_M, len(table_VD))
        return sums

    def flops_per_token(self, net: Network, length: float) -> float:
        """Return the FLOPs of both sequences of a pair, each without and with cross-attention."""
        encoder, side_length = net.encoder, length / 2
        own = cost.encoder_flops(encoder, side_length)
        attention: float = 4 * side_length * encoder.config.hidden_size
        cross = sum(2 * cost.matrix_weights(block.cross) + attention for block in encoder.blocks)
        heads = 2 * cost.lm_head_flops(encoder, net.parts["lm_head"]) * self.rate
        return cost.FORWARD_AND_BACKWARD * (2 * own + cross + heads)

    def activation_bytes(self, net: Network, gradient_checkpointing: bool) -> float:
        h_stream = cost.stored_bytes(net.encoder, gradient_checkpointing)
        s_stream = cost.peak_bytes(net.encoder, gradient_checkpointing, cross_attention=True, predicted=self.rate)
        return h_stream + s_stream

    def head_memory(self, net: Network, gradient_checkpointing: bool) -> cost.HeadMemory:
        below = self.activation_bytes(net, gradient_checkpointing)
        return cost.HeadMemory(self.rate / 2, below, table_gradients=len(self.terms))  # a call predicts one side


@dataclass(frozen=True, kw_only=True)
class CATLM(CAMLM):
    """Cross-attention MLM on the two sides of a translation pair, with the settings of CAMLM.

    Example:
        >>> objective = crossling.CATLM(rate=0.25)
    """

    stream: ClassVar[Stream] = "pairs"
    term: ClassVar[str] = "ca_tlm"

    rate: Annotated[float, PROBABILITY] = 0.25
    length: Annotated[int, Bounds(at_least=LENGTH_MULTIPLE)] = 128


def split_blocks(blocks: TokenizedExamples, tokens: int, eos: int) -> TokenizedExamples:
    """Split the first `tokens` of each block in two, at the end of the sentence nearest to the middle."""
    halves = []
    for block in blocks.ids:
        ids = block[:tokens]
        ends = np.flatnonzero(ids[:-1] == eos) + 1
        middle = int(ends[np.abs(2 * ends - len(ids)).argmin()]) if len(ends) else len(ids) // 2
        halves.append((ids[:middle], ids[middle:]))
    return replace(blocks, ids=[first for first, _ in halves], translation_ids=[second for _, second in halves])


def _join_sides(x: Sequences, y: Sequences) -> Sequences:
    """Return the sequences x_1, y_1, x_2, y_2, ... with one array of masked positions for each side."""
    joined = Sequences(np.stack([x.lengths_N, y.lengths_N], axis=1).ravel(), {})
    is_x_P = joined.sequence_ids % 2 == 0
    tokens = {}
    for name, values in x.tokens.items():
        tokens[name] = np.empty(len(is_x_P), dtype=values.dtype)
        tokens[name][is_x_P], tokens[name][~is_x_P] = values, y.tokens[name]
    masked_P = tokens.pop("masked")
    return Sequences(joined.lengths_N, {**tokens, "x_masked": masked_P & is_x_P, "y_masked": masked_P & ~is_x_P})


def _swap_sides(segments_BL: Tensor) -> Tensor:
    """Return for each token the number of the other side of its pair, and 0 for padding."""
    import torch

    return torch.where(segments_BL == 0, 0, ((segments_BL - 1) ^ 1) + 1)
