"""Tests of atomic writes: a file or folder is never visible half written."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crossling.core.errors import BadInput
from crossling.core.files import append_file, atomic_file, atomic_folder, check_format, write_json


def fail_half_way(file: Path) -> None:
    file.write_bytes(b"half")
    raise RuntimeError("half way")


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_file_appears_only_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "x.txt"
    with atomic_file(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
        temporary.write_text("whole")
    assert path.read_text() == "whole"
    assert names(path.parent) == ["x.txt"]


def test_the_temporary_file_is_hidden_and_on_the_same_disk(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "x.txt") as temporary:
        assert temporary.parent == tmp_path
        assert temporary.name.startswith(".")


def test_an_error_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="half way"), atomic_file(path) as temporary:
        fail_half_way(temporary)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["x.txt"]


def test_a_file_replaces_the_old_one_and_is_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("old")
    with atomic_file(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_folder_appears_only_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "shards"
    with atomic_folder(path) as temporary:
        (temporary / "inner").mkdir()
        (temporary / "inner" / "x.bin").write_bytes(b"1")
        assert not path.exists()
    assert (path / "inner" / "x.bin").read_bytes() == b"1"
    assert names(path.parent) == ["shards"]
    assert path.stat().st_mode & 0o777 == 0o755


def test_a_folder_replaces_the_old_one_entirely(tmp_path: Path) -> None:
    path = tmp_path / "shards"
    path.mkdir()
    (path / "old.bin").write_bytes(b"old")
    with atomic_folder(path) as temporary:
        (temporary / "new.bin").write_bytes(b"new")
        assert names(path) == ["old.bin"]
    assert names(path) == ["new.bin"]
    assert names(tmp_path) == ["shards"]


@pytest.mark.parametrize("before", [None, b"old"])
def test_an_error_keeps_the_old_folder_or_none(tmp_path: Path, before: bytes | None) -> None:
    path = tmp_path / "shards"
    if before is not None:
        path.mkdir()
        (path / "x.bin").write_bytes(before)
    with pytest.raises(RuntimeError, match="half way"), atomic_folder(path) as temporary:
        fail_half_way(temporary / "x.bin")
    if before is None:
        assert names(tmp_path) == []
    else:
        assert names(tmp_path) == ["shards"]
        assert (path / "x.bin").read_bytes() == before


def test_a_keyboard_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), atomic_file(tmp_path / "x.txt"):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), atomic_folder(tmp_path / "x"):
        raise KeyboardInterrupt
    assert names(tmp_path) == []


def test_json_is_indented_and_not_escaped(tmp_path: Path) -> None:
    value = {"language": "አማርኛ", "counts": [1, 2.5, None]}
    write_json(tmp_path / "x.json", value)
    text = (tmp_path / "x.json").read_text(encoding="utf-8")
    assert json.loads(text) == value
    assert "አማርኛ" in text
    assert text.endswith("}\n")


def test_a_value_that_is_not_json_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"step": 1})
    with pytest.raises(TypeError):
        write_json(path, {"step": object()})
    assert json.loads(path.read_text()) == {"step": 1}
    assert names(tmp_path) == ["x.json"]


def test_several_threads_can_write_one_folder(tmp_path: Path) -> None:
    """The last writer wins, its folder is complete, and no writer fails."""

    def write(number: int) -> None:
        for turn in range(15):
            with atomic_folder(tmp_path / "folder") as temporary:
                for name in "ab":
                    (temporary / name).write_text(f"{number} {turn}")

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(write, number) for number in range(4)]:
            done.result()
    assert names(tmp_path) == ["folder"]
    assert (tmp_path / "folder" / "a").read_text() == (tmp_path / "folder" / "b").read_text()


@pytest.mark.parametrize("found", [1, 3, "2", None, True, [2], {"a": 2}, "line\nbreak" * 9])
def test_another_format_version_gives_one_line_with_the_fix(found: object) -> None:
    check_format("x.json", 2, 2, "Run it again.")
    with pytest.raises(BadInput, match=r"^x\.json: format version .{1,40}, expected 2\. Run it again\.$"):
        check_format("x.json", found, 2, "Run it again.")


@pytest.mark.parametrize("limits", [[None], [0], [3, 0], [3, 4, None]], ids=str)
def test_a_file_is_appended_whatever_the_system_copies(
    limits: list[int | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some network file systems copy fewer bytes than they should, or none, without an error."""
    if not hasattr(os, "copy_file_range"):
        pytest.skip("needs Linux")
    original, rest = os.copy_file_range, iter(limits)

    def copy_some(source: int, target: int, count: int, offset: int) -> int:
        limit = next(rest, None)
        return 0 if limit == 0 else original(source, target, min(count, limit or count), offset)

    monkeypatch.setattr(os, "copy_file_range", copy_some)
    (tmp_path / "source").write_bytes(b"0123456789")
    with (tmp_path / "source").open("rb") as source, (tmp_path / "target").open("wb") as target:
        target.write(b"before ")
        source.seek(2)
        append_file(source, target)
    assert (tmp_path / "target").read_bytes() == b"before 23456789"
