"""A benchmark data set: where its files are, how they are read, and how a model is trained and scored on it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from crossling.core.errors import BadInput, suggestion
from crossling.core.folder_kinds import data_folder_hint
from crossling.corpora.languages import canonical_code
from crossling.tasks.examples import Example, GoldLabel, QAExample, get_gold
from crossling.tasks.hyperparameters import FinetuneHyperparameters, HyperparameterGrid
from crossling.tasks.readers import NOT_IN_CONTEXT

TaskType = Literal["classification", "tagging", "qa"]
Split = Literal["train", "dev", "test"]
Reader = Callable[[Path, tuple[str, ...]], Sequence[Example]]  # (file, allowed labels) -> examples

PIVOT = "en"  # the language of the training data, where a data set has it
ALL_SPLITS = {"train": "train", "dev": "dev", "test": "test"}
_TABS = "columns must be separated by a tab"
_LANGUAGE_CODE = r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]+)*?"


@dataclass(frozen=True)
class FilePattern:
    """File names of one format, such as `xnli/{split}-{language}.tsv` below the data folder, and their reader.

    Files may be plain or .gz. `*` matches any text within a file or folder name. For question answering, {question} is
    the language of the questions and {language} the language of the contexts. For translations, {language} is the
    language of the original examples and {into} the language of the file. If several files match one language, they
    are concatenated in the order of their names.
    """

    pattern: str
    read: Reader
    _: KW_ONLY
    splits: Mapping[str, str] = field(default_factory=lambda: ALL_SPLITS)  # split -> its name in the file name
    language: str = PIVOT  # if the pattern has no {language}
    codes: Mapping[str, str] = field(default_factory=dict)  # name in the file name -> language code
    into: str = PIVOT  # if the pattern of translations has no {into}

    def find(self, data: Path, split: str) -> dict[str, list[Path]]:
        """Return the files of a split by language, without the suffix .gz."""
        by_language: dict[str, list[Path]] = {}
        for (language, _), files in self.find_translations(data, split).items():
            by_language.setdefault(language, []).extend(files)
        return by_language

    def find_translations(self, data: Path, split: str) -> dict[tuple[str, str], list[Path]]:
        """Return the files of a split by original language and language of the file, without the suffix .gz."""
        if split not in self.splits:
            return {}
        pattern = self.pattern.replace("{split}", self.splits[split])
        expression = re.compile(_to_regex(pattern))
        wildcard = re.sub(r"\{\w+\}", "*", pattern)
        by_languages: dict[tuple[str, str], list[Path]] = {}
        matches = {
            file.with_name(file.name.removesuffix(".gz")) for end in ("", ".gz") for file in data.glob(wildcard + end)
        }
        for file in sorted(matches):
            match = expression.fullmatch(file.relative_to(data).as_posix())
            languages = self._parse_languages(match) if match else None
            if languages:
                by_languages.setdefault(languages, []).append(file)
        return by_languages

    def _parse_languages(self, match: re.Match[str]) -> tuple[str, str] | None:
        """Return the language of the examples, `de-en` for English questions on German contexts, and of the file."""
        try:
            codes = {name: canonical_code(self.codes.get(code, code)) for name, code in match.groupdict().items()}
        except BadInput:
            return None  # a file of something else whose name has the same form
        into = codes.pop("into", self.into)
        return "-".join(dict.fromkeys(codes.values())) or self.language, into


@dataclass(frozen=True, kw_only=True)
class BenchmarkDataset:
    """One benchmark data set. `crossling.tasks.registry` has one entry for each."""

    name: str
    task_type: TaskType
    patterns: tuple[FilePattern, ...]  # the first pattern that matches a language is used
    metrics: tuple[str, ...]  # keys of metrics.METRICS; the first selects models
    hyperparameters: FinetuneHyperparameters
    labels: tuple[str, ...] = ()  # empty for regression and question answering
    training_sets: tuple[str, ...] = ()  # data sets to train on, best first; empty: its own
    dev_sets: tuple[str, ...] = ()  # to select models on if neither it nor training_sets has a dev split
    training_translations: tuple[FilePattern, ...] = ()  # the training split in other languages, line by line
    test_translations: tuple[FilePattern, ...] = ()  # the dev and test splits, line by line, for VECO's plug-in
    grids: Mapping[str, HyperparameterGrid] = field(default_factory=dict)  # by paper

    @property
    def is_regression(self) -> bool:
        """True if the gold labels are numbers."""
        return self.task_type == "classification" and not self.labels

    def languages(self, data: Path, split: str) -> list[str]:
        """Return the languages that have files of a split, sorted. May be empty."""
        return _languages(self.patterns, data, split)

    def translated_languages(self, data: Path) -> list[str]:
        """Return the languages that have translations of the training split, sorted. May be empty."""
        return _languages(self.training_translations, data, "train")

    def read(self, data: Path, split: str, language: str) -> list[Example]:
        """Return the examples of a split. The training split has no question whose answer is not in the context."""
        examples = self._read(self.patterns, data, split, language)
        if examples is None:
            present = self.languages(data, split)
            hint = suggestion(language, present) if present else f". {describe_expected_files(self.patterns, split)}."
            raise BadInput(f"{data}: {self.name} has no {split} split for language {language!r}{hint}")
        return examples

    def read_test(self, data: Path, language: str) -> tuple[Split, list[Example]]:
        """Return the first split with labels to score on, and its name.

        The order is test, dev, and then train for languages that models are not trained on.
        """
        unlabeled: Split | None = None
        for split in self._test_splits(data, language):
            examples = self._read(self.patterns, data, split, language)
            if examples and has_labels(examples):
                return split, examples
            unlabeled = unlabeled or (split if examples else None)
        if unlabeled:
            raise BadInput(f"{data}: {self._no_labels(unlabeled, language)}")
        return "test", self.read(data, "test", language)

    def languages_with_test_files(self, data: Path) -> list[str]:
        """Return the languages that have files to score on, sorted, without reading the files."""
        languages = {split: {*self.languages(data, split)} for split in ALL_SPLITS}
        return [
            code
            for code in sorted(set().union(*languages.values()))
            if any(code in languages[split] for split in self._test_splits(data, code))
        ]

    def scorable_languages(self, data: Path, among: Sequence[str] | None = None) -> list[str]:
        """Return the languages that have labeled examples to score on, sorted. Warn about those without labels.

        Args:
            data: Folder of the benchmark data.
            among: Languages to consider. All if None.
        """
        unlabeled: list[str] = []
        candidates = [code for code in self.languages_with_test_files(data) if among is None or code in among]
        for code in candidates:
            splits = (self._read(self.patterns, data, split, code) for split in self._test_splits(data, code))
            if not any(has_labels(examples) for examples in splits if examples):  # stops reading at the first
                unlabeled.append(code)
        if unlabeled:
            hint = f" ({_TABS})" if self._has_tab_columns else ""
            warnings.warn(f"{self.name}: no labels in {', '.join(unlabeled)}; not scored{hint}", stacklevel=2)
        return [code for code in candidates if code not in unlabeled]

    def _test_splits(self, data: Path, language: str) -> tuple[Split, ...]:
        try:
            _, pivot = self.training_source(data)
        except BadInput:
            pivot = PIVOT
        # Never score on examples that a model is trained on.
        return ("test", "dev") if language in (PIVOT, pivot) else ("test", "dev", "train")

    def read_training(self, data: Path, language: str | None = None) -> tuple[str, list[Example]]:
        """Return the name of the data set to train on and its training examples.

        Args:
            data: Folder of the benchmark data.
            language: Language of the examples. [default: the language that `training_source` returns]
        """
        name, code = self.training_source(data, language)
        owner = _datasets()[name]
        examples = owner.read(data, "train", code)
        if examples and all(get_gold(example) is None for example in examples):
            raise BadInput(f"{data}: {owner._no_labels('train', code)}")
        return name, examples

    def training_source(self, data: Path, language: str | None = None) -> tuple[str, str]:
        """Return the data set and the language to train on: English if any of `training_sets` has it."""
        return self._find_split(data, self.training_sets or (self.name,), "train", language)

    def read_dev(self, data: Path, language: str | None = None) -> tuple[str, list[Example]]:
        """Return the examples that select models, and the name of their data set: the first with labels."""
        names = tuple(dict.fromkeys([self.name, *self.training_sets, *self.dev_sets]))
        while True:
            name, code = self._find_split(data, names, "dev", language)
            examples = _datasets()[name].read(data, "dev", code)
            if has_labels(examples):
                return name, examples
            names = tuple(other for other in names if other != name)

    def read_translated_training(self, data: Path) -> tuple[str, dict[str, list[Example]]]:
        """Return the translated training examples by language, of the first of `training_sets` that has any."""
        names = self.training_sets or (self.name,)
        for name in names:
            dataset = _datasets()[name]
            languages = dataset.translated_languages(data)
            if languages:
                read = partial(dataset._read, dataset.training_translations, data, "train")
                return name, {language: read(language) or [] for language in languages}
        patterns = [pattern for name in names for pattern in _datasets()[name].training_translations]
        expected = describe_expected_files(patterns, "train")
        raise BadInput(f"{data}: {self.name} has no translated training data. {expected}.")

    def gold_labels(self, examples: Sequence[Example], split: str, language: str) -> list[GoldLabel]:
        """Return the gold label of every example. Raise BadInput if they have none."""
        if not has_labels(examples):
            raise BadInput(self._no_labels(split, language))
        return [get_gold(example) for example in examples]

    def _no_labels(self, split: str, language: str) -> str:
        problem = f"the {split} split of {self.name} for language {language!r} has no labels"
        if self._has_tab_columns:
            return f"{problem}. Add them: {_TABS}."
        fix = "Add a labeled file" + (", or score on the dev split" if split == "test" else "")
        return f"{problem}. {fix}."

    @property
    def _has_tab_columns(self) -> bool:
        """True if a file without tabs is read as words without tags."""
        return any(getattr(pattern.read, "separator", None) == "\t" for pattern in self.patterns)

    def _read(self, patterns: tuple[FilePattern, ...], data: Path, split: str, language: str) -> list[Example] | None:
        rows = self.read_rows(patterns, data, split, language)
        return None if rows is None else _drop_untrainable(*rows) if split == "train" else rows[1]

    def read_rows(
        self, patterns: tuple[FilePattern, ...], data: Path, split: str, language: str
    ) -> tuple[Path, list[Example]] | None:
        """Return the first file of a split and all examples, also those that cannot be trained on. None: no file."""
        for pattern in patterns:
            files = pattern.find(data, split).get(language)
            if files:
                examples = [example for file in files for example in pattern.read(file, self.labels)]
                if len(files) > 1:  # ids are row numbers of one file
                    examples = [replace(example, id=str(row)) for row, example in enumerate(examples)]
                return files[0], examples
        return None

    def _find_split(self, data: Path, names: tuple[str, ...], split: Split, language: str | None) -> tuple[str, str]:
        """Return the data set and language to read: English of any data set before other languages of the first."""
        if not data.is_dir():
            raise BadInput(f"{data}: no such folder. Give the folder that contains the benchmark data.")
        present = {name: _datasets()[name].languages(data, split) for name in names}
        wanted = [language] if language else [PIVOT, *(code for codes in present.values() for code in codes)]
        found = next(((name, code) for code in wanted for name in names if code in present[name]), None)
        if found:
            return found
        which = f" for language {language!r}" if language else ""
        patterns = [pattern for name in names for pattern in _datasets()[name].patterns]
        hint = data_folder_hint(data, {each.pattern.partition("/")[0] for each in patterns})
        expected = describe_expected_files(patterns, split)
        raise BadInput(f"{data}: {self.name} has no {split} split{which}. {expected}.{hint}")


def _datasets() -> Mapping[str, BenchmarkDataset]:
    from crossling.tasks.registry import DATASETS  # imports this module

    return DATASETS


def _languages(patterns: Iterable[FilePattern], data: Path, split: str) -> list[str]:
    return sorted({language for pattern in patterns for language in pattern.find(data, split)})


def has_labels(examples: Sequence[Example]) -> bool:
    """Return True if every example has a gold label."""
    return all(get_gold(example) is not None for example in examples)


def describe_expected_files(patterns: Iterable[FilePattern], split: str) -> str:
    """Return the end of an error message: the file names that were expected."""
    names = [
        pattern.pattern.replace("{split}", pattern.splits[split]) for pattern in patterns if split in pattern.splits
    ]
    return f"Expected files: {', '.join(names)}" if names else "No file format is known for it"


def is_trainable(example: Example) -> bool:
    """Return False for a question whose answer is not in the context."""
    if not isinstance(example, QAExample) or example.impossible:
        return True
    return any(answer.start != NOT_IN_CONTEXT for answer in example.answers)


def _drop_untrainable(file: Path, examples: list[Example]) -> list[Example]:
    kept = [example for example in examples if is_trainable(example)]
    if len(kept) < len(examples):
        dropped = len(examples) - len(kept)
        warnings.warn(f"{file}: {dropped} questions without an answer in their context; not trained on", stacklevel=2)
    return kept


def _to_regex(pattern: str) -> str:
    """Translate a file pattern. A placeholder that occurs twice, as in xcopa/it/val.it.jsonl, matches the same text."""
    expression = re.escape(pattern).replace(r"\*", "[^/]*")
    for name in ("language", "question", "into"):
        placeholder = re.escape(f"{{{name}}}")
        expression = expression.replace(placeholder, f"(?P<{name}>{_LANGUAGE_CODE})", 1)
        expression = expression.replace(placeholder, f"(?P={name})")
    return expression
