"""Paraphrases, in PAWS-X's layout: do two sentences of nearly the same words say the same?

A sentence tells of two events. Its paraphrase has the time elsewhere and perhaps a synonym; its opposite has two parts
exchanged between the events: those who act, what they act on, or of which kind they are. Both have the same words in
the same forms, in every language, so that overlap tells nothing. Every sentence is met once with each label.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from crossling.babel.event import draw_event, exchanged
from crossling.babel.family import SPLITS, Family, pair_files
from crossling.babel.frame import Frame
from crossling.babel.heldout import Candidate
from crossling.babel.story import LINKERS

DIFFERENT, SAME = "0", "1"
LEFT_OUT = 0.5  # how often a place or manner is


@dataclass(frozen=True)
class Exchange:
    """A sentence and what it says with two parts exchanged, each in two orders of words."""

    one: Candidate
    one_reordered: Candidate
    other: Candidate
    other_reordered: Candidate

    @property
    def sentences(self) -> tuple[Candidate, ...]:
        return (self.one, self.one_reordered, self.other, self.other_reordered)

    @property
    def examples(self) -> list[tuple[Candidate, Candidate, str]]:
        return [
            (self.one, self.one_reordered, SAME),
            (self.one, self.other, DIFFERENT),
            (self.other_reordered, self.other, SAME),
            (self.other_reordered, self.one_reordered, DIFFERENT),
        ]


class Paraphrase:
    name = "pawsx"
    splits = SPLITS

    def __init__(self, family: Family) -> None:
        self.family = family

    def groups(self, examples: int) -> int:
        return max(1, examples // 4)

    def draw(self, split: str) -> Iterator[Exchange | None]:
        world, rng = self.family.world, self.family.rng(f"{self.name}/{split}")
        while True:
            event, clause = draw_event(world, rng), draw_event(world, rng)
            place, manner = (rng.random() >= LEFT_OUT for _ in range(2))
            one = replace(
                event,
                place=event.place if place else None,
                relation=event.relation if place else None,
                manner=event.manner if manner else None,
                linker=rng.choice(LINKERS),
                clause=replace(clause, place=None, relation=None, time=None, manner=None, tense=event.tense),
            )
            part = rng.choice(("agent", "patient", "kind"))
            other = _kinds_exchanged(one) if part == "kind" else exchanged(world, one, part)
            if other is None:
                yield None
            else:
                said = (self.family.say(frame, rng, moved) for frame in (one, other) for moved in (False, True))
                yield Exchange(*said)

    def files(self, split: str, groups: list[Exchange]) -> Iterator[tuple[str, str]]:
        examples = [example for group in groups for example in group.examples]
        return pair_files(self.family, self.name, split, examples)


def _kinds_exchanged(frame: Frame) -> Frame | None:
    """Each of those who act is of the kind that the other one was; None if that is no difference."""
    clause = frame.clause
    assert clause is not None
    here, there = frame.agent, clause.agent
    if here.modifier == there.modifier or here.concept == there.concept:
        return None
    other = replace(clause, agent=replace(there, modifier=here.modifier))
    return replace(frame, agent=replace(here, modifier=there.modifier), clause=other)
