"""Tests of JSON Lines and Parquet: texts, documents, translations, and counts of skipped rows."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.corpora.corpus import Corpora
from crossling.corpora.records import BATCH_ROWS, MAX_ROW_BYTES
from crossling.corpora.text_files import MAX_LINE_BYTES

from .sample_files import COMPRESS, allowed, corpora_of, jsonl, parquet, put, pyarrow, readable

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
def test_a_row_is_a_document_with_one_sentence_per_line(tmp_path: Path, kind: str) -> None:
    texts = ["one\ntwo", "three", "\n\n four \r\n\n \x00 \nfive\tsix\n", "seven\n\neight"]
    found = documents(tmp_path, f"en.{kind}", WRITERS[kind]([{"id": 0, "text": text} for text in texts]))
    assert found == [["one", "two"], ["three"], ["four", "five six"], ["seven", "eight"]]


@formats
def test_rows_that_end_in_a_line_feed_are_lines_of_running_text(tmp_path: Path, kind: str) -> None:
    texts = ["one\n", "two\r\n", "\n", "three\n", "", "four\n", "\x00\n", "five\n", "a document", "six\n"]
    found = documents(tmp_path, f"en.{kind}", WRITERS[kind]([{"text": text} for text in texts]))
    assert found == [["one", "two"], ["three"], ["four"], ["five"], ["a document"], ["six"]]


def test_unusable_rows_of_jsonl_are_counted(tmp_path: Path) -> None:
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
            b'{"text": "' + b"a" * MAX_ROW_BYTES + b'"}',
            json.dumps({"text": "b\n" + "c" * (MAX_LINE_BYTES + 1) + "\nd"}).encode(),
            b'{"text": "\\ud83d\\ude00", "text\\u0000": NaN}\r',
        ]
    )
    assert documents(tmp_path, "en.jsonl", table, counts) == [["a"], ["b", "d"], ["😀"]]
    assert counts == {"not JSON": 6, "no text": 3, "malformed utf-8": 2, "line too long": 2}


def test_unusable_rows_of_parquet_are_counted(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    raw = [b"good %d" % n for n in range(2 * BATCH_ROWS)]
    raw[5], raw[BATCH_ROWS + 1] = b"\xff\xfe", b"a" * (MAX_LINE_BYTES + 1)
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
    texts_by_code = [dict(zip(codes, row, strict=True)) | {"de": "eins"} for row in texts]
    table = WRITERS[kind]([{"id": 7} | ({"translation": one} if nested else one) for one in texts_by_code])
    counts: Counter[str] = Counter()
    found = rows(tmp_path, f"en-fr.{kind}", table, counts)
    assert found == [("one", "un"), ("two lines", "deux mots"), ("three", "trois")]
    assert counts == {"empty side": 1, "missing side": 1}
    (tmp_path / f"pairs/en-fr.{kind}").unlink()
    assert rows(tmp_path, f"fr-en.{kind}", table) == [(target, source) for source, target in found]


def test_an_exact_code_precedes_codes_with_a_region(tmp_path: Path) -> None:
    table = jsonl([{"translation": {"pt-PT": "b", "pt-BR": "c", "pt": "d", "en-US": "a", "xx": "e"}}])
    assert rows(tmp_path, "en-pt.jsonl", table) == [("a", "d")]
    assert rows(tmp_path / "2", "pt_BR-pt.jsonl", table) == [("c", "d")]


def test_unusable_translations_are_counted(tmp_path: Path) -> None:
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
            {"translation": {"en": "a", "fr": "b" * (MAX_LINE_BYTES + 1)}},
            {"translation": {"en": "a", "fr": "\u2028\t"}},
            {"fr": "d", "en": "c"},
        ]
    )
    assert rows(tmp_path, "en-fr.jsonl", table, counts) == [("a", "b"), ("c", "d")]
    assert counts == {"missing side": 5, "no text": 1, "line too long": 1, "empty side": 1}


# ---- multiway -------------------------------------------------------------------------------------------


def test_line_n_of_a_multiway_corpus_is_row_n(tmp_path: Path) -> None:
    table = jsonl([{"text": "eins\nzwei\n"}, {"text": ""}, [], {"text": None}, {"text": "fünf"}])
    column = parquet([{"text": text} for text in ["un", None, "\n", "quatre", "cinq\t"]])
    put(tmp_path, {"multi/n/en.txt": "1\n2\n3\n4\n5\n", "multi/n/de.jsonl.gz": table, "multi/n/fr.parquet": column})
    [multi] = Corpora(tmp_path).multi
    counts: Counter[str] = Counter()
    assert multi.count_rows() == 5
    assert list(multi.lines("de", counts)) == ["eins zwei", "", "", "", "fünf"]
    assert list(multi.lines("fr", counts)) == ["un", "", "", "quatre", "cinq"]
    assert counts == {"not JSON": 1, "no text": 2}


# ---- errors ----------------------------------------------------------------------------------------------


@formats
def test_a_missing_column_is_refused_with_the_existing_ones(tmp_path: Path, kind: str) -> None:
    table = WRITERS[kind]([{"content": "a", "url": "b"}])
    with pytest.raises(BadInput, match=rf"en\.{kind}: no column 'text'\. The columns are 'content', 'url'"):
        documents(tmp_path, f"en.{kind}", table)
    expected = rf"en-fr\.{kind}: no column 'translation', or 'en' and 'fr'\. The columns are 'content', 'url'"
    with pytest.raises(BadInput, match=expected):
        rows(tmp_path, f"en-fr.{kind}", table)


def test_a_file_without_a_usable_row_is_refused_with_reasons(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"en\.jsonl: no usable line \(not JSON: 2\)"):
        documents(tmp_path, "en.jsonl", "no JSON\nat all\n")
    with pytest.raises(BadInput, match=r"en-fr\.jsonl: no usable line \(missing side: 1\)"):
        rows(tmp_path, "en-fr.jsonl", jsonl([{"translation": {"en": "a", "de": "b"}}]))
    with pytest.raises(BadInput, match=r"en\.jsonl: no usable line \(it is empty\)"):
        documents(tmp_path, "en.jsonl", "")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"text\n", parquet([{"text": "a"}])[:-9]])
def test_invalid_parquet_files_are_named(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(
        BadInput, match=r"en\.parquet: not readable as Parquet \([^\n]*\)\. Download or write it again\.$"
    ):
        documents(tmp_path, "en.parquet", content)
    put(tmp_path, {"multi/n/en.parquet": content, "multi/n/fr.txt": "a"})
    with pytest.raises(BadInput, match=r"en\.parquet: not readable as Parquet"):
        Corpora(tmp_path).multi[0].count_rows()


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(BadInput, match=r"en\.parquet: needs the package pyarrow\. .* crossling\[data\]"):
        documents(tmp_path, "en.parquet", b"")


# ---- properties ------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(readable, min_size=1), min_size=1), st.sampled_from(["parquet", *(f"jsonl{s}" for s in COMPRESS)])
)
def test_documents_are_read_as_written(texts: list[list[str]], kind: str) -> None:
    whole = [{"text": "\n".join(lines)} for lines in texts]
    running = [{"text": f"{line}\n"} for lines in texts for line in [*lines, ""]]
    for table in (whole, running):
        with corpora_of({f"text/en.{kind}": WRITERS[kind.split(".")[0]](table)}) as corpora:
            assert list(corpora.text[0].documents()) == texts


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(readable, readable), min_size=1), st.sampled_from(["parquet", *(f"jsonl{s}" for s in COMPRESS)])
)
def test_translations_are_read_as_written(texts: list[tuple[str, str]], kind: str) -> None:
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
def test_no_lines_crash_the_jsonl_reader(lines: list[bytes]) -> None:
    content = b"\n".join(lines)
    files = {"text/en.jsonl": content, "pairs/en-fr.jsonl": content, "multi/n/en.jsonl": content, "multi/n/fr.txt": ""}
    with corpora_of(files) as corpora:
        for read in (corpora.text[0].documents, corpora.pairs[0].rows, lambda: corpora.multi[0].lines("en")):
            with allowed(BadInput, naming=".jsonl"):
                "".join("".join(row) for row in read()).encode()  # fails for half of a surrogate pair


VALID = parquet([{"text": f"line {n}", "en": "a", "fr": "b"} for n in range(50)], compression="none")


@settings(deadline=None)
@given(st.data())
def test_no_bytes_crash_the_parquet_reader(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(VALID)))
    damaged = VALID[:at] + data.draw(st.binary(max_size=20)) + VALID[data.draw(st.integers(at, at + 20)) :]
    with corpora_of({"text/en.parquet": damaged, "pairs/en-fr.parquet": damaged}) as corpora:
        for read in (corpora.text[0].documents, corpora.pairs[0].rows):
            with allowed(BadInput, naming=".parquet"):
                "".join("".join(row) for row in read()).encode()
