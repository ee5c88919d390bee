"""Find the rows that agree in a key among all rows of a group, with keys that are sorted on disk.

A key is the first 45 bits of a hash. While a slice is scanned, the keys of every 2^19 rows are sorted and written, each
with the number of its row in one value of 64 bits: a run. Later, one process merges the same range of keys of all runs.
So memory depends on the size of a range and not on the number of rows, and several processes work at the same time.

Rows with equal keys are candidates: the caller compares their full hashes or signatures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from crossling.cleaning.stored_arrays import append_array, map_values, open_array, stored_entry

ROW_BITS = 19
RUN_ROWS = 1 << ROW_BITS
KEY_BITS = 64 - ROW_BITS
KEYS_PER_RANGE = 1 << 23  # in memory at once, with about 60 bytes each
_ROW_MASK = np.uint64((1 << ROW_BITS) - 1)


class KeyWriter:
    """Sorts the keys of a slice in runs and appends them to the array `keys`.

    Args:
        folder: Folder of the arrays.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: dict[str, list[tuple[int, int, int]]] = {}  # by key: first row, and place in the array
        self._buffers: dict[str, list[np.ndarray]] = {}
        self._first = self._rows = self._written = 0

    def add(self, hashes: Mapping[str, np.ndarray], rows: int) -> None:
        """Add the hashes of the next rows, by name of the key. A hash of 0 excludes a row."""
        if self._rows + rows > RUN_ROWS:
            self.flush()
        for name, values in hashes.items():
            numbers = np.flatnonzero(values)
            keys = (values[numbers] & ~_ROW_MASK) | (numbers + self._rows).astype(np.uint64)
            self._buffers.setdefault(name, []).append(keys)
        self._rows += rows

    def flush(self) -> None:
        """Write the runs of the rows so far."""
        for name, parts in self._buffers.items():
            keys = np.sort(np.concatenate(parts))
            append_array(self.folder, "keys", keys)
            self.runs.setdefault(name, []).append((self._first, self._written, self._written + len(keys)))
            self._written += len(keys)
        self._first, self._rows, self._buffers = self._first + self._rows, 0, {}


@dataclass(frozen=True)
class RowIndex:
    """Sorted keys and arrays of scanned slices, whose rows are numbered through.

    Args:
        scans: Folders of the slices.
        mask: File with the mask of the rows that are compared, one byte each.
        start: Position of the first row in the mask.
    """

    scans: Sequence[Path]
    mask: Path
    start: int = 0

    def __getstate__(self) -> dict[str, Any]:
        return {"scans": self.scans, "mask": self.mask, "start": self.start}  # mapped arrays are not sent to workers

    @cached_property
    def starts(self) -> np.ndarray:
        """Number of the first row of each slice."""
        return np.cumsum([self.start, *(len(open_array(scan, "flags")) for scan in self.scans)])

    def ranges(self, name: str) -> int:
        """Return the number of ranges into which a key is divided."""
        runs = (run for entry in self._entries for run in entry["runs"].get(name, []))
        return int(sum(end - begin for _, begin, end in runs)) // KEYS_PER_RANGE + 1

    def find_candidates(self, name: str, number: int, of: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of the mask whose key is equal to that of another one, in one of the ranges.

        Args:
            name: Name of the key.
            number: Number of the range, from 0.
            of: Number of ranges.

        Returns:
            Rows sorted by key and then by number, and for each of them the position of the first with this key.
        """
        edges = [(edge << KEY_BITS) // of << ROW_BITS for edge in (number, number + 1)]
        least, most = np.uint64(edges[0]), np.uint64(edges[1] - 1)
        all_keys, all_rows = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.int64)]
        for entry, packed, start in zip(self._entries, self._keys, self.starts, strict=False):
            for first, begin, end in entry["runs"].get(name, []):
                run = packed[begin:end]
                here = run[np.searchsorted(run, least) : np.searchsorted(run, most, side="right")]
                rows = (here & _ROW_MASK).astype(np.int64) + (start + first)
                is_included = self._mask[rows]
                all_keys.append(here[is_included] >> np.uint64(ROW_BITS))
                all_rows.append(rows[is_included])
        keys, rows = np.concatenate(all_keys), np.concatenate(all_rows)
        order = np.argsort(keys, kind="stable")  # merges the runs
        keys, rows = keys[order], rows[order]
        is_new = changes(keys)
        is_candidate = ~(is_new & np.append(is_new[1:], True)[: len(rows)])
        return rows[is_candidate], first_of_run(keys[is_candidate])

    def select(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Return the values of an array for rows."""
        first = open_array(self.scans[0], name)
        selected = np.empty((len(rows), *first.shape[1:]), dtype=first.dtype)
        slices = np.searchsorted(self.starts, rows, side="right") - 1
        for number in np.unique(slices):
            here = slices == number
            selected[here] = open_array(self.scans[number], name)[rows[here] - self.starts[number]]
        return selected

    @cached_property
    def _entries(self) -> list[dict[str, Any]]:
        return [stored_entry(scan) for scan in self.scans]

    @cached_property
    def _keys(self) -> list[np.ndarray]:
        return [open_array(scan, "keys") for scan in self.scans]

    @cached_property
    def _mask(self) -> np.ndarray:
        return map_values(self.mask, np.bool_)


def changes(values: np.ndarray) -> np.ndarray:
    """Mask of the positions of a sorted array where the value changes."""
    return np.concatenate([[True], values[1:] != values[:-1]])[: len(values)]


def first_of_run(values: np.ndarray) -> np.ndarray:
    """For each position of a sorted array, the first position with the same value."""
    return np.maximum.accumulate(np.where(changes(values), np.arange(len(values)), 0))
