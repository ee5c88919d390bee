r"""Masked language modelling (MLM) and translation language modelling (TLM).

    L_MLM(x) = - sum over i in M of log p(x_i | x without M)            M: the masked positions
    L_TLM(e, f) = L_MLM([e; f])                                         [e; f]: <s> e </s> f </s>

TLM (Conneau and Lample 2019; XLM-E §3.1) is MLM on a joined translation pair. Both maximize a lower bound of mutual
information (InfoXLM Eq. 1 and 2), which is logged beside the loss:

    I(c; x) >= log |V| - L_MLM                                          c: the context of the masked token x

By the chain rule (InfoXLM Eq. 3) I(e, f; x) = I(e; x) + I(f; x | e). So the difference between the bounds of TLM and
MLM is the information that the translation adds about a masked token.
"""
# N sequences, P tokens of all sequences, C candidates, B rows, L positions, D width, V vocabulary, M masked positions

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import numpy as np

from crossling.core.settings import AT_LEAST_0, AT_LEAST_1, PROBABILITY, Bounds
from crossling.data.batches import LENGTH_MULTIPLE, CorruptedExamples, Stream, TokenizedExamples
from crossling.data.keyed_random import KeyedRandom, positions_within
from crossling.data.packing import Batch, Sequences
from crossling.model.model_shape import ModelShape
from crossling.objectives import cost
from crossling.objectives.objective import ModuleBuilders, PretrainingObjective
from crossling.vocabulary.special_tokens import SpecialTokens

if TYPE_CHECKING:
    from torch import Tensor

    from crossling.model.encoder_model import CrosslingModel
    from crossling.model.kernels.prediction import TokenPrediction
    from crossling.model.native_encoder import NativeEncoder
    from crossling.objectives.training_network import Network


@dataclass(frozen=True, kw_only=True)
class MLM(PretrainingObjective):
    """Masked language modelling on blocks of text.

    Args:
        rate: Masking rate: the fraction of tokens to predict.
        keep: Fraction of the masked tokens that stay unchanged.
        random: Fraction of the masked tokens that become a random token. The rest becomes `<mask>`.
        span: Mean length of masked spans in tokens.
        tokens: Batch size: tokens per step over all processes.
        sequences: Batch size in sequences, instead of tokens.
        length: Longest sequence in tokens.
        weight: Weight of the mean loss.

    Example:
        >>> objective = crossling.MLM(rate=0.15, tokens=4096, length=128)
    """

    stream: ClassVar[Stream] = "text"
    term: ClassVar[str] = "mlm"

    rate: Annotated[float, PROBABILITY] = 0.15
    keep: Annotated[float, PROBABILITY] = 0.1
    random: Annotated[float, PROBABILITY] = 0.1
    span: Annotated[float, AT_LEAST_1] = 1.0
    tokens: Annotated[int, AT_LEAST_1] = 1_048_576
    sequences: Annotated[int | None, AT_LEAST_1] = None
    length: Annotated[int, Bounds(at_least=LENGTH_MULTIPLE)] = 512
    weight: Annotated[float, AT_LEAST_0] = 1.0

    @property
    def loss_weights(self) -> dict[str, float]:
        return {self.term: self.weight}

    @property
    def batch_setting(self) -> str:
        return "tokens" if self.sequences is None else "sequences"

    def problems(self, name: str) -> Iterator[str]:
        return masking_problems(name, self.keep, self.random)

    def stateless_copy(self, tokens: int) -> Self:
        return replace(self, tokens=tokens, sequences=None)

    def examples_per_step(self, mean_length: float) -> int:
        return self.sequences or max(1, round(self.tokens / mean_length))

    def modules(self, encoder: CrosslingModel | NativeEncoder, shape: ModelShape) -> ModuleBuilders:  # noqa: ARG002
        from crossling.model.native_heads import build_lm_head

        return {"lm_head": lambda: build_lm_head(encoder)}

    def corrupt(self, examples: TokenizedExamples, noise: KeyedRandom, special: SpecialTokens) -> CorruptedExamples:
        sequences = examples.sequences() if self.stream == "text" else examples.joined_sequences()
        return CorruptedExamples({"ids": self.mask(sequences, noise, special)})

    def mask(self, sequences: Sequences, noise: KeyedRandom, special: SpecialTokens, purpose: str = "") -> Sequences:
        """Mask sequences at the rates of this objective."""
        rates = {"rate": self.rate, "keep": self.keep, "random": self.random}
        return mask_tokens(sequences, noise, special, **rates, span=self.span, purpose=purpose)

    def counts(self, batch: Batch) -> dict[str, int]:
        return dict.fromkeys(prediction_terms(self.term), int(batch["masked"].sum()))

    def loss(self, net: Network, batch: Batch) -> dict[str, Tensor]:
        position_M = batch["masked_at"]
        hidden_MD = net.encoder(batch["ids"], segments=batch["ids_segments"], positions=position_M).last_hidden_state
        targets_M = gather_targets(batch["targets"], position_M)
        prediction = net.parts["lm_head"].predict(hidden_MD, net.encoder.embeddings.tokens.weight, targets_M)
        return prediction_sums(self.term, prediction, targets_M, net.encoder.config.vocab_size)

    def flops_per_token(self, net: Network, length: float) -> float:
        head = cost.lm_head_flops(net.encoder, net.parts["lm_head"]) * self.rate
        return cost.FORWARD_AND_BACKWARD * (cost.encoder_flops(net.encoder, length) + head)

    def activation_bytes(self, net: Network, gradient_checkpointing: bool) -> float:
        return cost.peak_bytes(net.encoder, gradient_checkpointing, predicted=self.rate)

    def head_memory(self, net: Network, gradient_checkpointing: bool) -> cost.HeadMemory:
        return cost.HeadMemory(self.rate, cost.stored_bytes(net.encoder, gradient_checkpointing, predicted=self.rate))


