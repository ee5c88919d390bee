"""Rows with named columns from JSON Lines and Parquet, and translation units of TMX."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from html import unescape
from pathlib import Path
from typing import Any, NoReturn
from xml.parsers import expat

from crossling.core.errors import BadInput, import_package
from crossling.corpora import text_files
from crossling.corpora.languages import MAX_CODE_LENGTH, match_codes
from crossling.corpora.text_files import MAX_LINE_BYTES, SkipReason, TextFile, clean_line, is_too_long, read_lines

Record = Mapping[str, Any]

MAX_ROW_BYTES = 1 << 24  # of a JSON row, which may hold a book. Each line in it has the limit of file lines.
BATCH_ROWS = 256

# Default columns
TEXT = "text"
TRANSLATION = "translation"


# ---- files -------------------------------------------------------------------------------------------------


def read_jsonl(file: TextFile) -> Iterator[Record | SkipReason]:
    """Return a row, or a reason to skip it, for every line."""
    return text_files.map_rows(_parse_record, read_lines(file.path, MAX_ROW_BYTES, file.span))


def ends_document(row: str) -> bool:
    """Return True if no document continues after a row of a JSON Lines file with text."""
    texts = select_texts(iter([_parse_record(row)]), TEXT, "", is_checked=True)
    return [*split_documents(texts)][-1:] == [""]


def _parse_record(row: str) -> Record | SkipReason:
    try:
        record = json.loads(row)
    except (ValueError, RecursionError):
        return SkipReason.NOT_JSON
    return record if isinstance(record, dict) else SkipReason.NOT_JSON


def read_parquet(file: Path, is_wanted: Callable[[str], bool]) -> Iterator[Record | SkipReason]:
    """Yield rows with the wanted columns. If there are none, yield one row with all column names."""
    # A row group may be larger than memory: read it in batches.
    with _parquet(file) as parquet, parquet.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False) as table:
        names = table.schema_arrow.names
        columns = list(filter(is_wanted, names))
        if not columns:
            yield dict.fromkeys(names)
            return
        for batch in table.iter_batches(BATCH_ROWS, columns=columns, use_threads=False):
            yield from _batch_rows(batch)


def count_parquet_rows(file: Path) -> int:
    """Return the number of rows."""
    with _parquet(file) as parquet:
        return int(parquet.read_metadata(file).num_rows)


def _batch_rows(batch: Any) -> Iterator[Record | SkipReason]:
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:  # the error does not name the row
        for row in range(batch.num_rows):
            try:
                [record] = batch.slice(row, 1).to_pylist()
            except UnicodeDecodeError:
                record = SkipReason.MALFORMED
            yield record


@contextmanager
def _parquet(file: Path) -> Iterator[Any]:
    """Yield the module pyarrow.parquet. Its errors become BadInput with the name of the file."""
    parquet = import_package("pyarrow.parquet", file)
    arrow_error = import_package("pyarrow", file).ArrowException
    try:
        yield parquet
    except (arrow_error, OSError, ValueError, ArithmeticError) as error:  # the last two: invalid dates
        reason = " ".join(str(error).split())
        raise BadInput(f"{file}: not readable as Parquet ({reason}). Download or write it again.") from None


# ---- rows ---------------------------------------------------------------------------------------------------


def select_texts(
    records: Iterator[Record | SkipReason], column: str, where: str, *, is_checked: bool = False
) -> Iterator[str | SkipReason]:
    """Yield the text of one column for every row. The first row must have the column, unless it `is_checked`."""
    for record in records:
        if isinstance(record, SkipReason):
            yield record
            continue
        if not is_checked and column not in record:
            raise _missing_column(where, repr(column), record)
        is_checked = True
        yield _text(record.get(column))


def split_documents(rows: Iterator[str | SkipReason]) -> Iterator[str | SkipReason]:
    """Yield clean lines of running text. An empty line ends a document.

    A row is a document with one sentence per line. A row that is one line with its line feed is a line of running text
    instead (as in CC-100 on the hub), and an empty row ends its document.
    """
    for row in rows:
        if isinstance(row, SkipReason):
            yield row
            continue
        first, line_feed, rest = row.partition("\n")
        is_running = bool(line_feed) or not first
        if is_running and not rest:
            yield clean_text(first)
            continue
        yield ""
        yield from filter(None, map(clean_text, row.split("\n")))
        yield ""


def select_pairs(
    records: Iterator[Record | SkipReason],
    pair: tuple[str, str],
    column: str,
    where: str,
    *,
    is_checked: bool = False,
) -> Iterator[tuple[str, str] | SkipReason]:
    """Yield both sides of every row: {column: {"en": ..., "fr": ...}}, or columns named by the two languages."""
    keys: tuple[str, ...] = ()
    left = right = None
    for record in records:
        if isinstance(record, SkipReason):
            yield record
            continue
        texts = record.get(column, record)
        if not isinstance(texts, Mapping):
            yield SkipReason.MISSING_SIDE
            continue
        if tuple(texts) != keys:  # rarely after the first row
            keys = tuple(texts)
            left, right = match_codes(keys, pair)
        if not is_checked and texts is record and not (left and right):
            raise _missing_column(where, f"{column!r}, or {pair[0]!r} and {pair[1]!r}", record)
        is_checked = True
        yield _pair(texts.get(left or ""), texts.get(right or ""))


def _pair(source: Any, target: Any) -> tuple[str, str] | SkipReason:
    row = _row(*(None if side is None else _text(side) for side in (source, target)))
    return SkipReason.TOO_LONG if isinstance(row, tuple) and any(map(is_too_long, row)) else row


# JSON can contain half of a surrogate pair, which cannot be written as UTF-8.
_SURROGATE = re.compile("[\ud800-\udfff]")


def _text(value: Any) -> str | SkipReason:
    if not isinstance(value, str):
        return SkipReason.NO_TEXT
    return SkipReason.MALFORMED if _SURROGATE.search(value) else value


def clean_text(text: str) -> str | SkipReason:
    """Clean a text as one line."""
    return SkipReason.TOO_LONG if is_too_long(text) else clean_line(text)


def _missing_column(where: str, expected: str, record: Record) -> BadInput:
    columns = ", ".join(map(repr, list(record)[:24])) or "none"
    return BadInput(f"{where}: no column {expected}. The columns are {columns}.")


# ---- TMX: the text of two languages in each unit, parsed as a stream ----


# Tags that contain markup of the original program (`<bpt>&lt;b&gt;</bpt>`). `hi` and `sub` contain text.
MARKUP_TAGS = {"bpt", "ept", "it", "ph", "ut"}
MAX_TAG_BYTES = 1 << 22  # the parser keeps a tag, a comment or a declaration in memory
MAX_DEPTH = 256  # of nested tags, all of which the parser keeps in memory

_match_codes = lru_cache(maxsize=1024)(match_codes)  # few codes, many units


def read_units(file: TextFile, pair: tuple[str, str]) -> Iterator[tuple[str, str] | SkipReason]:
    """Yield both sides of every translation unit."""
    units = _UnitParser(file.path, pair)
    read = 0
    with text_files.open_decompressed(file.path) as handle:
        while block := handle.read(text_files.BLOCK_BYTES):
            units.parse(block)
            yield from units.take()
            read += len(block)
            if read - units.parser.CurrentByteIndex > MAX_TAG_BYTES:
                units.refuse(f"a single tag, comment or declaration of more than {MAX_TAG_BYTES >> 20} MiB starts here")
        units.parse(b"", final=True)
        yield from units.take()


class _UnitParser:
    """Handlers of the XML parser, and the units it has finished."""

    def __init__(self, file: Path, pair: tuple[str, str]) -> None:
        self.file, self.pair = file, pair
        self.done: list[tuple[str, str] | SkipReason] = []
        self.unit: dict[str, str | SkipReason] = {}  # Text by language code, as written.
        self.language = ""  # of the current variant, if it is one of the pair
        self.segment: list[str] = []  # Parts of the current segment.
        self.length = 0  # of these parts, in characters
        self.is_text: list[bool] = []  # For every open tag: True if its content is text.
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.EntityDeclHandler = self._entity
        self.parser.SkippedEntityHandler = self._skipped_entity

    def parse(self, block: bytes, final: bool = False) -> None:
        try:
            self.parser.Parse(block, final)
        except BadInput:
            raise
        except expat.ExpatError as error:
            self.refuse(expat.ErrorString(error.code), error.lineno)
        except (LookupError, ValueError) as error:  # unknown encoding
            self.refuse(str(error))

    def take(self) -> list[tuple[str, str] | SkipReason]:
        done, self.done = self.done, []
        return done

    def refuse(self, reason: str, line: int | None = None) -> NoReturn:
        line = line or self.parser.CurrentLineNumber
        raise BadInput(f"{self.file}, line {line}: not readable as TMX ({reason}). Fix it or export it again.")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self.is_text.append(tag not in MARKUP_TAGS and (tag in ("seg", "sub") or self.is_text[-1:] == [True]))
        if len(self.is_text) > MAX_DEPTH:
            self.refuse(f"tags are nested more than {MAX_DEPTH} deep")
        if tag == "tu":
            self.unit = {}
        elif tag == "tuv":
            code = (attributes.get("xml:lang") or attributes.get("lang") or "")[: MAX_CODE_LENGTH + 1]
            self.language = code if any(_match_codes((code,), self.pair)) else ""
        elif tag == "seg" and self.language:
            self.segment, self.length = [], 0
            self.parser.CharacterDataHandler = self._text

    def _end(self, tag: str) -> None:
        self.is_text.pop()
        if tag == "tu":
            left, right = _match_codes(tuple(self.unit), self.pair)
            self.done.append(_row(self.unit.get(left or ""), self.unit.get(right or "")))
        elif tag == "tuv":
            self.language = ""
        elif tag == "seg":
            self.parser.CharacterDataHandler = None
            if self.language:
                text = "".join(self.segment)
                self.unit.setdefault(self.language, SkipReason.TOO_LONG if is_too_long(text) else text)

    def _text(self, text: str) -> None:
        if self.is_text[-1] and self.length <= MAX_LINE_BYTES:
            self.segment.append(text)
            self.length += len(text)

    def _entity(self, name: str, *_: object) -> NoReturn:
        # A few nested entities can expand to more text than fits in memory.
        self.refuse(f"it declares the entity {name!r}")

    def _skipped_entity(self, name: str, in_declaration: bool) -> None:
        """Resolve an HTML entity. The document type that would declare it is not downloaded."""
        if not in_declaration and self.parser.CharacterDataHandler:
            self._text(unescape(f"&{name};"))


def _row(left: str | SkipReason | None, right: str | SkipReason | None) -> tuple[str, str] | SkipReason:
    if left is None or right is None:
        return SkipReason.MISSING_SIDE
    if isinstance(left, SkipReason):
        return left
    return right if isinstance(right, SkipReason) else (left, right)
