"""Repeated rows are those that a slow loop finds, in any number of slices, runs and ranges of keys."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.cleaning import duplicates, scan, sorted_keys
from crossling.cleaning.apply_rules import _Group, _Searches
from crossling.cleaning.duplicates import find_many_to_one, find_repeated
from crossling.cleaning.minhash import (
    BANDS,
    SIMILARITY_THRESHOLD,
    band_slice,
    compute_signatures,
    has_signature,
    hash_band,
    similarity,
)
from crossling.cleaning.rules import BIT, BLANK, Reason
from crossling.cleaning.sorted_keys import KeyWriter, RowIndex
from crossling.cleaning.stored_arrays import append_array
from crossling.core.resumable import write_finished_folder

HASHES = [0, 1, 7, 1 << 40, (1 << 40) + 1, (1 << 63) + 5, (1 << 64) - 1]  # some with equal keys
rows_of_hashes = st.lists(st.tuples(st.sampled_from(HASHES), st.booleans()), max_size=30)
positions_of_slices = st.lists(st.integers(0, 30), max_size=3)


@contextmanager
def store_rows(
    arrays: dict[str, np.ndarray], mask: np.ndarray, positions: list[int], keys_per_range: int
) -> Iterator[tuple[list[Path], RowIndex]]:
    """Store rows as the scan does: in slices, with runs of three rows that are added one by one."""
    arrays = arrays | {"flags": np.where(mask, 0, BLANK)}
    edges = sorted(min(position, len(mask)) for position in positions)
    with (
        tempfile.TemporaryDirectory() as name,
        patch.object(sorted_keys, "RUN_ROWS", 3),
        patch.object(sorted_keys, "KEYS_PER_RANGE", keys_per_range),
        patch.object(duplicates, "ROWS_PER_COMPARISON", 5),
    ):
        scans = [Path(name) / str(number) for number in range(len(edges) + 1)]
        for number, folder in enumerate(scans):
            values = {array: np.split(rows, edges)[number] for array, rows in arrays.items()}
            with write_finished_folder(folder, "") as (new, entry):
                keys = KeyWriter(new)
                for row in range(len(values["flags"])):
                    chunk = {array: rows[row : row + 1] for array, rows in values.items()}
                    for array, rows in chunk.items():
                        append_array(new, array, rows)
                    keys.add(scan._hashes_by_key(chunk), 1)
                keys.flush()
                entry["runs"] = keys.runs
        (Path(name) / "mask").write_bytes(mask.tobytes())
        yield scans, RowIndex(scans, Path(name) / "mask")


def search_all(index: RowIndex, key: str, search: partial[np.ndarray]) -> np.ndarray:
    ranges = index.ranges(key)
    found = [search(index=index, number=number, of=ranges) for number in range(ranges)]
    rows = np.concatenate(found, axis=1)
    return rows[:, np.argsort(rows[0], kind="stable")]


@settings(deadline=None)
@given(rows_of_hashes, positions_of_slices, st.integers(1, 40))
def test_duplicates_equal_those_of_a_loop(rows: list[tuple[int, bool]], positions: list[int], size: int) -> None:
    hashes = np.array([value for value, _ in rows], dtype=np.uint64)
    mask = np.array([is_included for _, is_included in rows], dtype=bool)
    first: dict[int, int] = {}
    expected = []
    for row, (value, is_included) in enumerate(rows):
        if is_included and value:
            if value in first:
                expected.append((row, first[value]))
            first.setdefault(value, row)
    with store_rows({"hashes": hashes}, mask, positions, size) as (_, index):
        found, origins = search_all(index, duplicates.ROW_KEY, partial(find_repeated))
    assert list(zip(found.tolist(), origins.tolist(), strict=True)) == expected


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=30),
    st.integers(1, 3),
    positions_of_slices,
    st.integers(1, 40),
)
def test_many_to_one_equals_a_loop(
    rows: list[tuple[int, int, bool]], most: int, positions: list[int], size: int
) -> None:
    mask = np.array([row[2] for row in rows], dtype=bool)
    expected = set()
    for row, (a, b, is_included) in enumerate(rows):
        of_a = {y for x, y, t in rows if t and x == a and a}
        of_b = {x for x, y, t in rows if t and y == b and b}
        if is_included and (len(of_a) > most or len(of_b) > most):
            expected.add(row)
    sides = np.array([row[:2] for row in rows], dtype=np.uint64).reshape(-1, 2) << np.uint64(sorted_keys.ROW_BITS)
    found = set()
    with store_rows({"sides": sides}, mask, positions, size) as (_, index):
        for side, key in enumerate(duplicates.SIDE_KEYS):
            found |= {*search_all(index, key, partial(find_many_to_one, side=side, most=most))[0].tolist()}
    assert found == expected


# ---- near duplicates -----------------------------------------------------------------------------------------

SENTENCES = [
    "the quick brown fox jumps over the lazy dog and goes home before the rain begins to fall on hills and fields",
    "a completely different sentence about the price of fish in the markets of the old harbour, which nobody buys",
    "hardly anyone has seen the inside of that house since the family left it with two cats so many years ago",
]


def vary(sentence: str, kind: int) -> str:
    """Return the sentence for 0, else a copy with another letter, or with a start that is no more similar to it."""
    if kind > 6:
        return "xyz" * 3 * (kind - 6) + sentence[9 * (kind - 6) :]
    return sentence if not kind else sentence[:-kind] + "x" + sentence[len(sentence) - kind + 1 :]


def find_near_duplicates_in_memory(signatures: np.ndarray, mask: np.ndarray) -> dict[int, int]:
    """Compare each row with the first and the last earlier one of its band, in all bands, until no more are found."""
    left, found, before = [*np.flatnonzero(mask & has_signature(signatures)).tolist()], dict[int, int](), -1
    while len(found) != before:
        before = len(found)
        for band in range(BANDS):
            earlier: dict[int, list[int]] = {}
            similar: dict[int, int] = {}
            for row, value in zip(left, hash_band(signatures[left, band_slice(band)]).tolist(), strict=True):
                for origin in [*earlier.get(value, [])[-1:], *earlier.get(value, [])[:1]]:
                    if similarity(signatures[[row]], signatures[[origin]])[0] >= SIMILARITY_THRESHOLD:
                        similar[row] = origin
                earlier.setdefault(value, []).append(row)
            left = [row for row in left if row not in similar]
            found |= similar
    return found


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from(SENTENCES), st.integers(0, 10), st.booleans()), max_size=25),
    positions_of_slices,
    st.sampled_from([7, 100]),
)
def test_near_duplicates_equal_those_of_a_loop(
    rows: list[tuple[str, int, bool]], positions: list[int], size: int
) -> None:
    signatures = compute_signatures([vary(sentence, kind).replace(" ", "") for sentence, kind, _ in rows])
    mask = np.array([is_included for _, _, is_included in rows], dtype=bool)
    expected = find_near_duplicates_in_memory(signatures, mask)
    for drop in (True, False):
        with (
            store_rows({"signatures": signatures}, mask, positions, size) as (scans, _),
            tempfile.TemporaryDirectory() as name,
        ):
            group = _Group([scans], Path(name), _Searches(Path(name) / "found", 1), drop)
            group._apply_flags()
            group._mark_near_duplicates()
            reasons = np.array(group.reasons)
            origins = group.origins.get((Reason.NEAR_DUPLICATE, 0), {})
        assert np.flatnonzero(reasons == BIT[Reason.NEAR_DUPLICATE]).tolist() == sorted(expected)
        assert origins == {row: expected[row] for row in sorted(expected)[:2]}


def test_texts_without_a_signature_are_no_duplicates() -> None:
    signatures = compute_signatures(["short", "short", ""])
    with store_rows({"signatures": signatures}, np.ones(3, dtype=bool), [], 9) as (_, index):
        assert index.ranges(duplicates.band_key(0)) == 1
        assert duplicates.find_similar(index, 0, 0, 1).shape == (2, 0)


@pytest.mark.parametrize("size", [500, 3000, 1 << 20])
def test_ranges_of_any_size_give_the_same_duplicates(size: int) -> None:
    values = np.random.default_rng(0).integers(1, 1 << 63, 500, dtype=np.uint64)
    hashes = np.concatenate([values, values[::-1]])
    with store_rows({"hashes": hashes}, np.ones(1000, dtype=bool), [400, 700], size) as (_, index):
        found, origins = search_all(index, duplicates.ROW_KEY, partial(find_repeated))
    assert found.tolist() == list(range(500, 1000))
    assert (hashes[found] == hashes[origins]).all()
