from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crossling.tasks import bootstrap
from crossling.tasks.bootstrap import (
    PairedDifference,
    ValueFunction,
    bootstrap_interval,
    bootstrap_intervals,
    bootstrap_values,
    paired_tests,
)


def proportion(sums: np.ndarray) -> np.ndarray:
    return 100 * sums[..., 0] / sums[..., 1]


def f1(sums: np.ndarray) -> np.ndarray:
    return 100 * 2 * sums[..., 0] / (sums[..., 1] + sums[..., 2])


def statistics_of(correct: np.ndarray) -> np.ndarray:
    return np.stack([correct, np.ones_like(correct)], axis=1).astype(float)


def paired_test(value: ValueFunction, *arguments: Any, resamples: int = 1000) -> PairedDifference:
    """Return the difference of the means over languages."""
    return paired_tests(value, *arguments, resamples=resamples)[0]


def test_bootstrap_values_equal_those_of_a_slow_loop() -> None:
    rng = np.random.default_rng(0)
    statistics_NKS = rng.integers(1, 5, size=(17, 2, 3)).astype(float)
    found_RK = bootstrap_values(f1, statistics_NKS, seed=3, resamples=20)
    samples = np.random.default_rng(3).integers(17, size=(20, 17))
    slow = [[f1(sum(statistics_NKS[example, k] for example in row)) for k in range(2)] for row in samples]
    np.testing.assert_allclose(found_RK, slow)
    one_NS = statistics_NKS[:, 0]
    expected = np.quantile(bootstrap_values(f1, one_NS[:, None]), [0.025, 0.975])
    assert bootstrap_interval(f1, one_NS) == pytest.approx(tuple(expected))


@pytest.mark.parametrize("counts_in_memory", [1, 40, 10**9])
def test_the_block_size_changes_nothing(monkeypatch: pytest.MonkeyPatch, counts_in_memory: int) -> None:
    first, second = (statistics_of(np.random.default_rng(seed).integers(2, size=30)) for seed in (1, 2))
    expected = bootstrap_interval(proportion, first), paired_test(proportion, [first], [second])
    monkeypatch.setattr(bootstrap, "COUNTS_IN_MEMORY", counts_in_memory)
    assert (bootstrap_interval(proportion, first), paired_test(proportion, [first], [second])) == expected


def test_intervals_contain_the_true_value_about_95_percent_of_the_time() -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for seed in range(300):
        low, high = bootstrap_interval(proportion, statistics_of(rng.random(200) < 0.7), seed)
        inside += low <= 70 <= high
    assert 0.90 < inside / 300 < 0.99


def test_intervals_of_layers_equal_those_of_each_layer() -> None:
    rng = np.random.default_rng(0)
    layers = [statistics_of(rng.integers(2, size=50)) for _ in range(3)]
    low_K, high_K = bootstrap_intervals(proportion, np.stack(layers, axis=1), seed=5)
    for layer, statistics in enumerate(layers):
        assert bootstrap_interval(proportion, statistics, seed=5) == pytest.approx((low_K[layer], high_K[layer]))


def test_a_perfect_score_has_an_interval_of_width_0() -> None:
    assert bootstrap_interval(proportion, statistics_of(np.ones(10))) == (100, 100)


def test_equal_models_do_not_differ() -> None:
    same = statistics_of(np.random.default_rng(0).integers(2, size=100))
    found = paired_test(proportion, [same], [same])
    assert (found.value, found.low, found.high, found.p) == (0, 0, 0, 1)


def test_p_is_uniform_if_models_do_not_differ() -> None:
    rng = np.random.default_rng(0)
    ps = []
    for seed in range(200):
        first, second = (statistics_of(rng.random(80) < 0.6) for _ in range(2))
        ps.append(paired_test(proportion, [first], [second], seed, resamples=200).p)
    # There are few distinct differences, so p is slightly too large, never too small.
    assert np.mean(np.array(ps) <= 0.05) <= 0.09
    assert 0.3 < np.mean(np.array(ps) <= 0.5) <= 0.58


