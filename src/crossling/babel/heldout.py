"""Held-out meaning: candidates for the benchmarks, struck out as soon as training data is seen to say the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

from crossling.babel.frame import PRONOUN, Frame, is_name
from crossling.babel.language import Language, Word, text
from crossling.babel.story import documents
from crossling.babel.world import World
from crossling.errors import BadInput

RETRIEVAL, ALIGNMENT = "retrieval", "alignment"
CONTENT = 6  # concepts in every retrieval sentence: enough to identify it, and no length gives it away
SPARE = 2  # candidates for every sentence wanted
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
        for split, suits in SUITS.items():
            chosen = self._candidates[split] = []
            for frame in _frames(world, seed, split):
                if len(chosen) == SPARE * wanted[split]:
                    break
                if suits(frame) and frame.key() not in self._by_key:
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


def _suits_retrieval(frame: Frame) -> bool:
    """No name, number or pronoun, and no clause: what is said is said by ordinary words, always as many."""
    concepts = frame.concepts()
    return (
        len(concepts) == CONTENT
        and frame.clause is None
        and not any(concept == PRONOUN or concept.isdigit() or is_name(concept) for concept in concepts.values())
    )


def _suits_alignment(frame: Frame) -> bool:
    return len(frame.concepts()) >= 4


SUITS: dict[str, Callable[[Frame], bool]] = {RETRIEVAL: _suits_retrieval, ALIGNMENT: _suits_alignment}
