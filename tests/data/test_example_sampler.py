"""Samples are a function of their index: in proportion, without replacement, from any step on."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.data import example_sampler as module
from crossling.data.example_sampler import (
    CIRCLE,
    STRIDES,
    ExampleSampler,
    count_below,
    floor_sum,
    permute,
    permute_in_windows,
)


@given(n=st.integers(0, 200), m=st.integers(1, 60), a=st.integers(0, 100), b=st.integers(0, 100))
def test_floor_sum_is_the_sum(n: int, m: int, a: int, b: int) -> None:
    assert floor_sum(n, m, a, b) == sum((a * j + b) // m for j in range(n))


@given(n=st.integers(0, 200), m=st.integers(1, 60), a=st.integers(0, 100), b=st.integers(0, 100), data=st.data())
def test_points_below_are_counted(n: int, m: int, a: int, b: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, m))
    assert count_below(n, a, b, m, c) == sum((a * j + b) % m < c for j in range(n))


def test_points_below_are_counted_far_out() -> None:
    """Counts of n and n + 1 points differ by the last point."""
    n, c, stride = 10**12, CIRCLE // 3, STRIDES[0]
    point = (stride * n + 12345) % CIRCLE
    assert count_below(n + 1, stride, 12345, CIRCLE, c) - count_below(n, stride, 12345, CIRCLE, c) == (point < c)


@given(size=st.integers(1, 3000), key=st.integers(0, CIRCLE - 1))
def test_permute_gives_a_permutation(size: int, key: int) -> None:
    order = permute(np.arange(size), np.full(size, size), np.full(size, key, dtype=np.uint64))
    assert sorted(order.tolist()) == list(range(size))


def test_permute_takes_a_size_and_a_key_per_entry() -> None:
    sizes = np.array([1, 2, 3, 2**20, 2**40, 2**62])
    keys = np.arange(6, dtype=np.uint64)
    together = permute(np.zeros(6, dtype=np.int64), sizes, keys)
    alone = [int(permute(np.zeros(1, dtype=np.int64), sizes[i : i + 1], keys[i : i + 1])[0]) for i in range(6)]
    assert together.tolist() == alone
    assert np.all(together < sizes)


def test_orders_are_random() -> None:
    """Every item is about equally often at every position (chi-square with 81 degrees of freedom: 150 has p < 1e-5)."""
    keys = np.arange(5000, dtype=np.uint64)
    counts = np.zeros((10, 10))
    for place in range(10):
        found = permute(np.full(5000, place), np.full(5000, 10), keys)
        counts[place] = np.bincount(found, minlength=10)
    assert ((counts - 500) ** 2 / 500).sum() < 150


@given(
    probabilities=st.lists(st.floats(0.001, 1), min_size=1, max_size=6),
    number=st.integers(1, 40),
    steps=st.integers(1, 30),
    seed=st.integers(0, 99),
)
def test_groups_are_sampled_in_proportion(probabilities: list[float], number: int, steps: int, seed: int) -> None:
    sampler = ExampleSampler(probabilities, [7] * len(probabilities), examples_per_step=number, key=[seed])
    groups = np.concatenate([sampler[step][0] for step in range(steps)])
    expected = number * steps * np.array(probabilities) / sum(probabilities)
    # The discrepancy of the golden ratio's multiples grows like log n; chance would give sqrt(n).
    assert np.all(np.abs(np.bincount(groups, minlength=len(probabilities)) - expected) < 3 + 2 * np.log(number * steps))


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4), number=st.integers(1, 20), seed=st.integers(0, 99))
def test_no_example_repeats_within_an_epoch(sizes: list[int], number: int, seed: int) -> None:
    sampler = ExampleSampler([1.0] * len(sizes), sizes, examples_per_step=number, key=[seed])
    sampled = [pair for step in range(8) for pair in zip(*(part.tolist() for part in sampler[step]), strict=True)]
    for group, size in enumerate(sizes):
        examples = [index for which, index in sampled if which == group]
        for start in range(0, len(examples), size):
            epoch = examples[start : start + size]
            assert len(set(epoch)) == len(epoch)
            assert set(epoch) <= set(range(size))


@pytest.mark.parametrize("replayed", [0, 50, 10**6])
def test_any_step_can_be_read_first(replayed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPLAYED", replayed)
    in_turn, jumping = (ExampleSampler([0.5, 0.2, 0.3], [5, 3, 1000], examples_per_step=13, key=[1]) for _ in range(2))
    expected = [in_turn[step] for step in range(40)]
    for step in [39, 0, 17, 18, 3, 39]:
        for found, right in zip(jumping[step], expected[step], strict=True):
            assert found.tolist() == right.tolist()


def test_epochs_of_different_groups_have_different_orders() -> None:
    sampler = ExampleSampler([1.0, 1.0], [50, 50], examples_per_step=100, key=[1])
    orders: dict[int, list[tuple[int, ...]]] = {0: [], 1: []}
    for step in range(4):
        groups, examples = sampler[step]
        for group in orders:
            orders[group].append(tuple(examples[groups == group][:20].tolist()))
    assert not set(orders[0]) & set(orders[1])


def test_streams_are_independent() -> None:
    """With the same probabilities, every group of one stream meets every group of the other as often as by chance."""
    one, other = (
        ExampleSampler([1.0] * 4, [9] * 4, examples_per_step=1600, key=[1], stream=stream) for stream in (0, 1)
    )
    table = np.zeros((4, 4))
    np.add.at(table, (one[0][0], other[0][0]), 1)
    assert table.min() > 60
    assert table.max() < 140


def test_a_tiny_probability_is_allowed() -> None:
    assert set(ExampleSampler([1.0, 1e-18], [3, 3], examples_per_step=100, key=[1])[0][0].tolist()) == {0}


def test_seeds_and_epochs_have_different_orders() -> None:
    one, other = (
        ExampleSampler([1.0], [50], examples_per_step=50, key=[1]),
        ExampleSampler([1.0], [50], examples_per_step=50, key=[2]),
    )
    orders = [tuple(sampler[step][1].tolist()) for sampler in (one, other) for step in range(2)]
    assert Counter(orders).most_common(1)[0][1] == 1


@given(size=st.integers(1, 3000), window=st.integers(1, 400), key=st.integers(0, CIRCLE - 1))
def test_permute_in_windows_gives_a_permutation(size: int, window: int, key: int) -> None:
    order = in_windows(size, window, key)
    assert sorted(order.tolist()) == list(range(size))


@given(size=st.integers(1, 9000), window=st.integers(1, 100), key=st.integers(0, CIRCLE - 1))
def test_examples_are_sampled_from_few_windows_at_a_time(size: int, window: int, key: int) -> None:
    """The examples that are shuffled together are at most 16 runs, and the shorter rest."""
    order, together = in_windows(size, window, key), 16 * window
    for start in range(0, size, together):
        found = np.sort(order[start : start + together])
        runs = 1 + int((np.diff(found) > 1).sum())
        assert runs <= 16 + 1 + 1  # one may cross the end of the corpus


def test_examples_of_windows_are_shuffled_together() -> None:
    order = in_windows(9000, 100, 7)
    assert len({*(order[:160] // 100)}) >= 16  # the first tenth is of all 16 windows
    assert abs(np.corrcoef(np.arange(1600), order[:1600])[0, 1]) < 0.1
    neighbours = np.abs(np.diff(order[:1600])) == 1
    assert neighbours.mean() < 0.01


def test_windows_of_two_epochs_differ() -> None:
    one, other = in_windows(9000, 100, 7), in_windows(9000, 100, 8)
    assert len({*one[:1600].tolist()} & {*other[:1600].tolist()}) < 800
    starts = [min({*order[:1600].tolist()}) % 100 for order in (one, other)]
    assert starts[0] != starts[1]


def in_windows(size: int, window: int, key: int) -> np.ndarray:
    keys = np.full(size, key, dtype=np.uint64)
    return permute_in_windows(np.arange(size), np.full(size, size), np.full(size, window), keys)


def test_permute_in_windows_takes_a_size_a_window_and_a_key_per_entry() -> None:
    sizes, windows = np.array([1, 2, 300, 2**20, 2**40, 2**40]), np.array([1, 9, 7, 2**10, 2**11, 2**41])
    keys, positions = np.arange(6, dtype=np.uint64), np.array([0, 1, 299, 2**20 - 1, 2**39, 5])
    together = permute_in_windows(positions, sizes, windows, keys)
    alone = [permute_in_windows(*(each[i : i + 1] for each in (positions, sizes, windows, keys)))[0] for i in range(6)]
    assert together.tolist() == alone
    assert np.all((together >= 0) & (together < sizes))


def test_windows_change_neither_groups_nor_counts() -> None:
    """Any step can be read first, every epoch has each example once, and groups are sampled as without windows."""
    sizes = [50, 300]
    plain, windowed, again = (
        ExampleSampler([0.3, 0.7], sizes, examples_per_step=25, key=[1], windows=windows)
        for windows in (None, [2, 5], [2, 5])
    )
    steps = samples(windowed, range(40))
    assert samples(again, range(39, 40)) == steps[39:]
    assert [groups for groups, _ in steps] == [groups for groups, _ in samples(plain, range(40))]
    for group, size in enumerate(sizes):
        examples = [i for groups, indices in steps for g, i in zip(groups, indices, strict=True) if g == group]
        for start in range(0, len(examples) - size, size):
            assert sorted(examples[start : start + size]) == [*range(size)]
    reweighted = windowed.reweight([0.3, 0.7], 7)
    assert samples(reweighted, range(7, 30)) == steps[7:30]


def samples(sampler: ExampleSampler, steps: range) -> list[tuple[list[int], list[int]]]:
    return [(group_N.tolist(), index_N.tolist()) for group_N, index_N in (sampler[step] for step in steps)]


def test_reweighting_with_the_same_probabilities_changes_nothing() -> None:
    sampler = ExampleSampler([0.5, 0.2, 0.3], [5, 3, 1000], examples_per_step=13, key=[1])
    assert samples(sampler.reweight([0.5, 0.2, 0.3], 7), range(7, 30)) == samples(sampler, range(7, 30))


@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=4),
    number=st.integers(1, 20),
    changes=st.lists(st.integers(0, 3), min_size=1, max_size=3),
    data=st.data(),
)
def test_no_example_repeats_within_an_epoch_after_reweighting(
    sizes: list[int], number: int, changes: list[int], data: st.DataObject
) -> None:
    probabilities = st.lists(st.floats(0.1, 1), min_size=len(sizes), max_size=len(sizes))
    sampler, found, step = ExampleSampler([1.0] * len(sizes), sizes, examples_per_step=number, key=[1]), [], 0
    for stretch in changes:
        found += [pair for of in samples(sampler, range(step, step + stretch)) for pair in zip(*of, strict=True)]
        step += stretch
        sampler = sampler.reweight(data.draw(probabilities), step)
    found += [pair for of in samples(sampler, range(step, step + 4)) for pair in zip(*of, strict=True)]
    for group, size in enumerate(sizes):
        examples = [index for which, index in found if which == group]
        for start in range(0, len(examples), size):
            epoch = examples[start : start + size]
            assert len(set(epoch)) == len(epoch)


@pytest.mark.parametrize("replayed", [0, 10**6])
def test_any_step_after_reweighting_can_be_read_first(replayed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPLAYED", replayed)
    in_turn, jumping = (
        ExampleSampler([0.5, 0.2, 0.3], [5, 3, 1000], examples_per_step=13, key=[1])
        .reweight([0.1, 0.8, 0.1], 5)
        .reweight([0.4, 0.2, 0.4], 9)
        for _ in range(2)
    )
    expected = dict(zip(range(9, 40), samples(in_turn, range(9, 40)), strict=True))
    for step in [39, 9, 17, 18, 39]:
        assert samples(jumping, range(step, step + 1)) == [expected[step]]


def test_reweighting_starts_at_its_step() -> None:
    sampler = ExampleSampler([1.0, 1.0], [50, 50], examples_per_step=400, key=[1])
    changed = sampler.reweight([0.9, 0.1], 3)
    assert (changed[3][0] == 0).mean() == pytest.approx(0.9, abs=0.02)
    assert (sampler[3][0] == 0).mean() == pytest.approx(0.5, abs=0.02)
    with pytest.raises(AssertionError, match="start at a later step"):
        _ = changed[2]
