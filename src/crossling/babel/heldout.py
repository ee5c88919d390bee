"""Held-out meaning: candidates for the benchmarks, struck out as soon as training data is seen to say the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from math import ceil
from typing import Generic, Protocol, TypeVar

from crossling.babel.frame import PRONOUN, Frame, is_name
from crossling.babel.language import Language, Word, text
from crossling.babel.story import documents
from crossling.babel.world import World
from crossling.errors import BadInput

RETRIEVAL, ALIGNMENT = "retrieval", "alignment"
# What every retrieval sentence says, and nothing else: enough to identify it, while its length and build do not.
RETRIEVAL_PARTS = ("verb", "agent", "agent.modifier", "patient", "patient.modifier", "time")
SPARE = 2  # candidates for every one wanted
TRIES = 1000  # draws for every candidate, before there seem to be no more
BATCH = 1000


@dataclass(frozen=True)
class Candidate:
    """A sentence that may be held out, as languages say it."""

    frame: Frame
    renderings: dict[str, list[Word]]

    @property
    def sentences(self) -> tuple[Candidate]:
        """A group of its own."""
        return (self,)


class Group(Protocol):
    """Sentences that are of use only together, such as a premise and its hypotheses."""

    @property
    def sentences(self) -> Sequence[Candidate]: ...


G = TypeVar("G", bound=Group)


class HeldOut:
    """Knows every candidate, and which of them training data has said.

    No two groups share the content of a sentence, or its rendering in any language; nor do two sentences of one group
    read alike.
    """

    def __init__(self, codes: Sequence[str]) -> None:
        self._by_key: dict[tuple[tuple[str, str], ...], int] = {}
        self._by_text: dict[str, dict[str, int]] = {code: {} for code in codes}
        self._struck: set[int] = set()
        self._groups = 0

    def gather(self, part: str, wanted: int, drawn: Iterator[G | None], spare: float = SPARE) -> Pool[G]:
        """Candidates for a part of the benchmarks, some more than wanted; None among those drawn fits nowhere."""
        many = ceil(spare * wanted)
        admitted: list[tuple[int, G]] = []
        for group in islice(drawn, TRIES * many):
            if group is not None and self._admit(group):
                admitted.append((self._groups, group))
            if len(admitted) == many:
                break
        return Pool(part, wanted, admitted, self._struck)

    def knows(self, frame: Frame) -> bool:
        """Whether a candidate has this content."""
        return frame.key() in self._by_key

    def saw(self, frame: Frame) -> None:
        """Training has this frame."""
        group = self._by_key.get(frame.key())
        if group is not None:
            self._struck.add(group)

    def saw_text(self, code: str, sentence: str) -> None:
        """Training has this sentence, by whatever ambiguity or noise it came about."""
        group = self._by_text[code].get(sentence)
        if group is not None:
            self._struck.add(group)

    def _admit(self, group: Group) -> bool:
        texts = [(code, text(words)) for one in group.sentences for code, words in one.renderings.items()]
        keys = {one.frame.key() for one in group.sentences}
        if len(set(texts)) < len(texts) or any(sentence in self._by_text[code] for code, sentence in texts):
            return False
        if any(key in self._by_key for key in keys):
            return False
        self._groups += 1
        self._by_key |= dict.fromkeys(keys, self._groups)
        for code, sentence in texts:
            self._by_text[code][sentence] = self._groups
        return True


@dataclass(frozen=True)
class Pool(Generic[G]):
    """The candidates for one part of the benchmarks, by their numbers."""

    part: str
    wanted: int
    candidates: list[tuple[int, G]]
    struck: set[int]

    def remaining(self) -> list[G]:
        """As many as wanted of those that training never said; ask when all training data is written."""
        left = [group for number, group in self.candidates if number not in self.struck]
        if len(left) < self.wanted:
            raise BadInput(
                f"babel: only {len(left)} of {self.wanted} candidates for {self.part} are not in the training data; "
                "ask for fewer sentences or examples, or more lemmas"
            )
        return left[: self.wanted]


def told(world: World, seed: int, part: str) -> Iterator[list[Frame]]:
    """Stories without end, for one named part of the benchmarks."""
    for batch in count():
        yield from documents(world, seed, f"{part}/{batch}", BATCH)


class Sentences:
    """Single sentences of stories, for retrieval and for word alignment."""

    def __init__(self, world: World, languages: list[Language], seed: int, heldout: HeldOut) -> None:
        self.world, self.languages, self.seed, self.heldout = world, languages, seed, heldout
        self._rng = random.Random(f"{seed}/heldout")

    def gather(self, part: str, wanted: int) -> Pool[Candidate]:
        return self.heldout.gather(part, wanted, self._drawn(part))

    def _drawn(self, part: str) -> Iterator[Candidate | None]:
        for document in told(self.world, self.seed, part):
            for told_frame in document:
                frame = FIT[part](told_frame)
                if frame is None or self.heldout.knows(frame):
                    yield None
                else:
                    yield Candidate(frame, {one.code: one.render(frame, self._rng) for one in self.languages})


def _for_retrieval(frame: Frame) -> Frame | None:
    """The frame in plain grammar, if it has just the parts wanted and all of them said by ordinary words.

    Were tense, number, negation or modality to differ, function words and affixes would tell the sentences apart, and
    a model could find translations without knowing what a single word means.
    """
    concepts = frame.concepts()
    if tuple(concepts) != RETRIEVAL_PARTS or frame.patient is None:
        return None
    if any(concept == PRONOUN or is_name(concept) for concept in concepts.values()):
        return None
    agent, patient = (replace(entity, plural=False, definite=False) for entity in (frame.agent, frame.patient))
    return replace(frame, agent=agent, patient=patient, tense="past", negated=False, modality=None)


def _for_alignment(frame: Frame) -> Frame | None:
    return frame if len(frame.concepts()) >= 4 else None


FIT: dict[str, Callable[[Frame], Frame | None]] = {RETRIEVAL: _for_retrieval, ALIGNMENT: _for_alignment}
