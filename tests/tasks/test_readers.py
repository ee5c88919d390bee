from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.tasks.examples import ClassificationExample
from crossling.tasks.readers import JsonLinesReader, TableReader, read_json, read_json_lines, read_lines

Put = Callable[[str, str], Path]
LABELS = ("no", "yes")
TRIPLE = TableReader(texts=(0, 1), label=2, quoted=True)
HEADED = TableReader(texts=("b", "a"), label="gold", id="number")

# Text of a cell: no tab, no line feed, no space around it, no surrogates.
CELL = st.text(st.characters(exclude_characters="\t\n\r\ufeff", exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: text == text.strip()
)
ROWS = st.lists(st.tuples(CELL, CELL, st.sampled_from(LABELS)), min_size=1)
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@same_folder
@given(rows=ROWS)
def test_tables_of_a_csv_writer_round_trip(put: Put, rows: list[tuple[str, str, str]]) -> None:
    text = io.StringIO()
    csv.writer(text, delimiter="\t", lineterminator="\n").writerows(rows)
    found = TRIPLE(put("a.tsv", text.getvalue()), LABELS)
    assert found == [ClassificationExample(str(row), cells[:2], cells[2]) for row, cells in enumerate(rows)]


@same_folder
@given(rows=ROWS)
def test_tables_with_a_header_round_trip(put: Put, rows: list[tuple[str, str, str]]) -> None:
    lines = ["\t".join([str(7 + row), a, b, label]) for row, (a, b, label) in enumerate(rows)]
    found = HEADED(put("a.tsv", "\n".join(["number\ta\tb\tgold", *lines])), LABELS)
    assert found == [ClassificationExample(str(7 + row), (b, a), label) for row, (a, b, label) in enumerate(rows)]


def test_quotes_that_are_not_csv_quoting_stay(put: Put) -> None:
    path = put("a.tsv", '"Hm?"\ta "b" c\tyes\n"He wrote ""no"""\t"\tno\n')
    assert [example.texts for example in TRIPLE(path, LABELS)] == [('"Hm?"', 'a "b" c'), ('He wrote "no"', '"')]
    plain = TableReader(texts=(0, 1), label=2)
    assert plain(path, LABELS)[1].texts == ('"He wrote ""no"""', '"')


def test_negative_columns_count_from_the_end(put: Put) -> None:
    table = TableReader(texts=(-3, -2), label=-1)
    alone = table(put("a.tsv", "eins\tzwei\tyes\n"), LABELS)
    beside = table(put("b.tsv", "one\ttwo\teins\tzwei\tyes\n"), LABELS)
    assert alone == beside == [ClassificationExample("0", ("eins", "zwei"), "yes")]


def test_a_table_without_the_label_column_is_unlabeled(put: Put) -> None:
    assert [example.label for example in TRIPLE(put("a.tsv", "a\tb\nc\td\n"), LABELS)] == [None, None]
    assert HEADED(put("b.tsv", "number\ta\tb\n0\tx\ty\n"), LABELS) == [ClassificationExample("0", ("y", "x"), None)]


def test_label_aliases_skipped_labels_and_numeric_labels(put: Put) -> None:
    table = TableReader(texts=("a",), label="l", aliases={"YES": "yes"}, skipped_label="-")
    assert [e.label for e in table(put("a.tsv", "a\tl\nx\tYES\ny\t-\nz\tno\n"), LABELS)] == ["yes", "no"]
    score = TableReader(texts=("a",), label="l", numeric=True)
    assert [e.label for e in score(put("b.tsv", "a\tl\nx\t3.5\n"), ())] == [3.5]


@pytest.mark.parametrize(
    ("table", "text", "message"),
    [
        (TRIPLE, "a\tb\tyes\nc\td\n", "line 2: 2 columns, expected 3"),
        (TRIPLE, "a\tb\tyes\nc\td\tyess\n", "line 2: unknown label 'yess'; did you mean 'yes'"),
        (HEADED, "number\ta\tc\tgold\n1\tx\ty\tyes\n", "line 1: no column 'b'"),
        (HEADED, "number\ta\tb\tgold\n\n1\tx\n", "line 3: 2 columns, expected 4"),
        (TableReader(("a",), "l", numeric=True), "a\tl\nx\thigh\n", "line 2: 'high' is not a number"),
    ],
)
def test_table_errors_name_the_file_and_line(put: Put, table: TableReader, text: str, message: str) -> None:
    path = put("bad.tsv", text)
    with pytest.raises(BadInput, match=message) as error:
        table(path, LABELS)
    assert str(path) in str(error.value)


def test_short_rows_are_skipped_with_a_warning_if_expected(put: Put) -> None:
    table = TableReader(texts=("a", "b"), label="l", skip_short_rows=True)
    with pytest.warns(UserWarning, match="skipped 1 of 3 rows with missing columns"):
        found = table(put("a.tsv", "a\tb\tl\nw\tx\tyes\ny\nz\tz\tno\n"), LABELS)
    assert [example.label for example in found] == ["yes", "no"]


@same_folder
@given(rows=st.lists(st.tuples(st.text(min_size=1), st.text(), st.sampled_from(LABELS)), min_size=1))
def test_json_lines_round_trip(put: Put, rows: list[tuple[str, str, str]]) -> None:
    lines = [json.dumps({"text": text, "other": other, "label": label}) for text, other, label in rows]
    found = JsonLinesReader(("text", "other"))(put("a.jsonl", "\n".join(lines)), LABELS)
    assert found == [
        ClassificationExample(str(row), (text, other), label) for row, (text, other, label) in enumerate(rows)
    ]


def test_choices_and_replacements(put: Put) -> None:
    reader = JsonLinesReader(("p", "q"), id="i", choices=("c1", "c2"), replacements={"cause": "Why?"})
    record = {"p": "It rained.", "q": "cause", "c1": "a", "c2": "b", "i": 4, "label": 1}
    found = reader(put("a.jsonl", json.dumps(record)), ("0", "1"))
    assert found == [ClassificationExample("4", ("It rained.", "Why?"), "1", ("a", "b"))]


def test_records_without_a_label_or_a_text(put: Put) -> None:
    assert JsonLinesReader(("text",))(put("a.jsonl", '{"text": "a"}'), LABELS)[0].label is None
    with pytest.raises(BadInput, match=r"line 2: no key 'text'"):
        JsonLinesReader(("text",))(put("b.jsonl", '{"text": "a"}\n{"txt": "b"}'), LABELS)
    with pytest.raises(BadInput, match=r"line 1: unknown label 'maybe'"):
        JsonLinesReader(("text",))(put("c.jsonl", '{"text": "a", "label": "maybe"}'), LABELS)


def test_lines_end_at_line_feeds_only(put: Put) -> None:
    assert read_lines(put("a.txt", "one\u2028same\r\ntwo\n\nfour\n")) == ["one\u2028same", "two", "", "four"]


def test_plain_files_come_before_compressed_ones(put: Put) -> None:
    path = put("a.txt.gz", "zipped")
    assert read_lines(path) == ["zipped"]
    put("a.txt", "\ufeffplain")
    assert read_lines(path) == ["plain"]


def test_json_and_json_lines_are_read(put: Put) -> None:
    assert read_json(put("a.json", '{"a":\n 1}')) == {"a": 1}
    assert list(read_json_lines(put("a.jsonl", '{"a": 1}\n\n{"a": 2}\n'))) == [(1, {"a": 1}), (3, {"a": 2})]


@pytest.mark.parametrize(
    ("text", "message"),
    [('{"a": 1}\n{"a"', "line 2: invalid JSON"), ("[1]", "line 1: expected a JSON object")],
)
def test_invalid_json_lines_are_refused(put: Put, text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        list(read_json_lines(put("a.jsonl", text)))


def test_unreadable_files_are_refused(put: Put, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no such file, plain or \.gz"):
        read_lines(tmp_path / "nothing.txt")
    with pytest.raises(BadInput, match="is empty"):
        read_lines(put("empty.txt", "\n"))
    with pytest.raises(BadInput, match="line 2: invalid JSON"):
        read_json(put("bad.json", "{\n1"))
    (tmp_path / "latin.txt").write_bytes(b"ab\n\xe4\n")
    with pytest.raises(BadInput, match="line 2: not UTF-8"):
        read_lines(tmp_path / "latin.txt")
    (tmp_path / "truncated.txt.gz").write_bytes(b"\x1f\x8b\x08")
    with pytest.raises(BadInput, match="Download the file again"):
        read_lines(tmp_path / "truncated.txt")
