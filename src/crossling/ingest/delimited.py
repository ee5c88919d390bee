"""Rows of CSV, TSV and similar files: the delimiter, quotes, and cells of several lines.

A file has one dialect, which its first lines decide. In a tab-separated file quotes are text unless cells with doubled
quotes (`"It is ""red""."`) show that a spreadsheet wrote it.
"""

from __future__ import annotations

import csv
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from crossling.corpora.text_files import MAX_LINE_BYTES, SkipReason

SAMPLE_LINES = 100  # that decide the dialect
SAMPLE_CHARACTERS = 1 << 18
MAX_CELL_LINES = 200  # of one row: a longer one has a quote that is not closed
MIN_TABLE_LINES = 0.9  # least proportion of lines with the delimiter, to take a text file for a table
DELIMITERS = {"csv": (",", ";", "\t", "|"), "tsv": ("\t",), "tab": ("\t",), "txt": ("\t", "|||")}
_DOUBLED_QUOTES = re.compile(r'(?:^|\t)"[^"\t]*(?:""[^"\t]*)+"(?:\t|$)')
_QUOTED_CELLS = re.compile(r'"[^"\t]*"(?:\t"[^"\t]*")*')

Cells = list[str]


class TableDialect(NamedTuple):
    """Delimiter of the cells, and how they are quoted."""

    delimiter: str
    is_quoted: bool


def find_dialect(lines: Sequence[str], ending: str) -> TableDialect | None:
    """Return the dialect of the first lines of a file, or None if they are no table.

    Args:
        lines: First lines, without their ends.
        ending: Ending of the file: `csv`, `tsv`, `tab` or `txt`.
    """
    filled = [line for line in lines if line.strip()]
    if ending == "csv":
        dialects = [TableDialect(delimiter, True) for delimiter in DELIMITERS["csv"]]
        widths = {
            each: Counter(len(row) for row in split_rows(filled, each) if isinstance(row, list)) for each in dialects
        }
        # The delimiter that gives most rows one number of columns, and more than one column.
        scores = {
            each: max((rows for width, rows in found.items() if width > 1), default=0) for each, found in widths.items()
        }
        best = max(dialects, key=lambda each: scores[each])
        return best if scores[best] else TableDialect(",", True)
    for delimiter in DELIMITERS[ending]:
        count = sum(delimiter in line for line in filled)
        if count and (ending != "txt" or count >= MIN_TABLE_LINES * len(filled)):
            return TableDialect(delimiter, delimiter == "\t" and was_quoted_by_spreadsheet(filled))
    return None if ending == "txt" else TableDialect("\t", False)


def take_sample(lines: Iterator[str | SkipReason]) -> tuple[list[str], Iterator[str | SkipReason]]:
    """Return the first lines, and an iterator of all lines."""
    taken: list[str | SkipReason] = []
    size = 0
    for line in islice(lines, SAMPLE_LINES):
        taken.append(line)
        size += len(line) if isinstance(line, str) else 0
        if size > SAMPLE_CHARACTERS:
            break
    return [line for line in taken if isinstance(line, str)], chain(taken, lines)


def split_rows(lines: Iterable[str | SkipReason], dialect: TableDialect) -> Iterator[Cells | SkipReason]:
    """Yield the cells of every row, or the reason for a row that cannot be read.

    Args:
        lines: Lines without their ends. A quoted cell may cover several.
        dialect: Delimiter and quotes.
    """
    waiting: deque[str | SkipReason] = deque()
    rest = iter(lines)

    def next_line() -> str | SkipReason | None:
        return waiting.popleft() if waiting else next(rest, None)

    while (line := next_line()) is not None:
        if isinstance(line, SkipReason):
            yield line
            continue
        if not dialect.is_quoted or '"' not in line:
            yield (
                [cell.strip() for cell in line.split("|||")]
                if dialect.delimiter == "|||"
                else line.split(dialect.delimiter)
            )
            continue
        taken: list[str | SkipReason] = [line]
        text = line.replace("\r", " ")
        row = _parse(text, dialect.delimiter)
        while row is None and len(taken) < MAX_CELL_LINES and (following := next_line()) is not None:
            taken.append(following)
            if isinstance(following, SkipReason) or len(text) + len(following) > MAX_LINE_BYTES:
                break
            text += "\n" + following.replace("\r", " ")
            row = _parse(text, dialect.delimiter) if '"' in following else None
        if row is None:  # the other lines may be rows of their own
            waiting.extendleft(reversed(taken[1:]))
            yield SkipReason.UNCLOSED_QUOTE
        else:
            yield row


def _parse(text: str, delimiter: str) -> Cells | None:
    """Return the cells of one row, or None if a quote is not closed or stands inside of a cell."""
    try:
        [row] = csv.reader([text], delimiter=delimiter, strict=True)
    except (csv.Error, ValueError):
        return None
    return row


def was_quoted_by_spreadsheet(lines: Sequence[str]) -> bool:
    """Return True if the lines of a tab-separated file have quotes that a spreadsheet added to the text."""
    doubled = any(_DOUBLED_QUOTES.search(line) for line in lines)
    return doubled or (bool(lines) and all(_QUOTED_CELLS.fullmatch(line) for line in lines))
