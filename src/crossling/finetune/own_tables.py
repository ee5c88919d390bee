"""Cells of tables of the user: texts, and labels in the last column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from crossling.core.errors import BadInput
from crossling.corpora.text_files import COMPRESSION_SUFFIX, SkipReason
from crossling.ingest.delimited import Cells, find_dialect, split_rows, take_sample
from crossling.ingest.encodings import decoded_lines, detect_encoding

TEXT_ENDINGS = ("txt", "csv", "tsv", "tab")
LABEL_HEADERS = {"label", "labels", "class", "category", "intent", "sentiment"}  # of the last column


def read_cells(file: Path, columns: Sequence[str | int], most: int) -> Iterator[Cells]:
    """Yield the chosen cells of every row that is not blank.

    Args:
        file: Text with one example on each line, or a table. Encoding, delimiter and quotes are found by reading it.
        columns: Names or numbers (from 1) of the columns. A row that has the names is a header. [default: all]
        most: Largest number of columns.

    Raises:
        BadInput: If a row cannot be read, or the columns are not certain.
    """
    ending = COMPRESSION_SUFFIX.sub("", file.name).rpartition(".")[2].lower()
    if ending not in TEXT_ENDINGS:
        raise BadInput(f"{file}: unknown kind of file. Expected {', '.join(f'.{each}' for each in TEXT_ENDINGS)}.")
    sample, lines = take_sample(decoded_lines(file, detect_encoding(file)))
    dialect = find_dialect(sample, ending)
    rows = split_rows(lines, dialect) if dialect else ([usable_line(line, file)] for line in lines)
    positions: list[int] | None = None
    for number, row in enumerate(rows, start=1):
        if isinstance(row, SkipReason):
            raise BadInput(f"{file}: row {number}: {row.value}. Fix the row.")
        if not any(map(str.strip, row)):
            continue
        if positions is None:
            positions, is_header = _find_columns(row, columns, file, most)
            if is_header:
                continue
        if max(positions) >= len(row):
            raise BadInput(f"{file}: row {number}: {len(row)} columns, expected {1 + max(positions)}. Fix the row.")
        yield [row[position].strip() for position in positions]


def _find_columns(first: Cells, columns: Sequence[str | int], file: Path, most: int) -> tuple[list[int], bool]:
    """Return the positions of the columns, and True if the first row is their header."""
    names = [cell.strip() for cell in first]
    if not columns:
        if len(first) > most:
            raise BadInput(f"{file}: {len(first)} columns, at most {most} are read. Name them, such as 1,2.")
        return list(range(len(first))), names[-1].casefold() in LABEL_HEADERS
    positions = []
    for column in map(str, columns):
        if column in names:
            positions.append(names.index(column))
        elif column.isdecimal() and 1 <= int(column) <= len(first):
            positions.append(int(column) - 1)
        else:
            raise BadInput(f"{file}: no column {column!r:.80}. The columns are {', '.join(map(repr, names))[:160]}.")
    if len(positions) > most:
        raise BadInput(f"{file}: {len(positions)} columns are named. Name at most {most}.")
    return positions, any(str(column) in names for column in columns)


def usable_line(line: str | SkipReason, file: Path) -> str:
    """Return a line, or raise BadInput if it could not be read."""
    if isinstance(line, SkipReason):
        raise BadInput(f"{file}: {line.value}. Fix the line.")
    return line
