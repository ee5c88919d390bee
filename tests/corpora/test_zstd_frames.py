"""Tests of the offsets of zstd frames, against files of known frames."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.corpora.zstd_frames import frame_offsets

zstandard = pytest.importorskip("zstandard")
SKIPPED = struct.pack("<II", 0x184D2A53, 5) + b"5byte"


@settings(max_examples=40, deadline=None)
@given(
    contents=st.lists(st.sampled_from([b"", b"a", b"ab" * 300, b"\0" * 400_000, bytes(range(256)) * 999]), max_size=6),
    checksum=st.booleans(),
    size=st.booleans(),
)
def test_every_frame_is_found(
    contents: list[bytes], checksum: bool, size: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    compressor = zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=size)
    raw, expected = SKIPPED, []
    for content in contents:
        expected.append(len(raw))
        raw += compressor.compress(content) + SKIPPED
    file = tmp_path_factory.mktemp("any") / "a.zst"
    file.write_bytes(raw)
    assert list(frame_offsets(file)) == expected


def test_damage_ends_the_search(tmp_path: Path) -> None:
    frame = zstandard.ZstdCompressor().compress(b"text")
    file = tmp_path / "a.zst"
    for damage in (b"garbage!", frame[:3], frame[:6]):
        file.write_bytes(frame + damage)
        assert list(frame_offsets(file)) == [0]
