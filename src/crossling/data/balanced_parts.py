"""Division of the examples of a step into parts with equal numbers of examples and nearly equal numbers of tokens.

The slowest process determines the time of a step. With 64 processes, the largest part of consecutive examples has 13%
more tokens than the mean, with 512 it has 61% (docs/research/scaling.md).
"""
# U units of a step, S units of one part

from __future__ import annotations

import math
from heapq import heappop, heapreplace

import numpy as np

MAX_EXCESS = 0.01  # of the largest part over the mean, above which units are swapped


def balanced_parts(length_U: np.ndarray, parts: int) -> list[np.ndarray]:
    """Divide units into parts: the longest unit first, each to the part that has the fewest tokens so far.

    Numbers of units differ by at most one, because the shapes of a batch depend on them. Where parts are so small that
    they still differ, the largest one swaps units with others. The result is a function of the lengths alone.

    Args:
        length_U: Tokens of each unit.
        parts: Number of parts, at most that of the units.

    Returns:
        The units of each part in ascending order.

    Example:
        >>> [part.tolist() for part in balanced_parts(np.array([9, 8, 2, 1]), 2)]
        [[0, 3], [1, 2]]
    """
    order_U = np.argsort(-length_U, kind="stable")
    part_U = np.empty(len(length_U), dtype=np.int64)
    part_U[order_U] = _longest_first(length_U[order_U], parts)
    _swap_units(length_U, part_U, parts)
    ends = np.cumsum(np.bincount(part_U, minlength=parts))
    return np.split(np.argsort(part_U, kind="stable"), ends[:-1])


def count_micro_batches(
    tokens: float, micro_tokens: int, units: int, world_size: int, *, one_per_process: bool = False
) -> int:
    """Return the number of micro-batches of a step: equally many in each process, none empty."""
    per_process = 1 if one_per_process else math.ceil(tokens / (micro_tokens * world_size))
    return world_size * min(per_process, units // world_size)


def _longest_first(length_U: np.ndarray, parts: int) -> np.ndarray:
    """Return the part of each unit. The shortest units, which are fewer than the parts, go to the lightest parts."""
    units = len(length_U) // parts
    free, taken = [units] * parts, []
    heap = [*range(parts)]  # tokens x parts + part: integers compare faster than tuples
    for step in (length_U[: units * parts] * parts).tolist():
        part = heap[0] % parts
        taken.append(part)
        free[part] -= 1
        if free[part]:
            heapreplace(heap, heap[0] + step)
        else:
            heappop(heap)
    part_U = np.asarray(taken, dtype=np.int64)
    lightest = np.argsort(_totals(length_U[: units * parts], part_U, parts), kind="stable")
    return np.concatenate([part_U, lightest[: len(length_U) - units * parts]])


def _swap_units(length_U: np.ndarray, part_U: np.ndarray, parts: int) -> None:
    """Swap a unit of the largest part with one of another part while that makes the two more equal."""
    totals = _totals(length_U, part_U, parts)
    for _ in range(parts):
        large = int(totals.argmax())
        if totals[large] <= (1 + MAX_EXCESS) * totals.mean():
            return
        own_S = np.flatnonzero(part_U == large)
        moved_SU = length_U[own_S, None] - length_U
        smaller_SU = np.minimum(moved_SU, totals[large] - totals[part_U] - moved_SU)  # by how much both are smaller
        place, other = np.unravel_index(smaller_SU.argmax(), smaller_SU.shape)
        if smaller_SU[place, other] <= 0:
            return
        small = part_U[other]
        part_U[own_S[place]], part_U[other] = small, large
        totals[large] -= moved_SU[place, other]
        totals[small] += moved_SU[place, other]


def _totals(length_U: np.ndarray, part_U: np.ndarray, parts: int) -> np.ndarray:
    """Return the tokens of each part."""
    return np.bincount(part_U, length_U, parts).astype(np.int64)
