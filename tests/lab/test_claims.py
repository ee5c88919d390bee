"""Claims are supported, contradicted or inconclusive by the interval of the difference."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.lab.comparison import compare_scores, format_claim_status

CODES = ["ar", "de", "fr", "sw", "zh"]


def scores(*seeds: list[float]) -> dict[int, dict[str, float]]:
    return {seed: dict(zip(CODES, values, strict=False)) for seed, values in enumerate(seeds)}


def test_clear_difference_supports_a_claim_and_contradicts_its_reverse() -> None:
    high, low = scores([30, 40, 50, 60, 70]), scores([20, 31, 39, 50, 58])
    better, worse = compare_scores("end", high, low), compare_scores("end", low, high)
    assert better is not None
    assert worse is not None
    assert (better.status, worse.status) == ("supported", "contradicted")
    assert better.difference == pytest.approx(10.4)
    assert worse.difference == pytest.approx(-10.4)


def test_floor_effect() -> None:
    status = compare_scores("end", scores([30, 40, 50, 60, 70]), scores([20, 31, 39, 50, 58]))
    assert status is not None
    view = replace(status, floor_effect=True).dump()
    assert format_claim_status(view).startswith("floor effect (one seed): +10.4 (")


def test_lower_error_rates_are_better() -> None:
    high, low = scores([30, 40, 50, 60, 70]), scores([20, 31, 39, 50, 58])
    status = compare_scores("end", low, high, lower_is_better=True)
    assert status is not None
    assert (status.status, status.difference) == ("supported", pytest.approx(10.4))


def test_languages_that_disagree_are_inconclusive() -> None:
    status = compare_scores("end", scores([10, 10, 10, 10, 10]), scores([0, 20, 2, 19, 8]))
    assert status is not None
    assert status.status == "inconclusive"
    assert status.low is not None
    assert status.high is not None
    assert status.low < status.difference < status.high


def test_seeds_that_disagree_are_inconclusive() -> None:
    worse = scores([10, 10, 10, 10, 10])
    one = compare_scores("end", scores([15, 15, 15, 15, 15]), worse)
    two = compare_scores("end", scores([15, 15, 15, 15, 15], [6, 6, 6, 6, 6]), worse)
    assert one is not None
    assert two is not None
    assert (one.status, two.status) == ("supported", "inconclusive")
    assert two.difference == pytest.approx(0.5)


def test_one_seed_is_stated_with_the_status() -> None:
    high, low = scores([30, 40, 50, 60, 70]), scores([20, 31, 39, 50, 58])
    twice = scores([30, 40, 50, 60, 70], [30, 40, 50, 60, 70])
    for better, worse, seeds, text in (
        (high, low, 1, "supported (one seed): +10.4 ("),
        (low, high, 1, "contradicted (one seed): -10.4 ("),
        (twice, low, 1, "supported (one seed): +10.4 ("),  # of the run that has fewer
        (twice, twice, 2, "inconclusive: +0.0 ("),
    ):
        status = compare_scores("end", better, worse)
        assert status is not None
        assert status.dump()["seeds"] == seeds
        assert format_claim_status(status.dump()).startswith(text)
        assert format_claim_status(status.dump()).endswith("5 languages, 2 seeds" if seeds == 2 else "5 languages")


def test_two_languages_are_inconclusive() -> None:
    status = compare_scores("end", {0: {"de": 90, "fr": 90}}, {0: {"de": 1, "fr": 1}})
    assert status is not None
    assert (status.low, status.high, status.status) == (None, None, "inconclusive")


def test_only_common_languages_are_compared() -> None:
    status = compare_scores(
        "end", {0: {"de": 9.0, "fr": 5.0, "ar": 7.0, "xx": 0.0}}, {1: {"ar": 6.0, "de": 6.0, "fr": 3.0}}
    )
    assert status is not None
    assert (status.languages, status.difference) == (3, pytest.approx(2.0))
    assert compare_scores("end", {}, {0: {"de": 1.0}}) is None
    assert compare_scores("end", {0: {"fr": 1.0}}, {0: {"de": 1.0}}) is None


values = st.lists(st.floats(0, 100), min_size=5, max_size=5)


@given(values, values)
def test_swapping_the_runs_negates_the_difference(one: list[float], other: list[float]) -> None:
    there, back = (
        compare_scores("end", scores(one), scores(other)),
        compare_scores("end", scores(other), scores(one)),
    )
    assert there is not None
    assert back is not None
    assert there.difference == pytest.approx(-back.difference)
    assert {there.status, back.status} in ({"inconclusive"}, {"supported", "contradicted"})
    apart = [a - b for a, b in zip(one, other, strict=True)]
    assert there.low is not None
    assert there.high is not None
    assert min(apart) - 1e-9 <= there.low <= there.high <= max(apart) + 1e-9
