"""A language family, and what all synthetic tasks have in common."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from crossling.synthetic.frames import Frame
from crossling.synthetic.heldout import Candidate, SentenceGroup
from crossling.synthetic.language import SyntheticLanguage, join_words
from crossling.synthetic.world import World

G = TypeVar("G", bound=SentenceGroup)
TRAIN, DEV, TEST = "train", "dev", "test"
SPLITS: tuple[str, ...] = (TRAIN, DEV, TEST)


@dataclass(frozen=True)
class LanguageFamily:
    """The languages of one world, by decreasing resources."""

    world: World
    languages: list[SyntheticLanguage]
    seed: int

    @property
    def pivot(self) -> str:
        """The language of the training data of tasks, as English in real benchmarks."""
        return self.languages[0].code

    @property
    def codes(self) -> list[str]:
        return [language.code for language in self.languages]

    def rng(self, purpose: str) -> random.Random:
        return random.Random(f"{self.seed}/benchmarks/{self.world.domain.name}/{purpose}")

    def render(self, frame: Frame, rng: random.Random, reordered: bool = False) -> Candidate:
        return Candidate(frame, {one.code: one.render(frame, rng, reordered) for one in self.languages})


class SyntheticTask(Protocol[G]):
    """A benchmark: how groups of sentences are sampled and written.

    All languages have the same examples in the same order. Languages other than the pivot have their training data in
    `translated/CODE/`, as in translate-train. Translations of the other splits are there too, without labels.
    """

    name: str
    splits: tuple[str, ...]

    def groups(self, examples: int) -> int:
        """Return the number of groups for this many examples, rounded down, at least one."""

    def sample_groups(self, split: str) -> Iterator[G | None]:
        """Yield groups without end; None for a sample that does not fit."""

    def files(self, split: str, groups: list[G]) -> Iterator[tuple[str, str]]:
        """Yield file names below the folder of the task, with their content."""


def task_file_name(family: LanguageFamily, split: str, code: str, ending: str) -> str:
    if split == TRAIN and code != family.pivot:
        return f"translated/{code}/{split}.{ending}"
    return f"{split}-{code}.{ending}"


def translated_file_names(family: LanguageFamily, split: str, ending: str) -> Iterator[tuple[str, str]]:
    """Yield the files of translated dev and test splits, with the language of each.

    Splits are translated to the pivot, and the splits of the pivot to the next language.
    """
    if split != TRAIN:
        for code in family.codes:
            into = family.pivot if code != family.pivot else family.codes[1]
            yield f"translated/{into}/{split}-{code}.{ending}", into


def pair_task_files(
    family: LanguageFamily, name: str, split: str, examples: list[tuple[Candidate, Candidate, str]]
) -> Iterator[tuple[str, str]]:
    """Yield files with two sentences and a label per line, shuffled over groups."""
    shuffled = family.rng(f"{name}/{split}/order").sample(examples, len(examples))

    def lines(code: str, labelled: bool = True) -> str:
        return "".join(
            f"{join_words(one.renderings[code])}\t{join_words(other.renderings[code])}" + f"\t{label}" * labelled + "\n"
            for one, other, label in shuffled
        )

    for code in family.codes:
        yield task_file_name(family, split, code, "tsv"), lines(code)
    for path, code in translated_file_names(family, split, "tsv"):
        yield path, lines(code, labelled=False)
