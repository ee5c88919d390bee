"""Find rows that are equal, nearly equal, or share one side with too many others. The first of equal rows is kept.

All functions sort 64-bit hashes, and give the same result on any number of machines. A hash of 0 excludes a row.
Equal rows are sorted in slices of up to 33 million rows, with about 50 bytes for each row. Near duplicates take about
110 bytes for each compared row, and many-to-one rows about 50.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from crossling.cleaning.minhash import BANDS, SIMILARITY_THRESHOLD, band_slice, has_signature, hash_band, similarity

SLICE_ROWS = 1 << 25  # sorted together
ROWS_PER_READ = 1 << 20
ROWS_PER_COMPARISON = 1 << 16

Repetitions = tuple[np.ndarray, np.ndarray]  # rows, and an earlier row that each of them repeats


def find_duplicates(hashes: Sequence[np.ndarray], mask: np.ndarray, slice_size: int = SLICE_ROWS) -> Repetitions:
    """Find rows with the hash of an earlier one. Rows are numbered through all arrays."""
    slices = len(mask) // slice_size + 1
    repetitions = []
    for number in range(slices):
        rows, values = _slice(hashes, mask, number, slices)
        order = np.argsort(values, kind="stable")
        rows, values = rows[order], values[order]
        first = _first_of_run(values)
        later = first != np.arange(len(rows))
        repetitions.append((rows[later], rows[first[later]]))
    return _merge(repetitions)


def find_near_duplicates(signatures: Sequence[np.ndarray], mask: np.ndarray) -> Repetitions:
    """Find rows whose MinHash signature is similar to that of an earlier one.

    In each band, a row is compared with the first and the last earlier row that agree with it. This is repeated without
    the rows found so far until no more are found: then no row is similar to an earlier one.
    """
    rows = np.flatnonzero(mask & np.concatenate([has_signature(part) for part in signatures]))
    starts = np.cumsum([0, *map(len, signatures)])
    repetitions: list[Repetitions] = []
    before = -1
    while len(repetitions) != before:
        before = len(repetitions)
        for band in range(BANDS):
            later, earlier = _find_similar(signatures, starts, rows, band)
            if len(later):
                repetitions.append((later, earlier))
                rows = rows[np.isin(rows, later, assume_unique=True, invert=True)]
    return _merge(repetitions)


def find_many_to_one(left: np.ndarray, right: np.ndarray, mask: np.ndarray, most: int) -> np.ndarray:
    """Return a mask of the rows one side of which has more than `most` different translations."""
    is_many = np.zeros(len(mask), dtype=bool)
    for one, many in ((left, right), (right, left)):
        rows = np.flatnonzero(mask & (one != 0))
        rows = rows[np.lexsort((many[rows], one[rows]))]
        new_one = _changes(one[rows])
        new_many = new_one | _changes(many[rows])
        run = np.cumsum(new_one) - 1
        different = np.bincount(run, weights=new_many)
        is_many[rows[different[run] > most]] = True
    return is_many


def _slice(hashes: Sequence[np.ndarray], mask: np.ndarray, number: int, slices: int) -> Repetitions:
    """Rows, in order, whose hash is in one of the equal ranges, and their hashes."""
    found = [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64))]
    start = 0
    for part in hashes:
        for begin in range(0, len(part), ROWS_PER_READ):
            here = part[begin : begin + ROWS_PER_READ]
            place = (here >> np.uint64(32)) * np.uint64(slices) >> np.uint64(32)
            is_included = mask[start + begin : start + begin + len(here)]
            inside = np.flatnonzero((place == number) & is_included & (here != 0))
            found.append((inside + (start + begin), here[inside]))
        start += len(part)
    return concatenate_columns(found)


def _find_similar(signatures: Sequence[np.ndarray], starts: np.ndarray, rows: np.ndarray, band: int) -> Repetitions:
    bands = [part[:, band_slice(band)] for part in signatures]
    values = np.concatenate([hash_band(_select(bands, starts, part)) for part in _chunks(rows)] or [rows])
    order = np.argsort(values, kind="stable")
    rows = rows[order]
    first = _first_of_run(values[order])
    place = np.arange(len(rows))
    second, third = place[place - first > 0], place[place - first > 1]  # and all after it in the run
    repetitions = []
    for later, earlier in ((second, first[second]), (third, third - 1)):
        for part in _chunks(np.arange(len(later))):
            row, origin = rows[later[part]], rows[earlier[part]]
            estimates = similarity(_select(signatures, starts, row), _select(signatures, starts, origin))
            is_similar = estimates >= SIMILARITY_THRESHOLD
            repetitions.append((row[is_similar], origin[is_similar]))
    return _merge(repetitions)


def _select(signatures: Sequence[np.ndarray], starts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Select signatures of rows that are numbered through all arrays."""
    picked = np.empty((len(rows), signatures[0].shape[1]), dtype=signatures[0].dtype)
    part = np.searchsorted(starts, rows, side="right") - 1
    for number in np.unique(part):
        here = part == number
        picked[here] = signatures[number][rows[here] - starts[number]]
    return picked


def _chunks(array: np.ndarray) -> Iterator[np.ndarray]:
    return (array[start : start + ROWS_PER_COMPARISON] for start in range(0, len(array), ROWS_PER_COMPARISON))


def _changes(values: np.ndarray) -> np.ndarray:
    """Mask of the positions of a sorted array where the value changes."""
    return np.concatenate([[True], values[1:] != values[:-1]])[: len(values)]


def _first_of_run(values: np.ndarray) -> np.ndarray:
    """For each position of a sorted array, the first position with the same value."""
    return np.maximum.accumulate(np.where(_changes(values), np.arange(len(values)), 0))


def _merge(repetitions: Sequence[Repetitions]) -> Repetitions:
    """Sort by row, without rows that were found twice."""
    nothing = np.empty(0, dtype=np.int64)
    rows, origins = concatenate_columns([(nothing, nothing), *repetitions])
    rows, positions = np.unique(rows, return_index=True)
    return rows, origins[positions]


def concatenate_columns(rows: Sequence[Repetitions]) -> Repetitions:
    """Concatenate the first arrays, and the second ones."""
    first, second = map(np.concatenate, zip(*rows, strict=True))
    return first, second
