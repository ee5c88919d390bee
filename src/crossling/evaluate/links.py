r"""From the states of two sentences to the links between their positions, for every layer at once.

`ot`: optimal transport as XLM-Align does it, on the dot products S of the states, none below 1e-6:

    xi_ij = pi_ij / sum_i pi_ij      every column sums to one
    pi_ij = xi_ij / sum_j xi_ij      every row sums to one          (starting from pi = S, twice)

Position i is linked to j if j is the largest of row i in pi and i the largest of column j in xi.

`argmax` asks the same of plain cosines c, without normalising.

`itermax` (SimAlign) begins so, on (c + 1) / 2, and then asks once more, with similarities of a pair that has one
linked position times 0.9 and of a pair that has two times 0; links found so are added. It does not ask again where a
side has no free position left, or at most two positions.
"""
# K layers, S source positions, T target positions, D width, N links

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from crossling.errors import BadInput, nearest
from crossling.evaluate.cosine import unit

METHODS = ("ot", "argmax", "itermax")
ITERATIONS = 2
FLOOR = 1e-6
ROUNDS = 2
DISCOUNT = 0.9


def check_methods(methods: Iterable[str]) -> None:
    for method in methods:
        if method not in METHODS:
            raise BadInput(f"alignment method {method!r} is unknown{nearest(method, METHODS)}")


def link(source_KSD: np.ndarray, target_KTD: np.ndarray, method: str = "ot") -> list[np.ndarray]:
    """For each layer an array [N, 2] of linked positions, in the order of the source."""
    check_methods([method])
    if method == "ot":
        linked_KST = mutual(*transport(source_KSD @ target_KTD.swapaxes(1, 2)))
    else:
        cosine_KST = unit(source_KSD) @ unit(target_KTD).swapaxes(1, 2)
        linked_KST = mutual(cosine_KST, cosine_KST) if method == "argmax" else itermax((cosine_KST + 1) / 2)
    return [np.argwhere(linked_ST) for linked_ST in linked_KST]


def transport(similarity_KST: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """pi and xi of the equations above."""
    pi_KST = xi_KST = np.maximum(similarity_KST, FLOOR)
    for _ in range(ITERATIONS):
        xi_KST = pi_KST / pi_KST.sum(axis=1, keepdims=True)
        pi_KST = xi_KST / xi_KST.sum(axis=2, keepdims=True)
    return pi_KST, xi_KST


def mutual(by_row_KST: np.ndarray, by_column_KST: np.ndarray) -> np.ndarray:
    """Which positions choose each other, true or false; of equals the first is chosen, on every machine."""
    linked_KST = np.zeros(by_row_KST.shape, dtype=bool)
    if linked_KST.size:
        choice_KS1 = by_row_KST.argmax(axis=2, keepdims=True)
        answer_KT = by_column_KST.argmax(axis=1)
        answer_KS = np.take_along_axis(answer_KT, choice_KS1[..., 0], axis=1)
        chosen_KS1 = (answer_KS == np.arange(by_row_KST.shape[1]))[..., None]
        np.put_along_axis(linked_KST, choice_KS1, chosen_KS1, axis=2)
    return linked_KST


def itermax(similarity_KST: np.ndarray) -> np.ndarray:
    """Which positions are linked, true or false; similarities are not negative."""
    linked_KST = mutual(similarity_KST, similarity_KST)
    if min(similarity_KST.shape[1:]) <= 2:
        return linked_KST
    for _ in range(ROUNDS - 1):
        free_KS1 = np.logical_not(linked_KST.any(axis=2, keepdims=True))
        free_K1T = np.logical_not(linked_KST.any(axis=1, keepdims=True))
        weight_KST = np.where(free_KS1 & free_K1T, 1, np.where(free_KS1 | free_K1T, DISCOUNT, 0))
        again_K11 = free_KS1.any(axis=1, keepdims=True) & free_K1T.any(axis=2, keepdims=True)
        weighted_KST = similarity_KST * weight_KST
        linked_KST |= mutual(weighted_KST, weighted_KST) & (free_KS1 | free_K1T) & again_K11
    return linked_KST
