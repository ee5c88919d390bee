r"""Denoising with an encoder and a decoder (BART, mBART §2.2).

    L(x) = - sum over t of log P(x_t | x_1 ... x_{t-1}; g(x))           g: noise on the text x

g puts the sentences of x in random order (mBART: `permute`). Then it replaces spans, whose lengths are
Poisson-distributed with mean `span`, by one <mask> each, until `rate` of the tokens are replaced. A span of length 0
inserts a <mask>. No span crosses the end of a sentence. The encoder reads g(x). The decoder predicts x from the left to
the right: its self-attention is causal, and its cross-attention reads the last layer of the encoder.

PairDenoising predicts the other side of a translation pair:

    L(x, y) = - sum over t of log P(y_t | y_1 ... y_{t-1}; g(x))

Token, position and output embeddings are those of the encoder. The decoder has as many layers, with their own weights.
"""
# N examples, P tokens of all examples, S spans, B rows, L positions, D width, V vocabulary, M predicted positions

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from crossling.core.settings import AT_LEAST_0, AT_LEAST_1, PROBABILITY, Bounds
from crossling.data.batches import LENGTH_MULTIPLE, CorruptedExamples, Stream, TokenizedExamples
from crossling.data.keyed_random import KeyedRandom, positions_within
from crossling.data.packing import Batch, Sequences
from crossling.model.model_shape import ModelShape
from crossling.objectives import cost
from crossling.objectives.mlm import gather_targets
from crossling.objectives.objective import ModuleBuilders, PretrainingObjective
from crossling.vocabulary.special_tokens import SpecialTokens

if TYPE_CHECKING:
    from torch import Tensor

    from crossling.model.encoder_model import CrosslingModel
    from crossling.model.native_encoder import NativeEncoder
    from crossling.objectives.training_network import Network


@dataclass(frozen=True, kw_only=True)
class Denoising(PretrainingObjective):
    """Reconstruct text from which spans were removed, with an encoder and a decoder (mBART).

    Args:
        rate: Fraction of the tokens that spans replace.
        span: Mean length of spans in tokens.
        permute: Put the sentences of the source in random order.
        tokens: Batch size: tokens per step over all processes.
        length: Longest sequence in tokens.
        weight: Weight of the mean loss.

    Example:
        >>> objective = crossling.Denoising(rate=0.35, tokens=4096, length=128)
    """

    stream: ClassVar[Stream] = "text"
    term: ClassVar[str] = "denoising"
    side: ClassVar[float] = 1.0  # fraction of the tokens of an example that the decoder predicts

    rate: Annotated[float, PROBABILITY] = 0.35
    span: Annotated[float, AT_LEAST_1] = 3.5
    permute: bool = True
    tokens: Annotated[int, AT_LEAST_1] = 1_048_576
    length: Annotated[int, Bounds(at_least=LENGTH_MULTIPLE)] = 512
    weight: Annotated[float, AT_LEAST_0] = 1.0

    @property
    def loss_weights(self) -> dict[str, float]:
        return {self.term: self.weight}

    def examples_per_step(self, mean_length: float) -> int:
        return max(1, round(self.tokens / mean_length))

    def modules(self, encoder: CrosslingModel | NativeEncoder, shape: ModelShape) -> ModuleBuilders:  # noqa: ARG002
        from crossling.model.encoder_model import CrosslingModel
        from crossling.model.heads import LMHead

        assert isinstance(encoder, CrosslingModel)  # a native encoder was refused

        def decoder() -> CrosslingModel:
            network = CrosslingModel(encoder.config.replace(cross_attention=True))
            network.embeddings, network.relative = encoder.embeddings, encoder.relative
            return network

        return {"decoder": decoder, "lm_head": lambda: LMHead(encoder.config)}

    def corrupt(self, examples: TokenizedExamples, noise: KeyedRandom, special: SpecialTokens) -> CorruptedExamples:
        read = examples.sequences()
        predicted = read if self.stream == "text" else examples.translation_sequences()
        permuted = permute_sentences(read, noise, special) if self.permute else read
        source = infill_spans(permuted, noise, special, rate=self.rate, span=self.span)
        inputs = {"ids": source, "decoder": shift_targets(predicted)}
        sides = [predicted] if self.stream == "text" else [read, predicted]  # the source of a text repeats it
        tokens = sum(int(side.lengths_N.sum()) for side in sides)
        return CorruptedExamples(inputs, has_same_rows=True, read_tokens=tokens)

    def counts(self, batch: Batch) -> dict[str, int]:
        return dict.fromkeys((self.term, f"{self.term}_accuracy"), int(batch["predicted"].sum()))

    def loss(self, net: Network, batch: Batch) -> dict[str, Tensor]:
        source_BLD = net.encoder(batch["ids"], segments=batch["ids_segments"]).last_hidden_state
        position_M = batch["predicted_at"]
        hidden_MD = net.parts["decoder"](
            batch["decoder_ids"],
            segments=batch["decoder_segments"],
            encoder_hidden_states=source_BLD,
            encoder_segments=batch["ids_segments"],
            positions=position_M,
            is_causal=True,
        ).last_hidden_state
        targets_M = gather_targets(batch["targets"], position_M)
        prediction = net.parts["lm_head"].predict(hidden_MD, net.encoder.embeddings.tokens.weight, targets_M)
        return {self.term: prediction.loss, f"{self.term}_accuracy": prediction.correct}

    def flops_per_token(self, net: Network, length: float) -> float:
        """Return the FLOPs per token of an example, whose source is shorter by its noise."""
        length, decoder = length * self.side, net.parts["decoder"]
        source = 1 - self.rate + self.rate / self.span
        encoded = source * cost.encoder_flops(net.encoder, source * length)
        decoded = cost.encoder_flops(decoder, length)
        # Keys and values of cross-attention are computed for the shorter source.
        attention = 4 * source * length * decoder.config.hidden_size
        cross = sum(2 * cost.matrix_weights(block.cross) + attention for block in decoder.blocks)
        cross -= (1 - source) * sum(2 * block.cross.key_value.weight.numel() for block in decoder.blocks)
        head = cost.lm_head_flops(net.encoder, net.parts["lm_head"])
        return float(cost.FORWARD_AND_BACKWARD * self.side * (encoded + decoded + cross + head))

    def activation_bytes(self, net: Network, gradient_checkpointing: bool) -> float:
        source = cost.stored_bytes(net.encoder, gradient_checkpointing)
        decoder = cost.peak_bytes(net.parts["decoder"], gradient_checkpointing, cross_attention=True)
        return self.side * (source + decoder)

    def head_memory(self, net: Network, gradient_checkpointing: bool) -> cost.HeadMemory:
        source = cost.stored_bytes(net.encoder, gradient_checkpointing)
        decoder = cost.stored_bytes(net.parts["decoder"], gradient_checkpointing, cross_attention=True)
        return cost.HeadMemory(self.side, self.side * (source + decoder))


