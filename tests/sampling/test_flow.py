"""As much as can be sent is sent, and why no more can is shown."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from crossling.sampling.flow import Arc, most

LEFT, RIGHT = "abcd", "vwxyz"
ARCS = st.lists(st.sampled_from([*product(LEFT, RIGHT)]), unique=True)
AMOUNTS = st.integers(0, 10**12)


@given(
    ARCS,
    st.lists(AMOUNTS, min_size=len(LEFT), max_size=len(LEFT)),
    st.lists(AMOUNTS, min_size=len(RIGHT), max_size=len(RIGHT)),
)
def test_a_largest_flow_and_its_narrowest_place(arcs: list[Arc], supplies: list[int], demands: list[int]) -> None:
    supply, demand = dict(zip(LEFT, supplies, strict=True)), dict(zip(RIGHT, demands, strict=True))
    flow = most(arcs, supply, demand)
    assert {*flow.sent} <= {*arcs}
    assert all(amount >= 0 for amount in flow.sent.values())
    for left in LEFT:
        out = sum(amount for (a, _), amount in flow.sent.items() if a == left)
        assert out == supply[left] if left not in flow.stuck else out <= supply[left]
    for right in RIGHT:
        into = sum(amount for (_, b), amount in flow.sent.items() if b == right)
        assert into == demand[right] if right in flow.full else into <= demand[right]
    # What is stuck leads only to what is full, and all of that is filled from there: no flow can do better.
    assert {b for a, b in arcs if a in flow.stuck} == flow.full
    total = sum(flow.sent.values())
    assert total == sum(supply[a] for a in LEFT if a not in flow.stuck) + sum(demand[b] for b in flow.full)


@given(ARCS.filter(bool), st.lists(st.integers(0, 20), min_size=9, max_size=9))
def test_as_much_as_a_linear_programme_sends(arcs: list[Arc], amounts: list[int]) -> None:
    supply, demand = dict(zip(LEFT, amounts[:4], strict=True)), dict(zip(RIGHT, amounts[4:], strict=True))
    limits = np.array([[node in arc for arc in arcs] for node in LEFT + RIGHT], dtype=float)
    expected = linprog(-np.ones(len(arcs)), A_ub=limits, b_ub=amounts)
    assert round(-expected.fun) == sum(most(arcs, supply, demand).sent.values())


def test_the_set_that_is_stuck_is_the_one_with_the_largest_surplus() -> None:
    arcs = [("a", "v"), ("b", "v"), ("c", "v"), ("c", "w"), ("d", "x")]
    flow = most(arcs, {"a": 5, "b": 5, "c": 1, "d": 2}, {"v": 4, "w": 1, "x": 2})
    assert (flow.stuck, flow.full) == ({"a", "b"}, {"v"})


def test_a_path_that_takes_back_what_was_sent() -> None:
    """a goes to v at first, and has to leave it to b, which can go nowhere else."""
    flow = most([("a", "v"), ("a", "w"), ("b", "v")], {"a": 1, "b": 1}, {"v": 1, "w": 1})
    assert {arc for arc, amount in flow.sent.items() if amount} == {("a", "w"), ("b", "v")}
    assert not flow.stuck
