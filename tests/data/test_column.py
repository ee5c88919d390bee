"""A column is an ordinary .npy file, however it was written, and is never read in part or from the wrong thing."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.data.column import Column, checksum, mapped
from crossling.errors import BadInput

TYPES = [np.uint16, np.uint32, np.int64]


@settings(deadline=None)
@given(parts=st.lists(st.lists(st.integers(0, 2**16 - 1), max_size=20), max_size=8), kind=st.sampled_from(TYPES))
def test_what_is_added_is_what_numpy_would_have_saved(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]], kind: type
) -> None:
    folder = tmp_path_factory.mktemp("column")
    with Column(folder / "grown.npy", kind) as column:
        for part in parts:
            column.add(np.asarray(part, dtype=kind))
    whole = np.asarray([value for part in parts for value in part], dtype=kind)
    assert column.length == len(whole)
    np.save(folder / "saved.npy", whole)
    assert (folder / "grown.npy").read_bytes() == (folder / "saved.npy").read_bytes()
    found = mapped(folder / "grown.npy")
    assert found.dtype == kind
    assert found.tolist() == whole.tolist()


def test_values_of_another_type_or_order_are_brought_to_it(tmp_path: Path) -> None:
    values = np.arange(20, dtype=np.int64)
    with Column(tmp_path / "column.npy", np.uint16) as column:
        column.add(values[::2])  # not contiguous
    assert mapped(tmp_path / "column.npy").tolist() == values[::2].tolist()
    assert mapped(tmp_path / "column.npy").dtype == np.uint16


def test_the_header_has_room_for_any_length(tmp_path: Path) -> None:
    """Else it would grow over the first values."""
    with Column(tmp_path / "column.npy", np.uint16) as column:
        column.add(np.full(3, 7))
        before = column.file.tell()
        column.length = 10**18
        column.file.seek(0)
        column._header()
        assert column.file.tell() + 3 * 2 == before
        column.length = 3
    assert mapped(tmp_path / "column.npy").tolist() == [7, 7, 7]


def test_a_column_that_failed_is_refused(tmp_path: Path) -> None:
    def fail() -> None:
        with Column(tmp_path / "column.npy", np.uint16) as column:
            column.add(np.full(3, 7))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with pytest.raises(BadInput, match="bytes are not what its header says"):
        mapped(tmp_path / "column.npy")


def test_memory_stays_flat(tmp_path: Path) -> None:
    part = np.arange(1 << 14, dtype=np.int64)

    def peak(parts: int) -> int:
        tracemalloc.start()
        with Column(tmp_path / "column.npy", np.int64) as column:
            for _ in range(parts):
                column.add(part)
        found = mapped(tmp_path / "column.npy")
        assert int(found[-1]) == len(part) - 1
        checksum(tmp_path / "column.npy")
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    assert peak(200) < 1.3 * peak(20)


def test_mapped_arrays_are_plain_and_read_only(tmp_path: Path) -> None:
    with Column(tmp_path / "column.npy", np.uint16) as column:
        column.add(np.arange(5))
    found = mapped(tmp_path / "column.npy")
    assert type(found) is np.ndarray
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells")
def test_a_mapped_file_is_not_read_and_not_held_open(tmp_path: Path) -> None:
    """Corpora come in thousands, and a process may often hold 1,024 files."""
    file = tmp_path / "column.npy"
    with Column(file, np.uint16) as column:
        column.add(np.arange(5))
    found = mapped(file)
    assert str(file) in Path("/proc/self/maps").read_text(encoding="utf-8")
    held = {str(link.resolve()) for link in Path("/proc/self/fd").iterdir() if link.exists()}
    assert str(file) not in held
    assert found.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("damage", ["gone", "empty", "cut in the header", "cut", "text", "pickle"])
def test_what_is_no_array_is_refused(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "column.npy"
    np.save(file, np.arange(40))
    raw = file.read_bytes()
    match damage:
        case "gone":
            file.unlink()
        case "empty":
            file.write_bytes(b"")
        case "cut in the header":
            file.write_bytes(raw[:50])
        case "cut":
            file.write_bytes(raw[:-1])
        case "text":
            file.write_bytes(b"this is no array\n" * 20)
        case "pickle":
            np.save(file, np.asarray([{"code": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(BadInput, match=r"column\.npy cannot be read \(.*\): make these shards again with crossling"):
        mapped(file)


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_checksum_is_of_all_bytes(tmp_path: Path, size: int) -> None:
    raw = np.random.default_rng(size).bytes(size)
    (tmp_path / "file").write_bytes(raw)
    assert checksum(tmp_path / "file") == xxhash.xxh3_128_hexdigest(raw)
