"""Parallel text to learn translation from: `train.CODE`, `dev.CODE` and `test.CODE`, one sentence a line.

Line i of every file of a split says the same, in every language; none of it is said in the corpora.
"""

from __future__ import annotations

from collections.abc import Iterator

from crossling.babel.family import SPLITS, Family
from crossling.babel.heldout import Candidate, told
from crossling.babel.language import text

RICH = 5  # concepts of a sentence: what says less is likely to be said elsewhere too


class Translation:
    name = "translation"
    splits = SPLITS

    def __init__(self, family: Family) -> None:
        self.family = family

    def groups(self, examples: int) -> int:
        return max(1, examples)

    def draw(self, split: str) -> Iterator[Candidate | None]:
        part = f"{self.name}/{split}"
        rng = self.family.rng(part)
        for document in told(self.family.world, self.family.seed, part):
            for frame in document:
                yield self.family.say(frame, rng) if len(frame.concepts()) >= RICH else None

    def files(self, split: str, groups: list[Candidate]) -> Iterator[tuple[str, str]]:
        for code in self.family.codes:
            yield f"{split}.{code}", "".join(f"{text(one.renderings[code])}\n" for one in groups)
