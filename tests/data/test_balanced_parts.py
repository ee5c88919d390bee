"""Parts of a step have equally many examples and nearly equal numbers of tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.data.balanced_parts import balanced_parts


@given(st.lists(st.integers(1, 600), min_size=1, max_size=80), st.integers(1, 12))
def test_every_unit_is_in_one_part(lengths: list[int], parts: int) -> None:
    parts = min(parts, len(lengths))
    found = balanced_parts(np.asarray(lengths), parts)
    assert sorted(np.concatenate(found).tolist()) == [*range(len(lengths))]
    assert all(part.tolist() == sorted(part.tolist()) for part in found)
    sizes = [len(part) for part in found]
    assert len(sizes) == parts
    assert 1 <= max(sizes) <= min(sizes) + 1


@given(st.lists(st.integers(1, 600), min_size=1, max_size=80), st.integers(1, 12))
def test_parts_differ_by_at_most_one_unit(lengths: list[int], parts: int) -> None:
    """With equally many units in each, longest-first differs by at most the longest unit."""
    used = np.asarray(lengths[: len(lengths) // parts * parts])
    if len(used):
        totals = [used[part].sum() for part in balanced_parts(used, parts)]
        assert max(totals) - min(totals) <= used.max()


def test_one_part_is_the_whole_step() -> None:
    assert [part.tolist() for part in balanced_parts(np.array([3, 9, 1]), 1)] == [[0, 1, 2]]


def test_equal_lengths_have_one_result() -> None:
    assert [part.tolist() for part in balanced_parts(np.full(5, 7), 2)] == [[0, 2, 4], [1, 3]]


@pytest.mark.parametrize(("parts", "excess"), [(64, 0.001), (512, 0.01)])
def test_the_largest_part_of_pairs_is_near_the_mean(parts: int, excess: float) -> None:
    """Lengths as of a million tokens of translation pairs. Consecutive parts exceed the mean by 10% and 35%."""
    side_N2 = np.clip(np.random.default_rng(0).lognormal(3.15, 0.6, (18_700, 2)), 3, 255).astype(np.int64)
    length_N = 1 + side_N2.sum(1)
    totals = np.array([length_N[part].sum() for part in balanced_parts(length_N, parts)])
    assert totals.max() / totals.mean() < 1 + excess


def test_small_parts_swap_units() -> None:
    """Six blocks of text for each part: without swaps the largest is 2.7% above the mean."""
    rng = np.random.default_rng(0)
    length_N = np.where(rng.random(2969) < 0.5, rng.integers(480, 512, 2969), rng.integers(10, 512, 2969))
    totals = np.array([length_N[part].sum() for part in balanced_parts(length_N, 512)])
    assert totals.max() / totals.mean() <= 1.01
