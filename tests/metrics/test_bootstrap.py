from __future__ import annotations

import numpy as np
import pytest

from crossling.metrics import bootstrap
from crossling.metrics.bootstrap import interval, intervals, paired, resampled


def share(sums: np.ndarray) -> np.ndarray:
    return 100 * sums[..., 0] / sums[..., 1]


def f1(sums: np.ndarray) -> np.ndarray:
    return 100 * 2 * sums[..., 0] / (sums[..., 1] + sums[..., 2])


def answers(right: np.ndarray) -> np.ndarray:
    return np.stack([right, np.ones_like(right)], axis=1).astype(float)


def test_resampling_equals_a_slow_loop() -> None:
    rng = np.random.default_rng(0)
    statistics_NKS = rng.integers(1, 5, size=(17, 2, 3)).astype(float)
    found_RK = resampled(f1, statistics_NKS, seed=3, resamples=20)
    draws = np.random.default_rng(3).integers(17, size=(20, 17))
    slow = [[f1(sum(statistics_NKS[place, k] for place in row)) for k in range(2)] for row in draws]
    np.testing.assert_allclose(found_RK, slow)
    one_NS = statistics_NKS[:, 0]
    middle = np.quantile(resampled(f1, one_NS[:, None]), [0.025, 0.975])
    assert interval(f1, one_NS) == pytest.approx(tuple(middle))


@pytest.mark.parametrize("at_once", [1, 40, 10**9])
def test_how_many_are_drawn_at_a_time_changes_nothing(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    first, second = (answers(np.random.default_rng(seed).integers(2, size=30)) for seed in (1, 2))
    expected = interval(share, first), paired(share, [first], [second])
    monkeypatch.setattr(bootstrap, "AT_ONCE", at_once)
    assert (interval(share, first), paired(share, [first], [second])) == expected


def test_an_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for seed in range(300):
        low, high = interval(share, answers(rng.random(200) < 0.7), seed)
        inside += low <= 70 <= high
    assert 0.90 < inside / 300 < 0.99


def test_intervals_of_layers_are_those_of_each() -> None:
    rng = np.random.default_rng(0)
    layers = [answers(rng.integers(2, size=50)) for _ in range(3)]
    low_K, high_K = intervals(share, np.stack(layers, axis=1), seed=5)
    for place, statistics in enumerate(layers):
        assert interval(share, statistics, seed=5) == pytest.approx((low_K[place], high_K[place]))


def test_everything_right_is_sure() -> None:
    assert interval(share, answers(np.ones(10))) == (100, 100)


def test_models_that_are_the_same_do_not_differ() -> None:
    same = answers(np.random.default_rng(0).integers(2, size=100))
    found = paired(share, [same], [same])
    assert (found.value, found.low, found.high, found.p) == (0, 0, 0, 1)


def test_p_is_uniform_where_models_do_not_differ() -> None:
    rng = np.random.default_rng(0)
    ps = []
    for seed in range(200):
        first, second = (answers(rng.random(80) < 0.6) for _ in range(2))
        ps.append(paired(share, [first], [second], seed, resamples=200).p)
    # Outcomes are few, so that p is a little too large, never too small.
    assert np.mean(np.array(ps) <= 0.05) <= 0.09
    assert 0.3 < np.mean(np.array(ps) <= 0.5) <= 0.58


def test_a_real_difference_is_found_and_has_its_sign() -> None:
    rng = np.random.default_rng(0)
    worse, better = answers(rng.random(500) < 0.6), answers(rng.random(500) < 0.75)
    found = paired(share, [worse], [better])
    assert found.p == pytest.approx(1 / 1001)
    assert 0 < found.low < found.value < found.high
    other = paired(share, [better], [worse])
    assert other.value == -found.value
    assert (other.low, other.high) == pytest.approx((-found.high, -found.low))


def test_the_value_is_the_mean_over_languages_not_over_examples() -> None:
    few, many = answers(np.array([1, 0])), answers(np.ones(98))
    nothing = [answers(np.zeros(2)), answers(np.zeros(98))]
    assert paired(share, nothing, [few, many]).value == pytest.approx((50 + 100) / 2)
    block = np.stack([answers(np.array([1, 0])), answers(np.array([1, 1]))], axis=1)
    assert paired(share, [np.zeros_like(block) + np.array([0, 1])], [block]).value == pytest.approx((50 + 100) / 2)


def test_translations_of_one_test_set_are_drawn_together() -> None:
    """The same outcomes in two languages tell no more than those in one."""
    rng = np.random.default_rng(0)
    first, second = (answers(rng.integers(2, size=60)) for _ in range(2))
    alone = paired(share, [first], [second])
    twice = paired(share, [np.stack([first, first], axis=1)], [np.stack([second, second], axis=1)])
    assert (twice.value, twice.low, twice.high, twice.p) == pytest.approx((alone.value, alone.low, alone.high, alone.p))
    apart = paired(share, [first, first], [second, second])
    assert apart.high - apart.low < alone.high - alone.low


def test_p_counts_differences_to_either_side() -> None:
    """Of ten examples on which they differ the second is right on eight: the sign test says 2 * 56 / 1024."""
    first = answers(np.array([0] * 8 + [1] * 2 + [1] * 5))
    second = answers(np.array([1] * 8 + [0] * 2 + [1] * 5))
    better, worse = (
        paired(share, [one], [other], resamples=20_000) for one, other in ((first, second), (second, first))
    )
    assert better.value == -worse.value == pytest.approx(40)
    assert better.p == pytest.approx(112 / 1024, abs=0.01)
    assert worse.p == pytest.approx(112 / 1024, abs=0.01)
