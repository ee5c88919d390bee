"""Rows with named columns, from JSON lines and Parquet: the text in them, and the two sides of a translation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from crossling.corpora.files import Skip, clean, lines, too_long
from crossling.corpora.languages import sides
from crossling.errors import BadInput

Record = Mapping[str, Any]

LONGEST_ROW = 1 << 24  # bytes of a row of JSON, which may hold a book; each line of it may be as long as any line
ROWS_AT_ONCE = 256

TEXT = "text"
TRANSLATION = "translation"


# ---- rows of a file -----------------------------------------------------------------------------------------


def json_records(file: Path) -> Iterator[Record | Skip]:
    """A row for every line, whatever is on it."""
    for row in lines(file, LONGEST_ROW):
        if isinstance(row, Skip):
            yield row
            continue
        try:
            record = json.loads(row)
        except (ValueError, RecursionError):
            record = None
        yield record if isinstance(record, dict) else Skip.NOT_JSON


def parquet_records(file: Path, wanted: Callable[[str], bool]) -> Iterator[Record | Skip]:
    """Rows with the wanted columns; where there are none such, one with the names there are."""
    pyarrow = _pyarrow(file)
    try:
        # A row group may be larger than memory: read its columns in pieces.
        with pyarrow.parquet.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False) as table:
            names = table.schema_arrow.names
            columns = list(filter(wanted, names))
            if not columns:
                yield dict.fromkeys(names)
                return
            for batch in table.iter_batches(ROWS_AT_ONCE, columns=columns, use_threads=False):
                yield from _batch(batch)
    except (pyarrow.ArrowException, OSError, ValueError, ArithmeticError) as error:  # the last two: odd dates
        raise _no_parquet(file, error) from None


def count_parquet(file: Path) -> int:
    """The number of rows."""
    pyarrow = _pyarrow(file)
    try:
        return int(pyarrow.parquet.read_metadata(file).num_rows)
    except (pyarrow.ArrowException, OSError) as error:
        raise _no_parquet(file, error) from None


def _batch(batch: Any) -> Iterator[Record | Skip]:
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:  # which of the rows it was is not said
        for row in range(batch.num_rows):
            try:
                [record] = batch.slice(row, 1).to_pylist()
            except UnicodeDecodeError:
                record = Skip.MALFORMED
            yield record


def _pyarrow(file: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise BadInput(f"{file} needs the package pyarrow: pip install crossling[data]") from None
    return pyarrow


def _no_parquet(file: Path, error: Exception) -> BadInput:
    return BadInput(f"{file} cannot be read as Parquet ({' '.join(str(error).split())}): fetch or write it again")


# ---- text of rows -------------------------------------------------------------------------------------------


def texts(records: Iterator[Record | Skip], column: str, where: str) -> Iterator[str | Skip]:
    """One for every row."""
    known = False
    for record in records:
        if isinstance(record, Skip):
            yield record
            continue
        if not known and column not in record:
            raise _no_column(where, repr(column), record)
        known = True
        yield _text(record.get(column))


def document_lines(rows: Iterator[str | Skip]) -> Iterator[str | Skip]:
    """Lines of running text, clean; an empty one ends a document.

    A row is a document and its line feeds part the sentences; but a row that is one line with its line feed is a line
    of a running text (as CC-100 lies on the Hub), and an empty row ends its document.
    """
    for row in rows:
        if isinstance(row, Skip):
            yield row
            continue
        first, feed, rest = row.partition("\n")
        runs_on = bool(feed) or not first
        if runs_on and not rest:
            yield line(first)
            continue
        yield ""
        yield from filter(None, map(line, row.split("\n")))
        yield ""


def pairs(
    records: Iterator[Record | Skip], pair: tuple[str, str], column: str, where: str
) -> Iterator[tuple[str, str] | Skip]:
    """One for every row, from {column: {"en": ..., "fr": ...}} or from columns named by the two languages."""
    known = False
    keys: tuple[str, ...] = ()
    left = right = None
    for record in records:
        if isinstance(record, Skip):
            yield record
            continue
        held = record.get(column, record)
        if not isinstance(held, Mapping):
            yield Skip.MISSING_SIDE
            continue
        if tuple(held) != keys:  # hardly ever after the first row
            keys = tuple(held)
            left, right = sides(keys, pair)
        if not known and held is record and not (left and right):
            raise _no_column(where, f"{column!r}, or {pair[0]!r} and {pair[1]!r}", record)
        known = True
        yield _pair(held.get(left or ""), held.get(right or ""))


def _pair(source: Any, target: Any) -> tuple[str, str] | Skip:
    if source is None or target is None:
        return Skip.MISSING_SIDE
    source, target = _text(source), _text(target)
    for side in (source, target):
        if isinstance(side, Skip):
            return side
    return Skip.TOO_LONG if too_long(source) or too_long(target) else (source, target)


# JSON can write half of a surrogate pair, which is no character and cannot be written as UTF-8.
_SURROGATE = re.compile("[\ud800-\udfff]")


def _text(value: Any) -> str | Skip:
    if not isinstance(value, str):
        return Skip.NO_TEXT
    return Skip.MALFORMED if _SURROGATE.search(value) else value


def line(text: str) -> str | Skip:
    """A text as one line, clean."""
    return Skip.TOO_LONG if too_long(text) else clean(text)


def _no_column(where: str, expected: str, record: Record) -> BadInput:
    there = ", ".join(map(repr, list(record)[:24])) or "none"
    return BadInput(f"{where} has no column {expected}: the columns there are {there}")
