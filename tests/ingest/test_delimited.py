"""Tests of CSV and TSV: delimiters, quotes and cells of several lines."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.corpora.text_files import SkipReason
from crossling.ingest.delimited import TableDialect, find_dialect, split_rows

COMMA = TableDialect(",", True)


@pytest.mark.parametrize(
    ("lines", "ending", "expected"),
    [
        (["a,b", "c,d"], "csv", (",", True)),
        (["a;b, c", "d;e", 'f;"g;h"'], "csv", (";", True)),
        (["a\tb, c", "d\te"], "csv", ("\t", True)),
        (["one column"], "csv", (",", True)),
        (['"Yes," he wrote.\tb', 'c\t"d"'], "tsv", ("\t", False)),
        (['"a ""b"" c"\td', "e\tf"], "tsv", ("\t", True)),
        (['"a"\t"b"', '"c"\t"d"'], "tab", ("\t", True)),
        (["a ||| b", "c ||| d"], "txt", ("|||", False)),
        (["a\tb", "c\td"], "txt", ("\t", False)),
        (["a\tb", "c", "d", "e"], "txt", None),
    ],
)
def test_the_first_lines_decide_the_dialect(lines: list[str], ending: str, expected: tuple[str, bool] | None) -> None:
    assert find_dialect(lines, ending) == expected


@given(st.lists(st.lists(st.text(st.sampled_from('ab",\n ')), min_size=2, max_size=3), max_size=6))
def test_rows_of_a_csv_writer_are_read_back(rows: list[list[str]]) -> None:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    assert list(split_rows(written.getvalue().split("\n")[:-1], COMMA)) == rows


def test_an_unclosed_quote_costs_one_row() -> None:
    lines = ['1,"open', "2,b", *(f"{number},c" for number in range(3, 400)), '9,"closed"']
    rows = list(split_rows(lines, COMMA))
    assert rows[:2] == [SkipReason.UNCLOSED_QUOTE, ["2", "b"]]
    assert rows[-1] == ["9", "closed"]
    assert len(rows) == len(lines)


def test_skipped_lines_are_reported_also_within_quotes() -> None:
    lines: list[str | SkipReason] = ["a,b", SkipReason.MALFORMED, 'c,"d', SkipReason.TOO_LONG, 'e"']
    assert list(split_rows(lines, COMMA)) == [
        ["a", "b"],
        SkipReason.MALFORMED,
        SkipReason.UNCLOSED_QUOTE,
        SkipReason.TOO_LONG,
        ['e"'],
    ]
    assert list(split_rows(['a "quoted" word\tb'], TableDialect("\t", False))) == [['a "quoted" word', "b"]]
