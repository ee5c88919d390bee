"""Base classes of all synthetic tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Generic

from crossling.synthetic.frames import Frame
from crossling.synthetic.heldout import G, endless_frames
from crossling.synthetic.language import Candidate, LanguageFamily

TRAIN, DEV, TEST = "train", "dev", "test"


class SyntheticTask(ABC, Generic[G]):
    """A benchmark: how groups of sentences are sampled and written. All languages have the same examples in order."""

    name: ClassVar[str]
    splits: ClassVar[tuple[str, ...]] = (TRAIN, DEV, TEST)
    examples_per_group: ClassVar[int] = 1

    def __init__(self, family: LanguageFamily) -> None:
        self.family = family

    def groups(self, examples: int) -> int:
        """Return the number of groups for this many examples, rounded down, at least one."""
        return max(1, examples // self.examples_per_group)

    def frames(self, split: str) -> Iterator[Frame]:
        """Yield sentences of documents without end."""
        return endless_frames(self.family, f"{self.name}/{split}")

    @abstractmethod
    def sample_groups(self, split: str) -> Iterator[G | None]:
        """Yield groups without end; None for a sample that does not fit."""

    @abstractmethod
    def files(self, split: str, groups: list[G]) -> Iterator[tuple[str, str]]:
        """Yield file names below the folder of the task, with their content."""


class LabeledTask(SyntheticTask[G]):
    """A benchmark with one labeled file per language and split.

    Languages other than the pivot have their training data in `translated/CODE/`, as in translate-train. Translations
    of the other splits are there too, without labels: into the pivot, and from the pivot into the next language.
    """

    ending: ClassVar[str] = "tsv"

    def files(self, split: str, groups: list[G]) -> Iterator[tuple[str, str]]:
        pivot, second, *_ = self.family.codes
        for code in self.family.codes:
            if split == TRAIN and code != pivot:
                yield f"translated/{code}/{split}.{self.ending}", self.content(split, groups, code)
                continue
            yield self.file_name(split, code), self.content(split, groups, code)
            if split != TRAIN:
                into = second if code == pivot else pivot
                translation = self.content(split, groups, into, labeled=False)
                yield f"translated/{into}/{split}-{code}.{self.ending}", translation

    def file_name(self, split: str, code: str) -> str:
        return f"{split}-{code}.{self.ending}"

    @abstractmethod
    def content(self, split: str, groups: list[G], code: str, labeled: bool = True) -> str:
        """Return the content of a file in a language, with or without labels."""


@dataclass(frozen=True)
class PairTaskGroup:
    """Sentences that make up examples together, and the examples: two sentences and a label."""

    sentences: tuple[Candidate, ...]
    examples: list[tuple[Candidate, Candidate, str]]


class PairTask(LabeledTask[PairTaskGroup]):
    """Two sentences and a label per line, shuffled over groups."""

    def content(self, split: str, groups: list[PairTaskGroup], code: str, labeled: bool = True) -> str:
        examples = [example for group in groups for example in group.examples]
        shuffled = self.family.rng(f"{self.name}/{split}/order").sample(examples, len(examples))
        return "".join(
            f"{one.text(code)}\t{other.text(code)}" + f"\t{label}" * labeled + "\n" for one, other, label in shuffled
        )
