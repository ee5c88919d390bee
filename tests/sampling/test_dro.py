"""Best response in a chi-squared ball, and moving averages of group losses."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from crossling.sampling import GroupLosses, best_response

P = dict(zip("abcd", (0.5, 0.3, 0.15, 0.05), strict=True))
LOSSES = dict(zip("abcd", (1.0, 1.2, 2.0, 3.0), strict=True))

SOME_LOSSES = st.lists(st.floats(0.1, 10), min_size=2, max_size=8)


def uniform(losses: list[float]) -> tuple[dict[str, float], dict[str, float]]:
    names = [f"g{i}" for i in range(len(losses))]
    return dict.fromkeys(names, 1 / len(names)), dict(zip(names, losses, strict=True))


def chi2(q: dict[str, float], p: dict[str, float]) -> float:
    return sum(p[g] * (q[g] / p[g] - 1) ** 2 for g in p) / 2


def test_worked_example() -> None:
    found = best_response(P, LOSSES, 0.05)
    assert {group: round(q, 5) for group, q in found.items()} == {
        "a": 0.40495,
        "b": 0.27976,
        "c": 0.21347,
        "d": 0.10182,
    }


@given(st.floats(1e-6, 0.02), st.floats(-5, 5), st.floats(0.1, 100))
def test_best_response_inside_the_ball_is_the_closed_form(rho: float, shift: float, factor: float) -> None:
    """Only ratios of loss differences matter: neither a shift nor a factor changes the result."""
    mean = sum(P[g] * LOSSES[g] for g in P)
    deviation = math.sqrt(sum(P[g] * (LOSSES[g] - mean) ** 2 for g in P))
    expected = {g: P[g] * (1 + math.sqrt(2 * rho) * (LOSSES[g] - mean) / deviation) for g in P}
    losses = {group: shift + factor * loss for group, loss in LOSSES.items()}
    assert best_response(P, losses, rho) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("rho", [0.01, 0.3, 2.0, 50.0])
@pytest.mark.parametrize("seed", range(3))
def test_best_response_is_the_supremum_of_equation_3(rho: float, seed: int) -> None:
    """A general solver finds the same supremum. At rho = 50 the whole simplex is in the ball."""
    rng = np.random.default_rng(seed)
    p_G, loss_G = rng.dirichlet(np.ones(5)), rng.uniform(0.1, 10, 5)
    found = minimize(
        lambda q_G: -q_G @ loss_G,
        p_G,
        bounds=[(0, 1)] * 5,
        constraints=[
            {"type": "eq", "fun": lambda q_G: q_G.sum() - 1},
            {"type": "ineq", "fun": lambda q_G: rho - p_G @ (q_G / p_G - 1) ** 2 / 2},
        ],
        options={"maxiter": 500, "ftol": 1e-10},
    )
    assert found.success
    q = best_response(dict(zip("abcde", p_G, strict=True)), dict(zip("abcde", loss_G, strict=True)), rho)
    assert np.array([*q.values()]) @ loss_G == pytest.approx(-found.fun, rel=1e-5)
    assert [*q.values()] == pytest.approx(found.x.tolist(), abs=2e-3)


def test_easy_groups_can_get_the_probability_0() -> None:
    """Group a is the easiest; b would fall below a, the least first probability."""
    q = best_response(P, LOSSES, rho=3)
    assert q["a"] == q["b"] == 0
    assert chi2(q, P) == pytest.approx(3)
    assert best_response(P, LOSSES, rho=50) == {"a": 0, "b": 0, "c": 0, "d": pytest.approx(1)}


@given(SOME_LOSSES, st.floats(1e-4, 5), st.sampled_from([0.0, 0.2]))
def test_probabilities_sum_to_1_and_with_a_floor_are_above_0(losses: list[float], rho: float, floor: float) -> None:
    p, by_group = uniform(losses)
    q = best_response(p, by_group, rho, floor=floor)
    assert [*q] == [*p]
    assert sum(q.values()) == pytest.approx(1)
    assert all(value > 0 if floor else value >= 0 for value in q.values())


@given(SOME_LOSSES, st.floats(1e-4, 5))
def test_harder_groups_are_never_sampled_less(losses: list[float], rho: float) -> None:
    p, by_group = uniform(losses)
    q = best_response(p, by_group, rho)
    order = sorted(q, key=lambda group: by_group[group])
    assert all(q[easy] <= q[hard] + 1e-12 for easy, hard in pairwise(order))


def test_distance_is_rho_where_no_floor_binds() -> None:
    for rho in (0.001, 0.01, 0.05, 0.1):
        assert chi2(best_response(P, LOSSES, rho), P) == pytest.approx(rho, rel=1e-6)


def test_floors_bound_the_probabilities_of_easy_groups() -> None:
    q = best_response(P, LOSSES, rho=50, floor=0.2)
    # The ball does not bind: the hardest group gets all that the floors allow.
    assert q["d"] > 0.8
    assert q["a"] / q["b"] == pytest.approx(P["a"] / P["b"])  # both at a fifth of their p, renormalized
    assert min(q.values()) == pytest.approx(0.05 / (0.05 + sum(q[g] for g in "abd") / q["c"] * 0.05), rel=1e-6)
    low = best_response(P, LOSSES, rho=50, floor=1e-9)
    assert low["a"] == low["b"] == low["c"]  # the least p of all


def test_equal_or_missing_losses_change_nothing() -> None:
    assert best_response(P, dict.fromkeys(P, 2.0), 0.05) == P
    assert best_response(P, {}, 0.05) == P
    assert best_response({"a": 1.0}, {"a": 3.0}, 0.05) == {"a": 1.0}


def test_groups_without_a_loss_keep_their_probability() -> None:
    q = best_response({"new": 0.5, **{g: p / 2 for g, p in P.items()}}, LOSSES, 0.05)
    assert q["new"] == 0.5
    assert {g: 2 * q[g] for g in P} == pytest.approx(best_response(P, LOSSES, 0.05))


def test_groups_with_probability_0_keep_it() -> None:
    q = best_response({**P, "off": 0.0}, {**LOSSES, "off": 100.0}, 0.05)
    assert q["off"] == 0.0
    assert {g: q[g] for g in P} == pytest.approx(best_response(P, LOSSES, 0.05))


def test_baseline_is_subtracted_unless_all_losses_are_below_it() -> None:
    baseline = dict(zip("abcd", (0.5, 1.1, 1.9, 2.9), strict=True))
    excess = {group: LOSSES[group] - baseline[group] for group in P}
    found = best_response(P, LOSSES, 0.05, baseline=baseline)
    assert found == best_response(P, excess, 0.05)
    assert found["a"] > P["a"] > best_response(P, LOSSES, 0.05)["a"]
    easy = dict.fromkeys(P, 9.0)
    assert best_response(P, LOSSES, 0.05, baseline=easy) == best_response(P, LOSSES, 0.05)


# ---- running means ------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 10), min_size=1, max_size=40), st.floats(0.01, 1))
def test_means_are_bias_corrected_moving_averages(losses: list[float], weight: float) -> None:
    running = GroupLosses(weight, min_losses=1)
    for loss in losses:
        running = running.update({"g": loss})
    weights = [(1 - weight) ** age for age in range(len(losses))]
    expected = sum(s * loss for s, loss in zip(weights, reversed(losses), strict=True)) / sum(weights)
    assert running.means["g"] == pytest.approx(expected, abs=1e-9)


def test_group_with_few_losses_has_no_mean() -> None:
    running = GroupLosses(min_losses=3)
    for step in range(3):
        running = running.update({"often": 2.0, **({"rare": 5.0} if step else {})})
    assert running.means == pytest.approx({"often": 2.0})
    assert running.update({"rare": 5.0}).means == pytest.approx({"often": 2.0, "rare": 5.0})


def test_update_does_not_change_the_original() -> None:
    before = GroupLosses().update({"g": 1.0})
    before.update({"g": 9.0})
    assert before == GroupLosses().update({"g": 1.0})


def test_with_a_floor_no_group_falls_below_the_least_probability() -> None:
    """Group b is easy and would fall below the probability of a, the least of all."""
    p = {"a": 0.2, "b": 0.21, "c": 0.59}
    found = best_response(p, {"a": 1.0, "b": 0.0, "c": 1.0}, 0.03, floor=1e-9)
    free = 0.21 * (1 + math.sqrt(0.06) * (0 - 0.79) / math.sqrt(0.79 * 0.21))
    assert free < 0.2
    assert found["b"] / sum(found.values()) > free
    assert found["b"] == pytest.approx(0.2 / (1 + 0.2 - free), rel=1e-3)


def test_losses_that_are_not_finite_are_ignored() -> None:
    found = best_response(P, LOSSES | {"b": math.nan}, 0.05)
    assert found["b"] == P["b"]
    assert sum(found.values()) == pytest.approx(1)
    assert best_response(P, LOSSES, 0.05, baseline=dict.fromkeys("acd", 0.0))["b"] == P["b"]


def test_ten_losses_make_a_mean_and_nine_do_not() -> None:
    losses = GroupLosses()
    for _ in range(9):
        losses = losses.update({"a": 1.0})
    assert losses.means == {}
    assert losses.update({"a": 1.0}).means == {"a": pytest.approx(1.0)}


def test_rho_0_changes_nothing() -> None:
    assert best_response(P, LOSSES, 0.0) == P
