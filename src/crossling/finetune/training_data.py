"""Training and dev examples of a task: which languages, from which data set, with which translations."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import xxhash

from crossling.core.errors import BadInput
from crossling.finetune.task_type import HeadType
from crossling.tasks.dataset import BenchmarkDataset, describe_expected_files, has_labels, is_trainable
from crossling.tasks.examples import ClassificationExample, Example, QAExample, TaggingExample
from crossling.tasks.parallel_examples import ExamplePair, read_test_translations, read_training_pairs
from crossling.tasks.registry import get_dataset

Setting = Literal["zero-shot", "translate-train", "own-labels"]
Teacher = Callable[[Sequence[Example]], Sequence[tuple[str, ...]]]  # tags sentences

SETTINGS = ("zero-shot", "translate-train")


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """Examples that a model is trained on and selected by."""

    dataset: BenchmarkDataset
    trained_on: str  # name of the data set of the training examples
    source_language: str  # language with training data: English, or the first synthetic language
    train: list[Example]
    dev: dict[str, list[Example]]  # by language, the source language first
    train_translations: list[Example] | None = None  # of each training example, with plug-in
    dev_translations: dict[str, list[Example]] = field(default_factory=dict)
    columns: tuple[str, ...] = ()  # names of the columns of texts, if the training file is a table with a header

    @property
    def plug_in(self) -> bool:
        return self.train_translations is not None

    @property
    def head_type(self) -> HeadType:
        if self.dataset.task_type != "classification":
            return self.dataset.task_type
        if any(isinstance(example, ClassificationExample) and example.choices for example in self.train):
            return "choice"
        return "regression" if self.dataset.is_regression else "classification"

    @property
    def has_unanswerable(self) -> bool:
        return any(isinstance(example, QAExample) and example.impossible for example in self.train)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all training and dev examples and their translations."""
        digest = xxhash.xxh3_64()
        translations = (self.train_translations or [], *self.dev_translations.values())
        for examples in (self.train, *self.dev.values(), *translations):
            for example in examples:
                digest.update(repr(example).encode())
        return digest.hexdigest()


def load_training_data(
    dataset: BenchmarkDataset, data: Path, setting: Setting, *, teacher: Teacher, needs_dev: bool, plug_in: bool = False
) -> TrainingData:
    """Read training and dev examples.

    Args:
        dataset: Data set of the task.
        data: Folder of benchmark data.
        setting: `translate-train` adds the translated training examples.
        teacher: Tags translated sentences without tags (VECO). Called only if there are any.
        needs_dev: Refuse data without a dev set of the source language.
        plug_in: Read every example with its translation.
    """
    trained_on, source_language = dataset.training_source(data)
    dev = _read_dev(dataset, data, source_language, needs_dev)
    training_data = TrainingData(
        dataset=dataset, trained_on=trained_on, source_language=source_language, train=[], dev=dev
    )
    if plug_in:
        training_data = _add_pairs(training_data, data, teacher, needs_dev)
    else:
        _, train = dataset.read_training(data, source_language)
        if setting == "translate-train":
            _, translated = dataset.read_translated_training(data)
            others = [example for code, own in translated.items() if code != source_language for example in own]
            train = [*train, *_add_tags(others, teacher)]
        training_data = replace(training_data, train=train)
    if not training_data.train:
        raise BadInput(f"{data}: the training set of {dataset.name} is empty. Download the file again.")
    return training_data


def _add_pairs(base: TrainingData, data: Path, teacher: Teacher, needs_dev: bool) -> TrainingData:
    """Add both sides of every pair (x, y): x read with y and the label of x, y with x and the label of y (VECO 3.1)."""
    dataset, source = base.dataset, base.source_language
    by_language = read_training_pairs(get_dataset(base.trained_on), data, source)
    pairs = [pair for own in by_language.values() for pair in own]
    tagged = _add_tags([translation for _, translation in pairs], teacher)
    pairs = [(example, translation) for (example, _), translation in zip(pairs, tagged, strict=True)]
    both: list[ExamplePair] = [*pairs, *((translation, example) for example, translation in pairs)]
    trainable = [pair for pair in both if is_trainable(pair[0])]
    if len(trainable) < len(both):
        excluded = len(both) - len(trainable)
        warnings.warn(
            f"{base.trained_on}: excluded {excluded} of {len(both)} questions without an answer in their context",
            stacklevel=3,
        )
    dev_translations: dict[str, list[Example]] = {}
    for language in base.dev:
        # The dev set of the source language may belong to another data set.
        owner = get_dataset(dataset.read_dev(data, source)[0]) if language == source else dataset
        found = read_test_translations(owner, data, "dev", language, source)
        if found is not None:
            dev_translations[language] = found[1]
        elif needs_dev and language == source:
            raise BadInput(
                f"{data}: the dev set of {owner.name} in {source!r} has no translations, but models are selected on it;"
                f" {describe_expected_files(owner.test_translations, 'dev')}. Add them, or use selection=last."
            )
    return replace(
        base,
        train=[example for example, _ in trainable],
        train_translations=[translation for _, translation in trainable],
        dev={language: examples for language, examples in base.dev.items() if language in dev_translations},
        dev_translations=dev_translations,
    )


def _add_tags(examples: list[Example], teacher: Teacher) -> list[Example]:
    """Return the examples, with the tags of the teacher for sentences that have none."""
    untagged = {
        row: example
        for row, example in enumerate(examples)
        if isinstance(example, TaggingExample) and example.tags is None
    }
    tags = teacher([*untagged.values()]) if untagged else []
    tagged = {row: replace(untagged[row], tags=own) for row, own in zip(untagged, tags, strict=True)}
    return [tagged.get(row, example) for row, example in enumerate(examples)]


def _read_dev(dataset: BenchmarkDataset, data: Path, source_language: str, needs_dev: bool) -> dict[str, list[Example]]:
    """Return the dev sets with labels, the source language first, without questions in another language."""
    dev: dict[str, list[Example]] = {}
    try:
        dev[source_language] = dataset.read_dev(data, source_language)[1]
    except BadInput as error:
        if needs_dev:
            raise BadInput(f"{error} Or select the last checkpoint of each run with selection=last.") from None
    for language in dataset.languages(data, "dev"):
        if language not in dev and not (dataset.task_type == "qa" and "-" in language):
            examples = dataset.read(data, "dev", language)
            dev |= {language: examples} if has_labels(examples) else {}
    if source_language in dev:
        dataset.gold_labels(dev[source_language], "dev", source_language)  # refuses examples without labels
    return dev
