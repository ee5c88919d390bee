"""The world: its concepts, which of them go together, and how frequent they are.

Concepts belong to semantic classes. Verbs choose the classes of their participants, and verbs and nouns favour
companions of their own kind (`taste`), so that context predicts a missing word.
Inside a class frequency falls with rank after Zipf; a topic raises the frequency of its concepts. A domain sets the
ranks of concepts and the arguments of verbs. The concepts, their topics and tastes are the same in every domain.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class VerbClass:
    """Selectional preferences of the verbs of a class."""

    agents: tuple[str, ...]
    patients: tuple[str, ...] = ()
    recipients: tuple[str, ...] = ()
    relations: tuple[str, ...] = ("in", "near")
    complement: bool = False


@dataclass(frozen=True, kw_only=True)
class Domain:
    name: str
    cast: tuple[str, ...]  # classes of agents
    verbs: Mapping[str, VerbClass]
    tenses: tuple[int, int, int]  # weights of past, present and future documents
    counted: float  # probability that a thing is counted
    clauses: float  # probability of a subordinate clause
    named: float = 0.0  # probability that an agent has a name
    towns: float = 0.0  # probability that a document is set in a town
    pronouns: float = 0.0  # probability that a known agent becomes a pronoun
    terms_first: bool = False  # the rarest words of the general domain are the most frequent


ANIMATE = ("person", "animal")
THINGS = ("tool", "goods", "nature")

GENERAL = Domain(
    name="general",
    cast=ANIMATE,
    verbs={
        "consume": VerbClass(ANIMATE, ("food",)),
        "make": VerbClass(("person",), ("tool", "goods", "food")),
        "handle": VerbClass(("person",), ("tool", "goods", "nature")),
        "give": VerbClass(("person",), ("goods", "food", "tool"), ANIMATE),
        "perceive": VerbClass(ANIMATE, ("person", "animal", "goods", "nature")),
        "care": VerbClass(("person",), ("person", "animal", "nature")),
        "move": VerbClass(ANIMATE, relations=("to", "from")),
        "rest": VerbClass(ANIMATE),
        "say": VerbClass(("person",), complement=True),
    },
    tenses=(6, 3, 2),
    counted=0.08,
    clauses=0.2,
    named=0.3,
    towns=0.25,
    pronouns=0.5,
)
SCIENCE = Domain(
    name="science",
    cast=THINGS,
    verbs={
        "consume": VerbClass(THINGS, ("food", "goods", "nature")),
        "make": VerbClass(THINGS, ("goods", "food", "nature")),
        "handle": VerbClass(THINGS, ("tool", "goods", "nature", "animal")),
        "give": VerbClass(THINGS, ("goods", "food"), ("animal", "tool")),
        "perceive": VerbClass(("tool",), ("animal", "person", "nature")),
        "move": VerbClass(THINGS, relations=("to", "from")),
        "rest": VerbClass(THINGS),
    },
    tenses=(2, 8, 1),
    counted=0.2,
    clauses=0.4,
    terms_first=True,
)
DOMAINS = {domain.name: domain for domain in (GENERAL, SCIENCE)}


TOPICS = 8
ON_TOPIC = 5.0
TASTES = 4
SAME_TASTE = 6.0
NAMES = {"name": 40, "town": 20}  # number of names of people and places

# Semantic class -> its proportion of the lemmas.
NOUNS = {"person": 0.10, "animal": 0.08, "food": 0.10, "tool": 0.10, "goods": 0.10, "nature": 0.09, "place": 0.10}
MODIFIERS = {"temper": 0.04, "look": 0.05}
ADVERBS = {"manner": 0.02, "time": 0.02}

VERBS = {
    "consume": 0.025, "make": 0.025, "handle": 0.025, "give": 0.020, "perceive": 0.025, "care": 0.020, "move": 0.025,
    "rest": 0.020, "say": 0.015,
}  # fmt: skip
TERMS = 3  # one in three lemmas of every class, the rarest ones, is a term of the science domain


class World:
    """All concepts of one seed, with the sampling weights of a domain."""

    def __init__(self, lemmas: int, seed: int, domain: Domain = GENERAL) -> None:
        self.domain = domain
        rng = random.Random(f"{seed}/world")
        self.classes = _concepts(_counts(NOUNS | VERBS | MODIFIERS | ADVERBS, lemmas))
        self.names = _concepts(NAMES)
        self._members = self.classes | self.names
        self.class_of = {concept: name for name, members in self._members.items() for concept in members}
        self.terms = {concept for members in self.classes.values() for concept in members[-(len(members) // TERMS) :]}
        self._weight: dict[str, float] = {}
        self._topic: dict[str, int] = {}
        self._taste: dict[str, int] = {}
        for members in self._members.values():
            ranked = sorted(members, key=lambda concept: concept not in self.terms) if domain.terms_first else members
            self._weight |= {concept: 1 / rank for rank, concept in enumerate(ranked, start=1)}
            for concept in members:
                self._topic[concept] = rng.randrange(TOPICS)
                self._taste[concept] = rng.randrange(TASTES)
        # Concepts and their cumulative weights by classes, topic and taste.
        self._choices: dict[tuple[tuple[str, ...], int, int | None], tuple[list[str], list[float]]] = {}
        times = self.classes["time"]
        self.calendar = {time: day for day, time in enumerate(rng.sample(times, len(times)))}

    @property
    def lemmas(self) -> list[str]:
        """Every concept with a word of its own in each language; names are excluded."""
        return [concept for members in self.classes.values() for concept in members]

    def verb(self, topic: int, rng: random.Random) -> str:
        return self._sample(tuple(self.domain.verbs), topic, None, rng)

    def verb_class(self, verb: str) -> VerbClass:
        return self.domain.verbs[self.class_of[verb]]

    def member(self, classes: tuple[str, ...], topic: int, rng: random.Random) -> str:
        """Sample a concept of these classes, preferring those of the topic."""
        return self._sample(classes, topic, None, rng)

    def companion(self, head: str, classes: tuple[str, ...], topic: int, rng: random.Random) -> str:
        """Sample a concept of these classes that fits `head`: a verb's object, a noun's adjective."""
        return self._sample(classes, topic, self._taste[head], rng)

    def modifier(self, noun: str, rng: random.Random) -> str:
        kind = "temper" if self.class_of[noun] in ANIMATE else "look"
        return self.companion(noun, (kind,), self._topic[noun], rng)

    def _sample(self, classes: tuple[str, ...], topic: int, taste: int | None, rng: random.Random) -> str:
        choice = self._choices.get((classes, topic, taste))
        if choice is None:
            concepts = [concept for name in classes for concept in self._members[name]]
            weights = [
                self._weight[concept]
                * (ON_TOPIC if self._topic[concept] == topic else 1.0)
                * (SAME_TASTE if self._taste[concept] == taste else 1.0)
                for concept in concepts
            ]
            choice = self._choices[classes, topic, taste] = concepts, list(accumulate(weights))
        return rng.choices(choice[0], cum_weights=choice[1])[0]


def _concepts(counts: dict[str, int]) -> dict[str, list[str]]:
    """Return the concepts of each class, the most frequent first."""
    return {name: [f"{name}-{rank}" for rank in range(1, count + 1)] for name, count in counts.items()}


def _counts(proportions: dict[str, float], lemmas: int) -> dict[str, int]:
    """Return integers in these proportions that add up to `lemmas`."""
    total = sum(proportions.values())
    bounds = [round(lemmas * part / total) for part in accumulate(proportions.values())]
    return {name: bound - before for name, before, bound in zip(proportions, [0, *bounds], bounds, strict=False)}
