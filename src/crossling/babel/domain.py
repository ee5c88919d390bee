"""Domains: what is spoken of, and in which manner. One family of languages can write two of them.

The general domain tells stories of people and animals, who have names, come back as pronouns and speak. The science
describes how things act on each other: in the present, with numbers, one event because of another; nobody has a name,
and there are no pronouns and no speech. Its terms, the third of the words that is rarest in stories, are its commonest.

Who acts in the one never acts in the other. So no two sentences of different domains mean the same, and what is held
out of one folder cannot be in the training data of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class VerbClass:
    """What the verbs of a class ask of their participants."""

    agents: tuple[str, ...]
    patients: tuple[str, ...] = ()
    recipients: tuple[str, ...] = ()
    relations: tuple[str, ...] = ("in", "near")
    complement: bool = False


@dataclass(frozen=True)
class Domain:
    name: str
    cast: tuple[str, ...]  # the classes of those who act
    verbs: Mapping[str, VerbClass]
    terms_first: bool  # whether the rarest words of the general domain are the commonest
    tenses: tuple[int, int, int]  # weights of past, present and future documents
    # Probabilities: of the cast to have a name, of documents to play in a town, of those spoken of to come back as
    # pronouns, of things to be counted, of sentences to have a subordinate clause.
    named: float
    towns: float
    pronouns: float
    counted: float
    clauses: float


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
    terms_first=False,
    tenses=(6, 3, 2),
    named=0.3,
    towns=0.25,
    pronouns=0.5,
    counted=0.08,
    clauses=0.2,
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
    terms_first=True,
    tenses=(2, 8, 1),
    named=0.0,
    towns=0.0,
    pronouns=0.0,
    counted=0.2,
    clauses=0.4,
)
DOMAINS = {domain.name: domain for domain in (GENERAL, SCIENCE)}
