r"""From the states of two sentences to the links between their positions, for every layer at once.

Optimal transport as XLM-Align does it, on the dot products S of the states, none below 1e-6:

    xi_ij = pi_ij / sum_i pi_ij      every column sums to one
    pi_ij = xi_ij / sum_j xi_ij      every row sums to one          (starting from pi = S, twice)

Position i is linked to j if j is the largest of row i in pi and i the largest of column j in xi.
The second method asks the same of plain cosines, without normalising.
"""
# K layers, S source positions, T target positions, D width, N links

from __future__ import annotations

import numpy as np

from crossling.errors import BadInput, nearest
from crossling.evaluate.cosine import unit

METHODS = ("ot", "argmax")
ITERATIONS = 2
FLOOR = 1e-6


def link(source_KSD: np.ndarray, target_KTD: np.ndarray, method: str = "ot") -> list[np.ndarray]:
    """For each layer an array [N, 2] of linked positions, in the order of the source."""
    if method not in METHODS:
        raise BadInput(f"alignment method {method!r} is unknown{nearest(method, METHODS)}")
    if method == "argmax":
        cosine_KST = unit(source_KSD) @ unit(target_KTD).swapaxes(1, 2)
        return mutual(cosine_KST, cosine_KST)
    return mutual(*transport(source_KSD @ target_KTD.swapaxes(1, 2)))


def transport(similarity_KST: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """pi and xi of the equations above."""
    pi_KST = xi_KST = np.maximum(similarity_KST, FLOOR)
    for _ in range(ITERATIONS):
        xi_KST = pi_KST / pi_KST.sum(axis=1, keepdims=True)
        pi_KST = xi_KST / xi_KST.sum(axis=2, keepdims=True)
    return pi_KST, xi_KST


def mutual(by_row_KST: np.ndarray, by_column_KST: np.ndarray) -> list[np.ndarray]:
    """Positions that choose each other; of equals the first is chosen, on every machine."""
    if not by_row_KST.size:
        return [np.empty((0, 2), dtype=np.int64) for _ in by_row_KST]
    choice_KS = by_row_KST.argmax(axis=2)
    answer_KT = by_column_KST.argmax(axis=1)
    chosen_KS = np.take_along_axis(answer_KT, choice_KS, axis=1) == np.arange(choice_KS.shape[1])
    return [
        np.stack([np.flatnonzero(chosen_S), choice_S[chosen_S]], axis=1)
        for chosen_S, choice_S in zip(chosen_KS, choice_KS, strict=True)
    ]
