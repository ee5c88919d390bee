"""Feasibility of language marginals, the sets that violate it, and the closest feasible marginals."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from crossling.core.errors import BadInput
from crossling.sampling import Pair, xy_lent
from crossling.sampling.marginals import (
    build_problem,
    closest_feasible_marginals,
    feasible_pairs,
    find_infeasible_set,
    language_marginals,
)

from .graphs import STAR, TEMPERATURES, WORKED, counts, incidence, neighbors, surplus


def test_marginals_of_the_worked_example() -> None:
    found = language_marginals(WORKED, 5)
    assert {language: round(mass, 4) for language, mass in found.items()} == {
        "de": 0.3105,
        "en": 0.3156,
        "sw": 0.1784,
        "ta": 0.1955,
    }


@given(counts(), TEMPERATURES)
def test_marginals_are_powers_of_the_proportions(pairs: dict[Pair, int], temperature: float) -> None:
    data, found = language_marginals(pairs, 1), language_marginals(pairs, temperature)
    powers = {language: share ** (1 / temperature) for language, share in data.items()}
    assert sum(data.values()) == pytest.approx(1)
    assert found == pytest.approx({language: power / sum(powers.values()) for language, power in powers.items()})


# ---- infeasible sets ----------------------------------------------------------------------------------------


@given(counts(), TEMPERATURES)
def test_infeasible_set_is_found_exactly_if_some_set_exceeds_its_neighbors(
    pairs: dict[Pair, int], temperature: float
) -> None:
    target = language_marginals(pairs, temperature)
    found = find_infeasible_set([*pairs], target)
    assert (found is not None) == (surplus([*pairs], target) > 1e-12)
    if found is not None:
        assert not any(a in found.languages and b in found.languages for a, b in pairs)
        assert {*found.neighbors} == neighbors([*pairs], found.languages)
        assert found.mass == pytest.approx(sum(target[language] for language in found.languages))
        assert found.neighbors_mass == pytest.approx(sum(target[language] for language in found.neighbors))
        assert found.mass > found.neighbors_mass


@given(counts())
def test_marginals_of_the_data_are_feasible(pairs: dict[Pair, int]) -> None:
    assert find_infeasible_set([*pairs], language_marginals(pairs, 1)) is None
    assert {*feasible_pairs([*pairs], language_marginals(pairs, 1))} == {*pairs}


@pytest.mark.parametrize(("temperature", "feasible"), [(1, True), (1.01, False), (1 / 0.7, False), (5, False)])
def test_star_is_feasible_only_if_its_centre_has_half(temperature: float, feasible: bool) -> None:
    found = find_infeasible_set([*STAR], language_marginals(STAR, temperature))
    assert (found is None) == feasible
    if found:
        assert (found.languages, found.neighbors) == (("de", "sw", "ta"), ("en",))


def test_message_names_the_languages_their_masses_and_the_fix() -> None:
    with pytest.raises(BadInput) as caught:
        xy_lent(STAR, 1 / 0.7)
    assert str(caught.value) == (
        "sampling at temperature 1.43: de, sw, ta should be 54.22% of all sampled sentences, but they are paired only"
        " with en, at 45.78%, and cannot exceed that. Set sampling.relax=true or sampling.pair_alpha=1, or add pairs"
        " among them."
    )


def test_long_list_of_languages_is_truncated() -> None:
    with pytest.raises(BadInput, match=r"l00, l01, l02, l03, l04, l05 and 94 more should be"):
        xy_lent({("en", f"l{i:02}"): 10 * i + 10 for i in range(100)}, 2)


@pytest.mark.parametrize(("worse", "better"), [("abc", "def"), ("def", "abc")])
def test_only_the_worst_of_independent_groups_is_reported(worse: str, better: str) -> None:
    """Two stars without a common language."""
    pairs = [("a", "b"), ("a", "c"), ("d", "e"), ("d", "f")]
    target = dict.fromkeys("abcdef", 0.2) | {worse[0]: 0.05, better[0]: 0.15}
    found = find_infeasible_set(pairs, target)
    assert found is not None
    assert (found.languages, found.neighbors) == (tuple(worse[1:]), (worse[0],))


@given(counts(), TEMPERATURES)
def test_suggested_exponent_is_feasible(pairs: dict[Pair, int], temperature: float) -> None:
    try:
        build_problem(pairs, temperature, relax=False)
    except BadInput as error:
        alpha = float(str(error).split("sampling.pair_alpha=")[1].split(",")[0])
        assert 1 / temperature < alpha <= 1
        build_problem(pairs, 1 / alpha, relax=False)


# ---- closest feasible marginals -----------------------------------------------------------------------------


@given(counts(), TEMPERATURES)
def test_closest_marginals_are_feasible_and_none_are_closer(pairs: dict[Pair, int], temperature: float) -> None:
    """Check the optimality conditions of KL(target || m), which is convex in the pair probabilities x with m = B x.

    The mean of target / m over the two languages of a pair is 1 for sampled pairs and at most 1 for the others.
    """
    target = language_marginals(pairs, temperature)
    found = closest_feasible_marginals([*pairs], target)
    assert sum(found.values()) == pytest.approx(1)
    assert surplus([*pairs], found) < 1e-12
    assert all(target[a] / found[a] + target[b] / found[b] <= 2 + 1e-9 for a, b in pairs)
    for a, b in feasible_pairs([*pairs], found):
        assert target[a] / found[a] + target[b] / found[b] == pytest.approx(2)


@given(counts(), TEMPERATURES)
def test_feasible_marginals_do_not_change(pairs: dict[Pair, int], temperature: float) -> None:
    target = language_marginals(pairs, temperature)
    if find_infeasible_set([*pairs], target) is None:
        assert closest_feasible_marginals([*pairs], target) == target


def test_closest_marginals_of_a_star_give_its_centre_half() -> None:
    target, found = language_marginals(STAR, 5), closest_feasible_marginals([*STAR], language_marginals(STAR, 5))
    assert found["en"] == pytest.approx(0.5)
    assert found["sw"] / found["ta"] == pytest.approx(target["sw"] / target["ta"])


def test_other_languages_keep_their_target() -> None:
    pairs = [("en", "sw"), ("en", "ta"), ("de", "fr"), ("en", "de")]
    target = {"en": 0.2, "sw": 0.2, "ta": 0.2, "de": 0.2, "fr": 0.2}
    expected = {"en": 0.3, "sw": 0.15, "ta": 0.15, "de": 0.2, "fr": 0.2}
    assert closest_feasible_marginals(pairs, target) == pytest.approx(expected)


def test_several_sets_are_settled_from_the_worst_on() -> None:
    """Languages sw and ta have only en; yo has en and de. All three exceed these, sw and ta by a larger ratio."""
    pairs = [("en", "sw"), ("en", "ta"), ("en", "yo"), ("de", "yo"), ("en", "de")]
    target = {"en": 0.1, "de": 0.2, "sw": 0.2, "ta": 0.2, "yo": 0.3}
    found = closest_feasible_marginals(pairs, target)
    assert found == pytest.approx({"en": 0.25, "sw": 0.125, "ta": 0.125, "yo": 0.25, "de": 0.25})
    assert feasible_pairs(pairs, found) == [("en", "sw"), ("en", "ta"), ("de", "yo")]


# ---- feasible pairs -----------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(counts(10**4), TEMPERATURES)
def test_pair_is_feasible_exactly_if_some_distribution_samples_it(pairs: dict[Pair, int], temperature: float) -> None:
    target = closest_feasible_marginals([*pairs], language_marginals(pairs, temperature))
    names, found = [*pairs], feasible_pairs([*pairs], target)
    for i, pair in enumerate(names):
        gain = np.zeros(len(names))
        gain[i] = -1
        solution = linprog(gain, A_eq=incidence(names, [*target]), b_eq=[*target.values()])
        assert solution.status == 0
        if solution.x[i] > 1e-6:
            assert pair in found
        elif solution.x[i] < 1e-9 * min(target[language] for language in pair):
            assert pair not in found


def test_middle_of_a_chain_of_equals_is_infeasible() -> None:
    """Languages a and d need all of b and c."""
    chain = [("a", "b"), ("b", "c"), ("c", "d")]
    assert feasible_pairs(chain, dict.fromkeys("abcd", 0.25)) == [("a", "b"), ("c", "d")]


def test_odd_cycles_are_feasible() -> None:
    ring = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("a", "e")]
    assert feasible_pairs(ring, dict.fromkeys("abcde", 0.2)) == ring


@given(st.integers(2, 30))
def test_uniform_marginals_on_all_pairs_are_feasible(languages: int) -> None:
    target = {f"l{i}": 1 / languages for i in range(languages)}
    assert find_infeasible_set([*combinations(target, 2)], target) is None


@pytest.mark.parametrize("pairs", [{("a", "a"): 3}, {("a", "b"): 1, ("b", "a"): 1}])
def test_repeated_pairs_and_pairs_of_one_language_are_refused(pairs: dict[Pair, int]) -> None:
    with pytest.raises(ValueError, match="each pair once"):
        build_problem(pairs, 2, relax=True)
