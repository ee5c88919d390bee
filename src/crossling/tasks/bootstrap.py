"""Bootstrap confidence intervals and paired significance tests over the examples of a test set.

A metric is a function of sums over examples. A bootstrap sample is a row of counts, and many samples are one matrix
product: counts_RN @ statistics_NS. Nothing is predicted or scored again.
"""
# N examples, R resamples, K layers, L languages, S statistics

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 1000
CONFIDENCE = 0.95
COUNTS_IN_MEMORY = 4_000_000

ValueFunction = Callable[[np.ndarray], np.ndarray]  # sums [..., S] -> percent [...]


@dataclass(frozen=True)
class PairedDifference:
    """Difference of two models on the same examples: second minus first, in percentage points."""

    value: float
    low: float
    high: float
    p: float  # probability of a difference at least as large if the models do not differ
    resamples: int = RESAMPLES  # permutations of the test, which bound p from below

    @property
    def p_text(self) -> str:
        """Return `p = 0.012`, or `p < 0.001` if no permutation has a difference as large."""
        digits = len(str(self.resamples)) - 1
        if self.p * (1 + self.resamples) < 1.5:
            return f"p < {1 / self.resamples:.{digits}f}"
        return f"p = {self.p:.{digits}f}"


def bootstrap_interval(value: ValueFunction, statistics_NS: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """Return the 95% confidence interval of a metric."""
    low_K, high_K = bootstrap_intervals(value, np.asarray(statistics_NS)[:, None], seed)
    return float(low_K[0]), float(high_K[0])


def bootstrap_intervals(
    value: ValueFunction, statistics_NKS: np.ndarray, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the 95% confidence intervals of several layers on the same examples, [K] and [K]."""
    return _confidence_interval(bootstrap_values(value, statistics_NKS, seed))


def bootstrap_values(
    value: ValueFunction, statistics_NKS: np.ndarray, seed: int = 0, resamples: int = RESAMPLES
) -> np.ndarray:
    """Return the values on test sets sampled with replacement, [R, K], or [R, ...] for statistics [N, ..., S].

    The same seed samples the same examples.
    """
    statistics_NKS = np.asarray(statistics_NKS, dtype=float)
    examples, *rest = statistics_NKS.shape
    flat_NM = statistics_NKS.reshape(examples, -1)
    chunks = [value((counts_RN @ flat_NM).reshape(-1, *rest)) for counts_RN in _counts(examples, seed, resamples)]
    return np.concatenate(chunks)


def paired_tests(
    value: ValueFunction,
    first: Sequence[np.ndarray],
    second: Sequence[np.ndarray],
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> tuple[PairedDifference, list[PairedDifference]]:
    """Compare two models by the mean of a metric over languages, and on every language.

    The p-value is that of a permutation test, which swaps the results of the models on each example with probability
    one half. The confidence interval is that of a bootstrap within each block.

    Args:
        value: The metric as a function of summed statistics.
        first: Statistics of the first model, one block for each set of examples: [N, L, S] for L languages that have
            these examples, [N, S] for one. Languages of a block are resampled together.
        second: Statistics of the second model on the same examples.
        seed: Random seed.
        resamples: Number of permutations and of bootstrap samples.

    Returns:
        The difference of the means, and the difference on each language in the order of the blocks.
    """
    rng = np.random.default_rng(seed)
    blocks = [np.stack([_block(one), _block(other)], axis=1) for one, other in zip(first, second, strict=True)]
    observed_L = np.concatenate([_difference(value(block_N2LS.sum(axis=0))) for block_N2LS in blocks])
    permuted_RL = np.concatenate([_permuted_differences(value, block, rng, resamples) for block in blocks], axis=1)
    sampled_RL = np.concatenate(
        [_difference(bootstrap_values(value, block, seed + index, resamples)) for index, block in enumerate(blocks)],
        axis=1,
    )
    by_language = [
        _paired_difference(*each, resamples) for each in zip(observed_L, permuted_RL.T, sampled_RL.T, strict=True)
    ]
    mean = _paired_difference(observed_L.mean(), permuted_RL.mean(axis=1), sampled_RL.mean(axis=1), resamples)
    return mean, by_language


def _paired_difference(
    observed: float, permuted_R: np.ndarray, sampled_R: np.ndarray, resamples: int
) -> PairedDifference:
    # Sums in another order differ in the last digits. The tolerance keeps equal differences equal.
    as_large = int(np.count_nonzero(np.abs(permuted_R) >= abs(observed) - 1e-9))
    low, high = _confidence_interval(sampled_R)
    p = (1 + as_large) / (1 + resamples)
    return PairedDifference(float(observed), float(low), float(high), p, resamples=resamples)


def _block(statistics: np.ndarray) -> np.ndarray:
    statistics = np.asarray(statistics, dtype=float)
    return statistics if statistics.ndim == 3 else statistics[:, None]


def _permuted_differences(
    value: ValueFunction, block_N2LS: np.ndarray, rng: np.random.Generator, resamples: int
) -> np.ndarray:
    """Return the differences after swapping the models on random examples, [R, L]."""
    sums_2LS, gain_NLS = block_N2LS.sum(axis=0), block_N2LS[:, 1] - block_N2LS[:, 0]
    examples, *rest = gain_NLS.shape
    differences = []
    for rows in _block_sizes(examples, resamples):
        swaps_RN = rng.integers(2, size=(rows, examples)).astype(float)
        moved_RLS = (swaps_RN @ gain_NLS.reshape(examples, -1)).reshape(rows, *rest)
        differences.append(value(sums_2LS[1] - moved_RLS) - value(sums_2LS[0] + moved_RLS))
    return np.concatenate(differences)


def _difference(values_2L: np.ndarray) -> np.ndarray:
    """Return second minus first for every language."""
    return np.asarray(values_2L[..., 1, :] - values_2L[..., 0, :])


def _confidence_interval(values_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    tail = (1 - CONFIDENCE) / 2
    # A small sample may repeat one example, whose correlation is undefined.
    low, high = np.nanquantile(values_R, [tail, 1 - tail], axis=0)
    return low, high


def _counts(examples: int, seed: int, resamples: int) -> Iterator[np.ndarray]:
    """Yield the count of each example in each bootstrap sample, a block of samples at a time."""
    rng = np.random.default_rng(seed)
    for rows in _block_sizes(examples, resamples):
        sampled_RN = rng.integers(examples, size=(rows, examples)) + np.arange(rows)[:, None] * examples
        yield np.bincount(sampled_RN.ravel(), minlength=rows * examples).reshape(rows, examples).astype(float)


def _block_sizes(examples: int, resamples: int) -> Iterator[int]:
    size = max(1, COUNTS_IN_MEMORY // max(1, examples))
    for start in range(0, resamples, size):
        yield min(size, resamples - start)
