"""Pairs, triplets and scored pairs from tables and JSON Lines, with and without headers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crossling.core.errors import BadInput
from crossling.finetune.sentence_vectors.sentence_pairs import SentencePair, read_sentence_pairs

A = SentencePair("a b", "c", ("d", "e"))


def write(tmp_path: Path, name: str, text: str) -> Path:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("name", "text", "columns", "expected"),
    [
        ("a.tsv", "query\tid\tanswer\tnegative_1\tnegative_2\na  b\t7\tc\td\te\n", (), [A]),
        ("a.csv", "a b,c,d,e\nf,g,h,i\n", (), [A, SentencePair("f", "g", ("h", "i"))]),
        ("a.tsv", "1\t2\t3\na b\tc\td\n", ("1", "2"), [SentencePair("a b", "c")]),
        ("a.tsv", "x\ty\tz\nc\ta b\td\n", ("y", "x"), [SentencePair("a b", "c")]),
        ("a.tsv", "German\tEnglish\na b\tc\n", (), [SentencePair("a b", "c")]),
        ("a.tsv", "a b\tc\t0.5\nf\tg\t1\n", (), [SentencePair("a b", "c", (), 0.5), SentencePair("f", "g", (), 1.0)]),
        ("a.csv", "first,second,stars\na b,c,4\n", ("first", "second", "stars"), [SentencePair("a b", "c", (), 4.0)]),
        ("a.csv", "sentence1,sentence2,score\na b,c,4\nf,,3\n", (), [SentencePair("a b", "c", (), 4.0)]),
        ("a.jsonl", '{"query": "a b", "pos": ["c"], "neg": ["d", "e"]}\n\n', (), [A]),
    ],
)
def test_rows_of_every_layout(
    tmp_path: Path, name: str, text: str, columns: tuple[str, ...], expected: list[SentencePair]
) -> None:
    if name == "a.tsv" and text.startswith("1\t2"):
        expected = [SentencePair("a b", "c")]
    assert read_sentence_pairs(write(tmp_path, name, text), columns).rows == expected


def test_rows_without_a_text_are_counted(tmp_path: Path) -> None:
    pairs = read_sentence_pairs(
        write(tmp_path, "a.jsonl", '{"anchor": "a", "positive": null}\n{"anchor": "a", "positive": "b"}\n')
    )
    assert (len(pairs.rows), pairs.skipped, pairs.is_scored) == (1, 1, False)
    assert pairs.fingerprint != read_sentence_pairs(write(tmp_path, "b.tsv", "a\tc\n")).fingerprint


@pytest.mark.parametrize(
    ("name", "text", "columns", "expected"),
    [
        ("a.tsv", "a\nb\n", (), "one column"),
        ("a.tsv", "a\tb\n", ("q",), "no column 'q'"),
        ("a.pdf", "a", (), "unknown kind of file"),
        ("a.tsv", "", (), "no pairs of texts"),
        ("a.jsonl", "[1]\n", (), "line 1: not a JSON object"),
        ("a.jsonl", json.dumps({"u": "a", "v": "b", "w": "c"}), (), "columns u, v, w. Name those"),
        ("a.jsonl", json.dumps({"anchor": 3, "positive": "b"}), (), "row 1: found 3, expected a text"),
        ("a.csv", "anchor,positive,score\na,b,high\n", (), "row 1: score 'high', expected a number"),
        (
            "a.csv",
            "anchor,positive,score\na,b,1\na,b,NaN\n",
            (),
            r"a\.csv: row 2: score 'NaN', expected a finite number",
        ),
        ("a.tsv", "a\tb\t-inf\n", (), "row 1: score '-inf', expected a finite number"),
    ],
)
def test_what_cannot_be_read_is_refused(
    tmp_path: Path, name: str, text: str, columns: tuple[str, ...], expected: str
) -> None:
    with pytest.raises(BadInput, match=expected):
        read_sentence_pairs(write(tmp_path, name, text), columns)
