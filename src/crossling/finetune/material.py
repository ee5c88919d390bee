"""What a task is learned from and chosen by: training and dev examples, in which languages, of which set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import xxhash

from crossling.benchmarks.dataset import DataSet, labelled
from crossling.benchmarks.examples import Classified, Example, Question, Tagged
from crossling.errors import BadInput
from crossling.transfer.family import Kind

Setting = Literal["zero-shot", "translate-train"]
Teacher = Callable[[Sequence[Example]], Sequence[tuple[str, ...]]]  # predicts the tags of sentences that have none

SETTINGS = ("zero-shot", "translate-train")


@dataclass(frozen=True)
class Material:
    data_set: DataSet
    trained_on: str  # the set the training examples are of
    pivot: str  # the language that has training data: English, but for constructed languages
    train: list[Example]
    dev: dict[str, list[Example]]  # by language; the pivot's, where there is one, is first

    @property
    def kind(self) -> Kind:
        if self.data_set.family != "classification":
            return self.data_set.family
        if any(isinstance(example, Classified) and example.choices for example in self.train):
            return "choice"
        return "regression" if self.data_set.regression else "classification"

    @property
    def null(self) -> bool:
        """Whether there are questions without an answer."""
        return any(isinstance(example, Question) and example.impossible for example in self.train)

    @property
    def fingerprint(self) -> str:
        """Of all that is learned from or chosen by."""
        told = xxhash.xxh3_64()
        for examples in (self.train, *self.dev.values()):
            for example in examples:
                told.update(repr(example).encode())
        return told.hexdigest()


def gather(data_set: DataSet, data: Path, setting: Setting, teacher: Callable[[], Teacher], chosen: bool) -> Material:
    """Reads it all. A teacher is asked for where translated sentences have no tags (VECO). Models that are to be
    `chosen` among need a dev part."""
    trained_on, pivot = data_set.source(data)
    _, train = data_set.training(data, pivot)
    if setting == "translate-train":
        train = [*train, *_translated(data_set, data, pivot, teacher)]
    if not train:
        raise BadInput(f"{data}: the training part of {data_set.name} is empty; fetch the file again")
    return Material(data_set, trained_on, pivot, train, _dev(data_set, data, pivot, chosen))


def _translated(data_set: DataSet, data: Path, pivot: str, teacher: Callable[[], Teacher]) -> list[Example]:
    _, by_language = data_set.translated(data)
    examples = [example for language, own in by_language.items() if language != pivot for example in own]
    bare = [example for example in examples if isinstance(example, Tagged) and example.tags is None]
    if bare:
        told = iter(teacher()(bare))
        examples = [
            replace(example, tags=next(told)) if isinstance(example, Tagged) and example.tags is None else example
            for example in examples
        ]
    return examples


def _dev(data_set: DataSet, data: Path, pivot: str, chosen: bool) -> dict[str, list[Example]]:
    """Of the pivot first. Questions in another language than the text are no matter of choice."""
    found: dict[str, list[Example]] = {}
    try:
        found[pivot] = data_set.development(data, pivot)[1]
    except BadInput as missing:
        if chosen:
            raise BadInput(f"{missing}; or take the last state of each run, with --selection last") from None
    for language in data_set.languages(data, "dev"):
        if language not in found and not (data_set.family == "answering" and "-" in language):
            examples = data_set.read(data, "dev", language)
            found |= {language: examples} if labelled(examples) else {}
    if pivot in found:
        data_set.golds(found[pivot], "dev", pivot)  # refuses what has no labels
    return found
