"""Rows of JSON and Parquet: texts, documents and translations; rows that cannot be used are counted."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.corpora.corpus import Corpora
from crossling.corpora.files import LONGEST_LINE
from crossling.corpora.records import LONGEST_ROW, ROWS_AT_ONCE
from crossling.errors import BadInput

from .made import PACK, allowed, corpora_of, jsonl, parquet, put, pyarrow, readable

WRITERS = {"jsonl": jsonl, "parquet": parquet}
formats = pytest.mark.parametrize("kind", sorted(WRITERS))


def documents(root: Path, file: str, content: Any, counts: Counter[str] | None = None) -> list[list[str]]:
    [text] = Corpora(put(root, {f"text/{file}": content})).text
    return list(text.documents(counts))


def rows(root: Path, file: str, content: Any, counts: Counter[str] | None = None) -> list[tuple[str, str]]:
    [pairs] = Corpora(put(root, {f"pairs/{file}": content})).pairs
    return list(pairs.rows(counts))


# ---- documents ------------------------------------------------------------------------------------------


@formats
def test_a_row_is_a_document_and_line_feeds_part_its_lines(tmp_path: Path, kind: str) -> None:
    texts = ["one\ntwo", "three", "\n\n four \r\n\n \x00 \nfive\tsix\n", "seven\n\neight"]
    found = documents(tmp_path, f"en.{kind}", WRITERS[kind]([{"id": 0, "text": text} for text in texts]))
    assert found == [["one", "two"], ["three"], ["four", "five six"], ["seven", "eight"]]


@formats
def test_rows_that_end_in_a_line_feed_are_lines_of_a_running_text(tmp_path: Path, kind: str) -> None:
    texts = ["one\n", "two\r\n", "\n", "three\n", "", "four\n", "\x00\n", "five\n", "a document", "six\n"]
    found = documents(tmp_path, f"en.{kind}", WRITERS[kind]([{"text": text} for text in texts]))
    assert found == [["one", "two"], ["three"], ["four"], ["five"], ["a document"], ["six"]]


def test_rows_of_text_that_cannot_be_used_are_counted(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    table = b"\n".join(
        [
            b'\xef\xbb\xbf{"text": "a\\n"}',
            b"{'text': 'quotes'}",
            b'["text"]',
            b"",
            b'{"text": "cut',
            b'{"text": null}',
            b'{"other": "x"}',
            b'{"text": 5}',
            b'{"text": "\xff"}',
            b'{"text": "half of a pair: \\ud800"}',
            b"[" * 100_000,
            b'{"text": ' + b"9" * 5000 + b"}",
            b'{"text": "' + b"a" * LONGEST_ROW + b'"}',
            json.dumps({"text": "b\n" + "c" * (LONGEST_LINE + 1) + "\nd"}).encode(),
            b'{"text": "\\ud83d\\ude00", "text\\u0000": NaN}\r',
        ]
    )
    assert documents(tmp_path, "en.jsonl", table, counts) == [["a"], ["b", "d"], ["😀"]]
    assert counts == {"not JSON": 6, "no text": 3, "malformed utf-8": 2, "line too long": 2}


def test_rows_of_parquet_that_cannot_be_used_are_counted(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    raw = [b"good %d" % n for n in range(2 * ROWS_AT_ONCE)]
    raw[5], raw[ROWS_AT_ONCE + 1] = b"\xff\xfe", b"a" * (LONGEST_LINE + 1)
    column = pyarrow.array([*raw, None], pyarrow.binary())
    [buffers] = [pyarrow.StringArray.from_buffers(len(column), *column.buffers()[1:], column.buffers()[0])]
    table = pyarrow.table({"text": buffers, "odd": [None] * len(column)})
    pyarrow.parquet.write_table(table, put(tmp_path, {"text/en.parquet": b""}) / "text/en.parquet")
    [text] = Corpora(tmp_path).text
    good = [[line.decode()] for line in raw if line.startswith(b"good")]
    assert list(text.documents(counts)) == good
    assert counts == {"malformed utf-8": 1, "line too long": 1, "no text": 1}


# ---- translations ------------------------------------------------------------------------------------------


@formats
@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("codes", [("en", "fr"), ("eng", "fra_Latn"), ("en-GB", "fr-FR")])
def test_translations_in_one_column_or_in_two(tmp_path: Path, kind: str, nested: bool, codes: tuple[str, str]) -> None:
    texts = [(" one ", "un"), ("two\nlines", "deux\tmots"), ("", "vide"), (None, "rien"), ("three", "trois")]
    held = [dict(zip(codes, row, strict=True)) | {"de": "eins"} for row in texts]
    table = WRITERS[kind]([{"id": 7} | ({"translation": one} if nested else one) for one in held])
    counts: Counter[str] = Counter()
    found = rows(tmp_path, f"en-fr.{kind}", table, counts)
    assert found == [("one", "un"), ("two lines", "deux mots"), ("three", "trois")]
    assert counts == {"empty side": 1, "missing side": 1}
    (tmp_path / f"pairs/en-fr.{kind}").unlink()
    assert rows(tmp_path, f"fr-en.{kind}", table) == [(target, source) for source, target in found]


def test_a_language_comes_before_its_regions(tmp_path: Path) -> None:
    table = jsonl([{"translation": {"pt-PT": "b", "pt-BR": "c", "pt": "d", "en-US": "a", "xx": "e"}}])
    assert rows(tmp_path, "en-pt.jsonl", table) == [("a", "d")]
    assert rows(tmp_path / "2", "pt_BR-pt.jsonl", table) == [("c", "d")]


def test_rows_of_translations_that_cannot_be_used_are_counted(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    table = jsonl(
        [
            {"translation": {"en": "a", "fr": "b"}},
            {"translation": {"en": "a"}},
            {"translation": {"fr": "b", "de": "c"}},
            {"translation": None},
            {"translation": ["a", "b"]},
            {"other": 1},
            {"translation": {"en": 1, "fr": "b"}},
            {"translation": {"en": "a", "fr": "b" * (LONGEST_LINE + 1)}},
            {"translation": {"en": "a", "fr": "\u2028\t"}},
            {"fr": "d", "en": "c"},
        ]
    )
    assert rows(tmp_path, "en-fr.jsonl", table, counts) == [("a", "b"), ("c", "d")]
    assert counts == {"missing side": 5, "no text": 1, "line too long": 1, "empty side": 1}


# ---- multi-way ------------------------------------------------------------------------------------------


def test_row_n_of_a_multi_way_set_is_line_n(tmp_path: Path) -> None:
    table = jsonl([{"text": "eins\nzwei\n"}, {"text": ""}, [], {"text": None}, {"text": "fünf"}])
    column = parquet([{"text": text} for text in ["un", None, "\n", "quatre", "cinq\t"]])
    put(tmp_path, {"multi/n/en.txt": "1\n2\n3\n4\n5\n", "multi/n/de.jsonl.gz": table, "multi/n/fr.parquet": column})
    [multi] = Corpora(tmp_path).multi
    counts: Counter[str] = Counter()
    assert multi.check() == 5
    assert list(multi.lines("de", counts)) == ["eins zwei", "", "", "", "fünf"]
    assert list(multi.lines("fr", counts)) == ["un", "", "", "quatre", "cinq"]
    assert counts == {"not JSON": 1, "no text": 2}


# ---- complaints ------------------------------------------------------------------------------------------


@formats
def test_a_missing_column_is_told_with_those_there_are(tmp_path: Path, kind: str) -> None:
    table = WRITERS[kind]([{"content": "a", "url": "b"}])
    with pytest.raises(BadInput, match=rf"en\.{kind} has no column 'text': the columns there are 'content', 'url'"):
        documents(tmp_path, f"en.{kind}", table)
    expected = rf"en-fr\.{kind} has no column 'translation', or 'en' and 'fr': the columns there are 'content', 'url'"
    with pytest.raises(BadInput, match=expected):
        rows(tmp_path, f"en-fr.{kind}", table)


def test_a_file_without_a_usable_row_says_why(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"en\.jsonl: not one usable line found \(not JSON: 2\)"):
        documents(tmp_path, "en.jsonl", "no JSON\nat all\n")
    with pytest.raises(BadInput, match=r"en-fr\.jsonl: not one usable line found \(missing side: 1\)"):
        rows(tmp_path, "en-fr.jsonl", jsonl([{"translation": {"en": "a", "de": "b"}}]))
    with pytest.raises(BadInput, match=r"en\.jsonl: not one usable line found \(it is empty\)"):
        documents(tmp_path, "en.jsonl", "")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"text\n", parquet([{"text": "a"}])[:-9]])
def test_what_is_no_parquet_is_named(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(BadInput, match=r"en\.parquet cannot be read as Parquet \([^\n]*\): fetch or write it again$"):
        documents(tmp_path, "en.parquet", content)
    put(tmp_path, {"multi/n/en.parquet": content, "multi/n/fr.txt": "a"})
    with pytest.raises(BadInput, match=r"en\.parquet cannot be read as Parquet"):
        Corpora(tmp_path).multi[0].check()


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(BadInput, match=r"en\.parquet needs the package pyarrow: pip install crossling\[data\]"):
        documents(tmp_path, "en.parquet", b"")


# ---- properties ------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(readable, min_size=1), min_size=1), st.sampled_from(["parquet", *(f"jsonl{s}" for s in PACK)]))
def test_documents_come_back(texts: list[list[str]], kind: str) -> None:
    whole = [{"text": "\n".join(lines)} for lines in texts]
    running = [{"text": f"{line}\n"} for lines in texts for line in [*lines, ""]]
    for table in (whole, running):
        with corpora_of({f"text/en.{kind}": WRITERS[kind.split(".")[0]](table)}) as corpora:
            assert list(corpora.text[0].documents()) == texts


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(readable, readable), min_size=1), st.sampled_from(["parquet", *(f"jsonl{s}" for s in PACK)]))
def test_translations_come_back(texts: list[tuple[str, str]], kind: str) -> None:
    flat = [dict(zip(("en", "fr"), row, strict=True)) for row in texts]
    for table in (flat, [{"translation": row} for row in flat]):
        with corpora_of({f"pairs/en-fr.{kind}": WRITERS[kind.split(".")[0]](table)}) as corpora:
            assert list(corpora.pairs[0].rows()) == texts


any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: (
        st.lists(values) | st.dictionaries(st.sampled_from(["text", "translation", "en", "fr", "x"]), values)
    ),
)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.binary() | any_json.map(lambda value: json.dumps(value).encode())))
def test_no_lines_crash_the_reader_of_json(lines: list[bytes]) -> None:
    content = b"\n".join(lines)
    files = {"text/en.jsonl": content, "pairs/en-fr.jsonl": content, "multi/n/en.jsonl": content, "multi/n/fr.txt": ""}
    with corpora_of(files) as corpora:
        for read in (corpora.text[0].documents, corpora.pairs[0].rows, lambda: corpora.multi[0].lines("en")):
            with allowed(BadInput, naming=".jsonl"):
                "".join("".join(row) for row in read()).encode()  # no half of a surrogate pair among them


SOUND = parquet([{"text": f"line {n}", "en": "a", "fr": "b"} for n in range(50)], compression="none")


@settings(deadline=None)
@given(st.data())
def test_no_bytes_crash_the_reader_of_parquet(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(SOUND)))
    harmed = SOUND[:at] + data.draw(st.binary(max_size=20)) + SOUND[data.draw(st.integers(at, at + 20)) :]
    with corpora_of({"text/en.parquet": harmed, "pairs/en-fr.parquet": harmed}) as corpora:
        for read in (corpora.text[0].documents, corpora.pairs[0].rows):
            with allowed(BadInput, naming=".parquet"):
                "".join("".join(row) for row in read()).encode()
