"""Division of the examples of a step into parts with equal numbers of examples and nearly equal numbers of tokens.

The slowest process determines the time of a step. Parts of consecutive examples would differ by 10 to 50% of their
tokens. docs/research/scaling.md has the comparison.
"""
# U units of a step

from __future__ import annotations

from heapq import heappop, heapreplace

import numpy as np


def balanced_parts(length_U: np.ndarray, parts: int) -> list[np.ndarray]:
    """Divide units into parts: the longest unit first, each to the part that has the fewest tokens so far.

    Numbers of units differ by at most one, because the shapes of a batch depend on them. The result is a function of
    the lengths alone.

    Args:
        length_U: Tokens of each unit.
        parts: Number of parts, at most that of the units.

    Returns:
        The units of each part in ascending order.

    Example:
        >>> [part.tolist() for part in balanced_parts(np.array([9, 8, 2, 1]), 2)]
        [[0, 3], [1, 2]]
    """
    units = len(length_U) // parts  # of each part; the shortest units are left for the lightest parts
    order_U = np.argsort(-length_U, kind="stable")
    free, heap = [units] * parts, [*range(parts)]  # heap: tokens x parts + part. Integers compare faster than tuples
    taken: list[int] = []  # part of each unit, longest first
    totals = [0] * parts
    for length in length_U[order_U[: units * parts]].tolist():
        part = heap[0] % parts
        taken.append(part)
        totals[part] += length
        free[part] -= 1
        if free[part]:
            heapreplace(heap, heap[0] + length * parts)
        else:
            heappop(heap)
    taken += np.argsort(totals, kind="stable")[: len(length_U) - len(taken)].tolist()
    part_U = np.empty(len(length_U), dtype=np.int64)
    part_U[order_U] = taken
    ends = np.cumsum(np.bincount(part_U, minlength=parts))
    return np.split(np.argsort(part_U, kind="stable"), ends[:-1])
