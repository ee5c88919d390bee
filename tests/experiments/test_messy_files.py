"""The messy files that the adaptation is measured on are read as intended."""

from __future__ import annotations

from pathlib import Path

from crossling.adapt.replay_sample import read_icelandic
from crossling.ingest.ingest import ingest
from tests.load_script import load_script


def test_every_file_is_read_and_its_faults_are_found(tmp_path: Path) -> None:
    script = load_script("experiments/adapt.py")
    pairs = read_icelandic()[:160]
    script.write_language(tmp_path / "is", "is", pairs, ["Fyrsta línan & önnur.", "Þriðja línan."])
    files = [tmp_path / "is" / name for name in ("export.csv", "memory.tmx", "glossary.xlsx", "chat.en-is.tsv")]
    report = ingest(files, tmp_path / "corpora", pair="en-is")
    assert [entry["written"] for entry in report["files"]] == [40, 40, 40, 80]
    assert report["files"][0]["encoding"] == "cp1252"
    table = (tmp_path / "corpora" / "pairs" / "export.en-is.tsv").read_text(encoding="utf-8")
    assert "remark" not in table
    assert "&#39;" not in table
    ingest(tmp_path / "is" / "crawl.is.txt", tmp_path / "corpora")
    text = (tmp_path / "corpora" / "text" / "is.txt").read_text(encoding="utf-8")
    assert text == "Fyrsta línan & önnur.\nÞriðja línan.\n"
