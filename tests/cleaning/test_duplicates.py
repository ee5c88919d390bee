"""Repeated rows are those that a slow loop finds. The first of equal rows is kept."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.cleaning import duplicates
from crossling.cleaning.duplicates import find_duplicates, find_many_to_one, find_near_duplicates
from crossling.cleaning.minhash import SIMILARITY_THRESHOLD, compute_signatures, similarity

HASHES = [0, 1, 7, 1 << 40, (1 << 63) + 5, (1 << 64) - 1]
rows_of_hashes = st.lists(st.tuples(st.sampled_from(HASHES), st.booleans()), max_size=30)


def split(array: np.ndarray, positions: list[int]) -> list[np.ndarray]:
    """Split the rows into several arrays, some of them empty."""
    return np.split(array, sorted(min(position, len(array)) for position in positions))


@given(rows_of_hashes, st.lists(st.integers(0, 30), max_size=3), st.integers(1, 40))
def test_duplicates_equal_those_of_a_loop(rows: list[tuple[int, bool]], positions: list[int], slice_size: int) -> None:
    hashes = np.array([value for value, _ in rows], dtype=np.uint64)
    mask = np.array([is_included for _, is_included in rows], dtype=bool)
    first: dict[int, int] = {}
    expected = []
    for row, (value, is_included) in enumerate(rows):
        if is_included and value:
            if value in first:
                expected.append((row, first[value]))
            first.setdefault(value, row)
    with patch.object(duplicates, "ROWS_PER_READ", 7):
        found, origins = find_duplicates(split(hashes, positions), mask, slice_size)
    assert list(zip(found.tolist(), origins.tolist(), strict=True)) == expected


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=30),
    st.integers(1, 3),
)
def test_many_to_one_equals_a_loop(rows: list[tuple[int, int, bool]], most: int) -> None:
    left, right = (np.array([row[side] for row in rows], dtype=np.uint64) for side in (0, 1))
    mask = np.array([row[2] for row in rows], dtype=bool)
    expected = []
    for a, b, is_included in rows:
        of_a = {y for x, y, t in rows if t and x == a and a}
        of_b = {x for x, y, t in rows if t and y == b and b}
        expected.append(is_included and (len(of_a) > most or len(of_b) > most))
    assert find_many_to_one(left, right, mask, most).tolist() == expected


SENTENCES = [
    "the quick brown fox jumps over the lazy dog and goes home before the rain begins to fall on hills and fields",
    "a completely different sentence about the price of fish in the markets of the old harbour, which nobody buys",
    "hardly anyone has seen the inside of that house since the family left it with two cats so many years ago",
]


def vary(sentence: str, kind: int) -> str:
    """Return the sentence for 0, else a copy with one other letter."""
    return sentence if not kind else sentence[:-kind] + "x" + sentence[len(sentence) - kind + 1 :]


@given(
    st.lists(st.tuples(st.sampled_from(SENTENCES), st.integers(0, 9), st.booleans()), max_size=25),
    st.lists(st.integers(0, 25), max_size=3),
)
def test_near_duplicates_leave_the_first_of_each_sentence(
    rows: list[tuple[str, int, bool]], positions: list[int]
) -> None:
    signatures = compute_signatures([vary(sentence, kind).replace(" ", "") for sentence, kind, _ in rows])
    mask = np.array([is_included for _, _, is_included in rows], dtype=bool)
    with patch.object(duplicates, "ROWS_PER_COMPARISON", 5):
        found, origins = find_near_duplicates(split(signatures, positions), mask)
    assert mask[found].all()
    assert (origins < found).all()
    assert (similarity(signatures[found], signatures[origins]) >= SIMILARITY_THRESHOLD).all()
    # Only the first of each sentence is left, and no more duplicates are found.
    left = mask.copy()
    left[found] = False
    first = {sentence: row for row, (sentence, _, is_included) in reversed(list(enumerate(rows))) if is_included}
    assert sorted(first.values()) == np.flatnonzero(left).tolist()
    assert len(find_near_duplicates([signatures], left)[0]) == 0


def test_texts_without_a_signature_are_no_duplicates() -> None:
    signatures = compute_signatures(["short", "short", ""])
    assert len(find_near_duplicates([signatures], np.ones(3, dtype=bool))[0]) == 0


@pytest.mark.parametrize("size", [500, 3000, 1 << 20])
def test_slices_of_any_size_give_the_same_duplicates(size: int) -> None:
    values = np.random.default_rng(0).integers(1, 1 << 63, 5000, dtype=np.uint64)
    hashes = np.concatenate([values, values[::-1]])
    found, origins = find_duplicates([hashes], np.ones(10_000, dtype=bool), size)
    assert found.tolist() == list(range(5000, 10_000))
    assert (hashes[found] == hashes[origins]).all()
