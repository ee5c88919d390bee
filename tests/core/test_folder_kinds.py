"""Kinds of folders by their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossling.core.folder_kinds import data_folder_hint, folder_kind, kind_note


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["recipe.json", "scores.jsonl"], "a run of crossling pretrain"),
        (["config.json", "sentencepiece.model"], "a Hugging Face model"),
        (["sentencepiece.model"], "a vocabulary of crossling vocab"),
        (["tuned.json", "config.json"], "a fine-tuned model"),
        (["manifest.json"], "a folder of shards"),
        (["notes.txt"], None),
    ],
)
def test_the_kind_follows_from_the_files(names: list[str], kind: str | None, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert folder_kind(tmp_path) == kind
    assert kind_note(tmp_path) == (f"; this is {kind}" if kind else "")


def test_files_and_missing_folders(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert kind_note(tmp_path / "file") == "; this is a file"
    assert kind_note(tmp_path / "absent") == "; no such folder"


def test_benchmark_data_is_found_nearby(tmp_path: Path) -> None:
    (tmp_path / "data" / "xnli").mkdir(parents=True)
    assert data_folder_hint(tmp_path, ["xnli"]) == f" Give {tmp_path / 'data'}."
    assert data_folder_hint(tmp_path / "data" / "xnli", ["xnli"]) == f" Give {tmp_path / 'data'}."
    assert data_folder_hint(tmp_path, ["panx"]) == ""
