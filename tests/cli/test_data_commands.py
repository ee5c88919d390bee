"""The command ingest: its table, notes, JSON and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Command, error_line


def test_ingest_prints_what_it_read(crossling: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    Path("in").mkdir()
    Path("in/[a].en-sw.csv").write_text("one &amp; two,moja\nthree,\n", encoding="utf-8")
    Path("in/photo.png").write_bytes(b"\x89PNG")
    done = crossling("ingest", "in", "-o", "corpora")
    assert done.code == 0
    for text in ("in/[a].en-sw.csv", "csv, utf-8, LF", "pairs/a.en-sw.tsv", "empty side 1", "HTML entities 1"):
        assert text in done.out
    assert "Skipped in/photo.png: unknown kind of file." in done.out
    assert "Wrote 1 rows to corpora, and the report to corpora/ingest.json.\nNext: crossling check corpora" in done.err
    report = json.loads(crossling("ingest", "in", "-o", "corpora", "--json").out)
    assert report == json.loads(Path("corpora/ingest.json").read_text(encoding="utf-8"))
    options = ["--pair", "sw-en", "--columns", "2,1", "--encoding", "utf-8"]
    assert crossling("ingest", "in/[a].en-sw.csv", *options, "-o", "swapped").code == 0
    assert Path("swapped/pairs/a.sw-en.tsv").read_text(encoding="utf-8") == "moja\tone & two\n"


def test_ingest_refuses_in_one_line(crossling: Command, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("x\n", encoding="utf-8")
    assert "no language in its name" in error_line(crossling("ingest", file, "-o", tmp_path / "out"), 2)
    both = ["--language", "sw", "--pair", "en-sw"]
    assert "both are given" in error_line(crossling("ingest", file, *both, "-o", tmp_path / "out"), 2)
