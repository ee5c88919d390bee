"""What a task is learned from and chosen by: training and dev examples, in which languages, of which set."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import xxhash

from crossling.benchmarks.dataset import DataSet, labelled, learnable, looked_for
from crossling.benchmarks.examples import Classified, Example, Question, Tagged
from crossling.benchmarks.pairs import Pair, training_pairs, translations
from crossling.benchmarks.sets import find
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
    train_translations: list[Example] | None = None  # what each is read with, where cross-attention is plugged in
    dev_translations: dict[str, list[Example]] = field(default_factory=dict)

    @property
    def plug_in(self) -> bool:
        return self.train_translations is not None

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
        read_with = (self.train_translations or [], *self.dev_translations.values())
        for examples in (self.train, *self.dev.values(), *read_with):
            for example in examples:
                told.update(repr(example).encode())
        return told.hexdigest()


def gather(
    data_set: DataSet,
    data: Path,
    setting: Setting,
    teacher: Callable[[], Teacher],
    chosen: bool,
    plug_in: bool = False,
) -> Material:
    """Reads it all. A teacher is asked for where translated sentences have no tags (VECO). Models that are to be
    `chosen` among need a dev part. With `plug_in`, everything comes with its translation."""
    trained_on, pivot = data_set.source(data)
    dev = _dev(data_set, data, pivot, chosen)
    if plug_in:
        material = _in_pairs(Material(data_set, trained_on, pivot, [], dev), data, teacher, chosen)
    else:
        _, train = data_set.training(data, pivot)
        if setting == "translate-train":
            train = [*train, *_translated(data_set, data, pivot, teacher)]
        material = Material(data_set, trained_on, pivot, train, dev)
    if not material.train:
        raise BadInput(f"{data}: the training part of {data_set.name} is empty; fetch the file again")
    return material


def _in_pairs(bare: Material, data: Path, teacher: Callable[[], Teacher], chosen: bool) -> Material:
    """Of each pair (x, y), x is read with y and has the label of x, and y with x and that of y (VECO §3.1)."""
    data_set, pivot = bare.data_set, bare.pivot
    pairs = [pair for own in training_pairs(find(bare.trained_on), data, pivot).values() for pair in own]
    tagged = _tagged([other for _, other in pairs], teacher)
    pairs = [(one, other) for (one, _), other in zip(pairs, tagged, strict=True)]
    both: list[Pair] = [*pairs, *((other, one) for one, other in pairs)]
    kept = [pair for pair in both if learnable(pair[0])]
    if len(kept) < len(both):
        told = f"{len(both) - len(kept)} of {len(both)} questions have no answer in their text; not trained on"
        warnings.warn(f"{bare.trained_on}: {told}", stacklevel=3)
    read_with: dict[str, list[Example]] = {}
    for language in bare.dev:
        # The pivot's dev part may be another set's.
        own = find(data_set.development(data, pivot)[0]) if language == pivot else data_set
        found = translations(own, data, "dev", language, pivot)
        if found is not None:
            read_with[language] = found[1]
        elif chosen and language == pivot:
            raise BadInput(
                f"{data}: the dev part of {own.name} in {pivot!r}, which models are chosen by, has no translations to"
                f" be read with; {looked_for(own.paired, 'dev')}; or give --selection last"
            )
    return replace(
        bare,
        train=[example for example, _ in kept],
        train_translations=[translation for _, translation in kept],
        dev={language: examples for language, examples in bare.dev.items() if language in read_with},
        dev_translations=read_with,
    )


def _translated(data_set: DataSet, data: Path, pivot: str, teacher: Callable[[], Teacher]) -> list[Example]:
    _, by_language = data_set.translated(data)
    return _tagged([each for language, own in by_language.items() if language != pivot for each in own], teacher)


def _tagged(examples: list[Example], teacher: Callable[[], Teacher]) -> list[Example]:
    """The same, sentences without tags with those the teacher gives."""
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
