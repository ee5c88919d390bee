"""Natural language inference, in XNLI's layout: does the hypothesis follow from the premise, or contradict it?

A premise tells of an event because of another one; a hypothesis speaks of the first alone. Either says that the event
took place, or that it did not, with some of its details: where, when, how, to what kind, to how many. What follows is
then known (`relation`):

- who did it with all details did it with fewer, and who did not do it with few did not do it with more;
- who did it to three did it to no other number;
- from one event nothing follows for another, though all that is said of it was said of the other, or in its clause.

Neither side gives the answer away. Sentences come in squares, two premises and two hypotheses of which each follows
from one premise and contradicts the other; and squares come in twins, alike but that the two events exchange those who
act, what they act on, or a detail. Nothing follows from a twin for the other. A group is such a pair of squares: in it
every premise and every hypothesis is met once with each label, so that by itself it tells nothing at all, and what is
neutral has no more words of its own than what follows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from crossling.babel.event import draw_event, exchanged
from crossling.babel.family import SPLITS, Family, pair_files
from crossling.babel.frame import Frame
from crossling.babel.heldout import Candidate

ENTAILMENT, NEUTRAL, CONTRADICTION = "entailment", "neutral", "contradiction"
DETAILS = ("place", "time", "manner", "kind")
NUMBERED = 1 / 3  # of the groups
MOST = 12  # of anything counted


@dataclass(frozen=True)
class Claim:
    """What a sentence says of the event of its group."""

    details: frozenset[str]
    negated: bool = False
    number: int | None = None
    exchanged: bool = False  # it is another event: its agent or patient is that of the clause


def relation(premise: Claim, hypothesis: Claim) -> str:
    """The label; numbers are exact, and told by all claims of a group or by none."""
    if premise.exchanged != hypothesis.exchanged:
        return NEUTRAL
    weaker, stronger = (premise, hypothesis) if premise.negated else (hypothesis, premise)
    if not weaker.details <= stronger.details:
        return NEUTRAL
    agree = premise.negated == hypothesis.negated
    if premise.number != hypothesis.number:
        if premise.negated:
            return NEUTRAL
        agree = not agree
    return ENTAILMENT if agree else CONTRADICTION


@dataclass(frozen=True)
class Square:
    premises: tuple[Claim, Claim]
    hypotheses: tuple[Claim, Claim]

    def twin(self, first: str, other: str | None) -> Square:
        """Of another agent or patient; or with the detail `other` in place of the `first`, which all claims have."""
        claims = (*self.premises, *self.hypotheses)
        if other is None:
            a, b, c, d = (replace(claim, exchanged=True) for claim in claims)
        else:
            a, b, c, d = (replace(claim, details=claim.details - {first} | {other}) for claim in claims)
        return Square((a, b), (c, d))


@dataclass(frozen=True)
class Twins:
    """Two squares as sentences, and their examples: premise, hypothesis, label."""

    sentences: tuple[Candidate, ...]
    examples: list[tuple[Candidate, Candidate, str]]


class Inference:
    name = "xnli"
    splits = SPLITS

    def __init__(self, family: Family) -> None:
        self.family = family

    def groups(self, examples: int) -> int:
        return max(1, examples // 12)

    def draw(self, split: str) -> Iterator[Twins | None]:
        world, rng = self.family.world, self.family.rng(f"{self.name}/{split}")
        while True:
            event, reason = draw_event(world, rng), draw_event(world, rng)
            event = replace(event, linker="because", clause=_alike(reason, event))
            numbered = rng.random() < NUMBERED
            # Nouns that are counted have another form, so those of numbered groups stay where they are.
            difference = rng.choice(("agent", "detail") if numbered else ("agent", "patient", "detail"))
            other = event if difference == "detail" else exchanged(world, event, difference)
            details = rng.sample(DETAILS, 4)
            square = _of_numbers(details, rng) if numbered else _of_negation(details, rng)
            twin = square.twin(details[0], details[3] if difference == "detail" else None)
            yield self._said((event, other), (square, twin), (details[0], details[3]), rng) if other else None

    def files(self, split: str, groups: list[Twins]) -> Iterator[tuple[str, str]]:
        examples = [example for group in groups for example in group.examples]
        return pair_files(self.family, self.name, split, examples)

    def _said(
        self, events: tuple[Frame, Frame], twins: tuple[Square, Square], ends: tuple[str, str], rng: random.Random
    ) -> Twins:
        premises, hypotheses = (
            {
                claim: self.family.say(make(events[claim.exchanged], claim), rng)
                for square in twins
                for claim in getattr(square, side)
            }
            for side, make in (
                ("premises", lambda event, claim: _premise(event, claim, ends)),
                ("hypotheses", _hypothesis),
            )
        )
        examples = [
            (premises[premise], hypotheses[hypothesis], relation(premise, hypothesis))
            for premise, hypothesis in _pairs(*twins, rng)
        ]
        return Twins((*premises.values(), *hypotheses.values()), examples)


def _of_negation(details: list[str], rng: random.Random) -> Square:
    """One premise says no less than the hypotheses, the other denies no more; strictly so, or just as much."""
    middle = frozenset(details[:2])
    most = middle | {details[2]} if rng.random() < 0.5 else middle
    least = frozenset(details[:1]) if rng.random() < 0.5 else middle
    return Square((Claim(most), Claim(least, negated=True)), (Claim(middle), Claim(middle, negated=True)))


def _of_numbers(details: list[str], rng: random.Random) -> Square:
    """Each premise gives a number; the hypotheses give or deny both, or give and deny one of them."""
    kept = frozenset(details[:2])
    one, other = rng.sample(range(2, MOST + 1), 2)
    first, second = rng.choice(
        (
            (Claim(kept, number=one), Claim(kept, number=other)),
            (Claim(kept, True, one), Claim(kept, True, other)),
            (Claim(kept, number=one), Claim(kept, True, one)),
        )
    )
    return Square((Claim(kept, number=one), Claim(kept, number=other)), (first, second))


def _pairs(square: Square, twin: Square, rng: random.Random) -> Iterator[tuple[Claim, Claim]]:
    """All pairs inside the squares, and across them each premise with one hypothesis."""
    for one in (square, twin):
        yield from product(one.premises, one.hypotheses)
    for one, other in ((square, twin), (twin, square)):
        yield from zip(one.premises, rng.sample(other.hypotheses, 2), strict=True)


def _hypothesis(event: Frame, claim: Claim) -> Frame:
    """The event alone. It speaks of one known already, so of which kind that is need not be said."""
    told = _with(replace(event, linker=None, clause=None), claim.details)
    assert told.patient is not None
    patient = replace(told.patient, plural=claim.number is not None, count=claim.number)
    return replace(told, agent=replace(told.agent, modifier=None), patient=patient, negated=claim.negated)


def _premise(event: Frame, claim: Claim, ends: tuple[str, str]) -> Frame:
    """The event and its reason, which has that of the two details twins exchange that the event has not."""
    first, last = ends
    assert event.clause is not None
    reason = _with(event.clause, frozenset({last if first in claim.details else first}))
    told = _hypothesis(event, claim)
    return replace(
        told, agent=event.agent, linker=event.linker, clause=replace(reason, agent=replace(reason.agent, modifier=None))
    )


def _alike(reason: Frame, event: Frame) -> Frame:
    """The reason with the details of the event, so that both can say the same ones."""
    assert reason.patient is not None and event.patient is not None  # noqa: PT018
    patient = replace(reason.patient, modifier=event.patient.modifier)
    same = {part: getattr(event, part) for part in ("place", "relation", "time", "manner", "tense")}
    return replace(reason, patient=patient, **same)


def _with(event: Frame, details: frozenset[str]) -> Frame:
    """The event with these details and no others."""
    assert event.patient is not None
    return replace(
        event,
        place=event.place if "place" in details else None,
        relation=event.relation if "place" in details else None,
        time=event.time if "time" in details else None,
        manner=event.manner if "manner" in details else None,
        patient=event.patient if "kind" in details else replace(event.patient, modifier=None),
    )
