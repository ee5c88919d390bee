"""Multiple-choice reading comprehension: Belebele, the training set that its authors assemble, and RACE.

Models read the passage as the first text and the question with one answer as the second, as is usual for RACE.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossling.core.errors import BadInput
from crossling.tasks.dataset import FilePattern
from crossling.tasks.examples import ClassificationExample
from crossling.tasks.readers import get_text, read_json, read_json_lines, read_text

CHOICES = ("0", "1", "2", "3")
_CORRECT = "correct_answer_num"  # counted from 1


def read_belebele(path: Path, labels: tuple[str, ...]) -> list[ClassificationExample]:
    """Return the questions of a language. They are equal and in the same order in all languages."""
    examples: list[ClassificationExample] = []
    for line, record in read_json_lines(path):
        where = f"{path}: line {line}"
        answers = [get_text(where, record, f"mc_answer{number}") for number in (1, 2, 3, 4)]
        texts = (get_text(where, record, "flores_passage"), get_text(where, record, "question"))
        label = _zero_based(where, record, labels) if _CORRECT in record else None
        examples.append(_multiple_choice(str(len(examples)), *texts, answers=answers, label=label))
    return examples


@dataclass(frozen=True)
class AssembledReader:
    """Reader of one split of the training set that Belebele's program assembles from six others."""

    split: str

    def __call__(self, path: Path, labels: tuple[str, ...]) -> list[ClassificationExample]:
        """Return the examples of a file."""
        examples: list[ClassificationExample] = []
        for where, record in self._rows(path):
            if get_text(where, record, "split") == self.split:
                answers = [get_text(where, record, f"answer{number}") for number in (1, 2, 3, 4)]
                texts = (get_text(where, record, "passage"), get_text(where, record, "question"))
                label = _zero_based(where, record, labels)
                examples.append(_multiple_choice(str(len(examples)), *texts, answers=answers, label=label))
        return examples

    def _rows(self, path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the rows by column. Passages have line breaks, so a row may have many lines."""
        rows = csv.DictReader(io.StringIO(read_text(path), newline=""), delimiter="\t", strict=True)
        try:
            for row in rows:
                where = f"{path}: line {rows.line_num}"
                if None in row or None in row.values():
                    raise BadInput(f"{where}: its columns are not those of the header. Assemble the file again.")
                yield where, row
        except csv.Error as error:
            raise BadInput(f"{path}: line {rows.line_num + 1}: {error}. Assemble the file again.") from None


def read_race(path: Path, labels: tuple[str, ...]) -> list[ClassificationExample]:  # noqa: ARG001
    """Return the questions of one passage of RACE."""
    where, record = str(path), read_json(path)
    columns = [record.get(key) if isinstance(record, dict) else None for key in ("questions", "options", "answers")]
    if not all(isinstance(column, list) and len(column) == len(columns[0] or ()) for column in columns):
        raise BadInput(f"{where}: expected as many 'questions' as 'options' and 'answers'. Download the file again.")
    examples: list[ClassificationExample] = []
    for question, answers, letter in zip(*columns, strict=True):
        if not isinstance(answers, list) or len(answers) != len(CHOICES):
            raise BadInput(f"{where}: question {len(examples) + 1} has no four options. Download the file again.")
        if letter not in ("A", "B", "C", "D"):
            raise BadInput(f"{where}: the answer {letter!r} is not A, B, C or D. Download the file again.")
        texts = (get_text(where, record, "article"), str(question))
        label = str("ABCD".index(letter))
        examples.append(_multiple_choice(str(len(examples)), *texts, answers=[*map(str, answers)], label=label))
    return examples


def _zero_based(where: str, record: Mapping[str, Any], labels: tuple[str, ...]) -> str:
    """Return the correct answer counted from 0."""
    number = get_text(where, record, _CORRECT).removesuffix(".0")
    if number not in {str(int(label) + 1) for label in labels}:
        raise BadInput(f"{where}: {_CORRECT!r} is {number!r}, expected 1 to {len(labels)}. Download the file again.")
    return str(int(number) - 1)


def _multiple_choice(
    name: str, passage: str, question: str, *, answers: Sequence[str], label: str | None
) -> ClassificationExample:
    choices = tuple(f"{question.strip()} {answer.strip()}" for answer in answers)
    return ClassificationExample(name, (passage.strip(),), label, choices)


BELEBELE_FILES = (
    *(
        FilePattern(f"{folder}/{{language}}.jsonl", read_belebele, splits={"test": "test"})
        for folder in ("belebele", "belebele/data", "Belebele")
    ),
    *(
        FilePattern("belebele/belebele_training_set.tsv", AssembledReader(split), splits={split: split})
        for split in ("train", "dev")
    ),
)
RACE_FILES = tuple(FilePattern(f"{folder}/{{split}}/*/*.txt", read_race) for folder in ("race", "RACE"))
