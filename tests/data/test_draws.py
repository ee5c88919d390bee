"""Draws are a function of their number: in proportion, each example in turn, from any step on."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.data import draws as module
from crossling.data.draws import CIRCLE, STRIDES, Draws, below, floor_sum, permuted


@given(n=st.integers(0, 200), m=st.integers(1, 60), a=st.integers(0, 100), b=st.integers(0, 100))
def test_floor_sum_is_the_sum(n: int, m: int, a: int, b: int) -> None:
    assert floor_sum(n, m, a, b) == sum((a * j + b) // m for j in range(n))


@given(n=st.integers(0, 200), m=st.integers(1, 60), a=st.integers(0, 100), b=st.integers(0, 100), data=st.data())
def test_points_below_are_counted(n: int, m: int, a: int, b: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, m))
    assert below(n, a, b, m, c) == sum((a * j + b) % m < c for j in range(n))


def test_points_below_are_counted_far_out() -> None:
    """Counts of neighbouring lengths differ by what the point between them says."""
    n, c, stride = 10**12, CIRCLE // 3, STRIDES[0]
    point = (stride * n + 12345) % CIRCLE
    assert below(n + 1, stride, 12345, CIRCLE, c) - below(n, stride, 12345, CIRCLE, c) == (point < c)


@given(size=st.integers(1, 3000), key=st.integers(0, CIRCLE - 1))
def test_permuted_is_a_permutation(size: int, key: int) -> None:
    order = permuted(np.arange(size), np.full(size, size), np.full(size, key, dtype=np.uint64))
    assert sorted(order.tolist()) == list(range(size))


def test_permuted_takes_sizes_and_keys_of_their_own() -> None:
    sizes = np.array([1, 2, 3, 2**20, 2**40, 2**62])
    keys = np.arange(6, dtype=np.uint64)
    together = permuted(np.zeros(6, dtype=np.int64), sizes, keys)
    alone = [int(permuted(np.zeros(1, dtype=np.int64), sizes[i : i + 1], keys[i : i + 1])[0]) for i in range(6)]
    assert together.tolist() == alone
    assert np.all(together < sizes)


def test_orders_look_random() -> None:
    """Every item is about as often at every place (chi-square with 81 degrees of freedom: 150 has p < 1e-5)."""
    keys = np.arange(5000, dtype=np.uint64)
    counts = np.zeros((10, 10))
    for place in range(10):
        found = permuted(np.full(5000, place), np.full(5000, 10), keys)
        counts[place] = np.bincount(found, minlength=10)
    assert ((counts - 500) ** 2 / 500).sum() < 150


@given(
    rates=st.lists(st.floats(0.001, 1), min_size=1, max_size=6),
    number=st.integers(1, 40),
    steps=st.integers(1, 30),
    seed=st.integers(0, 99),
)
def test_every_stretch_holds_each_group_in_its_proportion(
    rates: list[float], number: int, steps: int, seed: int
) -> None:
    draws = Draws(rates, [7] * len(rates), number, [seed])
    groups = np.concatenate([draws[step][0] for step in range(steps)])
    expected = number * steps * np.array(rates) / sum(rates)
    # The discrepancy of the golden ratio's multiples grows like log n; chance would give sqrt(n).
    assert np.all(np.abs(np.bincount(groups, minlength=len(rates)) - expected) < 3 + 2 * np.log(number * steps))


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4), number=st.integers(1, 20), seed=st.integers(0, 99))
def test_each_example_in_turn(sizes: list[int], number: int, seed: int) -> None:
    draws = Draws([1.0] * len(sizes), sizes, number, [seed])
    drawn = [pair for step in range(8) for pair in zip(*(part.tolist() for part in draws[step]), strict=True)]
    for group, size in enumerate(sizes):
        examples = [index for which, index in drawn if which == group]
        for start in range(0, len(examples), size):
            epoch = examples[start : start + size]
            assert len(set(epoch)) == len(epoch)
            assert set(epoch) <= set(range(size))


@pytest.mark.parametrize("replayed", [0, 50, 10**6])
def test_any_step_can_come_first(replayed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPLAYED", replayed)
    in_turn, jumping = (Draws([0.5, 0.2, 0.3], [5, 3, 1000], 13, [1]) for _ in range(2))
    expected = [in_turn[step] for step in range(40)]
    for step in [39, 0, 17, 18, 3, 39]:
        for found, right in zip(jumping[step], expected[step], strict=True):
            assert found.tolist() == right.tolist()


def test_an_epoch_of_one_group_is_not_another_of_its_neighbour() -> None:
    draws = Draws([1.0, 1.0], [50, 50], 100, [1])
    orders: dict[int, list[tuple[int, ...]]] = {0: [], 1: []}
    for step in range(4):
        groups, examples = draws[step]
        for group in orders:
            orders[group].append(tuple(examples[groups == group][:20].tolist()))
    assert not set(orders[0]) & set(orders[1])


def test_streams_draw_groups_apart() -> None:
    """Two streams with the same rates: every group of one meets every group of the other, as often as by chance."""
    one, other = (Draws([1.0] * 4, [9] * 4, 1600, [1], stream) for stream in (0, 1))
    table = np.zeros((4, 4))
    np.add.at(table, (one[0][0], other[0][0]), 1)
    assert table.min() > 60
    assert table.max() < 140


def test_a_rate_that_hardly_exists_is_no_error() -> None:
    assert set(Draws([1.0, 1e-18], [3, 3], 100, [1])[0][0].tolist()) == {0}


def test_seeds_and_epochs_have_orders_of_their_own() -> None:
    one, other = Draws([1.0], [50], 50, [1]), Draws([1.0], [50], 50, [2])
    orders = [tuple(draws[step][1].tolist()) for draws in (one, other) for step in range(2)]
    assert Counter(orders).most_common(1)[0][1] == 1


# ---- other rates from a step on ------------------------------------------------------------------------------


def drawn(draws: Draws, steps: range) -> list[tuple[list[int], list[int]]]:
    return [(group_N.tolist(), index_N.tolist()) for group_N, index_N in (draws[step] for step in steps)]


def test_the_same_rates_change_nothing() -> None:
    draws = Draws([0.5, 0.2, 0.3], [5, 3, 1000], 13, [1])
    assert drawn(draws.changed([0.5, 0.2, 0.3], 7), range(7, 30)) == drawn(draws, range(7, 30))


@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=4),
    number=st.integers(1, 20),
    changes=st.lists(st.integers(0, 3), min_size=1, max_size=3),
    data=st.data(),
)
def test_each_example_in_turn_whatever_the_rates(
    sizes: list[int], number: int, changes: list[int], data: st.DataObject
) -> None:
    rates = st.lists(st.floats(0.1, 1), min_size=len(sizes), max_size=len(sizes))
    draws, found, step = Draws([1.0] * len(sizes), sizes, number, [1]), [], 0
    for stretch in changes:
        found += [pair for of in drawn(draws, range(step, step + stretch)) for pair in zip(*of, strict=True)]
        step += stretch
        draws = draws.changed(data.draw(rates), step)
    found += [pair for of in drawn(draws, range(step, step + 4)) for pair in zip(*of, strict=True)]
    for group, size in enumerate(sizes):
        examples = [index for which, index in found if which == group]
        for start in range(0, len(examples), size):
            epoch = examples[start : start + size]
            assert len(set(epoch)) == len(epoch)


@pytest.mark.parametrize("replayed", [0, 10**6])
def test_after_a_change_any_step_can_come_first(replayed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPLAYED", replayed)
    in_turn, jumping = (
        Draws([0.5, 0.2, 0.3], [5, 3, 1000], 13, [1]).changed([0.1, 0.8, 0.1], 5).changed([0.4, 0.2, 0.4], 9)
        for _ in range(2)
    )
    expected = dict(zip(range(9, 40), drawn(in_turn, range(9, 40)), strict=True))
    for step in [39, 9, 17, 18, 39]:
        assert drawn(jumping, range(step, step + 1)) == [expected[step]]


def test_new_rates_hold_at_once_and_no_steps_before_can_be_asked_for() -> None:
    draws = Draws([1.0, 1.0], [50, 50], 400, [1])
    changed = draws.changed([0.9, 0.1], 3)
    assert (changed[3][0] == 0).mean() == pytest.approx(0.9, abs=0.02)
    assert (draws[3][0] == 0).mean() == pytest.approx(0.5, abs=0.02)
    with pytest.raises(AssertionError, match="not yet"):
        _ = changed[2]
