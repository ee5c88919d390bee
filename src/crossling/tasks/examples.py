"""Examples of labeled data sets: classification, tagging and question answering."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass


@dataclass(frozen=True)
class ClassificationExample:
    """One text or a pair of texts with its class, or with a number for regression.

    Example:
        >>> example = crossling.ClassificationExample("1", ("It rains.", "It is wet."), label=None)
    """

    id: str
    texts: tuple[str, ...]
    label: str | float | None  # None: unlabeled
    choices: tuple[str, ...] = ()  # multiple choice: the label is the position of the answer, "0" or "1"


@dataclass(frozen=True)
class TaggingExample:
    """The words of a sentence with their tags.

    Example:
        >>> example = crossling.TaggingExample("1", ("Ada", "sleeps"), tags=None)
    """

    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None  # None: unlabeled


@dataclass(frozen=True)
class Answer:
    """A correct answer and its position."""

    text: str
    start: int  # character position in the context


@dataclass(frozen=True)
class QAExample:
    """A question on a context, and its correct answers.

    Example:
        >>> example = crossling.QAExample("1", "Who sleeps?", "Ada sleeps.", answers=())
    """

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    _: KW_ONLY
    impossible: bool = False  # SQuAD 2.0: the context does not contain an answer


Example = ClassificationExample | TaggingExample | QAExample
GoldLabel = str | float | tuple[str, ...] | None


def get_gold(example: Example) -> GoldLabel:
    """Return the label, the tags, or the texts of the correct answers (empty if impossible). None if unlabeled."""
    if isinstance(example, QAExample):
        if not example.answers and not example.impossible:
            return None
        return tuple(answer.text for answer in example.answers)
    return example.tags if isinstance(example, TaggingExample) else example.label
