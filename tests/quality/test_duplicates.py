"""Repetition is found as by a slow loop, wherever the rows lie; the first of its kind stays."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.quality import duplicates
from crossling.quality.duplicates import equal, many_to_one, near
from crossling.quality.shingles import SIMILAR, signatures, similarity

HASHES = [0, 1, 7, 1 << 40, (1 << 63) + 5, (1 << 64) - 1]
rows_of_hashes = st.lists(st.tuples(st.sampled_from(HASHES), st.booleans()), max_size=30)


def cut(array: np.ndarray, places: list[int]) -> list[np.ndarray]:
    """The same rows in several arrays, some of them empty."""
    return np.split(array, sorted(min(place, len(array)) for place in places))


@given(rows_of_hashes, st.lists(st.integers(0, 30), max_size=3), st.integers(1, 40))
def test_equal_rows(rows: list[tuple[int, bool]], cuts: list[int], slice_size: int) -> None:
    hashes = np.array([value for value, _ in rows], dtype=np.uint64)
    there = np.array([is_there for _, is_there in rows], dtype=bool)
    first: dict[int, int] = {}
    expected = []
    for row, (value, is_there) in enumerate(rows):
        if is_there and value:
            if value in first:
                expected.append((row, first[value]))
            first.setdefault(value, row)
    with patch.object(duplicates, "READ_AT_ONCE", 7):
        found, origins = equal(cut(hashes, cuts), there, slice_size)
    assert list(zip(found.tolist(), origins.tolist(), strict=True)) == expected


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=30),
    st.integers(1, 3),
)
def test_many_to_one(rows: list[tuple[int, int, bool]], most: int) -> None:
    left, right = (np.array([row[side] for row in rows], dtype=np.uint64) for side in (0, 1))
    there = np.array([row[2] for row in rows], dtype=bool)
    expected = []
    for a, b, is_there in rows:
        of_a = {y for x, y, t in rows if t and x == a and a}
        of_b = {x for x, y, t in rows if t and y == b and b}
        expected.append(is_there and (len(of_a) > most or len(of_b) > most))
    assert many_to_one(left, right, there, most).tolist() == expected


SENTENCES = [
    "the quick brown fox jumps over the lazy dog and goes home before the rain begins to fall on hills and fields",
    "a completely different sentence about the price of fish in the markets of the old harbour, which nobody buys",
    "hardly anyone has seen the inside of that house since the family left it with two cats so many years ago",
]


def varied(sentence: str, kind: int) -> str:
    """0: the sentence; others differ in a letter."""
    return sentence if not kind else sentence[:-kind] + "x" + sentence[len(sentence) - kind + 1 :]


@given(
    st.lists(st.tuples(st.sampled_from(SENTENCES), st.integers(0, 9), st.booleans()), max_size=25),
    st.lists(st.integers(0, 25), max_size=3),
)
def test_near_rows(rows: list[tuple[str, int, bool]], cuts: list[int]) -> None:
    signed = signatures([varied(sentence, kind).replace(" ", "") for sentence, kind, _ in rows])
    there = np.array([is_there for _, _, is_there in rows], dtype=bool)
    with patch.object(duplicates, "COMPARED_AT_ONCE", 5):
        found, origins = near(cut(signed, cuts), there)
    assert there[found].all()
    assert (origins < found).all()
    assert (similarity(signed[found], signed[origins]) >= SIMILAR).all()
    # One of each sentence is left, the first; and then nothing more is found.
    left = there.copy()
    left[found] = False
    first = {sentence: row for row, (sentence, _, is_there) in reversed(list(enumerate(rows))) if is_there}
    assert sorted(first.values()) == np.flatnonzero(left).tolist()
    assert len(near([signed], left)[0]) == 0


def test_texts_without_a_signature_are_like_nothing() -> None:
    signed = signatures(["short", "short", ""])
    assert len(near([signed], np.ones(3, dtype=bool))[0]) == 0


@pytest.mark.parametrize("size", [500, 3000, 1 << 20])
def test_the_size_of_a_slice_changes_nothing(size: int) -> None:
    values = np.random.default_rng(0).integers(1, 1 << 63, 5000, dtype=np.uint64)
    hashes = np.concatenate([values, values[::-1]])
    found, origins = equal([hashes], np.ones(10_000, dtype=bool), size)
    assert found.tolist() == list(range(5000, 10_000))
    assert (hashes[found] == hashes[origins]).all()
