"""Random numbers that are a function of where they are used.

A number is keyed by (seed, stream, step, position in the global batch, purpose, place in the sequence) and by nothing
else: not by rank, micro-batch or worker, nor by what was drawn before. Made for all tokens of a step at once.
"""
# N examples, P tokens of them all

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
import xxhash

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_11, _16, _27, _30, _31, _36, _44 = (np.uint64(bits) for bits in (11, 16, 27, 30, 31, 36, 44))
_LOW_16 = np.uint64((1 << 16) - 1)


def mixed(value: np.ndarray) -> np.ndarray:
    """Every bit of the result depends on every bit of the value (the finaliser of SplitMix64)."""
    value = value ^ (value >> _30)
    value *= _FIRST
    value ^= value >> _27
    value *= _SECOND
    value ^= value >> _31
    return value


MOST_EXAMPLES, LONGEST = 1 << 20, 1 << 16  # of a step, and tokens of a sequence: what `order` has bits for


class Noise:
    """The random numbers of one step of one stream."""

    def __init__(self, key: Sequence[int], step: int, examples: int) -> None:
        stream = np.random.SeedSequence([*key, step]).generate_state(1, np.uint64)
        self.seed_N = mixed(stream + np.arange(examples, dtype=np.uint64) * GOLDEN)

    def of(self, example_N: np.ndarray) -> Noise:
        """The random numbers of some of the examples, as if there were no others."""
        some = copy(self)
        some.seed_N = self.seed_N[example_N]
        return some

    def each(self, purpose: str) -> np.ndarray:
        """One number from [0, 1) for each example."""
        return _unit(mixed(self.seed_N ^ _named(purpose)))

    def tokens(self, purpose: str, number_P: np.ndarray, place_P: np.ndarray) -> np.ndarray:
        """One number from [0, 1) for each token, given which sequence it belongs to and where it stands in it."""
        return _unit(self._bits(purpose, number_P, place_P))

    def order(self, purpose: str, number_P: np.ndarray, place_P: np.ndarray) -> np.ndarray:
        """The tokens of each sequence in a random order, one sequence after the other: (sequence, place) of each."""
        # Sorted as whole numbers that hold sequence, chance and place; sorting those is much faster than indices.
        chance_P = self._bits(purpose, number_P, place_P) >> _36
        key_P = (number_P.astype(np.uint64) << _44) | (chance_P << _16) | place_P.astype(np.uint64)
        key_P.sort()
        return np.stack([key_P >> _44, key_P & _LOW_16]).astype(np.int64)

    def _bits(self, purpose: str, number_P: np.ndarray, place_P: np.ndarray) -> np.ndarray:
        key_N = mixed(self.seed_N ^ _named(purpose))
        return mixed(key_N[number_P] + place_P.astype(np.uint64) * GOLDEN)


def places(lengths_N: np.ndarray) -> np.ndarray:
    """0, 1, ... in each of the sequences."""
    ends_N = np.cumsum(lengths_N)
    return np.arange(ends_N[-1] if len(ends_N) else 0) - np.repeat(ends_N - lengths_N, lengths_N)


def _named(purpose: str) -> np.uint64:
    return np.uint64(xxhash.xxh3_64_intdigest(purpose.encode()))


def _unit(bits: np.ndarray) -> np.ndarray:
    return (bits >> _11).astype(np.float64) * 2.0**-53
