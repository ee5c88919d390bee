"""XY-LENT's rule: nearest to the data of all that has the marginals, and nothing lost that need not be."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import null_space

from crossling.sampling import Pair, marginals, xy_lent
from crossling.sampling.xy_lent import fitted

from .graphs import STAR, TEMPERATURES, WORKED, counts, full_counts, incidence, matrix


def test_the_worked_example() -> None:
    each_direction = {"-".join(pair): round(rate / 2, 4) for pair, rate in xy_lent(WORKED, 5).items()}
    assert each_direction == {
        "en-de": 0.1811,
        "en-sw": 0.0676,
        "en-ta": 0.0669,
        "de-sw": 0.0558,
        "de-ta": 0.0736,
        "sw-ta": 0.0550,
    }


@given(counts())
def test_temperature_one_gives_the_data(pairs: dict[Pair, int]) -> None:
    total = sum(pairs.values())
    assert xy_lent(pairs, 1) == pytest.approx({pair: n / total for pair, n in pairs.items()}, rel=1e-9)


@given(full_counts(), TEMPERATURES, st.integers(0, 2**32 - 1))
def test_every_other_distribution_with_the_marginals_is_farther_from_the_data(
    pairs: dict[Pair, int], temperature: float, seed: int
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rates = xy_lent(pairs, temperature, relax=True)
    drawn = [pair for pair in pairs if rates[pair]]
    q, p = (np.array([float(of[pair]) for pair in drawn]) for of in (pairs, rates))
    directions = null_space(incidence(drawn, sorted({language for pair in drawn for language in pair})))
    if not directions.size:
        return
    move = directions @ np.random.default_rng(seed).normal(size=directions.shape[1])
    farthest = (p / np.abs(move)).min()
    for step in (1e-3 * farthest, 0.1 * farthest, 0.9 * farthest):
        other = p + step * move
        assert other @ np.log(other / q) >= p @ np.log(p / q) - 1e-12


@given(full_counts(), TEMPERATURES)
def test_rows_and_columns_are_scaled_and_nothing_else(pairs: dict[Pair, int], temperature: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rates = xy_lent(pairs, temperature, relax=True)
    drawn = [pair for pair in pairs if rates[pair]]
    ratio = np.log([rates[pair] / pairs[pair] for pair in drawn])
    languages = sorted({language for pair in drawn for language in pair})
    design = incidence(drawn, languages).T
    scale, *_ = np.linalg.lstsq(design, ratio, rcond=None)
    assert design @ scale == pytest.approx(ratio, abs=1e-5)


def test_proportional_fitting_as_the_textbooks_have_it() -> None:
    wanted = marginals(WORKED, 5)
    languages, m = [*wanted], np.array([*wanted.values()])
    Q = matrix(WORKED, languages)
    u = v = np.ones(len(m))
    for _ in range(50):
        u = m / (Q @ v)
        v = m / (Q.T @ u)
    assert matrix(xy_lent(WORKED, 5), languages) == pytest.approx(u[:, None] * Q * v, abs=1e-10)


@pytest.mark.parametrize(("temperature", "leaked"), [(1 / 0.7, 0.08), (5, 0.35)])
@pytest.mark.parametrize("epsilon", [1e-6, 1e-9, 1e-12])
def test_why_counts_are_not_smoothed(temperature: float, leaked: float, epsilon: float) -> None:
    """-log(Q + epsilon), as the paper has it, succeeds on a star by drawing pairs that do not exist."""
    wanted = marginals(STAR, temperature)
    Q = matrix(STAR, [*wanted])
    P = np.exp(fitted(np.log(Q + epsilon), np.log([*wanted.values()])))
    assert round(float(P[Q == 0].sum()), 2) == leaked


@given(st.floats(1e-7, 0.2))
def test_near_the_edge_of_what_can_be_had(slack: float) -> None:
    """a, d and e have only b and c, and want almost as much: what is left for b-c is the slack."""
    pairs = {("a", "b"): 5, ("b", "c"): 10**6, ("c", "d"): 7, ("c", "e"): 1, ("b", "e"): 2}
    wanted = {"a": 0.2, "d": 0.1, "e": 0.2 - slack / 2, "b": 0.3, "c": 0.2 + slack / 2}
    Q = matrix(pairs, [*wanted])
    with np.errstate(divide="ignore"):
        P = np.exp(fitted(np.log(Q), np.log([*wanted.values()])))
    assert P.sum(1) == pytest.approx([*wanted.values()], rel=1e-9)
    assert P[3, 4] == pytest.approx(slack / 2, rel=1e-3)


def test_at_the_edge_it_is_said_what_is_never_drawn() -> None:
    chain = {("a", "b"): 5, ("b", "c"): 500, ("c", "d"): 5}
    with pytest.warns(UserWarning, match="1 of 3 pairs are never drawn, because .*: b-c$"):
        rates = xy_lent(chain, float("inf"))
    assert rates == pytest.approx({("a", "b"): 0.5, ("b", "c"): 0.0, ("c", "d"): 0.5})
