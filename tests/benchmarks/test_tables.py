from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossling.benchmarks.examples import Classified
from crossling.benchmarks.tables import Records, Table
from crossling.errors import BadInput

Put = Callable[[str, str], Path]
LABELS = ("no", "yes")
TRIPLE = Table(texts=(0, 1), label=2, quoted=True)
HEADED = Table(texts=("b", "a"), label="gold", id="number")

# What a cell can hold: no tab, no line feed, no space around it, and nothing that a file's encoding would refuse.
CELL = st.text(st.characters(exclude_characters="\t\n\r\ufeff", exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: text == text.strip()
)
ROWS = st.lists(st.tuples(CELL, CELL, st.sampled_from(LABELS)), min_size=1)
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@same_folder
@given(rows=ROWS)
def test_what_a_csv_writer_wrote_is_read_back(put: Put, rows: list[tuple[str, str, str]]) -> None:
    text = io.StringIO()
    csv.writer(text, delimiter="\t", lineterminator="\n").writerows(rows)
    found = TRIPLE(put("a.tsv", text.getvalue()), LABELS)
    assert found == [Classified(str(row), cells[:2], cells[2]) for row, cells in enumerate(rows)]


@same_folder
@given(rows=ROWS)
def test_a_table_with_a_header_is_read_back(put: Put, rows: list[tuple[str, str, str]]) -> None:
    lines = ["\t".join([str(7 + row), a, b, label]) for row, (a, b, label) in enumerate(rows)]
    found = HEADED(put("a.tsv", "\n".join(["number\ta\tb\tgold", *lines])), LABELS)
    assert found == [Classified(str(7 + row), (b, a), label) for row, (a, b, label) in enumerate(rows)]


def test_quotes_that_no_writer_put_there_stay(put: Put) -> None:
    path = put("a.tsv", '"Hm?"\ta "b" c\tyes\n"He said ""no"""\t"\tno\n')
    assert [example.texts for example in TRIPLE(path, LABELS)] == [('"Hm?"', 'a "b" c'), ('He said "no"', '"')]
    plain = Table(texts=(0, 1), label=2)
    assert plain(path, LABELS)[1].texts == ('"He said ""no"""', '"')


def test_columns_from_the_end_read_translations_alone_or_beside_their_source(put: Put) -> None:
    table = Table(texts=(-3, -2), label=-1)
    alone = table(put("a.tsv", "eins\tzwei\tyes\n"), LABELS)
    beside = table(put("b.tsv", "one\ttwo\teins\tzwei\tyes\n"), LABELS)
    assert alone == beside == [Classified("0", ("eins", "zwei"), "yes")]


def test_a_table_without_its_label_column_is_unlabelled(put: Put) -> None:
    assert [example.label for example in TRIPLE(put("a.tsv", "a\tb\nc\td\n"), LABELS)] == [None, None]
    assert HEADED(put("b.tsv", "number\ta\tb\n0\tx\ty\n"), LABELS) == [Classified("0", ("y", "x"), None)]


def test_other_spellings_unwanted_rows_and_numbers(put: Put) -> None:
    table = Table(texts=("a",), label="l", same={"YES": "yes"}, unwanted="-")
    assert [e.label for e in table(put("a.tsv", "a\tl\nx\tYES\ny\t-\nz\tno\n"), LABELS)] == ["yes", "no"]
    score = Table(texts=("a",), label="l", number=True)
    assert [e.label for e in score(put("b.tsv", "a\tl\nx\t3.5\n"), ())] == [3.5]


@pytest.mark.parametrize(
    ("table", "text", "said"),
    [
        (TRIPLE, "a\tb\tyes\nc\td\n", "line 2 has 2 columns, expected 3"),
        (TRIPLE, "a\tb\tyes\nc\td\tyess\n", "line 2: 'yess' is no label of this set; did you mean 'yes'"),
        (HEADED, "number\ta\tc\tgold\n1\tx\ty\tyes\n", "line 1 names no column 'b'"),
        (HEADED, "number\ta\tb\tgold\n\n1\tx\n", "line 3 has 2 columns, expected 4"),
        (Table(("a",), "l", number=True), "a\tl\nx\thigh\n", "line 2: 'high' is no number"),
    ],
)
def test_a_bad_line_is_named(put: Put, table: Table, text: str, said: str) -> None:
    path = put("bad.tsv", text)
    with pytest.raises(BadInput, match=said) as error:
        table(path, LABELS)
    assert str(path) in str(error.value)


def test_torn_rows_go_where_they_are_known_of_and_a_note_counts_them(put: Put) -> None:
    table = Table(texts=("a", "b"), label="l", torn=True)
    with pytest.warns(UserWarning, match="1 of 3 rows end too early"):
        found = table(put("a.tsv", "a\tb\tl\nw\tx\tyes\ny\nz\tz\tno\n"), LABELS)
    assert [example.label for example in found] == ["yes", "no"]


@same_folder
@given(rows=st.lists(st.tuples(st.text(min_size=1), st.text(), st.sampled_from(LABELS)), min_size=1))
def test_json_lines_are_read_back(put: Put, rows: list[tuple[str, str, str]]) -> None:
    lines = [json.dumps({"text": text, "other": other, "label": label}) for text, other, label in rows]
    found = Records(("text", "other"))(put("a.jsonl", "\n".join(lines)), LABELS)
    assert found == [Classified(str(row), (text, other), label) for row, (text, other, label) in enumerate(rows)]


def test_choices_and_what_a_code_says(put: Put) -> None:
    reader = Records(("p", "q"), id="i", choices=("c1", "c2"), words={"cause": "Why?"})
    record = {"p": "It rained.", "q": "cause", "c1": "a", "c2": "b", "i": 4, "label": 1}
    found = reader(put("a.jsonl", json.dumps(record)), ("0", "1"))
    assert found == [Classified("4", ("It rained.", "Why?"), "1", ("a", "b"))]


def test_a_record_without_a_label_or_a_text(put: Put) -> None:
    assert Records(("text",))(put("a.jsonl", '{"text": "a"}'), LABELS)[0].label is None
    with pytest.raises(BadInput, match=r"line 2 has no 'text'"):
        Records(("text",))(put("b.jsonl", '{"text": "a"}\n{"txt": "b"}'), LABELS)
    with pytest.raises(BadInput, match=r"line 1: 'maybe' is no label"):
        Records(("text",))(put("c.jsonl", '{"text": "a", "label": "maybe"}'), LABELS)
