"""Held, not held or undecided: what the interval says, and what it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.laboratory.results import told_of
from crossling.laboratory.verdict import judged

CODES = ["ar", "de", "fr", "sw", "zh"]


def scores(*seeds: list[float]) -> dict[int, dict[str, float]]:
    return {seed: dict(zip(CODES, values, strict=False)) for seed, values in enumerate(seeds)}


def test_a_clear_difference_holds_and_turned_round_it_does_not() -> None:
    high, low = scores([30, 40, 50, 60, 70]), scores([20, 31, 39, 50, 58])
    better, worse = judged("the end", high, low), judged("the end", low, high)
    assert better is not None
    assert worse is not None
    assert (better.verdict, worse.verdict) == ("held", "not held")
    assert better.difference == pytest.approx(10.4)
    assert worse.difference == pytest.approx(-10.4)


def test_at_the_floor_nothing_is_decided() -> None:
    found = judged("the end", scores([30, 40, 50, 60, 70]), scores([20, 31, 39, 50, 58]))
    assert found is not None
    view = replace(found, floor=True).dump()
    assert told_of(view).startswith("at the floor (one seed): +10.4 (")


def test_errors_are_better_the_lower() -> None:
    high, low = scores([30, 40, 50, 60, 70]), scores([20, 31, 39, 50, 58])
    found = judged("the end", low, high, lower_is_better=True)
    assert found is not None
    assert (found.verdict, found.difference) == ("held", pytest.approx(10.4))


def test_languages_that_disagree_decide_nothing() -> None:
    found = judged("the end", scores([10, 10, 10, 10, 10]), scores([0, 20, 2, 19, 8]))
    assert found is not None
    assert found.verdict == "undecided"
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.difference < found.high


def test_what_all_languages_say_is_undone_by_a_seed_that_says_otherwise() -> None:
    worse = scores([10, 10, 10, 10, 10])
    one = judged("the end", scores([15, 15, 15, 15, 15]), worse)
    two = judged("the end", scores([15, 15, 15, 15, 15], [6, 6, 6, 6, 6]), worse)
    assert one is not None
    assert two is not None
    assert (one.verdict, two.verdict) == ("held", "undecided")
    assert two.difference == pytest.approx(0.5)


def test_one_seed_is_said_with_the_verdict() -> None:
    high, low = scores([30, 40, 50, 60, 70]), scores([20, 31, 39, 50, 58])
    twice = scores([30, 40, 50, 60, 70], [30, 40, 50, 60, 70])
    for better, worse, seeds, told in (
        (high, low, 1, "held (one seed): +10.4 ("),
        (low, high, 1, "not held (one seed): -10.4 ("),
        (twice, low, 1, "held (one seed): +10.4 ("),  # the run that has fewer
        (twice, twice, 2, "undecided: +0.0 ("),
    ):
        found = judged("the end", better, worse)
        assert found is not None
        assert found.dump()["seeds"] == seeds
        assert told_of(found.dump()).startswith(told)
        assert told_of(found.dump()).endswith("5 languages, 2 seeds" if seeds == 2 else "5 languages")


def test_two_languages_are_too_few() -> None:
    found = judged("the end", {0: {"de": 90, "fr": 90}}, {0: {"de": 1, "fr": 1}})
    assert found is not None
    assert (found.low, found.high, found.verdict) == (None, None, "undecided")


def test_only_what_both_have_is_compared() -> None:
    found = judged("the end", {0: {"de": 9.0, "fr": 5.0, "ar": 7.0, "xx": 0.0}}, {1: {"ar": 6.0, "de": 6.0, "fr": 3.0}})
    assert found is not None
    assert (found.languages, found.difference) == (3, pytest.approx(2.0))
    assert judged("the end", {}, {0: {"de": 1.0}}) is None
    assert judged("the end", {0: {"fr": 1.0}}, {0: {"de": 1.0}}) is None


values = st.lists(st.floats(0, 100), min_size=5, max_size=5)


@given(values, values)
def test_turning_the_sides_round_turns_the_difference_round(one: list[float], other: list[float]) -> None:
    there, back = judged("the end", scores(one), scores(other)), judged("the end", scores(other), scores(one))
    assert there is not None
    assert back is not None
    assert there.difference == pytest.approx(-back.difference)
    assert {there.verdict, back.verdict} in ({"undecided"}, {"held", "not held"})
    apart = [a - b for a, b in zip(one, other, strict=True)]
    assert there.low is not None
    assert there.high is not None
    assert min(apart) - 1e-9 <= there.low <= there.high <= max(apart) + 1e-9
