"""Sentences by the million: on disk, not in memory."""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import xxhash

from crossling.corpora.files import Skip, lines
from crossling.errors import BadInput


class Sentences:
    """The lines of a file, plain or packed, each a sentence; read once and checked, then kept on disk unpacked. In
    memory are 16 bytes a line: where it begins, and its hash."""

    def __init__(self, file: Path) -> None:
        if not file.is_file():
            raise BadInput(f"{file}: no such file; give a file with one sentence a line")
        self.file = file
        self._text = tempfile.TemporaryFile()  # noqa: SIM115  as long as the object is
        starts, hashes = array("q", [0]), array("Q")
        for number, line in enumerate(lines(file), start=1):
            if isinstance(line, Skip):
                raise BadInput(f"{file}: line {number} cannot be read ({line.value}); mend or remove it")
            sentence = line.strip()
            if not sentence:
                raise BadInput(f"{file}: line {number} is empty, expected a sentence; remove empty lines")
            data = sentence.encode()
            self._text.write(data)
            starts.append(starts[-1] + len(data))
            hashes.append(xxhash.xxh3_64_intdigest(data))
        if not hashes:
            raise BadInput(f"{file}: the file is empty, expected one sentence a line")
        self._starts = np.frombuffer(starts, dtype=np.int64)
        self._hashes = np.frombuffer(hashes, dtype=np.uint64)

    def __len__(self) -> int:
        return len(self._hashes)

    def __getitem__(self, row: int) -> str:
        return self.read(row, row + 1)[0]

    def read(self, start: int, stop: int) -> list[str]:
        starts = self._starts[start : stop + 1].tolist()
        self._text.seek(starts[0])
        data = self._text.read(starts[-1] - starts[0])
        return [data[a - starts[0] : b - starts[0]].decode() for a, b in pairwise(starts)]

    def windows(self, size: int, first: int = 0) -> Iterator[tuple[int, list[str]]]:
        """The row of the first, and so many sentences."""
        for start in range(first, len(self), size):
            yield start, self.read(start, min(start + size, len(self)))

    def distinct(self) -> np.ndarray:
        """The rows of the first of equal sentences, rising. Equal is what has the same hash of 64 bits: among ten
        million sentences, two that differ do with a chance of 1 in 400,000."""
        return np.sort(np.unique(self._hashes, return_index=True)[1])

    def digest(self) -> str:
        return xxhash.xxh3_64_hexdigest(self._hashes.tobytes())
