"""Which shares of languages can be had on which pairs, who stands in the way, and what comes closest."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from crossling.errors import BadInput
from crossling.sampling import Pair, marginals, relaxed, shortage, xy_lent
from crossling.sampling.marginals import possible, problem

from .graphs import STAR, TEMPERATURES, WORKED, counts, incidence, neighbours, surplus


def test_marginals_of_the_worked_example() -> None:
    found = marginals(WORKED, 5)
    assert {language: round(mass, 4) for language, mass in found.items()} == {
        "de": 0.3105,
        "en": 0.3156,
        "sw": 0.1784,
        "ta": 0.1955,
    }


@given(counts(), TEMPERATURES)
def test_marginals_are_powers_of_the_shares(pairs: dict[Pair, int], temperature: float) -> None:
    data, tempered = marginals(pairs, 1), marginals(pairs, temperature)
    powers = {language: share ** (1 / temperature) for language, share in data.items()}
    assert sum(data.values()) == pytest.approx(1)
    assert tempered == pytest.approx({language: power / sum(powers.values()) for language, power in powers.items()})


# ---- who stands in the way ----------------------------------------------------------------------------------


@given(counts(), TEMPERATURES)
def test_a_shortage_is_found_exactly_where_some_set_wants_too_much(pairs: dict[Pair, int], temperature: float) -> None:
    wanted = marginals(pairs, temperature)
    found = shortage([*pairs], wanted)
    assert (found is not None) == (surplus([*pairs], wanted) > 1e-12)
    if found is not None:
        assert not any(a in found.languages and b in found.languages for a, b in pairs)
        assert {*found.neighbours} == neighbours([*pairs], found.languages)
        assert found.mass == pytest.approx(sum(wanted[language] for language in found.languages))
        assert found.neighbours_mass == pytest.approx(sum(wanted[language] for language in found.neighbours))
        assert found.mass > found.neighbours_mass


@given(counts())
def test_the_data_itself_can_always_be_had(pairs: dict[Pair, int]) -> None:
    assert shortage([*pairs], marginals(pairs, 1)) is None
    assert {*possible([*pairs], marginals(pairs, 1))} == {*pairs}


@pytest.mark.parametrize(("temperature", "feasible"), [(1, True), (1.01, False), (1 / 0.7, False), (5, False)])
def test_a_star_can_be_had_only_if_its_centre_has_half(temperature: float, feasible: bool) -> None:
    found = shortage([*STAR], marginals(STAR, temperature))
    assert (found is None) == feasible
    if found:
        assert (found.languages, found.neighbours) == (("de", "sw", "ta"), ("en",))


def test_the_sentence_names_who_with_how_much_and_what_to_do() -> None:
    with pytest.raises(BadInput) as caught:
        xy_lent(STAR, 1 / 0.7)
    assert str(caught.value) == (
        "sampling at temperature 1.43: de, sw, ta should be 54.22% of all sentences drawn, but they are paired only"
        " with en, at 45.78%, and can be no more than that: set sampling.relax=true or sampling.pair_alpha=1, or add"
        " pairs among them"
    )


def test_a_long_list_is_cut() -> None:
    with pytest.raises(BadInput, match=r"l00, l01, l02, l03, l04, l05 and 94 more should be"):
        xy_lent({("en", f"l{i:02}"): 10 * i + 10 for i in range(100)}, 2)


@pytest.mark.parametrize(("worse", "better"), [("abc", "def"), ("def", "abc")])
def test_of_unrelated_groups_only_the_worst_is_named(worse: str, better: str) -> None:
    """Two stars that have nothing to do with each other."""
    pairs = [("a", "b"), ("a", "c"), ("d", "e"), ("d", "f")]
    wanted = dict.fromkeys("abcdef", 0.2) | {worse[0]: 0.05, better[0]: 0.15}
    found = shortage(pairs, wanted)
    assert found is not None
    assert (found.languages, found.neighbours) == (tuple(worse[1:]), (worse[0],))


@given(counts(), TEMPERATURES)
def test_the_exponent_that_is_recommended_can_be_had(pairs: dict[Pair, int], temperature: float) -> None:
    try:
        problem(pairs, temperature, relax=False)
    except BadInput as error:
        alpha = float(str(error).split("sampling.pair_alpha=")[1].split(",")[0])
        assert 1 / temperature < alpha <= 1
        problem(pairs, 1 / alpha, relax=False)


# ---- what comes closest -------------------------------------------------------------------------------------


@given(counts(), TEMPERATURES)
def test_relaxed_marginals_can_be_had_and_none_are_closer(pairs: dict[Pair, int], temperature: float) -> None:
    """KL(wanted || m) is convex in the rates x of the pairs, m = B x; its minimum over the simplex is where the mean of
    wanted / m over the two languages of a pair is 1 for pairs that are drawn and at most 1 for the others."""
    wanted = marginals(pairs, temperature)
    found = relaxed([*pairs], wanted)
    assert sum(found.values()) == pytest.approx(1)
    assert surplus([*pairs], found) < 1e-12
    assert all(wanted[a] / found[a] + wanted[b] / found[b] <= 2 + 1e-9 for a, b in pairs)
    for a, b in possible([*pairs], found):
        assert wanted[a] / found[a] + wanted[b] / found[b] == pytest.approx(2)


@given(counts(), TEMPERATURES)
def test_what_can_be_had_is_not_relaxed(pairs: dict[Pair, int], temperature: float) -> None:
    wanted = marginals(pairs, temperature)
    if shortage([*pairs], wanted) is None:
        assert relaxed([*pairs], wanted) == wanted


def test_a_star_relaxed_gives_its_centre_half() -> None:
    wanted, found = marginals(STAR, 5), relaxed([*STAR], marginals(STAR, 5))
    assert found["en"] == pytest.approx(0.5)
    assert found["sw"] / found["ta"] == pytest.approx(wanted["sw"] / wanted["ta"])


def test_others_keep_what_they_want() -> None:
    pairs = [("en", "sw"), ("en", "ta"), ("de", "fr"), ("en", "de")]
    wanted = {"en": 0.2, "sw": 0.2, "ta": 0.2, "de": 0.2, "fr": 0.2}
    expected = {"en": 0.3, "sw": 0.15, "ta": 0.15, "de": 0.2, "fr": 0.2}
    assert relaxed(pairs, wanted) == pytest.approx(expected)


def test_several_sets_are_settled_from_the_worst_on() -> None:
    """sw and ta have only en; yo has en and de. All three want more than en and de, but sw and ta more so than yo."""
    pairs = [("en", "sw"), ("en", "ta"), ("en", "yo"), ("de", "yo"), ("en", "de")]
    wanted = {"en": 0.1, "de": 0.2, "sw": 0.2, "ta": 0.2, "yo": 0.3}
    found = relaxed(pairs, wanted)
    assert found == pytest.approx({"en": 0.25, "sw": 0.125, "ta": 0.125, "yo": 0.25, "de": 0.25})
    assert possible(pairs, found) == [("en", "sw"), ("en", "ta"), ("de", "yo")]


# ---- pairs that cannot be drawn -----------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(counts(10**4), TEMPERATURES)
def test_a_pair_is_possible_exactly_if_some_distribution_draws_it(pairs: dict[Pair, int], temperature: float) -> None:
    wanted = relaxed([*pairs], marginals(pairs, temperature))
    names, found = [*pairs], possible([*pairs], wanted)
    for i, pair in enumerate(names):
        gain = np.zeros(len(names))
        gain[i] = -1
        most = linprog(gain, A_eq=incidence(names, [*wanted]), b_eq=[*wanted.values()])
        assert most.status == 0
        if most.x[i] > 1e-6:
            assert pair in found
        elif most.x[i] < 1e-9 * min(wanted[language] for language in pair):
            assert pair not in found


def test_a_chain_of_equals_has_no_middle() -> None:
    """a and d need all of b and c."""
    chain = [("a", "b"), ("b", "c"), ("c", "d")]
    assert possible(chain, dict.fromkeys("abcd", 0.25)) == [("a", "b"), ("c", "d")]


def test_odd_circles_can_be_had() -> None:
    ring = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("a", "e")]
    assert possible(ring, dict.fromkeys("abcde", 0.2)) == ring


@given(st.integers(2, 30))
def test_everybody_with_everybody_can_always_be_had_up_to_half(languages: int) -> None:
    wanted = {f"l{i}": 1 / languages for i in range(languages)}
    assert shortage([*combinations(wanted, 2)], wanted) is None


@pytest.mark.parametrize("pairs", [{("a", "a"): 3}, {("a", "b"): 1, ("b", "a"): 1}])
def test_keys_are_two_languages_and_each_pair_once(pairs: dict[Pair, int]) -> None:
    with pytest.raises(ValueError, match="each pair once"):
        problem(pairs, 2, relax=True)
