"""Sampling settings of a recipe: defaults, rules, and languages in focus with replay of all others."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.core import settings
from crossling.core.errors import BadInput
from crossling.sampling import RULES, Pair, Sampling, m2m, temperature_sampling, xy_lent
from crossling.sampling.sampling_settings import Rule

from .graphs import STAR, WORKED, counts

REPLAY = st.floats(0, 1)
CODES = ["de", "en", "sw", "ta", "yo"]
TEXT = st.dictionaries(st.sampled_from(CODES), st.integers(0, 10**9), min_size=1)
CODE = {f"l{number}": f"qa{'abcdefg'[number]}" for number in range(7)}  # the languages of `counts`, as codes
FOCUS = st.lists(st.sampled_from(CODES), min_size=1, unique=True).map(",".join)


def test_defaults_are_those_of_the_papers() -> None:
    expected = Sampling(
        text_alpha=0.7, pair_rule="alpha", pair_alpha=0.7, pivot=None, relax=False, focus=None, replay=0.5
    )
    assert Sampling() == expected


def test_each_rule_computes_its_probabilities() -> None:
    assert RULES == ("alpha", "m2m", "xy_lent")
    assert Sampling(text_alpha=0.3).text_probabilities({"en": 5, "sw": 1}) == temperature_sampling(
        {"en": 5, "sw": 1}, 0.3
    )
    assert Sampling(pair_alpha=0.2).pair_probabilities(WORKED) == temperature_sampling(WORKED, 0.2)
    assert Sampling(pair_rule="m2m", pair_alpha=0.2).pair_probabilities(WORKED) == m2m(WORKED, 5)
    assert Sampling(pair_rule="xy_lent", pair_alpha=0.2).pair_probabilities(WORKED) == xy_lent(WORKED, 5)
    assert Sampling(pair_rule="xy_lent", pair_alpha=0).pair_probabilities(WORKED) == xy_lent(WORKED, float("inf"))


def test_relax_setting_uses_the_closest_marginals() -> None:
    sampling = Sampling(pair_rule="xy_lent")
    with pytest.raises(BadInput, match=r"sampling\.relax=true"):
        sampling.pair_probabilities(STAR)
    relaxed = settings.assign(sampling, "relax=true").pair_probabilities(STAR)
    assert relaxed == xy_lent(STAR, 1 / 0.7, relax=True)


def test_settings_are_assigned_and_read_back() -> None:
    sampling = Sampling()
    for assignment in ("pair_rule=xy_lent", "pair_alpha=0.5", "pivot=en", "relax=on"):
        sampling = settings.assign(sampling, assignment)
    assert sampling == Sampling(text_alpha=0.7, pair_rule="xy_lent", pair_alpha=0.5, pivot="en", relax=True)
    assert settings.from_dict(Sampling, {"pair_rule": "m2m", "relax": True}, "here") == Sampling(
        pair_rule="m2m", relax=True
    )
    with pytest.raises(BadInput, match=r"pair_rule=sinkhorn: expected one of alpha, m2m, xy_lent"):
        settings.assign(sampling, "pair_rule=sinkhorn")


# ---- focus and replay ----------------------------------------------------------------------------------------


def assert_shared(plain: Mapping[str, float] | Mapping[Pair, float], found: Mapping, ours: set, replay: float) -> None:
    """Check the probability of the two groups, and the ratios inside each."""
    assert [*found] == [*plain]
    for group, share in ((ours, 1 - replay), ({*plain} - ours, replay)):
        before, after = (sum(probabilities[key] for key in group) for probabilities in (plain, found))
        assert math.isclose(after, share, abs_tol=1e-9)
        for key in group:
            assert math.isclose(found[key] * before, plain[key] * share, rel_tol=1e-9, abs_tol=1e-300)


@given(TEXT, FOCUS, REPLAY, st.floats(0, 1))
def test_text_in_focus_gets_1_minus_replay(tokens: dict[str, int], focus: str, replay: float, alpha: float) -> None:
    sampling = Sampling(text_alpha=alpha, focus=focus, replay=replay)
    plain, found = replace(sampling, focus=None).text_probabilities(tokens), sampling.text_probabilities(tokens)
    ours = {language for language in tokens if language in focus.split(",")}
    if any(tokens[key] for key in ours) and any(tokens[key] for key in {*tokens} - ours):
        assert_shared(plain, found, ours, replay)
    else:  # only one of the two has data: it gets everything
        assert found == plain


@pytest.mark.parametrize("rule", RULES)
@given(counts=counts(), focus=st.sets(st.integers(0, 6), min_size=1), replay=REPLAY)
@pytest.mark.filterwarnings("ignore:.*pairs are never sampled", "ignore:.*sampling.replay has no effect")
def test_pairs_with_a_language_in_focus_get_1_minus_replay(
    rule: Rule, counts: dict[Pair, int], focus: set[int], replay: float
) -> None:
    pairs = {(CODE[a], CODE[b]): n for (a, b), n in counts.items()}
    chosen = [[*CODE.values()][number] for number in focus]
    sampling = Sampling(pair_rule=rule, relax=True, focus=",".join(chosen), replay=replay)
    plain, found = replace(sampling, focus=None).pair_probabilities(pairs), sampling.pair_probabilities(pairs)
    ours = {pair for pair in pairs if {*pair} & {*chosen}}
    if min(sum(plain[key] for key in group) for group in (ours, {*pairs} - ours)) > 1e-12:
        assert_shared(plain, found, ours, replay)
    else:
        assert found == plain


def test_worked_example() -> None:
    """Half of all samples are Tamil pairs, in their earlier proportions."""
    plain, found = Sampling().pair_probabilities(WORKED), Sampling(focus="ta").pair_probabilities(WORKED)
    assert sum(probability for pair, probability in found.items() if "ta" in pair) == pytest.approx(0.5)
    assert found["en", "ta"] / found["sw", "ta"] == pytest.approx(30**0.7)
    assert found["en", "de"] / found["en", "sw"] == pytest.approx(plain["en", "de"] / plain["en", "sw"])
    assert found["en", "ta"] > plain["en", "ta"]


def test_replay_0_samples_only_the_focus_and_replay_1_only_the_rest() -> None:
    tokens = {"en": 1000, "sw": 10, "ta": 20}
    assert Sampling(focus="sw", replay=0).text_probabilities(tokens) == {"en": 0, "sw": 1, "ta": 0}
    assert Sampling(focus="sw", replay=1).text_probabilities(tokens)["sw"] == 0


def test_a_language_is_known_by_any_of_its_codes() -> None:
    assert Sampling(focus=" swh, TAM").focus_languages == {"sw", "ta"}
    assert Sampling(focus="swh_Latn").text_probabilities({"en": 9, "sw": 1}) == {"en": 0.5, "sw": 0.5}
    assert Sampling().focus_languages == frozenset()


@pytest.mark.parametrize("focus", ["swahili", "sw,,ta", ""])
def test_unknown_language_in_focus_is_refused(focus: str) -> None:
    with pytest.raises(BadInput, match=rf"^sampling\.focus={focus}: '\w*' is not a language code"):
        Sampling(focus=focus).text_probabilities({"sw": 1})


def test_rule_that_samples_nothing_of_one_side_warns() -> None:
    """ta and yo need English whole, so that en-sw, the only pair without a language in focus, is never sampled."""
    pairs = dict.fromkeys([("en", "ta"), ("en", "yo"), ("en", "sw"), ("de", "sw")], 10)
    sampling = Sampling(pair_rule="m2m", pair_alpha=0, relax=True, focus="de,ta,yo")
    with pytest.warns(
        UserWarning, match="m2m samples no pair without a language in focus, so sampling.replay has no effect"
    ):
        assert sampling.pair_probabilities(pairs)["en", "sw"] == pytest.approx(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert replace(sampling, pair_rule="alpha").pair_probabilities(pairs)["en", "sw"] == 0.5
        assert sum(replace(sampling, focus="de,en,sw,ta,yo").pair_probabilities(pairs).values()) == pytest.approx(1)
