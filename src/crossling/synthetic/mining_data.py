"""Bitext mining in the layout of BUCC: which sentences of two texts translate each other? Most have no partner.

The texts have no names or numbers in common. A sentence without a partner has a meaning of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from crossling.synthetic.frames import Frame, is_name
from crossling.synthetic.language import Candidate
from crossling.synthetic.task_data import DEV, TEST, SyntheticTask

SENTENCES_PER_EXAMPLE = 4  # of each text
UNPAIRED = 7  # sentences without a partner per sentence with one, in each text
MIN_MINING_CONCEPTS = 6  # per sentence: shorter ones often occur elsewhere too


@dataclass(frozen=True)
class MiningGroup:
    """A sentence in all languages, and others in the pivot alone or in the other languages alone."""

    partner: Candidate
    pivot: tuple[Candidate, ...]
    others: tuple[Candidate, ...]

    @property
    def sentences(self) -> tuple[Candidate, ...]:
        return (self.partner, *self.pivot, *self.others)


class MiningTask(SyntheticTask[MiningGroup]):
    name = "bucc2018"
    splits = (DEV, TEST)
    examples_per_group = (UNPAIRED + 1) // SENTENCES_PER_EXAMPLE

    def sample_groups(self, split: str) -> Iterator[MiningGroup]:
        rng = self.family.rng(f"{self.name}/{split}")
        pivot = replace(self.family, languages=self.family.languages[:1])
        others = replace(self.family, languages=self.family.languages[1:])
        frames = filter(_has_no_anchors, self.frames(split))
        while True:
            partner, *alone = islice(frames, 1 + 2 * UNPAIRED)
            in_pivot = tuple(pivot.render(frame, rng) for frame in alone[:UNPAIRED])
            in_others = tuple(others.render(frame, rng) for frame in alone[UNPAIRED:])
            yield MiningGroup(self.family.render(partner, rng), in_pivot, in_others)

    def files(self, split: str, groups: list[MiningGroup]) -> Iterator[tuple[str, str]]:
        rng = self.family.rng(f"{self.name}/{split}/order")
        here = [one for group in groups for one in (group.partner, *group.pivot)]
        there = [one for group in groups for one in (group.partner, *group.others)]
        for side in (here, there):
            rng.shuffle(side)
        position = {id(one): number for number, one in enumerate(here)}
        pivot = self.family.pivot
        for code in self.family.codes[1:]:
            pair = f"{code}-{pivot}.{split}"
            gold = (
                f"{_id(code, number)}\t{_id(pivot, position[id(one)])}\n"
                for number, one in enumerate(there)
                if id(one) in position
            )
            yield f"{pair}.{code}", _lines(code, there)
            yield f"{pair}.{pivot}", _lines(pivot, here)
            yield f"{pair}.gold", "".join(gold)


def _has_no_anchors(frame: Frame) -> bool:
    """Return whether a sentence has neither names nor numbers, which would identify it."""
    concepts = frame.concepts()
    anchors = any(is_name(concept) or concept.isdigit() for concept in concepts.values())
    return len(concepts) >= MIN_MINING_CONCEPTS and not anchors


def _lines(code: str, side: list[Candidate]) -> str:
    return "".join(f"{_id(code, number)}\t{one.text(code)}\n" for number, one in enumerate(side))


def _id(code: str, number: int) -> str:
    return f"{code}-{number + 1:09}"
