"""Classification files: tables with tabs between the columns, and JSON lines."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crossling.benchmarks.examples import Classified
from crossling.benchmarks.lines import read_json_lines, read_lines
from crossling.errors import BadInput, nearest

Column = str | int  # a name in the header, or a position; from the end if negative


@dataclass(frozen=True)
class Table:
    """Reads a table: `Table(texts=("sentence1", "sentence2"), label="gold_label")`.

    Columns given by name are looked up in the header, the first line; a table whose columns are positions has none.
    A table without its label column is a test set nobody has the labels of.
    """

    texts: tuple[Column, ...]
    label: Column | None  # None: never has one
    id: Column | None = None  # None: the number of the row, from 0
    same: Mapping[str, str] = field(default_factory=dict)  # other spellings of a label
    number: bool = False  # labels are numbers
    quoted: bool = False  # written by a CSV writer: a field with quotes in it stands in quotes, its own doubled
    unwanted: str | None = None  # rows with this label have none that people agreed on, and go
    torn: bool = False  # known to have rows that end too early (GLUE's QQP): they go, and a note says how many

    def __call__(self, path: Path, labels: tuple[str, ...]) -> list[Classified]:
        rows = list(self._rows(path))
        header, rows = (rows[0][1], rows[1:]) if isinstance(self.texts[0], str) else ([], rows)
        texts = [_position(path, header, column) for column in self.texts]
        label = self._label(header, rows)
        width = max(1 + place if place >= 0 else -place for place in [*texts, *([] if label is None else [label])])
        identity = None if self.id is None else _position(path, header, self.id)
        found, torn = [], 0
        for row, (line, cells) in enumerate(rows):
            where = f"{path}: line {line}"
            if len(cells) < width:
                torn += 1
                if self.torn:
                    continue
                raise BadInput(f"{where} has {len(cells)} columns, expected {width}; fetch the file again")
            if label is not None and cells[label].strip() == self.unwanted:
                continue
            value = None if label is None else self._value(where, cells[label].strip(), labels)
            name = str(row) if identity is None else cells[identity]
            found.append(Classified(name, tuple(cells[place].strip() for place in texts), value))
        if torn:
            warnings.warn(f"{path}: {torn} of {len(rows)} rows end too early; left out", stacklevel=2)
        return found

    def _rows(self, path: Path) -> Iterator[tuple[int, list[str]]]:
        for number, line in enumerate(read_lines(path), start=1):
            if line.strip():
                cells = line.split("\t")
                yield number, [_unquoted(cell) for cell in cells] if self.quoted else cells

    def _label(self, header: list[str], rows: list[tuple[int, list[str]]]) -> int | None:
        """Where the label stands, if anywhere."""
        if isinstance(self.label, str):
            return header.index(self.label) if self.label in header else None
        if self.label is None or self.label < 0:
            return self.label
        # All rows or none: a label that is missing here and there is a mistake, said when that row comes.
        return self.label if any(len(cells) > self.label for _, cells in rows) else None

    def _value(self, where: str, text: str, labels: tuple[str, ...]) -> str | float:
        if self.number:
            try:
                return float(text)
            except ValueError:
                raise BadInput(f"{where}: {text!r} is no number, expected a score; fetch the file again") from None
        return known(where, self.same.get(text, text), labels)


@dataclass(frozen=True)
class Records:
    """Reads JSON lines: `Records(texts=("sentence1", "sentence2"))`; without the label's key, there is no label."""

    texts: tuple[str, ...]
    label: str = "label"
    id: str | None = None
    unwanted: str | None = None
    choices: tuple[str, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)  # what a text that is a code says

    def __call__(self, path: Path, labels: tuple[str, ...]) -> list[Classified]:
        found: list[Classified] = []
        for line, record in read_json_lines(path):
            where = f"{path}: line {line}"
            label = str(record[self.label]) if self.label in record else None
            if label is not None and label == self.unwanted:
                continue
            texts = [_text(where, record, key) for key in self.texts]
            found.append(
                Classified(
                    id=str(len(found)) if self.id is None else _text(where, record, self.id),
                    texts=tuple(self.words.get(text, text) for text in texts),
                    label=None if label is None else known(where, label, labels),
                    choices=tuple(_text(where, record, key) for key in self.choices),
                )
            )
        return found


def known(where: str, label: str, labels: tuple[str, ...]) -> str:
    """The label, if it is one of the set."""
    if labels and label not in labels:
        raise BadInput(f"{where}: {label!r} is no label of this set{nearest(label, labels)}")
    return label


def _text(where: str, record: Mapping[str, object], key: str) -> str:
    if key not in record:
        raise BadInput(f"{where} has no {key!r}; fetch the file again")
    return str(record[key])


def _position(path: Path, header: list[str], column: Column) -> int:
    if isinstance(column, int):
        return column
    if column not in header:
        raise BadInput(f"{path}: line 1 names no column {column!r}{nearest(column, header)}")
    return header.index(column)


def _unquoted(cell: str) -> str:
    """What a CSV writer was given. It quotes only what has quotes inside, and doubles those: what has no doubled ones
    was never quoted, and stays as it is."""
    inner = cell[1:-1]
    if len(cell) < 2 or not (cell[0] == cell[-1] == '"') or '""' not in inner or '"' in inner.replace('""', ""):
        return cell
    return inner.replace('""', '"')
