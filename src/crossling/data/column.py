"""A one-dimensional array on disk that grows as it is written and is mapped into memory as it is read (.npy)."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import numpy as np
import torch
import xxhash
from numpy.lib import format as npy

from crossling.errors import BadInput


class Column:
    """`with Column(path, np.uint16) as column: column.add(array)`; memory stays flat, however long it gets."""

    def __init__(self, path: Path, dtype: np.typing.DTypeLike) -> None:
        self.dtype, self.length = np.dtype(dtype), 0
        self.file = path.open("wb")
        self._header()

    def add(self, values: np.ndarray) -> None:
        self.file.write(np.ascontiguousarray(values, dtype=self.dtype).data)
        self.length += len(values)

    def __enter__(self) -> Column:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        try:
            if kind is None:
                self.file.seek(0)
                self._header()
        finally:
            self.file.close()

    def _header(self) -> None:
        # NumPy pads a header so that the first axis can grow in place.
        shape = {"descr": npy.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.length,)}
        npy.write_array_header_1_0(self.file, shape)


def mapped(path: Path) -> np.ndarray:
    """The array, of which only what is touched is read."""
    try:
        with path.open("rb") as file:
            version = npy.read_magic(file)
            shape, _, dtype = npy.read_array_header_1_0(file) if version == (1, 0) else ((), False, np.dtype(object))
            start, size = file.tell(), path.stat().st_size
        if len(shape) != 1 or dtype.hasobject or size != start + shape[0] * dtype.itemsize:
            raise ValueError(f"{size} bytes are not what its header says")
        if not shape[0]:
            return np.empty(0, dtype)
        # By torch, which closes the file when it has mapped it: Python's own mmap would hold each one open, and there
        # are thousands of them.
        array = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8).numpy()[start:].view(dtype)
        array.flags.writeable = False
        return array
    except (OSError, ValueError, EOFError, RuntimeError) as error:
        raise BadInput(f"{path} cannot be read ({error}): make these shards again with crossling encode") from None


def checksum(path: Path) -> str:
    digest = xxhash.xxh3_128()
    with path.open("rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
