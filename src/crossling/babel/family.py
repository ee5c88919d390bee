"""A family of languages at the disposal of whoever makes a benchmark."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from crossling.babel.frame import Frame
from crossling.babel.heldout import Candidate, Group
from crossling.babel.language import Language, text
from crossling.babel.world import World

G = TypeVar("G", bound=Group)
TRAIN, DEV, TEST = "train", "dev", "test"
SPLITS: tuple[str, ...] = (TRAIN, DEV, TEST)


@dataclass(frozen=True)
class Family:
    """The languages of one world, the best-resourced first."""

    world: World
    languages: list[Language]
    seed: int

    @property
    def pivot(self) -> str:
        """The language that tasks are trained in, as English is of real ones."""
        return self.languages[0].code

    @property
    def codes(self) -> list[str]:
        return [language.code for language in self.languages]

    def rng(self, purpose: str) -> random.Random:
        return random.Random(f"{self.seed}/benchmarks/{self.world.domain.name}/{purpose}")

    def say(self, frame: Frame, rng: random.Random, reordered: bool = False) -> Candidate:
        return Candidate(frame, {one.code: one.render(frame, rng, reordered) for one in self.languages})


class DataSet(Protocol[G]):
    """A benchmark: how its groups of sentences are made, and how they are written.

    All languages have the same examples in the same order. Languages other than the pivot have their training data in
    `translated/CODE/`, as what is translated for training is; beside it stands, without labels, what the other parts
    are translated to.
    """

    name: str
    splits: tuple[str, ...]

    def groups(self, examples: int) -> int:
        """How many groups make so many examples, rounded down to whole ones, but one at least."""

    def draw(self, split: str) -> Iterator[G | None]:
        """Groups without end; None for what was drawn in vain."""

    def files(self, split: str, groups: list[G]) -> Iterator[tuple[str, str]]:
        """Names below the folder of the set, and what is in them."""


def file_name(family: Family, split: str, code: str, ending: str) -> str:
    if split == TRAIN and code != family.pivot:
        return f"translated/{code}/{split}.{ending}"
    return f"{split}-{code}.{ending}"


def translated_names(family: Family, split: str, ending: str) -> Iterator[tuple[str, str]]:
    """What a part that is scored is translated to, for those who read both: the name of each file and the language it
    is written in. That is the pivot, and for the pivot's own part the next language."""
    if split != TRAIN:
        for code in family.codes:
            into = family.pivot if code != family.pivot else family.codes[1]
            yield f"translated/{into}/{split}-{code}.{ending}", into


def pair_files(
    family: Family, name: str, split: str, examples: list[tuple[Candidate, Candidate, str]]
) -> Iterator[tuple[str, str]]:
    """Two sentences and their label a line, those of one group no longer together."""
    shuffled = family.rng(f"{name}/{split}/order").sample(examples, len(examples))

    def lines(code: str, labelled: bool = True) -> str:
        return "".join(
            f"{text(one.renderings[code])}\t{text(other.renderings[code])}" + f"\t{label}" * labelled + "\n"
            for one, other, label in shuffled
        )

    for code in family.codes:
        yield file_name(family, split, code, "tsv"), lines(code)
    for path, code in translated_names(family, split, "tsv"):
        yield path, lines(code, labelled=False)