@dataclass(frozen=True, kw_only=True)
class TLM(MLM):
    """Translation language modelling: MLM on joined translation pairs, with the settings of MLM.

    Example:
        >>> objective = crossling.TLM(rate=0.15, tokens=4096, length=128)
    """

    stream: ClassVar[Stream] = "pairs"
    term: ClassVar[str] = "tlm"


def prediction_terms(term: str) -> tuple[str, str, str]:
    """Return the names of the sums of `prediction_sums`."""
    return term, f"{term}_accuracy", f"{term}_bound"


def prediction_sums(
    term: str, prediction: TokenPrediction, targets_M: Tensor, vocabulary_size: int
) -> dict[str, Tensor]:
    """Return the loss, the number of correct predictions, and the bound on mutual information in nats."""
    from crossling.model.kernels.prediction import IGNORE_INDEX

    bound = (targets_M != IGNORE_INDEX).sum() * math.log(vocabulary_size) - prediction.loss.detach()
    return dict(zip(prediction_terms(term), (prediction.loss, prediction.correct, bound), strict=True))


def gather_targets(targets_BL: Tensor, position_M: Tensor) -> Tensor:
    """Return the targets at some positions of the flattened rows, [M]. Padding positions have no target (-100)."""
    from crossling.model.gather import gather_positions
    from crossling.model.kernels.prediction import IGNORE_INDEX

    return gather_positions(targets_BL, position_M).where(position_M < targets_BL.numel(), IGNORE_INDEX)


def masking_problems(name: str, keep: float, random: float) -> Iterator[str]:
    """Yield a message if the fractions of masked positions contradict each other."""
    if keep + random > 1:
        yield f"{name}.keep and {name}.random add up to more than 1. Set lower values."


