"""What a labelled data set is made of: texts with a label, words with tags, questions with answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Classified:
    """One text or a pair, and its class: a name, or a number where the task is a regression."""

    id: str
    texts: tuple[str, ...]
    label: str | float | None  # None: nobody tells
    choices: tuple[str, ...] = ()  # where one of these is to be picked, the label is its position: "0" or "1"


@dataclass(frozen=True)
class Tagged:
    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None


@dataclass(frozen=True)
class Answer:
    text: str
    start: int  # characters of the context


@dataclass(frozen=True)
class Question:
    """A question on a text, and the answers that are right; none where the text does not say."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    impossible: bool = False


Example = Classified | Tagged | Question
Gold = str | float | tuple[str, ...] | None


def gold(example: Example) -> Gold:
    """What a prediction is held against: a label, tags, or the texts of the right answers (none: impossible)."""
    if isinstance(example, Question):
        if not example.answers and not example.impossible:
            return None
        return tuple(answer.text for answer in example.answers)
    return example.tags if isinstance(example, Tagged) else example.label
