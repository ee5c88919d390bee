"""Array files are ordinary .npy files, and damaged ones are never mapped."""

from __future__ import annotations

import gc
import os
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib import format as npy

from crossling.core.errors import BadInput
from crossling.core.resumable import file_fingerprint
from crossling.data.shards import ArrayWriter, map_array

TYPES = [np.uint16, np.uint32, np.int64]


@settings(deadline=None)
@given(parts=st.lists(st.lists(st.integers(0, 2**16 - 1), max_size=20), max_size=8), dtype=st.sampled_from(TYPES))
def test_written_arrays_equal_those_of_numpy(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]], dtype: type
) -> None:
    folder = tmp_path_factory.mktemp("arrays")
    with ArrayWriter(folder / "grown.npy", dtype) as writer:
        for part in parts:
            writer.add(np.asarray(part, dtype=dtype))
    whole = np.asarray([value for part in parts for value in part], dtype=dtype)
    assert writer.length == len(whole)
    np.save(folder / "saved.npy", whole)
    assert (folder / "grown.npy").read_bytes() == (folder / "saved.npy").read_bytes()
    found = map_array(folder / "grown.npy")
    assert found.dtype == dtype
    assert found.tolist() == whole.tolist()


def test_values_of_another_type_or_memory_order_are_converted(tmp_path: Path) -> None:
    values = np.arange(20, dtype=np.int64)
    with ArrayWriter(tmp_path / "array.npy", np.uint16) as writer:
        writer.add(values[::2])  # not contiguous
    assert map_array(tmp_path / "array.npy").tolist() == values[::2].tolist()
    assert map_array(tmp_path / "array.npy").dtype == np.uint16


def test_the_header_has_space_for_any_length(tmp_path: Path) -> None:
    """Otherwise it would overwrite the first values."""
    with ArrayWriter(tmp_path / "array.npy", np.uint16) as writer:
        writer.add(np.full(3, 7))
        before = writer.file.tell()
        writer.length = 10**18
        writer.file.seek(0)
        writer._write_header()
        assert writer.file.tell() + 3 * 2 == before
        writer.length = 3
    assert map_array(tmp_path / "array.npy").tolist() == [7, 7, 7]


def test_an_unfinished_array_is_refused(tmp_path: Path) -> None:
    def fail() -> None:
        with ArrayWriter(tmp_path / "array.npy", np.uint16) as writer:
            writer.add(np.full(3, 7))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with pytest.raises(BadInput, match="bytes do not match its header"):
        map_array(tmp_path / "array.npy")


def test_memory_does_not_grow_with_the_array(tmp_path: Path) -> None:
    part = np.arange(1 << 14, dtype=np.int64)

    def peak(parts: int) -> int:
        tracemalloc.start()
        with ArrayWriter(tmp_path / "array.npy", np.int64) as writer:
            for _ in range(parts):
                writer.add(part)
        found = map_array(tmp_path / "array.npy")
        assert int(found[-1]) == len(part) - 1
        file_fingerprint(tmp_path / "array.npy")
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    assert peak(200) < 1.3 * peak(20)


def test_mapped_arrays_are_plain_and_read_only(tmp_path: Path) -> None:
    with ArrayWriter(tmp_path / "array.npy", np.uint16) as writer:
        writer.add(np.arange(5))
    found = map_array(tmp_path / "array.npy")
    assert type(found) is np.ndarray
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_a_mapped_file_is_not_kept_open(tmp_path: Path) -> None:
    """There are thousands of corpora, and often a limit of 1,024 open files."""
    file = tmp_path / "array.npy"
    with ArrayWriter(file, np.uint16) as writer:
        writer.add(np.arange(5))
    found = map_array(file)
    assert str(file) in Path("/proc/self/maps").read_text(encoding="utf-8")
    open_files = {str(link.resolve()) for link in Path("/proc/self/fd").iterdir() if link.exists()}
    assert str(file) not in open_files
    assert found.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("damage", ["gone", "empty", "cut in the header", "cut", "text", "pickle"])
def test_damaged_arrays_are_refused(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "array.npy"
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
    with pytest.raises(BadInput, match=r"array\.npy: cannot read the array \(.*\)\. Create the shards again"):
        map_array(file)


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_fingerprint_covers_all_bytes(tmp_path: Path, size: int) -> None:
    raw = np.random.default_rng(size).bytes(size)
    (tmp_path / "file").write_bytes(raw)
    assert file_fingerprint(tmp_path / "file") == xxhash.xxh3_128_hexdigest(raw)


def test_a_file_larger_than_the_memory_is_mapped(tmp_path: Path) -> None:
    """Pages that nothing has written take no space on the disk."""
    length = 2 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    file = tmp_path / "large.npy"
    with file.open("wb") as stream:
        npy.write_array_header_1_0(stream, {"descr": "<u2", "fortran_order": False, "shape": (length,)})
        stream.truncate(stream.tell() + 2 * length)
    array = map_array(file)
    assert (len(array), array[0], array[-1]) == (length, 0, 0)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_mapping_ends_with_its_last_array(tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", np.arange(10))
    array = map_array(tmp_path / "array.npy")
    part = array[3:5]
    del array
    assert part.tolist() == [3, 4]
    assert str(tmp_path) in Path("/proc/self/maps").read_text(encoding="utf-8")
    del part
    gc.collect()
    assert str(tmp_path) not in Path("/proc/self/maps").read_text(encoding="utf-8")
