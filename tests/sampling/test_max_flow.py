"""Maximum flow against a linear program, and the minimum cut that proves it."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from crossling.sampling.marginals import Arc, max_flow

LEFT, RIGHT = "abcd", "vwxyz"
ARCS = st.lists(st.sampled_from([*product(LEFT, RIGHT)]), unique=True)
AMOUNTS = st.integers(0, 10**12)


@given(
    ARCS,
    st.lists(AMOUNTS, min_size=len(LEFT), max_size=len(LEFT)),
    st.lists(AMOUNTS, min_size=len(RIGHT), max_size=len(RIGHT)),
)
def test_maximum_flow_and_minimum_cut(arcs: list[Arc], supplies: list[int], demands: list[int]) -> None:
    supply, demand = dict(zip(LEFT, supplies, strict=True)), dict(zip(RIGHT, demands, strict=True))
    flow = max_flow(arcs, supply, demand)
    assert {*flow.amounts} <= {*arcs}
    assert all(amount >= 0 for amount in flow.amounts.values())
    for left in LEFT:
        out = sum(amount for (a, _), amount in flow.amounts.items() if a == left)
        assert out == supply[left] if left not in flow.cut_left else out <= supply[left]
    for right in RIGHT:
        into = sum(amount for (_, b), amount in flow.amounts.items() if b == right)
        assert into == demand[right] if right in flow.cut_right else into <= demand[right]
    # The cut's left nodes lead only to its right nodes, which they saturate: no flow can be larger.
    assert {b for a, b in arcs if a in flow.cut_left} == flow.cut_right
    total = sum(flow.amounts.values())
    assert total == sum(supply[a] for a in LEFT if a not in flow.cut_left) + sum(demand[b] for b in flow.cut_right)


@given(ARCS.filter(bool), st.lists(st.integers(0, 20), min_size=9, max_size=9))
def test_flow_equals_that_of_a_linear_program(arcs: list[Arc], amounts: list[int]) -> None:
    supply, demand = dict(zip(LEFT, amounts[:4], strict=True)), dict(zip(RIGHT, amounts[4:], strict=True))
    limits = np.array([[node in arc for arc in arcs] for node in LEFT + RIGHT], dtype=float)
    expected = linprog(-np.ones(len(arcs)), A_ub=limits, b_ub=amounts)
    assert round(-expected.fun) == sum(max_flow(arcs, supply, demand).amounts.values())


def test_cut_is_the_set_with_the_largest_surplus() -> None:
    arcs = [("a", "v"), ("b", "v"), ("c", "v"), ("c", "w"), ("d", "x")]
    flow = max_flow(arcs, {"a": 5, "b": 5, "c": 1, "d": 2}, {"v": 4, "w": 1, "x": 2})
    assert (flow.cut_left, flow.cut_right) == ({"a", "b"}, {"v"})


def test_augmenting_path_redirects_earlier_flow() -> None:
    """Node a sends to v first, and then has to make way for b, which has no other arc."""
    flow = max_flow([("a", "v"), ("a", "w"), ("b", "v")], {"a": 1, "b": 1}, {"v": 1, "w": 1})
    assert {arc for arc, amount in flow.amounts.items() if amount} == {("a", "w"), ("b", "v")}
    assert not flow.cut_left
