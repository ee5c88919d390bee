"""Find rows that are equal, nearly equal, or share one side with too many others. The first of equal rows is kept.

Each function searches one range of the keys of all rows (sorted_keys.py), so that several processes can search.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crossling.cleaning.minhash import SIMILARITY_THRESHOLD, similarity
from crossling.cleaning.sorted_keys import RowIndex, changes, first_of_run

ROWS_PER_COMPARISON = 1 << 16

ROW_KEY = "row"  # names of keys
SIDE_KEYS = ("left", "right")


def band_key(band: int) -> str:
    """Return the name of the key of a band."""
    return f"band {band}"


def find_repeated(index: RowIndex, number: int, of: int) -> np.ndarray:
    """Find rows with the hash of an earlier one.

    Args:
        index: Rows to compare.
        number: Range of the keys.
        of: Number of ranges.

    Returns:
        Rows, and an earlier row that each of them repeats: two rows of an array.
    """
    rows, _ = index.find_candidates(ROW_KEY, number, of)
    hashes = index.select("hashes", rows)
    order = np.lexsort((rows, hashes))
    rows = rows[order]
    first = first_of_run(hashes[order])
    later = first != np.arange(len(rows))
    return _sort_rows(rows[later], rows[first[later]])


def find_similar(index: RowIndex, band: int, number: int, of: int) -> np.ndarray:
    """Find rows whose signature is similar to that of an earlier row with the same band.

    A row is compared with the first and with the last earlier row. The result is that of `find_repeated`.
    """
    rows, first = index.find_candidates(band_key(band), number, of)
    place = np.arange(len(rows))
    second, third = place[place - first > 0], place[place - first > 1]  # and all after it in the run
    found = []
    for later, earlier in ((second, first[second]), (third, third - 1)):
        for part in _chunks(np.arange(len(later))):
            row, origin = rows[later[part]], rows[earlier[part]]
            estimates = similarity(index.select("signatures", row), index.select("signatures", origin))
            is_similar = estimates >= SIMILARITY_THRESHOLD
            found.append(np.stack([row[is_similar], origin[is_similar]]))
    return _sort_rows(*np.concatenate([np.empty((2, 0), dtype=np.int64), *found], axis=1))


def find_many_to_one(index: RowIndex, side: int, most: int, number: int, of: int) -> np.ndarray:
    """Find rows one side of which has more than `most` different translations. Returns them as an array of one row."""
    rows, _ = index.find_candidates(SIDE_KEYS[side], number, of)
    sides = index.select("sides", rows)
    one, many = sides[:, side], sides[:, 1 - side]
    order = np.lexsort((many, one))
    is_new_one = changes(one[order])
    is_new_pair = is_new_one | changes(many[order])
    run = np.cumsum(is_new_one) - 1
    different = np.bincount(run, weights=is_new_pair)
    return np.sort(rows[order][different[run] > most])[None]


def _chunks(array: np.ndarray) -> Iterator[np.ndarray]:
    return (array[start : start + ROWS_PER_COMPARISON] for start in range(0, len(array), ROWS_PER_COMPARISON))


def _sort_rows(rows: np.ndarray, origins: np.ndarray) -> np.ndarray:
    """Sort by row, with the first origin of a row that was found twice."""
    rows, positions = np.unique(rows, return_index=True)
    return np.stack([rows, origins[positions]])
