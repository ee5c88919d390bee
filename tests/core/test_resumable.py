"""Interrupted work resumes, work for other inputs is redone, and foreign folders are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crossling.core.errors import BadInput
from crossling.core.resumable import (
    PartialOutput,
    check_output_folder,
    file_fingerprint,
    file_state,
    fingerprint,
    is_finished,
    read_entry,
    working_folder,
    write_finished_folder,
)

# ---- fingerprints ------------------------------------------------------------------------------------------


def test_fingerprint_does_not_depend_on_the_order_of_keys() -> None:
    assert fingerprint({"a": 1, "b": [2, None]}) == fingerprint({"b": [2, None], "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": "1"})


def test_fingerprint_of_a_file_depends_on_its_bytes_alone(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"text")
    (tmp_path / "b").write_bytes(b"text")
    assert file_fingerprint(tmp_path / "a") == file_fingerprint(tmp_path / "b")
    (tmp_path / "b").write_bytes(b"test")
    assert file_fingerprint(tmp_path / "a") != file_fingerprint(tmp_path / "b")


def test_state_of_files_changes_with_size_and_time(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"text")
    before = file_state([file])
    assert file_state([file]) == before
    file.write_bytes(b"longer text")
    assert file_state([file]) != before


# ---- partial output ----------------------------------------------------------------------------------------


def test_partial_output_resumes_with_the_same_inputs(tmp_path: Path) -> None:
    partial = PartialOutput(tmp_path / "new" / "out.txt", {"model": "a", "beam": 4})
    partial.record("one", [1.5, "é"])
    (partial.folder / "lines").write_text("first")
    resumed = PartialOutput(tmp_path / "new" / "out.txt", {"beam": 4, "model": "a"})
    assert resumed.done("one") == [1.5, "é"]
    assert resumed.done("two") is None
    assert resumed.count == 1
    resumed.publish(resumed.folder / "lines")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out.txt"]
    assert (tmp_path / "new" / "out.txt").read_text() == "first"


def test_partial_output_for_other_inputs_is_discarded(tmp_path: Path) -> None:
    partial = PartialOutput(tmp_path / "out", {"model": "a"})
    partial.record("one", 1)
    (partial.folder / "array").touch()
    other = PartialOutput(tmp_path / "out", {"model": "b"})
    assert other.done("one") is None
    assert not (other.folder / "array").exists()


def test_an_item_with_other_inputs_is_not_done(tmp_path: Path) -> None:
    partial = PartialOutput(tmp_path / "out", {})
    partial.record("de-en", 1, inputs="files of today")
    resumed = PartialOutput(tmp_path / "out", {})
    assert resumed.done("de-en", "files of today") == 1
    assert resumed.done("de-en", "files of tomorrow") is None


def test_a_journal_line_that_was_cut_off_is_dropped(tmp_path: Path) -> None:
    partial = PartialOutput(tmp_path / "out", {})
    partial.record("one", 1)
    with (partial.folder / "done.jsonl").open("a") as file:
        file.write('{"key": "two", "inp')
    resumed = PartialOutput(tmp_path / "out", {})
    assert resumed.done("one") == 1
    assert resumed.done("two") is None
    resumed.record("two", 2)
    assert PartialOutput(tmp_path / "out", {}).done("two") == 2


@pytest.mark.parametrize("content", ["", "[]", '{"version": 0, "inputs": "x"}', "{"])
def test_a_damaged_or_older_job_file_starts_again(tmp_path: Path, content: str) -> None:
    partial = PartialOutput(tmp_path / "out", {})
    partial.record("one", 1)
    (partial.folder / "job.json").write_text(content)
    assert PartialOutput(tmp_path / "out", {}).done("one") is None


# ---- finished folders --------------------------------------------------------------------------------------


def test_a_folder_is_finished_when_its_entry_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "part"
    with pytest.raises(KeyError), write_finished_folder(folder, "key"):
        raise KeyError
    assert not folder.exists()
    assert read_entry(folder) is None
    with write_finished_folder(folder, "key") as (new, entry):
        (new / "data").write_bytes(b"1234")
        entry["files"] = {"data": {"bytes": 4}}
        assert not is_finished(folder, "key")
    assert is_finished(folder, "key")
    assert not is_finished(folder, "other")
    assert read_entry(folder) == {"key": "key", "files": {"data": {"bytes": 4}}}


@pytest.mark.parametrize("damage", ["cut off", "lost", "no entry", "no key", "no JSON"])
def test_a_damaged_folder_is_not_finished(tmp_path: Path, damage: str) -> None:
    with write_finished_folder(tmp_path / "part", "key") as (new, entry):
        (new / "data").write_bytes(b"1234")
        entry["files"] = {"data": {"bytes": 4}}
    data, file = tmp_path / "part" / "data", tmp_path / "part" / "entry.json"
    match damage:
        case "cut off":
            data.write_bytes(b"123")
        case "lost":
            data.unlink()
        case "no entry":
            file.unlink()
        case "no key":
            file.write_text(json.dumps({"files": {}}))
        case "no JSON":
            file.write_text("{")
    assert not is_finished(tmp_path / "part", "key")


# ---- output folders ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [[], ["scores.jsonl"], ["seed-1", "notes.txt"], [".hidden"]])
def test_new_empty_and_own_output_folders_are_accepted(tmp_path: Path, names: list[str]) -> None:
    check_output_folder(tmp_path / "new", holds=["x"], command="crossling finetune")
    for name in names:
        (tmp_path / name).touch()
    check_output_folder(tmp_path, holds=["scores.jsonl", "seed-*"], command="crossling finetune")


def test_foreign_output_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    message = f"{tmp_path}: not empty, and thesis.tex is no output of crossling x. Give a new or an empty folder."
    with pytest.raises(BadInput) as refused:
        check_output_folder(tmp_path, holds=["model", "*.txt"], command="crossling x")
    assert str(refused.value) == message
    with pytest.raises(BadInput, match="expected a folder, found a file"):
        check_output_folder(tmp_path / "thesis.tex", holds=["*"], command="crossling x")


def test_an_exclusive_output_folder_holds_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "model").touch()
    check_output_folder(tmp_path, holds=["model"], command="crossling x", exclusive=True)
    (tmp_path / "thesis.tex").touch()
    check_output_folder(tmp_path, holds=["model"], command="crossling x")
    with pytest.raises(BadInput, match=r"thesis\.tex is no output"):
        check_output_folder(tmp_path, holds=["model"], command="crossling x", exclusive=True)


def test_unusable_input_leaves_no_new_working_folder(tmp_path: Path) -> None:
    for is_new in (True, False):
        with pytest.raises(BadInput), working_folder(tmp_path / "work"):
            raise BadInput("broken.csv: no text. Give files with text.")
        assert (tmp_path / "work").exists() is not is_new
        (tmp_path / "work").mkdir(exist_ok=True)
    with pytest.raises(KeyboardInterrupt), working_folder(tmp_path / "interrupted"):
        raise KeyboardInterrupt
    assert (tmp_path / "interrupted").is_dir()
