"""The benchmarks that models are trained for: inference, paraphrase, answering, tagging, translation; and mining."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossling.babel.answering import Answering
from crossling.babel.family import DataSet, Family
from crossling.babel.frame import Frame
from crossling.babel.heldout import HeldOut, Pool
from crossling.babel.inference import Inference
from crossling.babel.mining import Mining
from crossling.babel.paraphrase import Paraphrase
from crossling.babel.tagging import Names, PartsOfSpeech
from crossling.babel.translation import Translation
from crossling.errors import BadInput

SPARE = 1.2  # candidates for every one wanted: their sentences say so much that few are met in training data
FEWEST = {"train": 48, "dev": 24, "test": 24}
KINDS = (Inference, Paraphrase, Answering, PartsOfSpeech, Names, Mining, Translation)
PARTS = tuple(f"{kind.name}/{split}" for kind in KINDS for split in kind.splits)


@dataclass(frozen=True)
class Examples:
    """How many examples each data set has; sets whose examples come in groups have whole ones only."""

    train: int
    dev: int
    test: int

    @classmethod
    def plan(cls, sentences: int) -> Examples:
        """In proportion to the text: a tenth, a hundredth and a fiftieth."""
        shares = {"train": sentences // 10, "dev": sentences // 100, "test": sentences // 50}
        return cls(**{split: max(fewest, shares[split]) for split, fewest in FEWEST.items()})

    def __post_init__(self) -> None:
        for split, fewest in FEWEST.items():
            if getattr(self, split) < fewest:
                raise BadInput(f"{split} examples: {getattr(self, split)} given, expected at least {fewest}")


class Tasks:
    """The data sets of a family, kept apart from what its training data says."""

    def __init__(self, family: Family, examples: Examples, heldout: HeldOut) -> None:
        self._pools: list[tuple[DataSet[Any], str, Pool[Any]]] = []
        for kind in KINDS:
            data_set: DataSet[Any] = kind(family)
            for split in data_set.splits:
                wanted = data_set.groups(getattr(examples, split))
                pool = heldout.gather(f"{data_set.name}/{split}", wanted, data_set.draw(split), SPARE)
                self._pools.append((data_set, split, pool))

    def write(self, folder: Path) -> None:
        """All files; ask when all training data is written."""
        for data_set, split, pool in self._pools:
            for name, content in data_set.files(split, pool.remaining()):
                path = folder / data_set.name / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content, encoding="utf-8", newline="\n")

    def frames(self) -> Iterator[tuple[str, Frame]]:
        """The part and the meaning of every sentence, each once."""
        for _, _, pool in self._pools:
            for group in pool.remaining():
                for one in group.sentences:
                    yield pool.part, one.frame
