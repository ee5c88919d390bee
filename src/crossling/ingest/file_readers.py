"""One reader for each kind of file: its languages, and the text of every row in these languages.

A reader yields one item for every row: a cell for each language, or a `SkipReason`. Text has one cell, and an empty
cell ends a document. Nothing is lost without an item, so that the report adds up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.parsers import expat

from crossling.core.errors import BadInput
from crossling.corpora import records
from crossling.corpora.languages import MAX_CODE_LENGTH, find_code, without_region
from crossling.corpora.records import MAX_ROW_BYTES, TRANSLATION
from crossling.corpora.text_files import SkipReason, TextFile, open_decompressed
from crossling.ingest.columns import ColumnChoice, LanguageRequest, choose_columns, select_cells, take_rows
from crossling.ingest.delimited import Cells, find_dialect, split_rows, take_sample
from crossling.ingest.encodings import TextEncoding, decoded_lines, detect_encoding
from crossling.ingest.office import read_document, read_workbook

SAMPLE_BYTES = 1 << 22  # of a TMX file, in which its languages occur

Rows = Iterator[Cells | SkipReason]
ColumnFilter = Callable[[str], bool]


@dataclass(frozen=True)
class Reading:
    """The rows of a file, or of a sheet of it.

    Attributes:
        languages: Language of each cell.
        rows: Cells of every row, or the reason to skip it.
        encoding: Encoding of a text file, else nothing.
        sheet: Name of the sheet, in a workbook.
    """

    languages: tuple[str, ...]
    rows: Rows
    encoding: TextEncoding | None = None
    sheet: str = ""


def read_file(file: Path, ending: str, request: LanguageRequest, encoding: str | None = None) -> Iterator[Reading]:
    """Yield the readings of a file. Read one before the next.

    Args:
        file: The file.
        ending: Kind of the file, a key of `READERS`.
        request: Languages and columns, as far as they are known.
        encoding: Codec that the user names. [default: found by reading the file]

    Raises:
        BadInput: If the file is damaged, or its languages or columns are not certain.
    """
    return READERS[ending](file, ending, request, encoding)


def read_sides(files: Sequence[Path], languages: Sequence[str], encoding: str | None = None) -> Reading:
    """Return the rows of files of which line n translates line n of the others.

    Raises:
        BadInput: If the numbers of lines differ.
    """
    found = [detect_encoding(file, encoding, [language]) for file, language in zip(files, languages, strict=True)]
    for file, each in zip(files, found, strict=True):
        if find_dialect(take_sample(decoded_lines(file, each))[0], "txt"):
            raise BadInput(f"{file}: columns separated by tabs, expected one side of translations. Give it alone.")
    # A carriage return inside of a line must not shift one side. It ends lines only if the sides then agree.
    usual = [each.has_cr_lines for each in found]
    counts: list[int] = []
    for ends in dict.fromkeys((tuple(usual), (True,) * len(files), (False,) * len(files))):
        sides = list(zip(files, found, ends, strict=True))
        lengths = [sum(1 for _ in decoded_lines(file, each, split_cr=end)) for file, each, end in sides]
        if len(set(lengths)) == 1:
            return Reading(tuple(languages), _zip_lines(sides), found[0])
        counts = counts or lengths
    listed = ", ".join(f"{file} has {lines:,}" for file, lines in zip(files, counts, strict=True))
    raise BadInput(f"translations need the same number of lines, but {listed}. Align the files again.")


def _zip_lines(sides: Sequence[tuple[Path, TextEncoding, bool]]) -> Rows:
    lines = [decoded_lines(file, encoding, split_cr=ends) for file, encoding, ends in sides]
    for row in zip(*lines, strict=True):
        reasons = [each for each in row if isinstance(each, SkipReason)]
        yield reasons[0] if reasons else [line for line in row if isinstance(line, str)]


# ---- text and tables -----------------------------------------------------------------------------------------


def _read_text(file: Path, ending: str, request: LanguageRequest, encoding: str | None) -> Iterator[Reading]:
    found = detect_encoding(file, encoding, request.languages)
    sample, _lines = take_sample(decoded_lines(file, found))
    if request.columns or find_dialect(sample, ending):
        if len(request.languages) == 1 and not request.columns:
            raise BadInput(f"{file}: columns separated by tabs. Name the pair, or the column of the text, such as 2.")
        yield from _read_table(file, ending, request, encoding)
    elif not request.languages:
        raise BadInput(f"{file}: no language in its name. Give the language (sw), or the pair (en-sw) of two files.")
    elif len(request.languages) == 2:
        raise BadInput(f"{file}: one column of text for {'-'.join(request.languages)}. Give the other side as well.")
    else:
        # A line of running text may also end at a carriage return.
        rows = _as_cells(decoded_lines(file, found, split_cr=True))
        yield Reading(request.languages, rows, found)


def _read_table(file: Path, ending: str, request: LanguageRequest, encoding: str | None) -> Iterator[Reading]:
    found = detect_encoding(file, encoding, request.languages)
    sample, lines = take_sample(decoded_lines(file, found))
    dialect = find_dialect(sample, ending)
    if dialect is None:
        raise BadInput(f"{file}: no columns separated by tabs. Omit the columns.")
    first, rows = take_rows(split_rows(lines, dialect))
    choice = choose_columns(first, request, str(file))
    yield Reading(choice.languages, _text_cells(select_cells(rows, choice, pad=False), choice), found)


def _read_workbook(file: Path, _: str, request: LanguageRequest, __: str | None) -> Iterator[Reading]:
    """Yield a reading for every sheet with the languages. The rows of the other sheets are skipped."""
    choices: list[ColumnChoice | None] = []
    problem: BadInput | None = None
    for name, rows in read_workbook(file):
        sample, _rest = take_rows(rows)
        try:
            choices.append(choose_columns(sample, request, f"{file}, sheet {name!r}") if sample else None)
        except BadInput as error:
            choices.append(None)
            problem = problem or error
    if not any(choices):
        raise problem or BadInput(f"{file}: no rows. Give a workbook with text.")
    languages = next(choice.languages for choice in choices if choice)
    for (name, rows), choice in zip(read_workbook(file), choices, strict=True):
        if choice:
            yield Reading(choice.languages, _text_cells(select_cells(rows, choice, pad=True), choice), sheet=name)
        else:
            yield Reading(languages, (SkipReason.OTHER_SHEET for row in rows if any(row)), sheet=name)


def _read_document(file: Path, _: str, request: LanguageRequest, __: str | None) -> Iterator[Reading]:
    if len(request.languages) == 1 and not request.columns:
        texts = (text for item in read_document(file) for text in (item if isinstance(item, list) else [item]))
        yield Reading(request.languages, (line for text in texts for line in _filled_lines(text)))
        return
    outside = SkipReason.OUTSIDE_TABLE
    items = (item if isinstance(item, list) else outside for item in read_document(file) if item)
    sample, rows = take_rows(items)
    if not sample:
        raise BadInput(f"{file}: no table. Give the language of the text, or translations in a table of two columns.")
    choice = choose_columns(sample, request, str(file))
    yield Reading(choice.languages, _text_cells(select_cells(rows, choice, pad=True), choice))


def _text_cells(rows: Rows, choice: ColumnChoice) -> Rows:
    """Yield every line of a cell as a row of its own, if the cells are text of one language."""
    for row in rows:
        if isinstance(row, SkipReason) or len(choice.languages) > 1:
            yield row
        else:
            lines = _filled_lines(row[0])
            yield from lines
            if not lines:
                yield SkipReason.NO_TEXT


def _filled_lines(text: str) -> list[Cells]:
    return [[line] for line in text.split("\n") if line.strip()]


def _as_cells(lines: Iterator[str | SkipReason]) -> Rows:
    return (line if isinstance(line, SkipReason) else [line] for line in lines)


# ---- rows with named columns ---------------------------------------------------------------------------------


def _read_jsonl(file: Path, _: str, request: LanguageRequest, encoding: str | None) -> Iterator[Reading]:
    found = detect_encoding(file, encoding, request.languages)

    def read(_: ColumnFilter) -> Iterator[records.Record | SkipReason]:
        lines = decoded_lines(file, found, most=MAX_ROW_BYTES)
        return (_parse_record(line) for line in lines if not isinstance(line, str) or line.strip())

    yield _named_columns(read, file, request, found)


def _parse_record(line: str | SkipReason) -> records.Record | SkipReason:
    if isinstance(line, SkipReason):
        return line
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return SkipReason.NOT_JSON
    return record if isinstance(record, dict) else SkipReason.NOT_JSON


def _read_parquet(file: Path, _: str, request: LanguageRequest, __: str | None) -> Iterator[Reading]:
    yield _named_columns(lambda is_wanted: records.read_parquet(file, is_wanted), file, request)


def _named_columns(
    read: Callable[[ColumnFilter], Iterator[records.Record | SkipReason]],
    file: Path,
    request: LanguageRequest,
    encoding: TextEncoding | None = None,
) -> Reading:
    first = next((row for row in read(lambda _: True) if not isinstance(row, SkipReason)), None)
    if first is None:
        raise BadInput(f"{file}: no row with named columns. Give one JSON object on each line.")
    names = list(_flat(first))
    choice = choose_columns([names], request, str(file), has_names=True)
    columns = [names[position] for position in choice.positions]
    rows = read(lambda name: name in columns or name == TRANSLATION)
    cells = (_record_cells(row, columns) for row in rows)
    if len(columns) == 1:
        texts = (row if isinstance(row, SkipReason) else row[0] for row in cells)
        return Reading(choice.languages, _as_cells(records.split_documents(texts)), encoding)
    return Reading(choice.languages, cells, encoding)


def _flat(record: records.Record) -> Mapping[str, Any]:
    """Return a row with the columns of `translation`, as in data sets on the hub, beside its own."""
    nested = record.get(TRANSLATION)
    return {**record, **nested} if isinstance(nested, Mapping) else record


def _record_cells(record: records.Record | SkipReason, columns: Sequence[str]) -> Cells | SkipReason:
    if isinstance(record, SkipReason):
        return record
    values = [_flat(record).get(column) for column in columns]
    if None in values and len(columns) > 1:
        return SkipReason.MISSING_SIDE
    texts = [value for value in values if isinstance(value, str)]
    return texts if len(texts) == len(columns) else SkipReason.NO_TEXT


# ---- TMX -----------------------------------------------------------------------------------------------------


def _read_tmx(file: Path, _: str, request: LanguageRequest, __: str | None) -> Iterator[Reading]:
    languages = request.languages or _unit_languages(file)
    if len(languages) != 2:
        found = ", ".join(languages) or "none"
        raise BadInput(f"{file}: languages {found}, expected two. Give the pair, such as en-sw.")
    units = records.read_units(TextFile(file), (languages[0], languages[1]))
    yield Reading(languages, (unit if isinstance(unit, SkipReason) else [*unit] for unit in units))


def _unit_languages(file: Path) -> tuple[str, ...]:
    """Return the languages of the first translation units, in the order in which they occur."""
    languages: dict[str, None] = {}

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag == "tuv":
            code = find_code((attributes.get("xml:lang") or attributes.get("lang") or "")[:MAX_CODE_LENGTH])
            languages.update({without_region(code): None} if code else {})

    def stop(name: str, *_: object) -> None:
        raise ValueError(name)

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = stop
    parser.StartElementHandler = start
    with open_decompressed(file) as handle:
        block = handle.read(SAMPLE_BYTES)
    with suppress(expat.ExpatError, LookupError, ValueError):  # read_units reports the line
        parser.Parse(block, False)
    return tuple(languages)


FileReader = Callable[[Path, str, LanguageRequest, str | None], Iterator[Reading]]

# By file ending. All but the last three may be compressed.
READERS: dict[str, FileReader] = {
    "txt": _read_text,
    "csv": _read_table,
    "tsv": _read_table,
    "tab": _read_table,
    "jsonl": _read_jsonl,
    "ndjson": _read_jsonl,
    "tmx": _read_tmx,
    "parquet": _read_parquet,
    "docx": _read_document,
    "xlsx": _read_workbook,
}
UNCOMPRESSED = ("parquet", "docx", "xlsx")
