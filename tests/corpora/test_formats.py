"""Tests of the table of formats: every format in every compression, and a new format by one entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from crossling.core.errors import BadInput
from crossling.corpora import formats
from crossling.corpora.corpus import Corpora
from crossling.corpora.formats import FORMATS, CorpusFormat, LanguagePair, PairRow, endings
from crossling.corpora.text_files import SkipReason, TextFile, map_rows, read_lines

from .sample_files import COMPRESS, jsonl, parquet, put, tmx

DOCUMENTS = [["one", "two – ２"], ["три"], ["四", "五\u200d", "ﷺ"]]
ROWS = [("one", "un"), ("two – ２", "deux\xa0!"), ("四", "ﷺ")]
TEXT_SAMPLES = {
    "txt": "\n\n".join("\n".join(document) for document in DOCUMENTS).encode(),
    "jsonl": jsonl([{"text": "\n".join(document)} for document in DOCUMENTS]),
    "parquet": parquet([{"text": "\n".join(document)} for document in DOCUMENTS]),
}
PAIR_SAMPLES = {
    "tsv": "".join(f"{source}\t{target}\r\n" for source, target in ROWS).encode(),
    "tmx": tmx([[("en", source), ("fr", target)] for source, target in ROWS]),
    "jsonl": jsonl([{"translation": {"en": source, "fr": target}} for source, target in ROWS]),
    "parquet": parquet([{"translation": {"en": source, "fr": target}} for source, target in ROWS]),
}
MULTI_SAMPLES = {
    "txt": "one\n\n四\n".encode(),
    "jsonl": jsonl([{"text": "one"}, {"text": ""}, {"text": "四"}]),
    "parquet": parquet([{"text": "one"}, {"text": ""}, {"text": "四"}]),
}


def compressed(samples: dict[str, bytes]) -> list[str]:
    """Return the endings txt, txt.gz and so on. Parquet is never compressed."""
    return [f"{kind}{suffix}" for kind in samples for suffix in COMPRESS if kind != "parquet" or not suffix]


@pytest.mark.parametrize("ending", compressed(TEXT_SAMPLES))
def test_every_format_of_text(tmp_path: Path, ending: str) -> None:
    put(tmp_path, {f"text/en.{ending}": TEXT_SAMPLES[ending.split(".")[0]]})
    assert list(Corpora(tmp_path).text[0].documents()) == DOCUMENTS


@pytest.mark.parametrize("ending", compressed(PAIR_SAMPLES))
def test_every_format_of_pairs(tmp_path: Path, ending: str) -> None:
    put(tmp_path, {f"pairs/name.en-fr.{ending}": PAIR_SAMPLES[ending.split(".")[0]]})
    assert list(Corpora(tmp_path).pairs[0].rows()) == ROWS


@pytest.mark.parametrize("suffix", COMPRESS)
def test_two_sides_in_every_compression(tmp_path: Path, suffix: str) -> None:
    for language, side in zip(("en", "fr"), zip(*ROWS, strict=True), strict=True):
        put(tmp_path, {f"pairs/name.en-fr.{language}{suffix}": "\n".join(side)})
    assert list(Corpora(tmp_path).pairs[0].rows()) == ROWS


@pytest.mark.parametrize("ending", compressed(MULTI_SAMPLES))
def test_every_format_of_multiway_corpora(tmp_path: Path, ending: str) -> None:
    put(tmp_path, {f"multi/name/en.{ending}": MULTI_SAMPLES[ending.split(".")[0]], "multi/name/fr.txt": "a\nb\nc\n"})
    [multi] = Corpora(tmp_path).multi
    assert list(multi.lines("en")) == ["one", "", "四"]
    assert multi.count_rows() == 3


# ---- adding a format -----------------------------------------------------------------------------------------


def read_semicolons(file: TextFile, _: LanguagePair) -> Iterator[PairRow]:
    """Read pairs in which the target follows a semicolon."""
    return map_rows(split_at_semicolon, read_lines(file.path))


def split_at_semicolon(line: str) -> PairRow:
    source, separator, target = line.partition(";")
    return (source, target) if separator else SkipReason.NOT_TWO_COLUMNS


def test_one_entry_adds_a_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, {"pairs/en-fr.semi.gz": "one;un\ntwo\nthree;trois\n"})
    with pytest.raises(BadInput, match=r"en-fr\.semi\.gz: ends in \.semi, expected"):
        Corpora(tmp_path)
    monkeypatch.setitem(FORMATS, "semi", CorpusFormat(read_pairs=read_semicolons))
    counts: Counter[str] = Counter()
    assert list(Corpora(tmp_path).pairs[0].rows(counts)) == [("one", "un"), ("three", "trois")]
    assert counts == {"not two columns": 1}
    assert "pairs/[NAME.]LL-LL.{tsv,tmx,jsonl,parquet,hf,semi}" in formats.describe_layout()
    put(tmp_path, {"de-en.semi": "x"})
    with pytest.raises(BadInput, match=r"de-en\.semi: not read at this place"):
        Corpora(tmp_path)


def test_endings_of_every_place() -> None:
    assert endings("text") == ("txt", "jsonl", "parquet", "hf")
    assert endings("pairs") == ("tsv", "tmx", "jsonl", "parquet", "hf")
    assert endings("multi") == ("txt", "jsonl", "parquet")
