"""Powers of counts, as probabilities."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.sampling import tempered

COUNTS = st.dictionaries(st.text(max_size=3), st.integers(0, 10**15), min_size=1, max_size=30)
ALPHA = st.floats(0, 1)


def some(counts: dict[str, int]) -> bool:
    return any(counts.values())


@given(COUNTS.filter(some), ALPHA)
def test_rates_are_probabilities_of_the_same_keys(counts: dict[str, int], alpha: float) -> None:
    rates = tempered(counts, alpha)
    assert list(rates) == list(counts)
    assert all(0 <= rate <= 1 for rate in rates.values())
    assert math.isclose(sum(rates.values()), 1)


@given(COUNTS.filter(some), ALPHA)
def test_exactly_what_has_no_examples_is_never_drawn(counts: dict[str, int], alpha: float) -> None:
    for key, rate in tempered(counts, alpha).items():
        assert (rate == 0) == (counts[key] == 0)


@given(COUNTS.filter(some))
def test_alpha_one_follows_the_data(counts: dict[str, int]) -> None:
    total = sum(counts.values())
    assert all(math.isclose(rate, counts[key] / total) for key, rate in tempered(counts, 1.0).items())


@given(COUNTS.filter(some))
def test_alpha_zero_is_uniform_over_what_is_there(counts: dict[str, int]) -> None:
    there = sum(n > 0 for n in counts.values())
    assert all(math.isclose(rate, 1 / there) for key, rate in tempered(counts, 0.0).items() if counts[key])


@given(st.lists(st.integers(1, 10**15), min_size=2, max_size=20), ALPHA)
def test_more_data_is_never_drawn_less(sizes: list[int], alpha: float) -> None:
    rates = list(tempered(dict(enumerate(sorted(sizes))), alpha).values())
    assert all(less <= more for less, more in pairwise(rates))


@given(st.integers(1, 10**12), st.integers(1, 10**12), ALPHA)
def test_ratio_of_two_is_the_power_of_their_ratio(a: int, b: int, alpha: float) -> None:
    rates = tempered({"a": a, "b": b}, alpha)
    assert math.isclose(rates["a"] / rates["b"], (a / b) ** alpha, rel_tol=1e-9)


@given(st.integers(1, 1000), st.integers(1, 10**6), st.floats(0.01, 0.99))
def test_smaller_alpha_gives_more_to_the_small(small: int, more: int, alpha: float) -> None:
    counts = {"small": small, "large": small + more}
    assert tempered(counts, alpha)["small"] > tempered(counts, 1.0)["small"]


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.7, 1.0])
def test_counts_beyond_floats_are_no_overflow(alpha: float) -> None:
    rates = tempered({"huge": 10**400, "also": 10**400, "one": 1}, alpha)
    assert rates["huge"] == rates["also"]
    assert math.isclose(sum(rates.values()), 1)


def test_published_example() -> None:
    """XLM-E's exponent on 1,000 and 1 million: a language of a thousandth is drawn at 0.8 %."""
    assert tempered({"en": 1_000_000, "sw": 1000}, 0.7)["sw"] == pytest.approx(0.00788, abs=1e-5)


def test_nothing_gives_nothing() -> None:
    assert tempered({}, 0.7) == {}


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0])
def test_only_empty_counts_are_never_drawn(alpha: float) -> None:
    assert tempered({"a": 0, "b": 0}, alpha) == {"a": 0.0, "b": 0.0}
