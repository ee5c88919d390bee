"""`crossling adapt`: files after one option, the table at the end, JSON, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import crossling as xl
from crossling.adapt.adapt import Adaptation
from crossling.adapt.adapt_settings import AdaptSettings
from crossling.adapt.held_out_scores import Change

from .conftest import Command

SETTINGS = AdaptSettings(
    focus="is",
    architecture="crossling",
    entries=0,
    objectives="xlco",
    replay=0.0,
    epochs=1.0,
    steps=3,
    lr=1e-3,
    matrices="muon",
    pairs=8,
    tokens=64,
    tlm_tokens=64,
    length=64,
)


def change(language: str, role: str, before: float, after: float) -> Change:
    return Change(language=language, role=role, measure="retrieval, %", before=before, after=after, examples=50)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Replace the function by one that returns a result and stores its arguments."""
    found: list[dict[str, Any]] = []

    def adapt(model: str, out: Path, **options: Any) -> Adaptation:
        found.append({"model": model, "out": out, **options})
        changes = [change("is", "new", 8.0, 56.2), change("de", "kept", 90.0, 88.0), change("fr", "kept", 80.0, 81.0)]
        is_dry = options["dry_run"]
        return Adaptation(
            folder=None if is_dry else out, settings=SETTINGS, reasons={}, changes=[] if is_dry else changes
        )

    monkeypatch.setattr(xl, "adapt", adapt, raising=False)
    return found


def test_several_files_follow_one_option(crossling: Command, calls: list[dict[str, Any]]) -> None:
    files = ("--pairs", "a.csv", "b.tmx", "--pair", "en-is", "--text", "c.docx", "--text", "d.txt")
    done = crossling("adapt", "bundled", *files, "-o", "out", "--set", "epochs=2", "--seed", "3")
    assert done.code == 0
    [call] = calls
    assert (call["pairs"], call["text"], call["pair"]) == (["a.csv", "b.tmx"], ["c.docx", "d.txt"], "en-is")
    assert (call["set"], call["seed"], call["replay"]) == (["epochs=2"], 3, ())


def test_the_table_has_the_new_language_and_the_mean_of_the_others(
    crossling: Command, calls: list[dict[str, Any]]
) -> None:
    done = crossling("adapt", "bundled", "--text", "is.txt", "-o", "out")
    assert "8.0 → 56.2" in done.out
    assert "mean of 2" in done.out
    assert "85.0 → 84.5" in done.out
    assert "most lost by de, 90.0 before, 88.0 after" in done.out
    assert calls


def test_json_and_dry_run(crossling: Command, calls: list[dict[str, Any]]) -> None:
    printed = json.loads(crossling("adapt", "bundled", "--text", "is.txt", "-o", "out", "--json").out)
    assert printed["changes"][0]["after"] == 56.2
    assert printed["settings"]["focus"] == "is"
    assert crossling("adapt", "bundled", "--text", "is.txt", "-o", "out", "--dry-run").code == 0
    assert calls[-1]["dry_run"]


def test_bad_input_ends_with_exit_code_2(crossling: Command, tmp_path: Path) -> None:
    done = crossling("adapt", "bundled", "--text", tmp_path / "missing.txt", "-o", tmp_path / "out")
    assert done.code == 2
    assert "missing.txt: no such file" in done.err
    assert not (tmp_path / "out").exists()
