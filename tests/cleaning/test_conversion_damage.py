"""Tests of the warnings about files that were not converted well."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossling.cleaning.check import check, summary_tables
from crossling.cleaning.conversion_damage import find_file_damage
from crossling.cleaning.corpus_parts import corpus_parts
from crossling.corpora.corpus import Corpora
from tests.corpora.sample_files import put, tmx

FILES = {
    "text/en.txt": "One\rtwo\r\nthree &amp; four\n&amp; AT&T;\n",
    "text/sw.txt": "moja\n".encode("utf-16-le"),
    "pairs/a.en-sw.tsv.gz": "English\tKiswahili\none &eacute;\tmoja\n",
    "pairs/b.en-sw.tsv": '"a ""b"" c"\tmoja\n',
    "pairs/c.en-sw.tmx": tmx([[("en", "a &amp; b"), ("sw", "c")]]),
    "pairs/d.en-sw.tsv": "source\ttarget\none\tmoja\n",
    "multi/m/en.txt": "one\r\n",
    "multi/m/sw.txt": "moja\rmbili\n",
    "pairs/fine.en-sw.tsv": '"Yes"\tNdiyo & "sawa"; la\r\n',
}
EXPECTED = {
    "text/en": {"carriage returns without line feed": 1, "rows with HTML entities": 2},
    "text/sw": {"zero bytes, as in UTF-16": 5},
    "pairs/a.en-sw": {"header row": 1, "rows with HTML entities": 1},
    "pairs/b.en-sw": {"cells in the quotes of a spreadsheet": 1},
    "pairs/c.en-sw": {"rows with HTML entities": 1},
    "pairs/d.en-sw": {"header row": 1},
    "multi/m/sw": {"carriage returns without line feed": 1},
}


def test_signs_of_damage_are_reported_and_change_nothing(tmp_path: Path) -> None:
    report = check(put(tmp_path / "corpora", FILES))
    assert report is not None
    assert {row["corpus"]: row["damage"] for row in report["corpora"] if row["damage"]} == EXPECTED
    lines = "\n".join(map(str, summary_tables(report)))
    assert "Signs of files that were not converted well (crossling ingest repairs them): " in lines
    assert "multi/m: carriage returns without line feed 1" in lines


@pytest.mark.parametrize("block", [1, 3, 1 << 16])
def test_line_ends_are_counted_across_blocks(tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossling.cleaning.conversion_damage.BLOCK_BYTES", block)
    [part] = corpus_parts(Corpora(put(tmp_path, {"text/en.txt": "a\r\nb\rc\r\n\r\r\nd\n"})))
    assert find_file_damage(part.own_sources, part.languages) == {"carriage returns without line feed": 2}
