"""Bitext mining in the layout of BUCC: which sentences of two texts translate each other? Most have no partner.

The texts have no names or numbers in common. A sentence without a partner has a meaning of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from crossling.synthetic.frames import Frame, is_name
from crossling.synthetic.heldout import Candidate, endless_documents
from crossling.synthetic.language import join_words
from crossling.synthetic.task_data import DEV, TEST, LanguageFamily

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


class MiningTask:
    name = "bucc2018"
    splits: tuple[str, ...] = (DEV, TEST)

    def __init__(self, family: LanguageFamily) -> None:
        self.family = family

    def groups(self, examples: int) -> int:
        return max(1, examples * SENTENCES_PER_EXAMPLE // (UNPAIRED + 1))

    def sample_groups(self, split: str) -> Iterator[MiningGroup]:
        part = f"{self.name}/{split}"
        rng = self.family.rng(part)
        pivot, *others = self.family.languages
        texts = endless_documents(self.family.world, self.family.seed, part)
        frames = (frame for document in texts for frame in document if _has_no_anchors(frame))
        while True:
            partner, *alone = islice(frames, 1 + 2 * UNPAIRED)
            unpaired = [
                Candidate(frame, {one.code: one.render(frame, rng) for one in languages})
                for group, languages in ((alone[:UNPAIRED], [pivot]), (alone[UNPAIRED:], others))
                for frame in group
            ]
            yield MiningGroup(self.family.render(partner, rng), tuple(unpaired[:UNPAIRED]), tuple(unpaired[UNPAIRED:]))

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
    return "".join(f"{_id(code, number)}\t{join_words(one.renderings[code])}\n" for number, one in enumerate(side))


def _id(code: str, number: int) -> str:
    return f"{code}-{number + 1:09}"