def test_a_real_difference_is_significant_and_has_the_right_sign() -> None:
    rng = np.random.default_rng(0)
    worse, better = statistics_of(rng.random(500) < 0.6), statistics_of(rng.random(500) < 0.75)
    found = paired_test(proportion, [worse], [better])
    assert found.p == pytest.approx(1 / 1001)
    assert 0 < found.low < found.value < found.high
    other = paired_test(proportion, [better], [worse])
    assert other.value == -found.value
    assert (other.low, other.high) == pytest.approx((-found.high, -found.low))


def test_the_difference_is_a_mean_over_languages_not_examples() -> None:
    few, many = statistics_of(np.array([1, 0])), statistics_of(np.ones(98))
    nothing = [statistics_of(np.zeros(2)), statistics_of(np.zeros(98))]
    assert paired_test(proportion, nothing, [few, many]).value == pytest.approx((50 + 100) / 2)
    block = np.stack([statistics_of(np.array([1, 0])), statistics_of(np.array([1, 1]))], axis=1)
    assert paired_test(proportion, [np.zeros_like(block) + np.array([0, 1])], [block]).value == pytest.approx(
        (50 + 100) / 2
    )


def test_translations_of_one_test_set_are_resampled_together() -> None:
    """The same results in two languages add no information."""
    rng = np.random.default_rng(0)
    first, second = (statistics_of(rng.integers(2, size=60)) for _ in range(2))
    alone = paired_test(proportion, [first], [second])
    twice = paired_test(proportion, [np.stack([first, first], axis=1)], [np.stack([second, second], axis=1)])
    assert (twice.value, twice.low, twice.high, twice.p) == pytest.approx((alone.value, alone.low, alone.high, alone.p))
    apart = paired_test(proportion, [first, first], [second, second])
    assert apart.high - apart.low < alone.high - alone.low


def test_p_is_two_sided() -> None:
    """The models differ on ten examples, and the second is correct on eight: 2 * 56 / 1024 by the sign test."""
    first = statistics_of(np.array([0] * 8 + [1] * 2 + [1] * 5))
    second = statistics_of(np.array([1] * 8 + [0] * 2 + [1] * 5))
    better, worse = (
        paired_test(proportion, [one], [other], resamples=20_000) for one, other in ((first, second), (second, first))
    )
    assert better.value == -worse.value == pytest.approx(40)
    assert better.p == pytest.approx(112 / 1024, abs=0.01)
    assert worse.p == pytest.approx(112 / 1024, abs=0.01)


def test_every_language_has_the_difference_of_a_test_on_it_alone() -> None:
    rng = np.random.default_rng(0)
    first, second = (
        np.stack([statistics_of(rng.random(40) < p) for p in ps], axis=1) for ps in ((0.2, 0.9), (0.8, 0.9))
    )
    mean, (clear, unclear) = paired_tests(proportion, [first], [second])
    assert (clear.value + unclear.value) / 2 == pytest.approx(mean.value)
    assert clear.p < 0.01 < 0.05 < unclear.p
    alone = paired_test(proportion, [first[:, 0]], [second[:, 0]])
    assert (alone.value, alone.low, alone.high) == pytest.approx((clear.value, clear.low, clear.high))


def test_p_values_are_never_printed_as_zero() -> None:
    zeros, ones = statistics_of(np.zeros(50)), statistics_of(np.ones(50))
    assert paired_test(proportion, [zeros], [ones]).p_text == "p < 0.001"
    assert paired_test(proportion, [zeros], [ones], resamples=10_000).p_text == "p < 0.0001"
    assert paired_test(proportion, [ones], [ones]).p_text == "p = 1.000"
    assert PairedDifference(1.0, 0.0, 2.0, 2 / 1001).p_text == "p = 0.002"
