"""Temperature sampling: powers of counts as probabilities."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.sampling import temperature_sampling

COUNTS = st.dictionaries(st.text(max_size=3), st.integers(0, 10**15), min_size=1, max_size=30)
ALPHA = st.floats(0, 1)


def some(counts: dict[str, int]) -> bool:
    return any(counts.values())


@given(COUNTS.filter(some), ALPHA)
def test_result_is_a_distribution_over_the_same_keys(counts: dict[str, int], alpha: float) -> None:
    probabilities = temperature_sampling(counts, alpha)
    assert list(probabilities) == list(counts)
    assert all(0 <= probability <= 1 for probability in probabilities.values())
    assert math.isclose(sum(probabilities.values()), 1)


@given(COUNTS.filter(some), ALPHA)
def test_exactly_keys_without_data_have_probability_0(counts: dict[str, int], alpha: float) -> None:
    for key, probability in temperature_sampling(counts, alpha).items():
        assert (probability == 0) == (counts[key] == 0)


@given(COUNTS.filter(some))
def test_alpha_1_follows_the_data(counts: dict[str, int]) -> None:
    total = sum(counts.values())
    assert all(
        math.isclose(probability, counts[key] / total) for key, probability in temperature_sampling(counts, 1.0).items()
    )


@given(COUNTS.filter(some))
def test_alpha_0_is_uniform_over_keys_with_data(counts: dict[str, int]) -> None:
    there = sum(n > 0 for n in counts.values())
    assert all(
        math.isclose(probability, 1 / there)
        for key, probability in temperature_sampling(counts, 0.0).items()
        if counts[key]
    )


@given(st.lists(st.integers(1, 10**15), min_size=2, max_size=20), ALPHA)
def test_larger_counts_are_never_sampled_less(sizes: list[int], alpha: float) -> None:
    probabilities = list(temperature_sampling(dict(enumerate(sorted(sizes))), alpha).values())
    assert all(less <= more for less, more in pairwise(probabilities))


@given(st.integers(1, 10**12), st.integers(1, 10**12), ALPHA)
def test_ratio_of_two_is_the_power_of_their_ratio(a: int, b: int, alpha: float) -> None:
    probabilities = temperature_sampling({"a": a, "b": b}, alpha)
    assert math.isclose(probabilities["a"] / probabilities["b"], (a / b) ** alpha, rel_tol=1e-9)


@given(st.integers(1, 1000), st.integers(1, 10**6), st.floats(0.01, 0.99))
def test_smaller_alpha_gives_more_to_small_counts(small: int, more: int, alpha: float) -> None:
    counts = {"small": small, "large": small + more}
    assert temperature_sampling(counts, alpha)["small"] > temperature_sampling(counts, 1.0)["small"]


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.7, 1.0])
def test_counts_beyond_floats_do_not_overflow(alpha: float) -> None:
    probabilities = temperature_sampling({"huge": 10**400, "also": 10**400, "one": 1}, alpha)
    assert probabilities["huge"] == probabilities["also"]
    assert math.isclose(sum(probabilities.values()), 1)


def test_published_example() -> None:
    """XLM-E's exponent on 1,000 and 1 million: a language with a thousandth is sampled at 0.8%."""
    assert temperature_sampling({"en": 1_000_000, "sw": 1000}, 0.7)["sw"] == pytest.approx(0.00788, abs=1e-5)


def test_no_counts_give_no_probabilities() -> None:
    assert temperature_sampling({}, 0.7) == {}


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0])
def test_all_zero_counts_give_probability_0(alpha: float) -> None:
    assert temperature_sampling({"a": 0, "b": 0}, alpha) == {"a": 0.0, "b": 0.0}
