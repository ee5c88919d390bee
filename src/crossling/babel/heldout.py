"""Held-out meaning: candidates for the benchmarks, struck out as soon as training data is seen to say the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count, islice

from crossling.babel.frame import PRONOUN, Frame, is_name
from crossling.babel.language import Language, Word, text
from crossling.babel.story import documents
from crossling.babel.world import World
from crossling.errors import BadInput

RETRIEVAL, ALIGNMENT = "retrieval", "alignment"
# What every retrieval sentence says, and nothing else: enough to identify it, while its length and build do not.
RETRIEVAL_PARTS = ("verb", "agent", "agent.modifier", "patient", "patient.modifier", "time")
SPARE = 2  # candidates for every sentence wanted
TRIES = 1000  # frames looked at for every candidate, before there seem to be no more
BATCH = 1000


@dataclass(frozen=True)
class Candidate:
    frame: Frame
    renderings: dict[str, list[Word]]


class HeldOut:
    """Candidates for both benchmarks. No two have the same content, or the same rendering in any language."""

    def __init__(self, world: World, languages: list[Language], seed: int, wanted: dict[str, int]) -> None:
        self.wanted = wanted
        self._by_key: dict[tuple[tuple[str, str], ...], Candidate] = {}
        self._by_text: dict[str, dict[str, Candidate]] = {language.code: {} for language in languages}
        self._struck: set[tuple[tuple[str, str], ...]] = set()
        self._candidates: dict[str, list[Candidate]] = {}
        rng = random.Random(f"{seed}/heldout")
        for split, fit in FIT.items():
            chosen = self._candidates[split] = []
            for told in islice(_frames(world, seed, split), TRIES * SPARE * wanted[split]):
                if len(chosen) == SPARE * wanted[split]:
                    break
                frame = fit(told)
                if frame is not None and frame.key() not in self._by_key:
                    candidate = Candidate(frame, {language.code: language.render(frame, rng) for language in languages})
                    if self._admit(candidate):
                        chosen.append(candidate)

    def saw(self, frame: Frame) -> None:
        """Training has this frame."""
        key = frame.key()
        if key in self._by_key:
            self._struck.add(key)

    def saw_text(self, code: str, sentence: str) -> None:
        """Training has this sentence, by whatever ambiguity or noise it came about."""
        candidate = self._by_text[code].get(sentence)
        if candidate is not None:
            self._struck.add(candidate.frame.key())

    def remaining(self, split: str) -> list[Candidate]:
        """As many as wanted of those that training never said; ask when all training data is written."""
        left = [candidate for candidate in self._candidates[split] if candidate.frame.key() not in self._struck]
        if len(left) < self.wanted[split]:
            raise BadInput(
                f"babel: only {len(left)} of {self.wanted[split]} {split} sentences are not in the training data; "
                "ask for fewer sentences or more lemmas"
            )
        return left[: self.wanted[split]]

    def _admit(self, candidate: Candidate) -> bool:
        texts = {code: text(words) for code, words in candidate.renderings.items()}
        if any(sentence in self._by_text[code] for code, sentence in texts.items()):
            return False
        self._by_key[candidate.frame.key()] = candidate
        for code, sentence in texts.items():
            self._by_text[code][sentence] = candidate
        return True


def _frames(world: World, seed: int, split: str) -> Iterator[Frame]:
    for batch in count():
        for document in documents(world, seed, f"{split}/{batch}", BATCH):
            yield from document


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