def mask_tokens(
    sequences: Sequences,
    noise: KeyedRandom,
    special: SpecialTokens,
    *,
    rate: float,
    keep: float = 0.0,
    random: float = 0.0,
    span: float = 1.0,
    purpose: str = "",
) -> Sequences:
    """Return the masked ids, which positions are masked, and the original ids. Special tokens are never masked.

    The number of masked positions of a sequence is rate x length, at least one. It is rounded up or down at random, so
    that the masking rate holds on average.
    """
    ids_P, sequence_P, position_P = sequences.tokens["ids"], sequences.sequence_ids, sequences.positions
    candidate_C = np.flatnonzero((ids_P != special.bos) & (ids_P != special.eos))
    candidates_N = np.bincount(sequence_P[candidate_C], minlength=len(sequences.lengths_N))
    count_N = np.maximum(1, (rate * candidates_N + noise.per_example(f"{purpose}round")).astype(np.int64))
    if span > 1:
        masked_M = _select_spans(sequences, candidate_C, count_N, noise=noise, span=span, purpose=purpose)
    else:
        # The first candidates of each sequence, in random order.
        sequence_C, position_C = noise.shuffle(f"{purpose}choose", sequence_P[candidate_C], position_P[candidate_C])
        first_C = positions_within(candidates_N) < count_N[sequence_C]
        start_N = np.cumsum(sequences.lengths_N) - sequences.lengths_N
        masked_M = (start_N[sequence_C] + position_C)[first_C]
    masked_P = np.zeros(len(ids_P), dtype=np.bool_)
    masked_P[masked_M] = True
    # Both names are part of the random key: other names would change the sampled numbers.
    action_M, token_M = (
        noise.per_token(f"{purpose}{name}", sequence_P[masked_M], position_P[masked_M]) for name in ("fate", "stranger")
    )
    corrupted_P = ids_P.copy()
    corrupted_P[masked_M[action_M >= keep]] = special.mask
    random_M = (action_M >= keep) & (action_M < keep + random)
    text_ids = special.text_ids
    corrupted_P[masked_M[random_M]] = text_ids[(token_M[random_M] * len(text_ids)).astype(np.int64)]
    return Sequences(sequences.lengths_N, {"ids": corrupted_P, "targets": ids_P, "masked": masked_P})


def _select_spans(
    sequences: Sequences, candidate_C: np.ndarray, count_N: np.ndarray, *, noise: KeyedRandom, span: float, purpose: str
) -> np.ndarray:
    """Select whole spans in random order until enough tokens are masked. The last span may be truncated.

    Every sequence is divided into spans first. A span ends after each token with probability 1 / span, so lengths are
    geometric with that mean, and before each special token.
    """
    # C candidates, S spans
    sequence_C, position_C = sequences.sequence_ids[candidate_C], sequences.positions[candidate_C]
    starts_C = noise.per_token(f"{purpose}span", sequence_C, position_C) < 1 / span
    starts_C |= np.diff(candidate_C, prepend=-2) > 1  # after a special token, or in a new sequence
    span_C = np.cumsum(starts_C) - 1
    length_S, sequence_S = np.bincount(span_C), sequence_C[starts_C]
    order_S = np.lexsort((noise.per_token(f"{purpose}choose", sequence_S, position_C[starts_C]), sequence_S))
    # Tokens that the earlier spans of the sequence, in that order, have masked already.
    used_S = np.cumsum(length_S[order_S]) - length_S[order_S]
    used_S -= used_S[np.searchsorted(sequence_S[order_S], sequence_S[order_S])]
    masked_S = np.empty_like(length_S)
    masked_S[order_S] = np.clip(count_N[sequence_S[order_S]] - used_S, 0, length_S[order_S])
    # A truncated span keeps a random part, or the first tokens of a sequence would be masked too often.
    random_S = noise.per_token(f"{purpose}cut", sequence_S, position_C[starts_C])
    first_S = (random_S * (length_S - masked_S + 1)).astype(np.int64)
    offset_C = positions_within(length_S) - first_S[span_C]
    return np.asarray(candidate_C[(offset_C >= 0) & (offset_C < masked_S[span_C])])
