"""Tests of sentence pairs of the user, as the data of a retrieval task."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossling.core.errors import BadInput
from crossling.tasks import own_pairs
from crossling.tasks.own_pairs import read_own_pairs


def write(tmp_path: Path, name: str, text: str) -> Path:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return file


def test_languages_come_from_name_header_or_request(tmp_path: Path) -> None:
    rows = [("one", "moja"), ("two", "mbili")]
    by_name = read_own_pairs(write(tmp_path, "test.en-sw.tsv", "one\tmoja\ntwo\tmbili\nthree\t\nx\n"))
    assert by_name == (("en", "sw"), rows, {"empty side": 1, "other number of columns": 1})
    header = write(tmp_path, "test.csv", "id,Swahili,English\n1,moja,one\n2,mbili,two\n")
    assert read_own_pairs(header) == (("sw", "en"), [row[::-1] for row in rows], {"header": 1})
    assert read_own_pairs(header, ["eng-swh"])[:2] == (("en", "sw"), rows)


@pytest.mark.parametrize(
    ("name", "text", "languages", "expected"),
    [
        ("a.tsv", "a\tb\nc\td\n", None, "no languages in its name and header"),
        ("a.en-sw.tsv", "a\tb\n", None, "1 sentence pairs, expected two or more"),
        ("a.en-sw.tsv", "a\tb\n", ["en", "sw"], "expected the pair"),
        ("a.en-sw.tsv", "a\tb\n" * 9, None, "more than 8 pairs"),
        ("a.csv", "en,sw,fr\na,b,c\n", None, "languages en, sw, fr, expected one pair"),
        ("a.pdf", "a", None, "unknown kind of file"),
    ],
)
def test_bad_files_are_refused(
    tmp_path: Path, name: str, text: str, languages: list[str] | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_pairs, "MAX_PAIRS", 8)
    with pytest.raises(BadInput, match=expected):
        read_own_pairs(write(tmp_path, name, text), languages)
    with pytest.raises(BadInput, match="no such file"):
        read_own_pairs(tmp_path / "absent.tsv")
