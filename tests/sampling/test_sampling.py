"""The sampling part of a recipe: its defaults, its rules, and how it is set."""

from __future__ import annotations

import pytest

from crossling import settings
from crossling.errors import BadInput
from crossling.sampling import RULES, Sampling, m2m, tempered, xy_lent

from .graphs import STAR, WORKED


def test_defaults_are_those_of_the_papers() -> None:
    expected = Sampling(
        text_alpha=0.7, pair_rule="alpha", pair_alpha=0.7, pivot=None, relax=False, focus=None, replay=0.5
    )
    assert Sampling() == expected


def test_rules() -> None:
    assert RULES == ("alpha", "m2m", "xy_lent")
    assert Sampling(text_alpha=0.3).of_text({"en": 5, "sw": 1}) == tempered({"en": 5, "sw": 1}, 0.3)
    assert Sampling(pair_alpha=0.2).of_pairs(WORKED) == tempered(WORKED, 0.2)
    assert Sampling(pair_rule="m2m", pair_alpha=0.2).of_pairs(WORKED) == m2m(WORKED, 5)
    assert Sampling(pair_rule="xy_lent", pair_alpha=0.2).of_pairs(WORKED) == xy_lent(WORKED, 5)
    assert Sampling(pair_rule="xy_lent", pair_alpha=0).of_pairs(WORKED) == xy_lent(WORKED, float("inf"))


def test_relaxing_is_asked_for() -> None:
    sampling = Sampling(pair_rule="xy_lent")
    with pytest.raises(BadInput, match=r"sampling\.relax=true"):
        sampling.of_pairs(STAR)
    relaxed = settings.changed(sampling, "relax=true").of_pairs(STAR)
    assert relaxed == xy_lent(STAR, 1 / 0.7, relax=True)


def test_it_is_set_and_read_back() -> None:
    sampling = Sampling()
    for assignment in ("pair_rule=xy_lent", "pair_alpha=0.5", "pivot=en", "relax=on"):
        sampling = settings.changed(sampling, assignment)
    assert sampling == Sampling(0.7, "xy_lent", 0.5, "en", True)
    assert settings.read(Sampling, {"pair_rule": "m2m", "relax": True}, "here") == Sampling(pair_rule="m2m", relax=True)
    with pytest.raises(BadInput, match=r"pair_rule=sinkhorn: expected one of alpha, m2m, xy_lent"):
        settings.changed(sampling, "pair_rule=sinkhorn")
