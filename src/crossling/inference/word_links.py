r"""Word alignment: from the hidden states of a sentence pair to links between words, for several layers at once.

Both sentences are one input, `<s> source </s> target </s>`, with every word tokenized by itself as in XLM-Align. Links
between tokens become links between words: two words are linked if any of their tokens are.

`ot`: optimal transport as in XLM-Align, on the dot products S of the states, clipped to at least 1e-6:

    xi_ij = pi_ij / sum_i pi_ij      every column sums to one
    pi_ij = xi_ij / sum_j xi_ij      every row sums to one          (starting from pi = S, twice)

Token i is linked to j if j is the largest of row i in pi and i the largest of column j in xi.

`argmax`: mutual nearest neighbors by cosine c.

`itermax` (SimAlign): mutual argmax of (c + 1) / 2, then a second iteration whose links are added. It multiplies the
similarity by 0.9 if one of the two tokens has a link, and by 0 if both have. It is skipped if all tokens of a side have
links, or if a side has at most two tokens.
"""
# K layers, S source tokens, T target tokens, D width, N links

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from crossling.core.errors import BadInput, suggestion
from crossling.inference.pooling import normalize_vectors

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ALIGNMENT_METHODS = ("ot", "argmax", "itermax")
TRANSPORT_ITERATIONS = 2
SIMILARITY_FLOOR = 1e-6
ITERMAX_ITERATIONS = 2
ITERMAX_DISCOUNT = 0.9

WordLinks = list[tuple[int, int]]  # (source word, target word), counted from 0
WordPair = tuple[Sequence[str], Sequence[str]]  # the words of a source and of a target sentence


@dataclass(frozen=True)
class JointInput:
    """Two sentences as one input, with the word of each token."""

    ids: list[int]
    source_words: np.ndarray  # [S]
    target_words: np.ndarray  # [T]

    @property
    def source(self) -> slice:
        """Positions of the source tokens."""
        return slice(1, 1 + len(self.source_words))

    @property
    def target(self) -> slice:
        """Positions of the target tokens."""
        return slice(2 + len(self.source_words), 2 + len(self.source_words) + len(self.target_words))

    def link_words(self, states_KLD: np.ndarray, methods: Iterable[str]) -> dict[str, list[WordLinks]]:
        """Return the links between words at each layer, by method."""
        source_KSD, target_KTD = states_KLD[:, self.source], states_KLD[:, self.target]
        return {
            method: [self.to_word_links(found) for found in extract_links(source_KSD, target_KTD, method)]
            for method in methods
        }

    def to_word_links(self, links_N2: np.ndarray) -> WordLinks:
        """Map links between tokens to links between words."""
        source, target = self.source_words[links_N2[:, 0]].tolist(), self.target_words[links_N2[:, 1]].tolist()
        return sorted(set(zip(source, target, strict=True)))


def join_word_pairs(pairs: Sequence[WordPair], tokenizer: PreTrainedTokenizerFast, name: str) -> list[JointInput]:
    """Tokenize pairs of word lists. `name` is the model's name in error messages."""
    start = first_id(tokenizer.cls_token_id, tokenizer.bos_token_id)
    end = first_id(tokenizer.sep_token_id, tokenizer.eos_token_id)
    if start is None or end is None:
        raise BadInput(
            f"{name}: the tokenizer has no start or end token, which word alignment needs. Give another model."
        )
    vocabulary = sorted({word for pair in pairs for side in pair for word in side})
    ids = tokenizer(vocabulary, add_special_tokens=False)["input_ids"] if vocabulary else []
    ids_of = dict(zip(vocabulary, ids, strict=True))
    inputs = []
    for source, target in pairs:
        source_ids, target_ids = ([token for word in side for token in ids_of[word]] for side in (source, target))
        source_words, target_words = (
            np.repeat(np.arange(len(side)), [len(ids_of[word]) for word in side]) for side in (source, target)
        )
        inputs.append(JointInput([start, *source_ids, end, *target_ids, end], source_words, target_words))
    return inputs


def first_id(*ids: int | None) -> int | None:
    """Return the first of some special tokens that the tokenizer or the configuration has."""
    return next((token for token in ids if token is not None), None)


def check_methods(methods: Iterable[str]) -> None:
    """Raise BadInput if one of the alignment methods does not exist."""
    for method in methods:
        if method not in ALIGNMENT_METHODS:
            raise BadInput(f"method={method}: no such alignment method{suggestion(method, ALIGNMENT_METHODS)}")


def extract_links(source_KSD: np.ndarray, target_KTD: np.ndarray, method: str = "ot") -> list[np.ndarray]:
    """Return an array [N, 2] of linked tokens for each layer, in the order of the source."""
    check_methods([method])
    if method == "ot":
        linked_KST = mutual_argmax(*optimal_transport(source_KSD @ target_KTD.swapaxes(1, 2)))
    else:
        cosine_KST = normalize_vectors(source_KSD) @ normalize_vectors(target_KTD).swapaxes(1, 2)
        linked_KST = mutual_argmax(cosine_KST, cosine_KST) if method == "argmax" else itermax((cosine_KST + 1) / 2)
    return [np.argwhere(linked_ST) for linked_ST in linked_KST]


def optimal_transport(similarity_KST: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return pi and xi of the equations above."""
    pi_KST = xi_KST = np.maximum(similarity_KST, SIMILARITY_FLOOR)
    for _ in range(TRANSPORT_ITERATIONS):
        xi_KST = pi_KST / pi_KST.sum(axis=1, keepdims=True)
        pi_KST = xi_KST / xi_KST.sum(axis=2, keepdims=True)
    return pi_KST, xi_KST


def mutual_argmax(by_row_KST: np.ndarray, by_column_KST: np.ndarray) -> np.ndarray:
    """Return True for tokens that are each other's argmax, [K, S, T]. The first of equal values counts."""
    linked_KST = np.zeros(by_row_KST.shape, dtype=bool)
    if linked_KST.size:
        target_KS1 = by_row_KST.argmax(axis=2, keepdims=True)
        source_KT = by_column_KST.argmax(axis=1)
        source_KS = np.take_along_axis(source_KT, target_KS1[..., 0], axis=1)
        is_mutual_KS1 = (source_KS == np.arange(by_row_KST.shape[1]))[..., None]
        np.put_along_axis(linked_KST, target_KS1, is_mutual_KS1, axis=2)
    return linked_KST


def itermax(similarity_KST: np.ndarray) -> np.ndarray:
    """Return True for linked tokens, [K, S, T]. The similarities must not be negative."""
    linked_KST = mutual_argmax(similarity_KST, similarity_KST)
    if min(similarity_KST.shape[1:]) <= 2:
        return linked_KST
    for _ in range(ITERMAX_ITERATIONS - 1):
        free_KS1 = np.logical_not(linked_KST.any(axis=2, keepdims=True))
        free_K1T = np.logical_not(linked_KST.any(axis=1, keepdims=True))
        weight_KST = np.where(free_KS1 & free_K1T, 1, np.where(free_KS1 | free_K1T, ITERMAX_DISCOUNT, 0))
        has_free_K11 = free_KS1.any(axis=1, keepdims=True) & free_K1T.any(axis=2, keepdims=True)
        weighted_KST = similarity_KST * weight_KST
        linked_KST |= mutual_argmax(weighted_KST, weighted_KST) & (free_KS1 | free_K1T) & has_free_K11
    return linked_KST
