"""Cells of tables of the user: texts, and labels in the last column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from crossling.core.errors import BadInput, shorten
from crossling.corpora.text_files import COMPRESSION_SUFFIX, SkipReason
from crossling.ingest.delimited import Cells, find_dialect, split_rows, take_sample
from crossling.ingest.encodings import decoded_lines, detect_encoding

TEXT_ENDINGS = ("txt", "csv", "tsv", "tab")
# Headers of the last column, in lower case.
LABEL_HEADERS = {
    *("label", "labels", "class", "classes", "category", "intent", "sentiment", "topic", "tag", "target", "gold", "y"),
    *("annotation", "emotion", "polarity", "rating", "stance", "relation", "genre", "domain"),
}
MAX_TEXTS = 2  # columns of texts that a model reads
MIN_REPEATED = 3  # rows with repeated labels, before a label that occurs once is taken for a header


def read_labelled(file: Path, columns: Sequence[str | int], width: int) -> tuple[Cells, list[Cells]]:
    """Return the header of the chosen columns, empty if the file has none, and their cells in every other row.

    Args:
        file: A table, the label in the last column. Encoding, delimiter and quotes are found by reading it.
        columns: Names or numbers (from 1) of the columns. A row that has the names is a header. [default: all]
        width: Largest number of columns.

    Raises:
        BadInput: If a row cannot be read, or the columns are not certain.
    """
    rows = read_rows(file)
    if (first := next(rows, None)) is None:
        return [], []
    names = [cell.strip() for cell in first[1]]
    positions = _find_columns(names, columns, file, width)
    cells = [_take_cells(row, positions, file) for row in chain([first], rows)]
    header, *others = cells
    has_label_header = header[-1].casefold() in LABEL_HEADERS and all(row[-1] != header[-1] for row in others)
    return (header, others) if _has_names(names, columns) or has_label_header else ([], cells)


def read_texts(file: Path, columns: Sequence[str | int], trained_columns: Sequence[str] = ()) -> Iterator[Cells]:
    """Yield the texts of every row, at most two.

    Args:
        file: Text with one example on each line, or a table. Encoding, delimiter and quotes are found by reading it.
        columns: Names or numbers (from 1) of the columns. A row that has the names is a header. [default: all]
        trained_columns: Names of the columns of texts that the model was trained on. A row that has them is a header.

    Raises:
        BadInput: If a row cannot be read, or the columns are not certain.
    """
    rows = read_rows(file)
    if (first := next(rows, None)) is None:
        return
    names = [cell.strip() for cell in first[1]]
    has_trained = bool(trained_columns) and set(trained_columns) <= set(names)
    chosen = columns or (trained_columns if has_trained else ())
    positions = _find_columns(names, chosen, file, MAX_TEXTS)
    has_label_header = not columns and len(names) > 1 and names[-1].casefold() in LABEL_HEADERS
    if not (has_trained or has_label_header or _has_names(names, columns)):
        rows = chain([first], rows)
    for row in rows:
        yield _take_cells(row, positions, file)


def refuse_header(file: Path, rows: Sequence[Cells]) -> None:
    """Raise BadInput if the first row seems to be a header: its label occurs once, and those of other rows repeat."""
    labels = Counter(row[-1] for row in rows)
    repeated = sum(count for label, count in labels.items() if count > 1)
    if rows and labels[rows[0][-1]] == 1 and repeated >= MIN_REPEATED:
        names = shorten(",".join(rows[0]), 80)
        raise BadInput(
            f"{file}: the first row seems to be a header: its label {rows[0][-1]!r:.80} occurs once. Set"
            f" columns={names}, or add a header such as text,label if the row is an example."
        )


def read_rows(file: Path) -> Iterator[tuple[int, Cells]]:
    """Yield the number and the cells of every row that is not blank."""
    ending = COMPRESSION_SUFFIX.sub("", file.name).rpartition(".")[2].lower()
    if ending not in TEXT_ENDINGS:
        raise BadInput(f"{file}: unknown kind of file. Expected {', '.join(f'.{each}' for each in TEXT_ENDINGS)}.")
    sample, lines = take_sample(decoded_lines(file, detect_encoding(file)))
    dialect = find_dialect(sample, ending)
    rows = split_rows(lines, dialect) if dialect else ([usable_line(line, file)] for line in lines)
    for number, row in enumerate(rows, start=1):
        if isinstance(row, SkipReason):
            raise BadInput(f"{file}: row {number}: {row.value}. Fix the row.")
        if any(map(str.strip, row)):
            yield number, row


def _find_columns(names: Cells, columns: Sequence[str | int], file: Path, most: int) -> list[int]:
    """Return the positions of the columns, where `names` is the first row."""
    if not columns:
        if len(names) > most:
            raise BadInput(f"{file}: {len(names)} columns, at most {most} are read. Name them, such as 1,2.")
        return list(range(len(names)))
    positions = []
    for column in map(str, columns):
        if column in names:
            positions.append(names.index(column))
        elif column.isdecimal() and 1 <= int(column) <= len(names):
            positions.append(int(column) - 1)
        else:
            raise BadInput(f"{file}: no column {column!r:.80}. The columns are {', '.join(map(repr, names))[:160]}.")
    if len(positions) > most:
        raise BadInput(f"{file}: {len(positions)} columns are named. Name at most {most}.")
    return positions


def _has_names(names: Cells, columns: Sequence[str | int]) -> bool:
    return any(str(column) in names for column in columns)


def _take_cells(row: tuple[int, Cells], positions: Sequence[int], file: Path) -> Cells:
    number, cells = row
    if max(positions) >= len(cells):
        raise BadInput(f"{file}: row {number}: {len(cells)} columns, expected {1 + max(positions)}. Fix the row.")
    return [cells[position].strip() for position in positions]


def usable_line(line: str | SkipReason, file: Path) -> str:
    """Return a line, or raise BadInput if it could not be read."""
    if isinstance(line, SkipReason):
        raise BadInput(f"{file}: {line.value}. Fix the line.")
    return line
