"""Languages in focus and the replay of all others: shares, proportions, and where one of the two is missing."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.errors import BadInput
from crossling.sampling import RULES, Pair, Rule, Sampling

from .graphs import WORKED, counts

REPLAY = st.floats(0, 1)
CODES = ["de", "en", "sw", "ta", "yo"]
TEXT = st.dictionaries(st.sampled_from(CODES), st.integers(0, 10**9), min_size=1)
CODE = {f"l{number}": f"qa{'abcdefg'[number]}" for number in range(7)}  # the languages of `counts`, as codes
FOCUS = st.lists(st.sampled_from(CODES), min_size=1, unique=True).map(",".join)


def assert_shared(plain: Mapping[str, float] | Mapping[Pair, float], found: Mapping, ours: set, replay: float) -> None:
    """The shares of the two groups, and inside each the ratios of every two."""
    assert [*found] == [*plain]
    for group, share in ((ours, 1 - replay), ({*plain} - ours, replay)):
        before, after = (sum(rates[key] for key in group) for rates in (plain, found))
        assert math.isclose(after, share, abs_tol=1e-9)
        for key in group:
            assert math.isclose(found[key] * before, plain[key] * share, rel_tol=1e-9, abs_tol=1e-300)


@given(TEXT, FOCUS, REPLAY, st.floats(0, 1))
def test_text_in_focus_gets_what_replay_leaves(tokens: dict[str, int], focus: str, replay: float, alpha: float) -> None:
    sampling = Sampling(text_alpha=alpha, focus=focus, replay=replay)
    plain, found = replace(sampling, focus=None).of_text(tokens), sampling.of_text(tokens)
    ours = {language for language in tokens if language in focus.split(",")}
    if any(tokens[key] for key in ours) and any(tokens[key] for key in {*tokens} - ours):
        assert_shared(plain, found, ours, replay)
    else:  # only one of the two is there: it gets everything
        assert found == plain


@pytest.mark.parametrize("rule", RULES)
@given(counts=counts(), focus=st.sets(st.integers(0, 6), min_size=1), replay=REPLAY)
@pytest.mark.filterwarnings("ignore:.*pairs are never drawn", "ignore:.*sampling.replay has no effect")
def test_pairs_with_a_language_in_focus_get_what_replay_leaves(
    rule: Rule, counts: dict[Pair, int], focus: set[int], replay: float
) -> None:
    pairs = {(CODE[a], CODE[b]): n for (a, b), n in counts.items()}
    chosen = [[*CODE.values()][number] for number in focus]
    sampling = Sampling(pair_rule=rule, relax=True, focus=",".join(chosen), replay=replay)
    plain, found = replace(sampling, focus=None).of_pairs(pairs), sampling.of_pairs(pairs)
    ours = {pair for pair in pairs if {*pair} & {*chosen}}
    if min(sum(plain[key] for key in group) for group in (ours, {*pairs} - ours)) > 1e-12:
        assert_shared(plain, found, ours, replay)
    else:
        assert found == plain


def test_the_worked_example() -> None:
    """Half of all draws for Tamil, and in them its pairs as they were to each other."""
    plain, found = Sampling().of_pairs(WORKED), Sampling(focus="ta").of_pairs(WORKED)
    assert sum(rate for pair, rate in found.items() if "ta" in pair) == pytest.approx(0.5)
    assert found["en", "ta"] / found["sw", "ta"] == pytest.approx(30**0.7)
    assert found["en", "de"] / found["en", "sw"] == pytest.approx(plain["en", "de"] / plain["en", "sw"])
    assert found["en", "ta"] > plain["en", "ta"]


def test_no_replay_draws_the_focus_alone_and_full_replay_all_others() -> None:
    tokens = {"en": 1000, "sw": 10, "ta": 20}
    assert Sampling(focus="sw", replay=0).of_text(tokens) == {"en": 0, "sw": 1, "ta": 0}
    assert Sampling(focus="sw", replay=1).of_text(tokens)["sw"] == 0


def test_a_language_is_known_by_any_of_its_codes() -> None:
    assert Sampling(focus=" swh, TAM").focused == {"sw", "ta"}
    assert Sampling(focus="swh_Latn").of_text({"en": 9, "sw": 1}) == {"en": 0.5, "sw": 0.5}
    assert Sampling().focused == frozenset()


@pytest.mark.parametrize("focus", ["swahili", "sw,,ta", ""])
def test_what_is_no_language_is_refused(focus: str) -> None:
    with pytest.raises(BadInput, match=rf"^sampling\.focus={focus}: '\w*' is no language code"):
        Sampling(focus=focus).of_text({"sw": 1})


def test_a_rule_that_draws_nothing_of_one_side_says_so() -> None:
    """ta and yo need English whole, so that en-sw, the only pair without a language in focus, is never drawn."""
    pairs = dict.fromkeys([("en", "ta"), ("en", "yo"), ("en", "sw"), ("de", "sw")], 10)
    sampling = Sampling(pair_rule="m2m", pair_alpha=0, relax=True, focus="de,ta,yo")
    with pytest.warns(
        UserWarning, match="m2m draws no pair without a language in focus, so sampling.replay has no effect"
    ):
        assert sampling.of_pairs(pairs)["en", "sw"] == pytest.approx(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert replace(sampling, pair_rule="alpha").of_pairs(pairs)["en", "sw"] == 0.5
        assert sum(replace(sampling, focus="de,en,sw,ta,yo").of_pairs(pairs).values()) == pytest.approx(1)
