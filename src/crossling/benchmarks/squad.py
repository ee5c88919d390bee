"""Question answering files: the JSON of SQuAD 1.1 and 2.0, which the others use too."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from crossling.benchmarks.examples import Answer, Question
from crossling.benchmarks.lines import read_json
from crossling.errors import BadInput

NOWHERE = -1  # the start of an answer that does not stand in the text: right as an answer, of no use in training


def read_squad(path: Path, labels: tuple[str, ...]) -> list[Question]:  # noqa: ARG001
    """All questions in their order. Ids are unique: a repeated one gets the number of its question.

    Answers that do not stand where the file says are looked for nearby, and a note says how many. Where all answers of
    a file are empty, it is a test set that was stripped of them, and no question has any.
    """
    found: list[Question] = []
    seen: set[str] = set()
    moved = lost = 0
    for where, context, record in _questions(path):
        name = str(_get(where, record, "id", (str, int)))
        impossible = bool(record.get("is_impossible", False))
        answers = []
        for answer in [] if impossible else _get(where, record, "answers", (list,)):
            text = _get(where, answer, "text", (str,))
            said = _get(where, answer, "answer_start", (int,))
            start = _place(context, text, said)
            moved += start not in (said, NOWHERE)
            lost += start == NOWHERE
            answers.append(Answer(text, start))
        question = _get(where, record, "question", (str,))
        identity = f"{name}#{len(found)}" if name in seen else name
        seen.add(name)
        found.append(Question(identity, question, context, tuple(answers), impossible))
    if not any(answer.text for question in found for answer in question.answers):
        return [replace(question, answers=()) for question in found]
    if moved or lost:
        warnings.warn(
            f"{path}: {moved + lost} answers do not stand where they should; {moved} were found nearby, "
            f"{lost} are not in the text and serve for scoring only",
            stacklevel=2,
        )
    return found


def _questions(path: Path) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    data = read_json(path)
    for number, article in enumerate(_get(str(path), data, "data", (list,)), start=1):
        inside = f"{path}: article {number}"
        for paragraph in _get(inside, article, "paragraphs", (list,)):
            context = _get(inside, paragraph, "context", (str,))
            for question in _get(inside, paragraph, "qas", (list,)):
                name = question.get("id", "without id") if isinstance(question, dict) else "that is no object"
                yield f"{path}: article {number}, question {name}", context, question


def _get(where: str, found: Any, key: str, kinds: tuple[type, ...]) -> Any:
    if not isinstance(found, dict) or not isinstance(found.get(key), kinds):
        raise BadInput(f"{where} has no {key!r} as in SQuAD's JSON; fetch the file again")
    return found[key]


def _place(context: str, text: str, said: int) -> int:
    """Where the text stands: as said, or the place nearest to that, or nowhere."""
    if not text:
        return NOWHERE
    if said >= 0 and context.startswith(text, said):
        return said
    places = []
    start = context.find(text)
    while start >= 0:
        places.append(start)
        start = context.find(text, start + 1)
    return min(places, key=lambda place: abs(place - said), default=NOWHERE)
