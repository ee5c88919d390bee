"""NLI in the layout of XNLI, and paraphrases in the layout of PAWS-X.

NLI. A premise has an event and its reason; a hypothesis has the event alone. Each affirms or negates the event with
some of its details: place, time, manner, modifier, number. The label follows (`relation`):

- an event with all details entails the event with fewer, and a negated event with few details entails it with more;
- an event with one number contradicts the event with another number;
- nothing follows from one event for another event.

Neither side alone predicts the label. Sentences come in squares: two premises and two hypotheses, where each hypothesis
follows from one premise and contradicts the other. Squares come in pairs that differ in an agent, patient or detail,
and nothing follows from one for the other. In such a group every premise and every hypothesis occurs once with each
label. Neutral pairs have no more unmatched words than entailed ones.

Paraphrase. A sentence has two events. Its paraphrase has another position of the time and perhaps a synonym. Its
opposite has two parts swapped between the events: agents, patients or modifiers. Both have the same words in the same
forms, so that overlap does not help. Every sentence occurs once with each label.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from crossling.synthetic.documents import LINKERS
from crossling.synthetic.frames import Frame, sample_event, swap_role
from crossling.synthetic.task_data import PairTask, PairTaskGroup

ENTAILMENT, NEUTRAL, CONTRADICTION = "entailment", "neutral", "contradiction"
DETAILS = ("place", "time", "manner", "kind")
NUMBERED = 1 / 3  # probability of a group with numbers
MAX_NUMBER = 12


@dataclass(frozen=True)
class Statement:
    """The content of a sentence about the event of its group."""

    details: frozenset[str]
    negated: bool = False
    number: int | None = None
    swapped: bool = False  # another event: agent or patient is swapped with that of the clause


def relation(premise: Statement, hypothesis: Statement) -> str:
    """Return the label. Numbers are exact, and in all statements of a group or in none."""
    if premise.swapped != hypothesis.swapped:
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
    """Two premises and two hypotheses: each hypothesis follows from one premise and contradicts the other."""

    premises: tuple[Statement, ...]
    hypotheses: tuple[Statement, ...]

    def twin(self, first: str, other: str | None) -> Square:
        """Return the square with another agent or patient, or with the detail `other` in place of `first`."""

        def change(one: Statement) -> Statement:
            if other is None:
                return replace(one, swapped=True)
            return replace(one, details=one.details - {first} | {other})

        return Square(tuple(map(change, self.premises)), tuple(map(change, self.hypotheses)))


class NLITask(PairTask):
    name = "xnli"
    examples_per_group = 12

    def sample_groups(self, split: str) -> Iterator[PairTaskGroup | None]:
        world, rng = self.family.world, self.family.rng(f"{self.name}/{split}")
        while True:
            event, reason = sample_event(world, rng), sample_event(world, rng)
            event = replace(event, linker="because", clause=_with_same_details(reason, event))
            numbered = rng.random() < NUMBERED
            # Counted nouns have another form, so patients of numbered groups are not swapped.
            difference = rng.choice(("agent", "detail") if numbered else ("agent", "patient", "detail"))
            other = event if difference == "detail" else swap_role(world, event, difference)
            details = rng.sample(DETAILS, 4)
            square = _number_square(details, rng) if numbered else _negation_square(details, rng)
            twin = square.twin(details[0], details[3] if difference == "detail" else None)
            yield self._render((event, other), (square, twin), (details[0], details[3]), rng) if other else None

    def _render(
        self, events: tuple[Frame, Frame], twins: tuple[Square, Square], ends: tuple[str, str], rng: random.Random
    ) -> PairTaskGroup:
        premises = {
            one: self.family.render(_premise(events[one.swapped], one, ends), rng)
            for square in twins
            for one in square.premises
        }
        hypotheses = {
            one: self.family.render(_hypothesis(events[one.swapped], one), rng)
            for square in twins
            for one in square.hypotheses
        }
        examples = [
            (premises[premise], hypotheses[hypothesis], relation(premise, hypothesis))
            for premise, hypothesis in _pairs(*twins, rng)
        ]
        return PairTaskGroup((*premises.values(), *hypotheses.values()), examples)


def _negation_square(details: list[str], rng: random.Random) -> Square:
    """Return a square whose premises differ in negation, with as many details as the hypotheses or more (or fewer)."""
    middle = frozenset(details[:2])
    most = middle | {details[2]} if rng.random() < 0.5 else middle
    least = frozenset(details[:1]) if rng.random() < 0.5 else middle
    return Square(
        (Statement(most), Statement(least, negated=True)), (Statement(middle), Statement(middle, negated=True))
    )


def _number_square(details: list[str], rng: random.Random) -> Square:
    """Return a square whose premises differ in number; hypotheses affirm or negate these numbers."""
    kept = frozenset(details[:2])
    numbers = rng.sample(range(2, MAX_NUMBER + 1), 2)
    one, other = (Statement(kept, number=number) for number in numbers)
    not_one, not_other = (Statement(kept, negated=True, number=number) for number in numbers)
    return Square((one, other), rng.choice(((one, other), (not_one, not_other), (one, not_one))))


def _pairs(square: Square, twin: Square, rng: random.Random) -> Iterator[tuple[Statement, Statement]]:
    """Yield all pairs inside the squares, and across them each premise with one hypothesis."""
    for one in (square, twin):
        yield from product(one.premises, one.hypotheses)
    for one, other in ((square, twin), (twin, square)):
        yield from zip(one.premises, rng.sample(other.hypotheses, 2), strict=True)


def _hypothesis(event: Frame, statement: Statement) -> Frame:
    """Return the event without its reason and without the modifier of the agent, which is known."""
    frame = _keep_details(replace(event, linker=None, clause=None), statement.details)
    assert frame.patient is not None
    patient = replace(frame.patient, plural=statement.number is not None, count=statement.number)
    return replace(frame, agent=replace(frame.agent, modifier=None), patient=patient, negated=statement.negated)


def _premise(event: Frame, statement: Statement, ends: tuple[str, str]) -> Frame:
    """Return the event with its reason. The reason has the one of the two swapped details that the event lacks."""
    first, last = ends
    assert event.clause is not None
    reason = _keep_details(event.clause, frozenset({last if first in statement.details else first}))
    reason = replace(reason, agent=replace(reason.agent, modifier=None))
    return replace(_hypothesis(event, statement), agent=event.agent, linker=event.linker, clause=reason)


def _with_same_details(reason: Frame, event: Frame) -> Frame:
    """Give the reason the details of the event."""
    assert reason.patient is not None and event.patient is not None  # noqa: PT018
    patient = replace(reason.patient, modifier=event.patient.modifier)
    same = {part: getattr(event, part) for part in ("place", "relation", "time", "manner", "tense")}
    return replace(reason, patient=patient, **same)


def _keep_details(event: Frame, details: frozenset[str]) -> Frame:
    """Return the event with these details only."""
    assert event.patient is not None
    patient = event.patient if "kind" in details else replace(event.patient, modifier=None)
    return replace(event.without(*{"place", "time", "manner"} - details), patient=patient)


DIFFERENT, SAME = "0", "1"
OMISSION = 0.5  # probability that place or manner is omitted


class ParaphraseTask(PairTask):
    """Groups of a sentence and the sentence with two parts swapped, each in two word orders."""

    name = "pawsx"
    examples_per_group = 4

    def sample_groups(self, split: str) -> Iterator[PairTaskGroup | None]:
        world, rng = self.family.world, self.family.rng(f"{self.name}/{split}")
        while True:
            event, clause = sample_event(world, rng), sample_event(world, rng)
            clause = replace(clause.without("place", "time", "manner"), tense=event.tense)
            event = event.without(*[part for part in ("place", "manner") if rng.random() < OMISSION])
            event = replace(event, linker=rng.choice(LINKERS), clause=clause)
            part = rng.choice(("agent", "patient", "kind"))
            swapped = _swap_modifiers(event) if part == "kind" else swap_role(world, event, part)
            yield self._render(event, swapped, rng) if swapped else None

    def _render(self, event: Frame, swapped: Frame, rng: random.Random) -> PairTaskGroup:
        one, one_reordered, other, other_reordered = rendered = tuple(
            self.family.render(frame, rng, reordered) for frame in (event, swapped) for reordered in (False, True)
        )
        examples = [
            (one, one_reordered, SAME),
            (one, other, DIFFERENT),
            (other_reordered, other, SAME),
            (other_reordered, one_reordered, DIFFERENT),
        ]
        return PairTaskGroup(rendered, examples)


def _swap_modifiers(frame: Frame) -> Frame | None:
    """Swap the modifiers of the two agents, or return None if that changes nothing."""
    clause = frame.clause
    assert clause is not None
    here, there = frame.agent, clause.agent
    if here.modifier == there.modifier or here.concept == there.concept:
        return None
    other = replace(clause, agent=replace(there, modifier=here.modifier))
    return replace(frame, agent=replace(here, modifier=there.modifier), clause=other)
