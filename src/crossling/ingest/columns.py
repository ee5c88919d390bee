"""The columns of a table that hold the text: by their header, by the wish of the user, or by their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from crossling.core.errors import BadInput, shorten
from crossling.corpora.scored_rows import SCORED, find_layout
from crossling.corpora.text_files import SkipReason
from crossling.ingest.delimited import Cells
from crossling.ingest.language_hints import guess_header, header_role, match_header

SAMPLE_ROWS = 100  # that decide the columns
MAX_SAMPLE = 100_000  # rows to search them in: paragraphs may precede the table of a document
MAX_SAMPLE_SIZE = 1 << 22  # cells and characters of the sample, which is in memory
# Codes of languages that are also headers of numbers: identifier, number.
AMBIGUOUS_HEADERS = {"id", "no", "nr"}


@dataclass(frozen=True)
class LanguageRequest:
    """Languages and columns of a file, as far as the user or the file name states them.

    Attributes:
        languages: One language of text, two of a pair, or none.
        columns: Names or numbers (from 1) of the columns, in the order of the languages.
    """

    languages: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class ColumnChoice:
    """Columns that are read, and the row that is their header."""

    languages: tuple[str, ...]
    positions: tuple[int, ...]
    width: int  # number of columns of a row; rows with another number are skipped
    header: tuple[str, ...] = ()


def take_rows(rows: Iterator[Cells | SkipReason]) -> tuple[list[Cells], Iterator[Cells | SkipReason]]:
    """Return the first rows that are not blank, and an iterator of all rows. Blank rows lose their cells."""
    taken: list[Cells | SkipReason] = []
    sample: list[Cells] = []
    size = 0
    for row in islice(rows, MAX_SAMPLE):
        if isinstance(row, SkipReason):
            taken.append(row)
        elif any(map(str.strip, row)):
            taken.append(row)
            sample.append(row)
            size += len(row) + sum(map(len, row))
        else:
            taken.append([])
        if len(sample) == SAMPLE_ROWS or size > MAX_SAMPLE_SIZE:
            break
    return sample, chain(taken, rows)


def choose_columns(
    sample: Sequence[Cells], request: LanguageRequest, where: str, *, has_names: bool = False
) -> ColumnChoice:
    """Return the columns of a table.

    Args:
        sample: First rows, of which the first one may be a header.
        request: Languages and columns.
        where: The file, the start of an error message.
        has_names: The first row has the names of the columns, as in JSON Lines.

    Raises:
        BadInput: If it is not certain which columns hold the text.
    """
    if not sample:
        raise BadInput(f"{where}: no rows of a table. Give a file with one column for each language.")
    first = sample[0]
    width = Counter(map(len, sample)).most_common(1)[0][0]
    if request.columns:
        return _named_columns(first, width, request, where)
    by_header = _columns_by_header(sample, request, where)
    if by_header:
        return by_header
    if not request.languages:
        raise BadInput(f"{where}: no languages in its name and header. Give the pair (en-sw) or the language (sw).")
    if width == len(request.languages) and not has_names:
        return ColumnChoice(request.languages, tuple(range(width)), width)
    layout = find_layout([row for row in sample if len(row) == width])
    if len(request.languages) == 2 and layout in SCORED and not has_names:
        return ColumnChoice(request.languages, (layout.source, layout.target), width)
    raise BadInput(
        f"{where}: {width} columns ({_listed(first)}) for {'-'.join(request.languages)}. Name the columns of the text,"
        " such as 2,3."
    )


def select_cells(
    rows: Iterator[Cells | SkipReason], choice: ColumnChoice, *, pad: bool
) -> Iterator[Cells | SkipReason]:
    """Yield the cells of the chosen columns, or the reason for a row to skip.

    Args:
        rows: All rows.
        choice: Columns.
        pad: Rows may be shorter: a spreadsheet does not store empty cells at the end.
    """
    for row in rows:
        if isinstance(row, SkipReason):
            yield row
            continue
        if not (row[0].strip() if row else "") and not any(map(str.strip, row)):
            yield SkipReason.BLANK_ROW
            continue
        if len(row) == len(choice.header) and _plain(row) == choice.header:
            yield SkipReason.HEADER
            continue
        if pad and len(row) < choice.width:
            row = [*row, *[""] * (choice.width - len(row))]
        if len(row) < choice.width or (len(row) > choice.width and any(map(str.strip, row[choice.width :]))):
            yield SkipReason.WRONG_COLUMNS
            continue
        yield [row[position] for position in choice.positions]


def _named_columns(first: Cells, width: int, request: LanguageRequest, where: str) -> ColumnChoice:
    positions: list[int] = []
    header = _plain(first)
    names = [name.casefold() for name in header]
    for column in request.columns:
        wanted = column.strip().casefold()
        if wanted in names:
            positions.append(names.index(wanted))
        elif wanted.isdecimal() and 1 <= int(wanted) <= max(width, len(first)):
            positions.append(int(wanted) - 1)
        else:
            raise BadInput(f"{where}: no column {column!r:.80}. The columns are {_listed(first)}.")
    headers = [first[each] if each < len(first) else "" for each in positions]
    languages = request.languages or tuple(filter(None, map(guess_header, headers)))
    if len(languages) != len(positions) or len(set(positions)) != len(positions):
        raise BadInput(
            f"{where}: {len(positions)} columns for {len(languages)} languages. Name one column for each language."
        )
    is_named = any(column.strip().casefold() in names for column in request.columns)
    is_header = is_named or all(guess_header(cell) or header_role(cell) for cell in headers)
    return ColumnChoice(tuple(languages), tuple(positions), max(width, len(first)), header if is_header else ())


def _columns_by_header(sample: Sequence[Cells], request: LanguageRequest, where: str) -> ColumnChoice | None:
    """Return the columns that the first row names, or None if it is no header."""
    first = sample[0]
    header, width = _plain(first), max(len(first), Counter(map(len, sample)).most_common(1)[0][0])
    roles = [header_role(cell) for cell in first]
    if request.languages:
        found = match_header(first, request.languages)
        if None not in found and len(set(found)) == len(found):
            return ColumnChoice(request.languages, tuple(each for each in found if each is not None), width, header)
        by_role = ("source", "target") if len(request.languages) == 2 else ("text",)
        if len(request.languages) == 2 and roles.count("source") == 0 and roles.count("text") == 1:
            by_role = ("text", "target")
        if all(roles.count(role) == 1 for role in by_role):
            return ColumnChoice(request.languages, tuple(map(roles.index, by_role)), width, header)
        named = [language for language in map(guess_header, first) if language]
        if len(named) >= 2:
            raise BadInput(
                f"{where}: its columns are {_listed(first)}, expected {'-'.join(request.languages)}. Name other"
                " languages or the columns of the text."
            )
        return None
    languages = _languages_of(sample, where)
    if not languages:
        return None
    if len(set(languages.values())) < len(languages):
        raise BadInput(f"{where}: two columns of one language ({_listed(first)}). Name the columns of the text.")
    return ColumnChoice(tuple(languages.values()), tuple(languages), width, header)


def _languages_of(sample: Sequence[Cells], where: str) -> dict[int, str]:
    """Return the language of every column whose header is one, by position."""
    languages: dict[int, str] = {}
    for position, cell in enumerate(sample[0]):
        language = guess_header(cell)
        if language is None:
            continue
        if cell.strip().casefold() in AMBIGUOUS_HEADERS:
            values = [row[position].strip() for row in sample[1:] if position < len(row) and row[position].strip()]
            if sum(" " in value for value in values) * 2 <= len(values):
                if any(map(str.isalpha, values)):
                    raise BadInput(
                        f"{where}: column {cell.strip()!r} may hold {language} or identifiers. Name the languages, such"
                        f" as en-{language}."
                    )
                continue
        languages[position] = language
    return languages


def _plain(row: Cells) -> tuple[str, ...]:
    return tuple([cell.strip().lstrip("\ufeff") for cell in row])


def _listed(row: Cells) -> str:
    return shorten(", ".join(repr(shorten(cell.strip(), 24)) for cell in row), 160)
