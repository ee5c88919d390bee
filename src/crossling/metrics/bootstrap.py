"""How sure a score is: intervals and tests by drawing the examples of a test set again and again.

A metric is a function of sums over examples, so a drawn set is a row of counts, and many sets are one matrix product:
counts_RN @ statistics_NS. Nothing is predicted or scored anew.
"""
# N examples, R resamples, K measures at once (layers), L languages, S statistics of a measure

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 1000
CONFIDENCE = 0.95
AT_ONCE = 4_000_000  # counts in memory at a time

Value = Callable[[np.ndarray], np.ndarray]  # sums [..., S] -> percent [...]


@dataclass(frozen=True)
class Difference:
    """Of two models on the same examples: second minus first, in points."""

    value: float
    low: float
    high: float
    p: float  # how often models that do not differ would come out at least this far apart


def interval(value: Value, statistics_NS: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """Between which percentiles of the resampled values the middle 95% lie."""
    low_K, high_K = intervals(value, np.asarray(statistics_NS)[:, None], seed)
    return float(low_K[0]), float(high_K[0])


def intervals(value: Value, statistics_NKS: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """`interval` of several measures of the same examples, of layers for instance."""
    return _middle(resampled(value, statistics_NKS, seed))


def resampled(value: Value, statistics_NKS: np.ndarray, seed: int = 0, resamples: int = RESAMPLES) -> np.ndarray:
    """[R, K], or [R, ...] of [N, ..., S]: the values on test sets drawn with replacement. The same seed draws the same
    examples."""
    statistics_NKS = np.asarray(statistics_NKS, dtype=float)
    examples, *rest = statistics_NKS.shape
    flat_NM = statistics_NKS.reshape(examples, -1)
    chunks = [value((counts_RN @ flat_NM).reshape(-1, *rest)) for counts_RN in _counts(examples, seed, resamples)]
    return np.concatenate(chunks)


def paired(
    value: Value, first: Sequence[np.ndarray], second: Sequence[np.ndarray], seed: int = 0, resamples: int = RESAMPLES
) -> Difference:
    """Compares two models by the mean over languages of a metric.

    Each model has a block for each set of examples, the same for both: [N, L, S] where L languages have these examples,
    [N, S] where one has. Languages of a block are drawn together.

    p is that of a permutation test: the outcomes of an example change sides with probability one half, which is as good
    a story if the models do not differ. The interval is that of a bootstrap, drawn within each block.
    """
    rng = np.random.default_rng(seed)
    blocks = [np.stack([_block(one), _block(other)], axis=1) for one, other in zip(first, second, strict=True)]
    languages = sum(block_N2LS.shape[2] for block_N2LS in blocks)
    apart, swapped_R, drawn_R = 0.0, np.zeros(resamples), np.zeros(resamples)
    for place, block_N2LS in enumerate(blocks):
        apart += float(_apart(value(block_N2LS.sum(axis=0)))) / languages
        swapped_R += _swapped(value, block_N2LS, rng, resamples) / languages
        drawn_R += _apart(resampled(value, block_N2LS, seed + place, resamples)) / languages
    # Sums in another order differ in the last digits, which must not make equal differences smaller.
    as_far = int(np.count_nonzero(np.abs(swapped_R) >= abs(apart) - 1e-9))
    low, high = _middle(drawn_R)
    return Difference(apart, float(low), float(high), (1 + as_far) / (1 + resamples))


def _block(statistics: np.ndarray) -> np.ndarray:
    statistics = np.asarray(statistics, dtype=float)
    return statistics if statistics.ndim == 3 else statistics[:, None]


def _swapped(value: Value, block_N2LS: np.ndarray, rng: np.random.Generator, resamples: int) -> np.ndarray:
    """[R]: differences after some examples changed sides: the first model's sums gain what the second's lose."""
    sums_2LS, gain_NLS = block_N2LS.sum(axis=0), block_N2LS[:, 1] - block_N2LS[:, 0]
    examples, *rest = gain_NLS.shape
    found = []
    for rows in _rows(examples, resamples):
        swaps_RN = rng.integers(2, size=(rows, examples)).astype(float)
        moved_RLS = (swaps_RN @ gain_NLS.reshape(examples, -1)).reshape(rows, *rest)
        found.append((value(sums_2LS[1] - moved_RLS) - value(sums_2LS[0] + moved_RLS)).sum(axis=-1))
    return np.concatenate(found)


def _apart(values_2L: np.ndarray) -> np.ndarray:
    """Second minus first, summed over languages."""
    return (values_2L[..., 1, :] - values_2L[..., 0, :]).sum(axis=-1)


def _middle(values_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(values_R, [tail, 1 - tail], axis=0)
    return low, high


def _counts(examples: int, seed: int, resamples: int) -> Iterator[np.ndarray]:
    """How often each example is in each drawn set, a few sets at a time."""
    rng = np.random.default_rng(seed)
    for rows in _rows(examples, resamples):
        drawn_RN = rng.integers(examples, size=(rows, examples)) + np.arange(rows)[:, None] * examples
        yield np.bincount(drawn_RN.ravel(), minlength=rows * examples).reshape(rows, examples).astype(float)


def _rows(examples: int, resamples: int) -> Iterator[int]:
    size = max(1, AT_ONCE // max(1, examples))
    for start in range(0, resamples, size):
        yield min(size, resamples - start)
