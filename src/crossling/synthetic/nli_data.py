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
from crossling.synthetic.heldout import Candidate
from crossling.synthetic.task_data import SPLITS, LanguageFamily, pair_task_files

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

    premises: tuple[Statement, Statement]
    hypotheses: tuple[Statement, Statement]

    def twin(self, first: str, other: str | None) -> Square:
        """Return the square with another agent or patient, or with the detail `other` in place of `first`."""
        statements = (*self.premises, *self.hypotheses)
        if other is None:
            a, b, c, d = (replace(statement, swapped=True) for statement in statements)
        else:
            a, b, c, d = (replace(statement, details=statement.details - {first} | {other}) for statement in statements)
        return Square((a, b), (c, d))


@dataclass(frozen=True)
class NLIGroup:
    """The sentences of two squares, and their examples: premise, hypothesis, label."""

    sentences: tuple[Candidate, ...]
    examples: list[tuple[Candidate, Candidate, str]]


class NLITask:
    name = "xnli"
    splits = SPLITS

    def __init__(self, family: LanguageFamily) -> None:
        self.family = family

    def groups(self, examples: int) -> int:
        return max(1, examples // 12)

    def sample_groups(self, split: str) -> Iterator[NLIGroup | None]:
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

    def files(self, split: str, groups: list[NLIGroup]) -> Iterator[tuple[str, str]]:
        examples = [example for group in groups for example in group.examples]
        return pair_task_files(self.family, self.name, split, examples)

    def _render(
        self, events: tuple[Frame, Frame], twins: tuple[Square, Square], ends: tuple[str, str], rng: random.Random
    ) -> NLIGroup:
        premises, hypotheses = (
            {
                statement: self.family.render(make(events[statement.swapped], statement), rng)
                for square in twins
                for statement in getattr(square, side)
            }
            for side, make in (
                ("premises", lambda event, statement: _premise(event, statement, ends)),
                ("hypotheses", _hypothesis),
            )
        )
        examples = [
            (premises[premise], hypotheses[hypothesis], relation(premise, hypothesis))
            for premise, hypothesis in _pairs(*twins, rng)
        ]
        return NLIGroup((*premises.values(), *hypotheses.values()), examples)


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
    one, other = rng.sample(range(2, MAX_NUMBER + 1), 2)
    first, second = rng.choice(
        (
            (Statement(kept, number=one), Statement(kept, number=other)),
            (Statement(kept, True, one), Statement(kept, True, other)),
            (Statement(kept, number=one), Statement(kept, True, one)),
        )
    )
    return Square((Statement(kept, number=one), Statement(kept, number=other)), (first, second))


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
    frame = _hypothesis(event, statement)
    return replace(
        frame,
        agent=event.agent,
        linker=event.linker,
        clause=replace(reason, agent=replace(reason.agent, modifier=None)),
    )


def _with_same_details(reason: Frame, event: Frame) -> Frame:
    """Give the reason the details of the event."""
    assert reason.patient is not None and event.patient is not None  # noqa: PT018
    patient = replace(reason.patient, modifier=event.patient.modifier)
    same = {part: getattr(event, part) for part in ("place", "relation", "time", "manner", "tense")}
    return replace(reason, patient=patient, **same)


def _keep_details(event: Frame, details: frozenset[str]) -> Frame:
    """Return the event with these details only."""
    assert event.patient is not None
    return replace(
        event,
        place=event.place if "place" in details else None,
        relation=event.relation if "place" in details else None,
        time=event.time if "time" in details else None,
        manner=event.manner if "manner" in details else None,
        patient=event.patient if "kind" in details else replace(event.patient, modifier=None),
    )


DIFFERENT, SAME = "0", "1"
OMISSION = 0.5  # probability that place or manner is omitted


@dataclass(frozen=True)
class ParaphraseGroup:
    """A sentence and the sentence with two parts swapped, each in two word orders."""

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


class ParaphraseTask:
    name = "pawsx"
    splits = SPLITS

    def __init__(self, family: LanguageFamily) -> None:
        self.family = family

    def groups(self, examples: int) -> int:
        return max(1, examples // 4)

    def sample_groups(self, split: str) -> Iterator[ParaphraseGroup | None]:
        world, rng = self.family.world, self.family.rng(f"{self.name}/{split}")
        while True:
            event, clause = sample_event(world, rng), sample_event(world, rng)
            place, manner = (rng.random() >= OMISSION for _ in range(2))
            one = replace(
                event,
                place=event.place if place else None,
                relation=event.relation if place else None,
                manner=event.manner if manner else None,
                linker=rng.choice(LINKERS),
                clause=replace(clause, place=None, relation=None, time=None, manner=None, tense=event.tense),
            )
            part = rng.choice(("agent", "patient", "kind"))
            other = _swap_modifiers(one) if part == "kind" else swap_role(world, one, part)
            if other is None:
                yield None
            else:
                rendered = (
                    self.family.render(frame, rng, reordered) for frame in (one, other) for reordered in (False, True)
                )
                yield ParaphraseGroup(*rendered)

    def files(self, split: str, groups: list[ParaphraseGroup]) -> Iterator[tuple[str, str]]:
        examples = [example for group in groups for example in group.examples]
        return pair_task_files(self.family, self.name, split, examples)


def _swap_modifiers(frame: Frame) -> Frame | None:
    """Swap the modifiers of the two agents, or return None if that changes nothing."""
    clause = frame.clause
    assert clause is not None
    here, there = frame.agent, clause.agent
    if here.modifier == there.modifier or here.concept == there.concept:
        return None
    other = replace(clause, agent=replace(there, modifier=here.modifier))
    return replace(frame, agent=replace(here, modifier=there.modifier), clause=other)
