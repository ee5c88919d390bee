"""Which example the n-th draw takes: a function of n, with nothing to remember.

Draw n falls at the point x_n = u + n A (mod 1) of the circle, A a square root, on which each group owns an arc as long
as its rate. Such points spread evenly: every stretch of draws holds each group in its proportion. How often
a group came before draw n is a sum of floors, which Euclid's algorithm finds in some forty steps whatever n is; that
number, put through a keyed permutation, is the example. So every example of a group comes once before any comes twice,
in an order that is new every epoch, and a run that goes on at step 1,000,000 starts at once. Where the rates change
at a step, the points go on as they were, and the counts from what they were.
"""
# G groups, N draws, M = 2^64 points of the circle

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy

import numpy as np

from crossling.data.noise import mixed

BITS = 64
CIRCLE = 1 << BITS  # M
# A, for several streams: numbers whose multiples spread well, and of which no two go together. Odd, so that every point
# comes once in M draws.
STRIDES = tuple(math.isqrt(d << 2 * BITS) % CIRCLE | 1 for d in (2, 3, 5, 6, 7, 10, 11, 13, 14, 15, 17))
ROUNDS = 10  # of the permutation; fewer show on tiny sizes
REPLAYED = 1 << 20  # draws that are cheaper to repeat than to count by floors


class Draws:
    """The draws of one stream, `number` of them for each step."""

    def __init__(
        self, rates: Sequence[float], sizes: Sequence[int], number: int, key: Sequence[int], stream: int = 0
    ) -> None:
        self.sizes_G = np.asarray(sizes, dtype=np.int64)
        self.number = number
        generator = np.random.default_rng([*key])
        self.first, self.order = generator.integers(CIRCLE - 1, dtype=np.uint64, endpoint=True, size=2).tolist()
        self.stride = STRIDES[stream % len(STRIDES)]
        self._own(rates)
        self._since(0, np.zeros(len(self.sizes_G), dtype=np.int64))

    def changed(self, rates: Sequence[float], step: int) -> Draws:
        """The same stream at other rates from a step on. Still every example comes once before any comes twice."""
        other = copy(self)
        other._own(rates)
        other._since(step, self._before(step))
        return other

    def _own(self, rates: Sequence[float]) -> None:
        """Which arc of the circle is whose."""
        shares_G = np.asarray(rates, dtype=np.float64)
        cumulative_G = np.cumsum(shares_G / shares_G.sum())
        # Where each arc ends; the last one ends the circle, whatever rounding says.
        self.ends_G = [*(min(CIRCLE - 1, int(end * CIRCLE)) for end in cumulative_G[:-1].tolist()), CIRCLE]
        self._inner_ends = np.asarray(self.ends_G[:-1], dtype=np.uint64)

    def _since(self, step: int, before_G: np.ndarray) -> None:
        """From which step on these rates hold, and how often each group was drawn before it."""
        self._first_step, self._earlier_G = step, before_G
        self._step, self._before_G = step, before_G

    def __getitem__(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Group and example of each draw of a step."""
        group_N = self._groups(step)
        draw_N = self._before(step)[group_N] + _rank(group_N)
        epoch_N, place_N = np.divmod(draw_N, self.sizes_G[group_N])
        key_N = mixed(mixed(np.uint64(self.order) + group_N.astype(np.uint64)) + epoch_N.astype(np.uint64))
        return group_N, permuted(place_N, self.sizes_G[group_N], key_N)

    def _groups(self, step: int) -> np.ndarray:
        draws_N = np.arange(self.number, dtype=np.uint64) + np.uint64(step * self.number % CIRCLE)
        point_N = np.uint64(self.first) + draws_N * np.uint64(self.stride)  # modulo 2^64 by itself
        return np.searchsorted(self._inner_ends, point_N, side="right")

    def _before(self, step: int) -> np.ndarray:
        """How often each group was drawn before a step."""
        if not 0 <= (step - self._step) * self.number <= REPLAYED:
            assert step >= self._first_step, "these rates were not yet those of that step"
            counts = [self._below(step, end) - self._below(self._first_step, end) for end in self.ends_G]
            self._step, self._before_G = step, self._earlier_G + np.diff(counts, prepend=0)
        while self._step < step:
            self._before_G = self._before_G + np.bincount(self._groups(self._step), minlength=len(self.sizes_G))
            self._step += 1
        return self._before_G

    def _below(self, step: int, end: int) -> int:
        """How many draws before a step fall before `end`."""
        return below(step * self.number, self.stride, self.first, CIRCLE, end)


def below(n: int, a: int, b: int, m: int, c: int) -> int:
    """How many j < n have (a j + b) mod m < c, for 0 <= c <= m."""
    return n + floor_sum(n, m, a, b) - floor_sum(n, m, a, b - c + m)


def floor_sum(n: int, m: int, a: int, b: int) -> int:
    """The sum over j < n of floor((a j + b) / m), for a, b >= 0: lattice points under a line, by Euclid's algorithm."""
    total = 0
    while n > 0:
        total += (n - 1) * n // 2 * (a // m) + n * (b // m)
        a, b = a % m, b % m
        top = a * n + b
        if top < m:
            break
        n, b, m, a = top // m, top % m, a, m
    return total


def permuted(place_N: np.ndarray, size_N: np.ndarray, key_N: np.ndarray) -> np.ndarray:
    """Place i of a random order of 0 ... size - 1, each with its own size and key, without a list of the order.

    A Feistel network permutes the next power of two; what falls outside `size` goes round again until it is inside.
    """
    size_N = size_N.astype(np.uint64)
    bits_N = np.maximum(2, np.frexp((size_N - _1).astype(np.float64))[1]).astype(np.uint64)
    low_N = bits_N >> _1
    masks_N = (_1 << (bits_N - low_N)) - _1, (_1 << low_N) - _1  # of the two parts, which change places every round
    result_N = place_N.astype(np.uint64)
    outside = np.arange(len(result_N))
    while len(outside):
        key, value, masks = key_N[outside], result_N[outside], [mask[outside] for mask in masks_N]
        left, right = value >> low_N[outside], value & masks[1]
        for number, salt in enumerate(_SALTS):
            left, right = right, left ^ (mixed(right + (key ^ salt)) & masks[number % 2])
        value = (left << low_N[outside]) | right
        result_N[outside] = value
        outside = outside[value >= size_N[outside]]
    return result_N.astype(np.int64)


_1 = np.uint64(1)
_SALTS = mixed(np.arange(1, ROUNDS + 1, dtype=np.uint64))


def _rank(group_N: np.ndarray) -> np.ndarray:
    """How often the same group stands before each entry."""
    order = np.argsort(group_N, kind="stable")
    sorted_N = group_N[order]
    starts = np.flatnonzero(np.diff(sorted_N, prepend=-1))
    rank = np.empty(len(group_N), dtype=np.int64)
    rank[order] = np.arange(len(group_N)) - np.repeat(starts, np.diff(starts, append=len(group_N)))
    return rank
