"""A data set: where its files lie, what is in them, and how it is trained on and scored."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from crossling.benchmarks.examples import Example, Gold, Question, gold
from crossling.benchmarks.hyper import Grid, Hyper
from crossling.benchmarks.squad import NOWHERE
from crossling.corpora.languages import canonical
from crossling.errors import BadInput, nearest

Family = Literal["classification", "tagging", "answering"]
Split = Literal["train", "dev", "test"]
Reader = Callable[[Path, tuple[str, ...]], Sequence[Example]]  # a file and the labels it may hold

PIVOT = "en"
_SAME = {"train": "train", "dev": "dev", "test": "test"}
_CODE = r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]+)*?"


@dataclass(frozen=True)
class Layout:
    """Files of one shape: `xnli/{split}-{language}.tsv` below the data folder, each plain or .gz.

    `*` stands for anything within a name; {question} is the language of the questions, {language} then that of the
    texts. Several files of one language are read one after the other, in the order of their names. Of translations
    {language} is what their rows are a part of, {into} what they are written in.
    """

    pattern: str
    read: Reader
    splits: Mapping[str, str] = field(default_factory=lambda: _SAME)  # which there are, and the word for each
    language: str = PIVOT  # where the names tell none
    codes: Mapping[str, str] = field(default_factory=dict)  # words for languages that are no codes
    into: str = PIVOT  # of translations, where the names do not tell

    def find(self, data: Path, split: str) -> dict[str, list[Path]]:
        """The files of a split by language, without .gz."""
        found: dict[str, list[Path]] = {}
        for (language, _), files in self.find_into(data, split).items():
            found.setdefault(language, []).extend(files)
        return found

    def find_into(self, data: Path, split: str) -> dict[tuple[str, str], list[Path]]:
        """The same for translations, by language and the one they are written in."""
        if split not in self.splits:
            return {}
        pattern = self.pattern.replace("{split}", self.splits[split])
        name = re.compile(_expression(pattern))
        places = re.sub(r"\{\w+\}", "*", pattern)
        found: dict[tuple[str, str], list[Path]] = {}
        for file in sorted({_plain(file) for ending in ("", ".gz") for file in data.glob(places + ending)}):
            match = name.fullmatch(file.relative_to(data).as_posix())
            languages = self._languages(match) if match else None
            if languages:
                found.setdefault(languages, []).append(file)
        return found

    def _languages(self, match: re.Match[str]) -> tuple[str, str] | None:
        """`de`, or `de-en` for questions in English on German texts; and what translations are written in."""
        try:
            codes = {name: canonical(self.codes.get(code, code)) for name, code in match.groupdict().items()}
        except BadInput:
            return None  # a file that only looks like one of the set
        into = codes.pop("into", self.into)
        return "-".join(dict.fromkeys(codes.values())) or self.language, into


@dataclass(frozen=True)
class DataSet:
    name: str
    family: Family
    layouts: tuple[Layout, ...]  # where one language has files in several, the first counts
    metrics: tuple[str, ...]  # names in metrics.METRICS; models are chosen by the first
    hyper: Hyper
    labels: tuple[str, ...] = ()  # none for regression and answering
    train: tuple[str, ...] = ()  # the sets that training data comes from, best first; its own if none
    select: tuple[str, ...] = ()  # more sets whose dev part models may be chosen by, where it has none itself
    translations: tuple[Layout, ...] = ()  # of the training data into other languages, row by row
    paired: tuple[Layout, ...] = ()  # of what is scored, row by row, for models that read both
    grids: Mapping[str, Grid] = field(default_factory=dict)  # by paper

    @property
    def regression(self) -> bool:
        return self.family == "classification" and not self.labels

    def languages(self, data: Path, split: str) -> list[str]:
        """The languages with files of a split, sorted; none is no error."""
        return sorted({language for layout in self.layouts for language in layout.find(data, split)})

    def read(self, data: Path, split: str, language: str) -> list[Example]:
        """The examples of a split in a language. Training data has no questions whose answer is nowhere in the text."""
        found = self._read(self.layouts, data, split, language)
        if found is None:
            present = self.languages(data, split)
            hint = nearest(language, present) if present else f"; {looked_for(self.layouts, split)}"
            raise BadInput(f"{data}: {self.name} has no {split} part in {language!r}{hint}")
        return found

    def test(self, data: Path, language: str) -> tuple[Split, list[Example]]:
        """What the set is scored on: its test part, else its dev part, else (in a language that is not the one trained
        on) its training part, whichever is the first with labels. Says which."""
        found = None
        for split in self._scored(data, language):
            examples = self._read(self.layouts, data, split, language)
            if examples and labelled(examples):
                return split, examples
            found = found or (split if examples else None)
        if found:
            raise BadInput(f"{data}: {self._unlabelled(found, language)}")
        return "test", self.read(data, "test", language)

    def scorable(self, data: Path) -> list[str]:
        """The languages with files to be scored on, sorted, labelled or not: none is read."""
        splits: tuple[Split, ...] = ("train", "dev", "test")
        there = {split: {*self.languages(data, split)} for split in splits}
        codes = sorted(set().union(*there.values()))
        return [code for code in codes if any(code in there[split] for split in self._scored(data, code))]

    def tested(self, data: Path, among: Sequence[str] | None = None) -> list[str]:
        """The languages there is something to score on, sorted, of all or of some; a note names those with unlabelled
        files only."""
        found: list[str] = []
        unlabelled: list[str] = []
        for code in self.scorable(data):
            if among is not None and code not in among:
                continue
            parts = (self._read(self.layouts, data, split, code) for split in self._scored(data, code))
            # read one at a time, as far as needed
            labels = any(labelled(part) for part in parts if part)
            (found if labels else unlabelled).append(code)
        if unlabelled:
            warnings.warn(f"{self.name}: no labels in {', '.join(unlabelled)}; not scored", stacklevel=2)
        return found

    def _scored(self, data: Path, language: str) -> tuple[Split, ...]:
        """Never what a model is trained on."""
        try:
            _, pivot = self.source(data)
        except BadInput:
            pivot = PIVOT
        return ("test", "dev") if language in (PIVOT, pivot) else ("test", "dev", "train")

    def training(self, data: Path, language: str | None = None) -> tuple[str, list[Example]]:
        """The set and examples to train on; of the language that `source` names, if none is given."""
        name, code = self.source(data, language)
        return name, _sets()[name].read(data, "train", code)

    def source(self, data: Path, language: str | None = None) -> tuple[str, str]:
        """The set and the language of its training data: English of whichever set has it, or else the first language
        of the first set that has any."""
        return self._first(data, self.train or (self.name,), "train", language)

    def development(self, data: Path, language: str | None = None) -> tuple[str, list[Example]]:
        """The set and the examples models are chosen by: of the first set whose dev part has labels."""
        names = tuple(dict.fromkeys([self.name, *self.train, *self.select]))
        while True:
            name, code = self._first(data, names, "dev", language)
            examples = _sets()[name].read(data, "dev", code)
            if labelled(examples):
                return name, examples
            names = tuple(other for other in names if other != name)

    def translated(self, data: Path) -> tuple[str, dict[str, list[Example]]]:
        """The training data in other languages, by language, of the first set of `train` that has translations."""
        names = self.train or (self.name,)
        for name in names:
            found: dict[str, list[Example]] = {}
            for layout in _sets()[name].translations:
                for language in layout.find(data, "train"):
                    if language not in found:
                        found[language] = _sets()[name]._read((layout,), data, "train", language) or []
            if found:
                return name, dict(sorted(found.items()))
        layouts = [layout for name in names for layout in _sets()[name].translations]
        told = looked_for(layouts, "train") or "no layout of them is known"
        raise BadInput(f"{data}: {self.name} has no translated training data here; {told}")

    def golds(self, examples: Sequence[Example], split: str, language: str) -> list[Gold]:
        """What predictions are held against; a set without labels is refused."""
        if not labelled(examples):
            raise BadInput(self._unlabelled(split, language))
        return [gold(example) for example in examples]

    def _unlabelled(self, split: str, language: str) -> str:
        return (
            f"the {split} part of {self.name} in {language!r} has no labels, so nothing can be scored on it; "
            "put a labelled file there or score the dev part"
        )

    def _read(self, layouts: tuple[Layout, ...], data: Path, split: str, language: str) -> list[Example] | None:
        found = self.rows(layouts, data, split, language)
        return None if found is None else _answerable(*found) if split == "train" else found[1]

    def rows(
        self, layouts: tuple[Layout, ...], data: Path, split: str, language: str
    ) -> tuple[Path, list[Example]] | None:
        """The first file that a split has in these layouts, and all rows, of use or not."""
        for layout in layouts:
            files = layout.find(data, split).get(language)
            if files:
                parts = [list(layout.read(file, self.labels)) for file in files]
                examples = [example for part in parts for example in part]
                if len(files) > 1:  # ids count the rows of a file
                    examples = [replace(example, id=str(row)) for row, example in enumerate(examples)]
                return files[0], examples
        return None

    def _first(self, data: Path, names: tuple[str, ...], split: Split, language: str | None) -> tuple[str, str]:
        """The set and language to be read: English of whichever set has it, before any other language of any set."""
        if not data.is_dir():
            raise BadInput(f"{data} is no folder: give the one with the benchmarks in it")
        there = {name: _sets()[name].languages(data, split) for name in names}
        wanted = [language] if language else [PIVOT, *(code for codes in there.values() for code in codes)]
        for code in wanted:
            for name in names:
                if code in there[name]:
                    return name, code
        told = f" in {language!r}" if language else ""
        looked = looked_for([layout for name in names for layout in _sets()[name].layouts], split)
        raise BadInput(f"{data}: no {split} part for {self.name}{told}; {looked}")


def _sets() -> Mapping[str, DataSet]:
    """All sets by name: they are made of this class, so it can know them only once it is there."""
    from crossling.benchmarks.sets import SETS

    return SETS


def labelled(examples: Sequence[Example]) -> bool:
    """Whether all of them can be scored."""
    return all(gold(example) is not None for example in examples)


def looked_for(layouts: Iterable[Layout], split: str) -> str:
    """`looked for` and the names of files; nothing where there are none."""
    names = [layout.pattern.replace("{split}", layout.splits[split]) for layout in layouts if split in layout.splits]
    return f"looked for {', '.join(names)}" if names else ""


def learnable(example: Example) -> bool:
    """Whether it is no question whose answer is nowhere in the text."""
    if not isinstance(example, Question) or example.impossible:
        return True
    return any(answer.start != NOWHERE for answer in example.answers)


def _answerable(file: Path, examples: list[Example]) -> list[Example]:
    """Without the questions that nobody could learn from; a note says how many."""
    kept = [example for example in examples if learnable(example)]
    if len(kept) < len(examples):
        left_out = len(examples) - len(kept)
        warnings.warn(f"{file}: {left_out} questions without an answer in their text; not trained on", stacklevel=2)
    return kept


def _plain(file: Path) -> Path:
    return file.with_name(file.name.removesuffix(".gz"))


def _expression(pattern: str) -> str:
    """The pattern as a regular expression; what a name says twice, as in xcopa/it/val.it.jsonl, is the same."""
    parts = re.split(r"(\{language\}|\{question\}|\{into\}|\*)", pattern)
    told: set[str] = set()
    expression = ""
    for part in parts:
        if part == "*":
            expression += "[^/]*"
        elif part in ("{language}", "{question}", "{into}"):
            name = part[1:-1]
            expression += f"(?P={name})" if name in told else f"(?P<{name}>{_CODE})"
            told.add(name)
        else:
            expression += re.escape(part)
    return expression