@dataclass(frozen=True, kw_only=True)
class PairDenoising(Denoising):
    """Predict a translation from its source with noise, with the settings of Denoising (VECO, Table 5).

    Args:
        length: Longest pair in tokens, both sides together.

    Example:
        >>> objective = crossling.PairDenoising(tokens=4096, length=128)
    """

    stream: ClassVar[Stream] = "pairs"
    term: ClassVar[str] = "pair_denoising"
    side: ClassVar[float] = 0.5

    length: Annotated[int, Bounds(at_least=LENGTH_MULTIPLE)] = 512


def shift_targets(sequences: Sequences) -> Sequences:
    """Return the decoder's input <s> x_1 ... x_{n-1} with the tokens x_1 ... x_n to predict."""
    ids_P, start_P = sequences.tokens["ids"], sequences.positions == 0
    last_P = np.roll(start_P, -1)
    inputs = {"decoder_ids": ids_P[~last_P], "targets": ids_P[~start_P]}
    predicted = np.ones(len(inputs["targets"]), dtype=np.bool_)
    return Sequences(sequences.lengths_N - 1, {**inputs, "predicted": predicted})


def permute_sentences(sequences: Sequences, noise: KeyedRandom, special: SpecialTokens) -> Sequences:
    """Return the sentences of each sequence in random order, after its <s>. A part of a sentence counts as one."""
    ids_P, sequence_P, position_P = sequences.tokens["ids"], sequences.sequence_ids, sequences.positions
    # <s> is a sentence of its own, and stays first.
    starts_P = (position_P <= 1) | np.roll(ids_P == special.eos, 1)
    sentence_P = np.cumsum(starts_P) - 1
    first_S = np.flatnonzero(starts_P)
    order_S = noise.per_token("permute", sequence_P[first_S], position_P[first_S])
    order_S[ids_P[first_S] == special.bos] = -1.0
    order_P = np.lexsort((position_P, order_S[sentence_P], sequence_P))
    return Sequences(sequences.lengths_N, {"ids": ids_P[order_P]})


