"""Readers of benchmark files: lines and JSON, classification tables, CoNLL columns, and SQuAD JSON.

All files are UTF-8, plain or .gz. A malformed line raises BadInput with the file and line number.
"""

from __future__ import annotations

import gzip
import json
import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any

from crossling.core.errors import BadInput, suggestion
from crossling.tasks.examples import Answer, ClassificationExample, QAExample, TaggingExample

Column = str | int  # a name in the header, or a position; from the end if negative

DOCUMENT_MARK = "-DOCSTART-"  # CoNLL's line between two documents
NOT_IN_CONTEXT = -1  # start of an answer that the context does not contain: used in scoring, not in training


# ---- Text and JSON -----------------------------------------------------------------------------------------------


def read_lines(path: Path) -> list[str]:
    """Return the lines of `path`, or of `path`.gz if only that exists.

    Only a line feed ends a line. `str.splitlines` would also split at U+2028 and the like, which occur in sentences.
    """
    return [line.removesuffix("\r") for line in read_text(path).removesuffix("\n").split("\n")]


def read_json(path: Path) -> Any:
    """Return the value of a JSON file."""
    return _parse_json(read_text(path), path)


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a JSON Lines file with their line numbers. Skip empty lines."""
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        record = _parse_json(line, path, number)
        if not isinstance(record, dict):
            raise BadInput(f"{path}: line {number}: expected a JSON object. Download the file again.")
        yield number, record


def read_text(path: Path) -> str:
    """Return the text of `path`, or of `path`.gz if only that exists, without a byte order mark."""
    compressed = path.with_name(path.name + ".gz")
    try:
        if path.is_file():
            data = path.read_bytes()
        elif compressed.is_file():
            data = gzip.decompress(compressed.read_bytes())
        else:
            raise BadInput(f"{path}: no such file, plain or .gz. Check that the benchmark folder is complete.")
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{path}: line {line}: not UTF-8. Convert the file to UTF-8.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path}: cannot be read ({error}). Download the file again.") from None
    if not text.strip():
        raise BadInput(f"{path}: the file is empty. Check the file, or download it again.")
    return text.removeprefix("\ufeff")


def _parse_json(text: str, path: Path, line: int | None = None) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(
            f"{path}: line {line or error.lineno}: invalid JSON ({error.msg}). Download the file again."
        ) from None


# ---- Classification: tab-separated tables and JSON Lines ---------------------------------------------------------


@dataclass(frozen=True)
class TableReader:
    """Reader of a tab-separated table: `TableReader(texts=("sentence1", "sentence2"), label="gold_label")`.

    Column names are looked up in the header, the first line. A table whose columns are positions has no header. A table
    without the label column is a test set without labels.
    """

    texts: tuple[Column, ...]
    label: Column | None  # None: the file never has labels
    _: KW_ONLY
    id: Column | None = None  # None: the row number, from 0
    aliases: Mapping[str, str] = field(default_factory=dict)  # other spellings of a label
    numeric: bool = False  # labels are numbers
    quoted: bool = False  # written by a CSV writer: fields with quotes are quoted, and their quotes doubled
    skipped_label: str | None = None  # label of rows without annotator agreement; these rows are skipped
    skip_short_rows: bool = False  # skip truncated rows (GLUE's QQP has some) and warn with their number

    def __call__(self, path: Path, labels: tuple[str, ...]) -> list[ClassificationExample]:
        """Return the examples of a file."""
        rows = list(self._rows(path))
        header, rows = (rows[0][1], rows[1:]) if isinstance(self.texts[0], str) else ([], rows)
        texts = [_column_position(path, header, column) for column in self.texts]
        label = self._label_position(header, rows)
        positions = [*texts, *([] if label is None else [label])]
        width = max(1 + position if position >= 0 else -position for position in positions)
        id_position = None if self.id is None else _column_position(path, header, self.id)
        examples, short_rows = [], 0
        for row, (line, cells) in enumerate(rows):
            where = f"{path}: line {line}"
            if len(cells) < width:
                short_rows += 1
                if self.skip_short_rows:
                    continue
                raise BadInput(f"{where}: {len(cells)} columns, expected {width}. Download the file again.")
            if label is not None and cells[label].strip() == self.skipped_label:
                continue
            value = None if label is None else self._parse_label(where, cells[label].strip(), labels)
            name = str(row) if id_position is None else cells[id_position]
            examples.append(ClassificationExample(name, tuple(cells[text].strip() for text in texts), value))
        if short_rows:
            warnings.warn(f"{path}: skipped {short_rows} of {len(rows)} rows with missing columns", stacklevel=2)
        return examples

    def _rows(self, path: Path) -> Iterator[tuple[int, list[str]]]:
        for number, line in enumerate(read_lines(path), start=1):
            if line.strip():
                cells = line.split("\t")
                yield number, [_unquote(cell) for cell in cells] if self.quoted else cells

    def _label_position(self, header: list[str], rows: list[tuple[int, list[str]]]) -> int | None:
        if isinstance(self.label, str):
            return header.index(self.label) if self.label in header else None
        if self.label is None or self.label < 0:
            return self.label
        # If some rows have a label, all must: a row without it is reported when it is read.
        return self.label if any(len(cells) > self.label for _, cells in rows) else None

    def _parse_label(self, where: str, text: str, labels: tuple[str, ...]) -> str | float:
        if self.numeric:
            try:
                return float(text)
            except ValueError:
                raise BadInput(f"{where}: {text!r} is not a number. Download the file again.") from None
        return check_label(where, self.aliases.get(text, text), labels)


@dataclass(frozen=True)
class JsonLinesReader:
    """Reader of JSON Lines: `JsonLinesReader(texts=("sentence1", "sentence2"))`.

    A record without the label's key has no label.
    """

    texts: tuple[str, ...]
    _: KW_ONLY
    label: str = "label"
    id: str | None = None
    skipped_label: str | None = None
    choices: tuple[str, ...] = ()
    replacements: Mapping[str, str] = field(default_factory=dict)  # codes to spell out: {"cause": "What was ...?"}

    def __call__(self, path: Path, labels: tuple[str, ...]) -> list[ClassificationExample]:
        """Return the examples of a file."""
        examples: list[ClassificationExample] = []
        for line, record in read_json_lines(path):
            where = f"{path}: line {line}"
            label = str(record[self.label]) if self.label in record else None
            if label is not None and label == self.skipped_label:
                continue
            texts = [get_text(where, record, key) for key in self.texts]
            examples.append(
                ClassificationExample(
                    id=str(len(examples)) if self.id is None else get_text(where, record, self.id),
                    texts=tuple(self.replacements.get(text, text) for text in texts),
                    label=None if label is None else check_label(where, label, labels),
                    choices=tuple(get_text(where, record, key) for key in self.choices),
                )
            )
        return examples


def check_label(where: str, label: str, labels: tuple[str, ...]) -> str:
    """Return the label. Raise BadInput if the data set does not have it."""
    if labels and label not in labels:
        raise BadInput(f"{where}: unknown label {label!r}{suggestion(label, labels)}")
    return label


def get_text(where: str, record: Mapping[str, object], key: str) -> str:
    """Return a value of a record as text. Raise BadInput if it has no such key."""
    if key not in record:
        raise BadInput(f"{where}: no key {key!r}. Download the file again.")
    return str(record[key])


def _column_position(path: Path, header: list[str], column: Column) -> int:
    if isinstance(column, int):
        return column
    if column not in header:
        raise BadInput(f"{path}: line 1: no column {column!r}{suggestion(column, header)}")
    return header.index(column)


def _unquote(cell: str) -> str:
    """Undo the quoting of a CSV writer.

    The writer quotes only cells that contain quotes, and doubles these. A cell without doubled quotes is not quoted.
    """
    inner = cell[1:-1]
    if len(cell) < 2 or not (cell[0] == cell[-1] == '"') or '""' not in inner or '"' in inner.replace('""', ""):
        return cell
    return inner.replace('""', '"')


# ---- Tagging: one word per line, an empty line after each sentence -----------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ColumnReader:
    """Reader of `word<TAB>tag` lines, or of other columns. A file with words alone has no tags."""

    word: int = 0
    tag: int = -1
    width: int = 2
    separator: str = "\t"
    language_prefix: bool = False  # words have the form `en:word`

    def __call__(self, path: Path, labels: tuple[str, ...]) -> list[TaggingExample]:
        """Return the sentences of a file."""
        return _read_sentences(path, labels, self._parse)

    def _parse(self, where: str, text: str, number: int) -> tuple[str, str | None] | None:  # noqa: ARG002
        cells = text.split(self.separator)
        if cells[0] == DOCUMENT_MARK:
            return None
        if len(cells) not in (1, self.width):
            raise BadInput(f"{where}: {len(cells)} columns, expected {self.width}. Download the file again.")
        word = cells[self.word if len(cells) > 1 else 0].strip()
        word = word.partition(":")[2] if self.language_prefix else word
        if not word:
            raise BadInput(f"{where}: no word before the tag. Download the file again.")
        return word, cells[self.tag].strip() if len(cells) > 1 else None


def read_conllu(path: Path, labels: tuple[str, ...]) -> list[TaggingExample]:
    """Return the sentences of a Universal Dependencies treebank: words and UPOS tags.

    Skips multiword tokens (`1-2`), whose words follow them, and empty nodes (`1.1`).
    """
    return _read_sentences(path, labels, _parse_conllu)


def _parse_conllu(where: str, text: str, number: int) -> tuple[str, str] | None:
    if text.startswith("#"):
        return None
    cells = text.split("\t")
    if len(cells) != 10:
        raise BadInput(f"{where}: {len(cells)} columns, expected 10 (CoNLL-U). Download the file again.")
    if "-" in cells[0] or "." in cells[0]:
        return None
    if cells[0] != str(number):
        raise BadInput(f"{where}: word {cells[0]!r}, expected {number}. Download the file again.")
    return cells[1], cells[3]


def _read_sentences(
    path: Path, labels: tuple[str, ...], parse: Callable[[str, str, int], tuple[str, str | None] | None]
) -> list[TaggingExample]:
    """Return the sentences of a file. `parse` maps place, line and number of the next word to word and tag, or None."""
    examples: list[TaggingExample] = []
    for sentence in split_sentences(path):
        words: list[str] = []
        tags: list[str] = []
        for line, text in sentence:
            where = f"{path}: line {line}"
            word, tag = parse(where, text, len(words) + 1) or (None, None)
            if word is not None:
                words.append(word)
            if tag is not None:
                tags.append(check_label(where, tag, labels))
        if tags and len(tags) < len(words):
            first = sentence[0][0]
            raise BadInput(f"{path}: line {first}: sentence with tags on some words only. Add the missing tags.")
        if words:
            examples.append(TaggingExample(str(len(examples)), tuple(words), tuple(tags) or None))
    return examples


def split_sentences(path: Path) -> Iterator[list[tuple[int, str]]]:
    """Yield the numbered lines between empty lines."""
    sentence: list[tuple[int, str]] = []
    for number, line in enumerate([*read_lines(path), ""], start=1):
        if line.strip():
            sentence.append((number, line))
        elif sentence:
            yield sentence
            sentence = []


# ---- Question answering: the JSON of SQuAD 1.1 and 2.0 -----------------------------------------------------------


def read_squad(path: Path, labels: tuple[str, ...]) -> list[QAExample]:  # noqa: ARG001
    """Return all questions in order, with unique ids: a repeated id gets the number of its question.

    An answer that is not at its `answer_start` is searched nearby, and a warning counts these. If all answers of a file
    are empty, the file is a test set without labels.
    """
    examples: list[QAExample] = []
    known_ids: set[str] = set()
    moved = missing = 0
    for where, context, record in _iter_questions(path):
        record_id = str(_get_field(where, record, "id", (str, int)))
        impossible = bool(record.get("is_impossible", False))
        answers = []
        for answer in [] if impossible else _get_field(where, record, "answers", (list,)):
            text = _get_field(where, answer, "text", (str,))
            stated_start = _get_field(where, answer, "answer_start", (int,))
            start = _find_answer(context, text, stated_start)
            moved += start not in (stated_start, NOT_IN_CONTEXT)
            missing += start == NOT_IN_CONTEXT
            answers.append(Answer(text, start))
        question = _get_field(where, record, "question", (str,))
        unique_id = f"{record_id}#{len(examples)}" if record_id in known_ids else record_id
        known_ids.add(record_id)
        examples.append(QAExample(unique_id, question, context, tuple(answers), impossible=impossible))
    if not any(answer.text for example in examples for answer in example.answers):
        return [replace(example, answers=()) for example in examples]
    if moved or missing:
        warnings.warn(
            f"{path}: {moved + missing} answers are not at their answer_start; {moved} were found nearby, "
            f"{missing} are not in the context and are used for scoring only",
            stacklevel=2,
        )
    return examples


def _iter_questions(path: Path) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the place for error messages, the context and the record of every question."""
    for number, article in enumerate(_get_field(str(path), read_json(path), "data", (list,)), start=1):
        inside = f"{path}: article {number}"
        for paragraph in _get_field(inside, article, "paragraphs", (list,)):
            context = _get_field(inside, paragraph, "context", (str,))
            for question in _get_field(inside, paragraph, "qas", (list,)):
                name = question.get("id", "without id") if isinstance(question, dict) else "not an object"
                yield f"{inside}, question {name}", context, question


def _get_field(where: str, record: Any, key: str, types: tuple[type, ...]) -> Any:
    if not isinstance(record, dict) or not isinstance(record.get(key), types):
        raise BadInput(f"{where}: no {key!r} as in SQuAD's JSON. Download the file again.")
    return record[key]


def _find_answer(context: str, text: str, stated_start: int) -> int:
    """Return the start of the text: the stated one, else the nearest, else NOT_IN_CONTEXT."""
    if not text:
        return NOT_IN_CONTEXT
    if stated_start >= 0 and context.startswith(text, stated_start):
        return stated_start
    starts = (match.start() for match in re.finditer(f"(?={re.escape(text)})", context))
    return min(starts, key=lambda start: abs(start - stated_start), default=NOT_IN_CONTEXT)
