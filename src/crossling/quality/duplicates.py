"""Repetition: rows that are equal, nearly equal, or share one side with too many others. The first of its kind stays.

Everything is found by sorting 64-bit hashes, and the result is the same on any number of machines. A hash of 0 stands
for a row that is not judged. Equal rows are sorted in slices, with some 50 bytes for each of up to 33 million rows;
`near` takes some 110 and `many_to_one` some 50 bytes for each row that they compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from crossling.quality.shingles import BANDS, SIMILAR, folded, has_signature, places, similarity

SLICE = 1 << 25  # rows sorted at once
READ_AT_ONCE = 1 << 20
COMPARED_AT_ONCE = 1 << 16

Found = tuple[np.ndarray, np.ndarray]  # rows, and for each an earlier row that it repeats


def equal(hashes: Sequence[np.ndarray], there: np.ndarray, slice_size: int = SLICE) -> Found:
    """Rows with the hash of an earlier one. The arrays follow each other; rows are numbered through them."""
    total = len(there)
    slices = total // slice_size + 1
    found = []
    for number in range(slices):
        rows, values = _slice(hashes, there, number, slices)
        order = np.argsort(values, kind="stable")
        rows, values = rows[order], values[order]
        first = _first_of_run(values)
        later = first != np.arange(len(rows))
        found.append((rows[later], rows[first[later]]))
    return _in_order(found)


def near(signatures: Sequence[np.ndarray], there: np.ndarray) -> Found:
    """Rows whose signature is much like that of an earlier one.

    In each band, a row is compared with the first and with the last row before it that agree there. As the rows found
    no longer count, this is repeated until nothing is found: of what is left, nothing is like anything before.
    """
    rows = np.flatnonzero(there & np.concatenate([has_signature(part) for part in signatures]))
    starts = np.cumsum([0, *map(len, signatures)])
    found: list[Found] = []
    before = -1
    while len(found) != before:
        before = len(found)
        for band in range(BANDS):
            later, earlier = _alike(signatures, starts, rows, band)
            if len(later):
                found.append((later, earlier))
                rows = rows[np.isin(rows, later, assume_unique=True, invert=True)]
    return _in_order(found)


def many_to_one(left: np.ndarray, right: np.ndarray, there: np.ndarray, most: int) -> np.ndarray:
    """Rows one side of which has more than `most` different other sides."""
    found = np.zeros(len(there), dtype=bool)
    for one, many in ((left, right), (right, left)):
        rows = np.flatnonzero(there & (one != 0))
        rows = rows[np.lexsort((many[rows], one[rows]))]
        new_one = _changes(one[rows])
        new_many = new_one | _changes(many[rows])
        run = np.cumsum(new_one) - 1
        different = np.bincount(run, weights=new_many)
        found[rows[different[run] > most]] = True
    return found


def _slice(hashes: Sequence[np.ndarray], there: np.ndarray, number: int, slices: int) -> Found:
    """Rows, in order, whose hash lies in one of so many equal ranges; and the hashes."""
    rows, values = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.uint64)]
    start = 0
    for part in hashes:
        for begin in range(0, len(part), READ_AT_ONCE):
            here = part[begin : begin + READ_AT_ONCE]
            place = (here >> np.uint64(32)) * np.uint64(slices) >> np.uint64(32)
            judged = there[start + begin : start + begin + len(here)]
            inside = np.flatnonzero((place == number) & judged & (here != 0))
            rows.append(inside + (start + begin))
            values.append(here[inside])
        start += len(part)
    return np.concatenate(rows), np.concatenate(values)


def _alike(signatures: Sequence[np.ndarray], starts: np.ndarray, rows: np.ndarray, band: int) -> Found:
    there = [part[:, places(band)] for part in signatures]
    values = np.concatenate([folded(_of(there, starts, part)) for part in _pieces(rows)] or [rows])
    order = np.argsort(values, kind="stable")
    rows = rows[order]
    first = _first_of_run(values[order])
    place = np.arange(len(rows))
    candidates = [
        (place[first != place], first[first != place]),
        (place[place - first > 1], place[place - first > 1] - 1),
    ]
    found = []
    for later, earlier in candidates:
        for part in _pieces(np.arange(len(later))):
            row, origin = rows[later[part]], rows[earlier[part]]
            alike = similarity(_of(signatures, starts, row), _of(signatures, starts, origin)) >= SIMILAR
            found.append((row[alike], origin[alike]))
    return _in_order(found)


def _of(signatures: Sequence[np.ndarray], starts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Signatures of rows that are numbered through all arrays."""
    picked = np.empty((len(rows), signatures[0].shape[1]), dtype=signatures[0].dtype)
    part = np.searchsorted(starts, rows, side="right") - 1
    for number in np.unique(part):
        here = part == number
        picked[here] = signatures[number][rows[here] - starts[number]]
    return picked


def _pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    return (array[start : start + COMPARED_AT_ONCE] for start in range(0, len(array), COMPARED_AT_ONCE))


def _changes(values: np.ndarray) -> np.ndarray:
    """Where a sorted array has another value than just before."""
    changes = np.ones(len(values), dtype=bool)
    changes[1:] = values[1:] != values[:-1]
    return changes


def _first_of_run(values: np.ndarray) -> np.ndarray:
    """For each place of a sorted array, the first place with the same value."""
    return np.maximum.accumulate(np.where(_changes(values), np.arange(len(values)), 0))


def _in_order(found: Sequence[Found]) -> Found:
    """By row; a row that was found twice counts once."""
    if not found:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    rows = np.concatenate([one for one, _ in found])
    origins = np.concatenate([origin for _, origin in found])
    rows, places = np.unique(rows, return_index=True)
    return rows, origins[places]
