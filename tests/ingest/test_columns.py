"""Tests of the choice of columns: by header, by request, or by number."""

from __future__ import annotations

import pytest

from crossling.core.errors import BadInput
from crossling.corpora.text_files import SkipReason
from crossling.ingest import columns
from crossling.ingest.columns import ColumnChoice, LanguageRequest, choose_columns, select_cells, take_rows

DATA = [["1", "one", "moja", "x"], ["2", "two", "mbili", ""]]
PAIR = LanguageRequest(("en", "sw"))


def choose(header: list[str], languages: str = "", columns: str = "") -> tuple[tuple[str, ...], tuple[int, ...]]:
    request = LanguageRequest(tuple(filter(None, languages.split("-"))), tuple(filter(None, columns.split(","))))
    choice = choose_columns([header, *DATA] if header else DATA, request, "file")
    assert bool(choice.header) == bool(header)
    return choice.languages, choice.positions


def test_headers_name_the_languages() -> None:
    assert choose(["id", "English", "Swahili", "note"]) == (("en", "sw"), (1, 2))
    assert choose(["no", "text_en", "swh_Latn", "url"]) == (("en", "sw"), (1, 2))
    assert choose(["id", "Swahili", "note", "English"], "en-sw") == (("en", "sw"), (3, 1))
    assert choose(["id", "source", "target", "score"], "en-sw") == (("en", "sw"), (1, 2))
    assert choose(["id", "text", "translation", "score"], "en-sw") == (("en", "sw"), (1, 2))
    assert choose(["id", "English", "sw", "French"]) == (("en", "sw", "fr"), (1, 2, 3))
    assert choose(["id", "Sentence", "url", "date"], "sw") == (("sw",), (1,))
    assert choose(["id", "English", "Swahili", "note"], "sw") == (("sw",), (2,))


def test_columns_are_named_by_the_user() -> None:
    assert choose(["id", "A", "B", "note"], "en-sw", "B,a") == (("en", "sw"), (2, 1))
    assert choose([], "en-sw", "2,3") == (("en", "sw"), (1, 2))
    assert choose(["id", "English", "Swahili", "note"], "", "2,3") == (("en", "sw"), (1, 2))
    assert choose([], "sw", "3") == (("sw",), (2,))


def test_without_a_header_the_number_of_columns_decides() -> None:
    rows = [["one", "moja"], ["two", "mbili"]]
    assert choose_columns(rows, PAIR, "file") == ColumnChoice(("en", "sw"), (0, 1), 2)
    scored = [["1.25", "one", "moja"], ["1.01", "two", "mbili"]]
    assert choose_columns(scored, PAIR, "file").positions == (1, 2)
    assert choose_columns([["moja"]], LanguageRequest(("sw",)), "file").positions == (0,)


@pytest.mark.parametrize(
    ("header", "languages", "columns", "expected"),
    [
        ([], "en-sw", "", r"4 columns \('1', 'one', 'moja', 'x'\) for en-sw. Name the columns of the text"),
        ([], "", "", "no languages in its name and header"),
        (["id", "source", "target", "score"], "", "", "no languages in its name and header"),
        (["id", "English", "French", "note"], "en-sw", "", "expected en-sw"),
        (["id", "English", "en", "note"], "", "", "two columns of one language"),
        (["id", "A", "B", "note"], "en-sw", "A,C", "no column 'C'. The columns are 'id', 'A', 'B', 'note'"),
        (["id", "A", "B", "note"], "en-sw", "A", "1 columns for 2 languages"),
        (["id", "A", "B", "note"], "en-sw", "9,1", "no column '9'"),
    ],
)
def test_what_is_not_certain_is_refused(header: list[str], languages: str, columns: str, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        choose(header, languages, columns)


def test_a_column_of_identifiers_is_no_indonesian() -> None:
    sentences = [["en", "id"], ["one book", "satu buku"], ["two", "dua buah"]]
    assert choose_columns(sentences, LanguageRequest(), "file").languages == ("en", "id")
    with pytest.raises(BadInput, match="may hold id or identifiers"):
        choose_columns([["en", "id"], ["one", "satu"]], LanguageRequest(), "file")


def test_rows_of_another_shape_are_skipped() -> None:
    choice = ColumnChoice(("en", "sw"), (1, 2), 3, ("id", "en", "sw"))
    rows = [["id", "en", "sw"], ["1", "a", "b"], ["a", "b"], ["1", "a", "b", ""], ["1", "a", "b", "c"], ["", " ", ""]]
    selected = [*select_cells(iter(rows), choice, pad=False)]
    wrong = SkipReason.WRONG_COLUMNS
    assert selected == [SkipReason.HEADER, ["a", "b"], wrong, ["a", "b"], wrong, SkipReason.BLANK_ROW]
    assert [*select_cells(iter([["1", "a"]]), choice, pad=True)] == [["a", ""]]


def test_the_sample_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [["en", "sw"], ["", " "], ["x" * 60, "y" * 60], ["one", "moja"]]
    monkeypatch.setattr(columns, "MAX_SAMPLE_SIZE", 100)
    sample, every = take_rows(iter(rows))
    assert sample == [rows[0], rows[2]]
    assert list(every) == [rows[0], [], rows[2], rows[3]]
