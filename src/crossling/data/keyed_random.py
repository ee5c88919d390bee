"""Counter-based random numbers: each is a function of where it is used.

A number is keyed by (seed, stream, step, position in the global batch, purpose, position in the sequence). It depends
neither on rank, micro-batch or worker, nor on the numbers before it. All numbers of a step are computed at once.
"""
# N examples, P tokens of all examples

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
import xxhash

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_11, _16, _27, _30, _31, _36, _44 = (np.uint64(bits) for bits in (11, 16, 27, 30, 31, 36, 44))
_LOW_16 = np.uint64((1 << 16) - 1)


def mix_bits(value: np.ndarray) -> np.ndarray:
    """Hash each value with the finalizer of SplitMix64: every output bit depends on every input bit."""
    value = value ^ (value >> _30)
    value *= _FIRST
    value ^= value >> _27
    value *= _SECOND
    value ^= value >> _31
    return value


MAX_EXAMPLES, MAX_LENGTH = 1 << 20, 1 << 16  # examples of a step and tokens of a sequence that `shuffle` has bits for


class KeyedRandom:
    """Random numbers of one step of one stream."""

    def __init__(self, key: Sequence[int], step: int, examples: int) -> None:
        stream = np.random.SeedSequence([*key, step]).generate_state(1, np.uint64)
        self.position_N = np.arange(examples)  # in the global batch
        self.seed_N = mix_bits(stream + self.position_N.astype(np.uint64) * GOLDEN)

    def select(self, example_N: np.ndarray) -> KeyedRandom:
        """Return the random numbers of some of the examples. They do not depend on the selection."""
        selected = copy(self)
        selected.position_N, selected.seed_N = self.position_N[example_N], self.seed_N[example_N]
        return selected

    def per_example(self, purpose: str) -> np.ndarray:
        """Return one number from [0, 1) for each example."""
        return _to_unit_interval(mix_bits(self.seed_N ^ _hash_name(purpose)))

    def per_token(self, purpose: str, sequence_P: np.ndarray, position_P: np.ndarray) -> np.ndarray:
        """Return one number from [0, 1) for each token, given its sequence and its position there."""
        return _to_unit_interval(self._bits(purpose, sequence_P, position_P))

    def shuffle(self, purpose: str, sequence_P: np.ndarray, position_P: np.ndarray) -> np.ndarray:
        """Return (sequence, position) of the tokens, each sequence in random order, one sequence after the other."""
        # One integer holds sequence, random bits and position. Sorting integers is much faster than sorting indices.
        random_P = self._bits(purpose, sequence_P, position_P) >> _36
        key_P = (sequence_P.astype(np.uint64) << _44) | (random_P << _16) | position_P.astype(np.uint64)
        key_P.sort()
        return np.stack([key_P >> _44, key_P & _LOW_16]).astype(np.int64)

    def _bits(self, purpose: str, sequence_P: np.ndarray, position_P: np.ndarray) -> np.ndarray:
        key_N = mix_bits(self.seed_N ^ _hash_name(purpose))
        return mix_bits(key_N[sequence_P] + position_P.astype(np.uint64) * GOLDEN)


def positions_within(lengths_N: np.ndarray) -> np.ndarray:
    """Return 0, 1, ... for the tokens of each sequence."""
    ends_N = np.cumsum(lengths_N)
    return np.asarray(np.arange(ends_N[-1] if len(ends_N) else 0) - np.repeat(ends_N - lengths_N, lengths_N))


def _hash_name(purpose: str) -> np.uint64:
    return np.uint64(xxhash.xxh3_64_intdigest(purpose.encode()))


def _to_unit_interval(bits: np.ndarray) -> np.ndarray:
    return (bits >> _11).astype(np.float64) * 2.0**-53
