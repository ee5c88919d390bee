"""Bitext mining, in BUCC's layout: which sentences of two texts translate each other? Most have no partner.

The texts share neither names nor numbers, and a sentence without a partner means what no other does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from crossling.babel.family import DEV, TEST, Family
from crossling.babel.frame import Frame, is_name
from crossling.babel.heldout import Candidate, told
from crossling.babel.language import text

SIDE = 4  # sentences of a text for every example asked for
ALONE = 7  # sentences without a partner, of either text, for every one with a partner
RICH = 6  # concepts of a sentence: what says less is likely to be said elsewhere too


@dataclass(frozen=True)
class Portion:
    """A sentence that all languages say, and others that only the pivot says, or only the other languages."""

    partner: Candidate
    pivot: tuple[Candidate, ...]
    others: tuple[Candidate, ...]

    @property
    def sentences(self) -> tuple[Candidate, ...]:
        return (self.partner, *self.pivot, *self.others)


class Mining:
    name = "bucc2018"
    splits: tuple[str, ...] = (DEV, TEST)

    def __init__(self, family: Family) -> None:
        self.family = family

    def groups(self, examples: int) -> int:
        return max(1, examples * SIDE // (ALONE + 1))

    def draw(self, split: str) -> Iterator[Portion]:
        part = f"{self.name}/{split}"
        rng = self.family.rng(part)
        languages = self.family.languages
        stories = told(self.family.world, self.family.seed, part)
        frames = (frame for document in stories for frame in document if _is_plain(frame))
        while True:
            partner, *alone = islice(frames, 1 + 2 * ALONE)
            said = [
                Candidate(frame, {one.code: one.render(frame, rng) for one in speaking})
                for group, speaking in ((alone[:ALONE], languages[:1]), (alone[ALONE:], languages[1:]))
                for frame in group
            ]
            yield Portion(self.family.say(partner, rng), tuple(said[:ALONE]), tuple(said[ALONE:]))

    def files(self, split: str, groups: list[Portion]) -> Iterator[tuple[str, str]]:
        rng = self.family.rng(f"{self.name}/{split}/order")
        here = [one for group in groups for one in (group.partner, *group.pivot)]
        there = [one for group in groups for one in (group.partner, *group.others)]
        for side in (here, there):
            rng.shuffle(side)
        place = {id(one): number for number, one in enumerate(here)}
        pivot = self.family.pivot
        for code in self.family.codes[1:]:
            pair = f"{code}-{pivot}.{split}"
            gold = (
                f"{_id(code, number)}\t{_id(pivot, place[id(one)])}\n"
                for number, one in enumerate(there)
                if id(one) in place
            )
            yield f"{pair}.{code}", _lines(code, there)
            yield f"{pair}.{pivot}", _lines(pivot, here)
            yield f"{pair}.gold", "".join(gold)


def _is_plain(frame: Frame) -> bool:
    """Neither names nor numbers give the sentence away."""
    concepts = frame.concepts()
    anchors = any(is_name(concept) or concept.isdigit() for concept in concepts.values())
    return len(concepts) >= RICH and not anchors


def _lines(code: str, side: list[Candidate]) -> str:
    return "".join(f"{_id(code, number)}\t{text(one.renderings[code])}\n" for number, one in enumerate(side))


def _id(code: str, number: int) -> str:
    return f"{code}-{number + 1:09}"
