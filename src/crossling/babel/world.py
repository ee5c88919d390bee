"""The world: which concepts there are, which go together, and how often they are spoken of.

Concepts belong to semantic classes. Verbs choose the classes of their participants, and verbs and nouns favour
the companions that share their taste, so that a sentence's context tells about a missing word.
Inside a class frequency falls with rank after Zipf; a topic lifts the concepts that belong to it. A domain decides
which concepts rank first and what verbs ask for; the concepts themselves, their topics and tastes are the same in each.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from crossling.babel.domain import ANIMATE, GENERAL, Domain, VerbClass

TOPICS = 8
ON_TOPIC = 5.0
TASTES = 4
SAME_TASTE = 6.0
PERSON_NAMES = 40
PLACE_NAMES = 20

# Semantic class -> its share of the lemmas.
NOUNS = {"person": 0.10, "animal": 0.08, "food": 0.10, "tool": 0.10, "goods": 0.10, "nature": 0.09, "place": 0.10}
MODIFIERS = {"temper": 0.04, "look": 0.05}
ADVERBS = {"manner": 0.02, "time": 0.02}

VERBS = {
    "consume": 0.025,
    "make": 0.025,
    "handle": 0.025,
    "give": 0.020,
    "perceive": 0.025,
    "care": 0.020,
    "move": 0.025,
    "rest": 0.020,
    "say": 0.015,
}
TERMS = 3  # one of so many lemmas in every class, the rarest ones, is a term of the science


@dataclass(frozen=True)
class Choice:
    """Concepts to draw from, with their cumulative weights."""

    concepts: list[str]
    cumulative: list[float]

    @classmethod
    def weighted(cls, concepts: Sequence[str], weights: Sequence[float]) -> Choice:
        return cls(list(concepts), list(accumulate(weights)))

    def draw(self, rng: random.Random) -> str:
        return self.concepts[bisect(self.cumulative, rng.random() * self.cumulative[-1])]


class World:
    """All concepts of one seed, and what may be drawn where in a domain."""

    def __init__(self, lemmas: int, seed: int, domain: Domain = GENERAL) -> None:
        self.domain = domain
        rng = random.Random(f"{seed}/world")
        shares = NOUNS | VERBS | MODIFIERS | ADVERBS
        self.classes = {
            name: [f"{name}-{rank}" for rank in range(1, count + 1)] for name, count in _counts(shares, lemmas).items()
        }
        self.names = {
            "name": [f"name-{rank}" for rank in range(1, PERSON_NAMES + 1)],
            "town": [f"town-{rank}" for rank in range(1, PLACE_NAMES + 1)],
        }
        self.class_of = {concept: name for name, members in (self.classes | self.names).items() for concept in members}
        self.terms = {concept for members in self.classes.values() for concept in members[-(len(members) // TERMS) :]}
        self._weight: dict[str, float] = {}
        self._topic: dict[str, int] = {}
        self._taste: dict[str, int] = {}
        for members in (self.classes | self.names).values():
            ranked = sorted(members, key=lambda concept: concept not in self.terms) if domain.terms_first else members
            self._weight |= {concept: 1 / rank for rank, concept in enumerate(ranked, start=1)}
            for concept in members:
                self._topic[concept] = rng.randrange(TOPICS)
                self._taste[concept] = rng.randrange(TASTES)
        self._choices: dict[tuple[tuple[str, ...], int, int | None], Choice] = {}
        self.calendar = {
            time: day for day, time in enumerate(rng.sample(self.classes["time"], len(self.classes["time"])))
        }

    @property
    def lemmas(self) -> list[str]:
        """Every concept that languages have words of their own for; names are not among them."""
        return [concept for members in self.classes.values() for concept in members]

    def verb(self, topic: int, rng: random.Random) -> str:
        return self._choice(tuple(self.domain.verbs), topic).draw(rng)

    def verb_class(self, verb: str) -> VerbClass:
        return self.domain.verbs[self.class_of[verb]]

    def member(self, classes: tuple[str, ...], topic: int, rng: random.Random) -> str:
        """Any concept of these classes, those of the topic more often."""
        return self._choice(classes, topic).draw(rng)

    def companion(self, head: str, classes: tuple[str, ...], topic: int, rng: random.Random) -> str:
        """A concept of these classes that goes with `head`: a verb's object, a noun's adjective."""
        return self._choice(classes, topic, self._taste[head]).draw(rng)

    def modifier(self, noun: str, rng: random.Random) -> str:
        kind = "temper" if self.class_of[noun] in ANIMATE else "look"
        return self.companion(noun, (kind,), self._topic[noun], rng)

    def _choice(self, classes: tuple[str, ...], topic: int, taste: int | None = None) -> Choice:
        choice = self._choices.get((classes, topic, taste))
        if choice is None:
            known = self.classes | self.names
            concepts = [concept for group in classes for concept in known[group]]
            weights = [
                self._weight[concept]
                * (ON_TOPIC if self._topic[concept] == topic else 1.0)
                * (SAME_TASTE if self._taste[concept] == taste else 1.0)
                for concept in concepts
            ]
            choice = self._choices[classes, topic, taste] = Choice.weighted(concepts, weights)
        return choice


def _counts(shares: dict[str, float], lemmas: int) -> dict[str, int]:
    """Whole numbers in proportion to the shares that add up to `lemmas`."""
    total = sum(shares.values())
    bounds = [round(lemmas * part / total) for part in accumulate(shares.values())]
    return {name: bound - before for name, before, bound in zip(shares, [0, *bounds], bounds, strict=False)}
