"""Arrays and entries that the stages of a cleaning leave on disk for each other.

A scanned slice of a part has these arrays, of which only those are written that the rules need.

    flags        bits of the reasons that need no other row           2 bytes a row
    hashes       hash of the row as it is                             8
    sides        hash of the plain form of each side                 16
    proportions  logarithm of the length ratio                        4
    signatures   MinHash                                            256
    keys         sorted keys of rows: 8 bytes for `hashes`, 16 for `sides`, 200 for `signatures` (sorted_keys.py)
    hits         rows of (row, benchmark sentence, is only similar)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from crossling.cleaning.minhash import PERMUTATIONS
from crossling.core.resumable import fingerprint, read_entry

CLEANING_FORMAT = 2  # version of the reports
STORED_FORMAT = 3  # version of the arrays and entries

_ARRAYS: dict[str, tuple[type, int]] = {
    "flags": (np.uint16, 1),
    "hashes": (np.uint64, 1),
    "sides": (np.uint64, 2),
    "proportions": (np.float32, 1),
    "signatures": (np.uint16, PERMUTATIONS),
    "keys": (np.uint64, 1),
    "hits": (np.int64, 3),
}


def append_array(folder: Path, name: str, values: np.ndarray) -> None:
    """Append rows to an array."""
    with (folder / name).open("ab") as file:
        file.write(values.astype(_ARRAYS[name][0], copy=False).tobytes())


def open_array(folder: Path, name: str) -> np.ndarray:
    """Map an array. Empty if the rules did not need it."""
    dtype, width = _ARRAYS[name]
    values = map_values(folder / name, dtype)
    return values if width == 1 else values.reshape(-1, width)


def map_values(file: Path, dtype: type, *, is_writable: bool = False) -> np.ndarray:
    """Map a file of numbers. Empty if there is none."""
    if not file.is_file() or file.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype=dtype)
    return np.memmap(file, dtype=dtype, mode="r+" if is_writable else "r")


def create_values(file: Path, dtype: type, length: int) -> np.ndarray:
    """Map a new file of zeros."""
    with file.open("wb") as handle:
        handle.truncate(length * np.dtype(dtype).itemsize)
    return map_values(file, dtype, is_writable=True)


def stored_entry(folder: Path) -> dict[str, Any]:
    """Return the entry of a folder that is finished."""
    entry = read_entry(folder)
    assert entry is not None, folder
    return entry


def cleaning_key(*inputs: object) -> str:
    """Fingerprint of the inputs of a report."""
    return fingerprint([CLEANING_FORMAT, *inputs])


def stored_key(*inputs: object) -> str:
    """Fingerprint of the inputs of a stored result."""
    return fingerprint([CLEANING_FORMAT, STORED_FORMAT, *inputs])