def infill_spans(
    sequences: Sequences, noise: KeyedRandom, special: SpecialTokens, *, rate: float, span: float
) -> Sequences:
    """Replace spans by one <mask> each until `rate` of the tokens are replaced. Special tokens stay.

    Every sequence is divided into spans of Poisson-distributed lengths. Whole spans are selected in random order, and
    the last one is truncated. The number of replaced tokens is rounded up or down at random.
    """
    ids_P, sequence_P = sequences.tokens["ids"], sequences.sequence_ids
    is_text_P = (ids_P != special.bos) & (ids_P != special.eos)
    lengths_N = sequences.lengths_N
    text_N = np.bincount(sequence_P[is_text_P], minlength=len(lengths_N))
    count_N = np.floor(rate * text_N + noise.per_example("round")).astype(np.int64)
    start_S, end_S, sequence_S, number_S = _divide(sequences, noise, span)
    text_before = np.concatenate([[0], np.cumsum(is_text_P)])
    length_S = text_before[end_S] - text_before[start_S]
    order_S = np.lexsort((noise.per_token("choose", sequence_S, number_S), sequence_S))
    used_S = np.cumsum(length_S[order_S]) - length_S[order_S]  # by the earlier spans of the sequence, in this order
    used_S -= used_S[np.searchsorted(sequence_S[order_S], sequence_S[order_S])]
    left_S = np.empty_like(length_S)
    left_S[order_S] = count_N[sequence_S[order_S]] - used_S
    kept_S = np.clip(left_S, 0, length_S)  # tokens of the span that are replaced
    # The first tokens of each selected span.
    span_P = np.full(len(ids_P), -1)
    filled_S = np.flatnonzero(end_S > start_S)
    sizes_S = (end_S - start_S)[filled_S]
    span_P[np.repeat(start_S[filled_S], sizes_S) + positions_within(sizes_S)] = np.repeat(filled_S, sizes_S)
    rank_P = text_before[:-1] - text_before[start_S[span_P]]
    is_replaced_P = is_text_P & (span_P >= 0) & (rank_P < kept_S[span_P])
    is_continued_P = is_replaced_P & np.roll(is_replaced_P, 1) & (np.roll(span_P, 1) == span_P)
    shown_P = ~is_continued_P  # one <mask> for each span in a sentence
    inserted_P = np.zeros(len(ids_P), dtype=np.int64)
    np.add.at(inserted_P, start_S[(end_S == start_S) & (left_S > 0)], 1)
    inserted_P = _limit_insertions(inserted_P, sequence_P, is_continued_P, len(lengths_N))
    total_P = inserted_P + shown_P
    new_P = np.full(int(total_P.sum()), special.mask, dtype=ids_P.dtype)
    end_P = np.cumsum(total_P)
    is_same_P = shown_P & ~is_replaced_P
    new_P[end_P[is_same_P] - 1] = ids_P[is_same_P]
    new_lengths_N = np.bincount(sequence_P, weights=total_P, minlength=len(lengths_N)).astype(np.int64)
    return Sequences(new_lengths_N, {"ids": new_P})


def _divide(
    sequences: Sequences, noise: KeyedRandom, span: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return start, end, sequence and number of the spans that each sequence, after its <s>, is divided into."""
    sequence_P, number_P, lengths_N = sequences.sequence_ids, sequences.positions, sequences.lengths_N
    first_N = np.cumsum(lengths_N) - lengths_N
    sampled_P = noise.per_token("span", sequence_P, number_P)
    length_P = np.searchsorted(_poisson_cumulative(span), sampled_P, side="right")
    end_P = np.cumsum(length_P)
    start_P = end_P - length_P
    offset_N = first_N + 1 - start_P[first_N]
    start_P, end_P = start_P + offset_N[sequence_P], end_P + offset_N[sequence_P]
    stop_P = (first_N + lengths_N)[sequence_P]
    inside_P = start_P < stop_P
    return start_P[inside_P], np.minimum(end_P, stop_P)[inside_P], sequence_P[inside_P], number_P[inside_P]


def _limit_insertions(inserted_P: np.ndarray, sequence_P: np.ndarray, removed_P: np.ndarray, number: int) -> np.ndarray:
    """Drop the last insertions of a sequence that would become longer than the original."""
    removed_N = np.bincount(sequence_P, weights=removed_P, minlength=number).astype(np.int64)
    total_P = np.cumsum(inserted_P)
    first_P = np.searchsorted(sequence_P, sequence_P)
    before_P = total_P - inserted_P
    before_P -= before_P[first_P]
    return np.asarray(np.clip(removed_N[sequence_P] - before_P, 0, inserted_P))


@cache
def _poisson_cumulative(mean: float) -> np.ndarray:
    """Return the probabilities of at most 0, 1, 2, ... events."""
    number = np.arange(round(mean + 12 * math.sqrt(mean)) + 8)
    logs = number * math.log(mean) - mean - np.asarray([math.lgamma(n + 1) for n in number.tolist()])
    return np.cumsum(np.exp(logs))
