"""Frames of a .zst file, found by their headers: nothing is decompressed."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

FRAME, SKIPPABLE = 0xFD2FB528, range(0x184D2A50, 0x184D2A60)
ID_BYTES = (0, 1, 2, 4)  # of the dictionary
SIZE_BYTES = (0, 2, 4, 8)  # of the content size
RUN = 1  # type of a block that is one repeated byte


def frame_offsets(file: Path) -> Iterator[int]:
    """Yield the offset of every frame, up to damage if there is any."""
    size = file.stat().st_size
    with file.open("rb") as handle:
        while (offset := handle.tell()) < size:
            try:
                [magic] = struct.unpack("<I", handle.read(4))
                if magic in SKIPPABLE:
                    handle.seek(struct.unpack("<I", handle.read(4))[0], 1)
                    continue
                if magic != FRAME:
                    return
                _skip_frame(handle)
            except (struct.error, IndexError):  # truncated
                return
            yield offset


def _skip_frame(handle: BinaryIO) -> None:
    """Move from behind the magic number of a frame to its end."""
    descriptor = handle.read(1)[0]
    is_single, has_checksum = descriptor >> 5 & 1, descriptor >> 2 & 1
    content = SIZE_BYTES[descriptor >> 6] or is_single
    handle.seek((not is_single) + ID_BYTES[descriptor & 3] + content, 1)
    is_last = 0
    while not is_last:
        low, high = struct.unpack("<HB", handle.read(3))
        header = low | high << 16
        is_last = header & 1
        handle.seek(1 if header >> 1 & 3 == RUN else header >> 3, 1)
    handle.seek(4 * has_checksum, 1)
