"""Frames: the meaning of a sentence, before any language expresses it."""

from __future__ import annotations

import random
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any

from crossling.synthetic.world import TOPICS, World

TENSES = ("past", "present", "future")


def sample_event(world: World, rng: random.Random) -> Frame:
    """Sample an event with agent, patient, a modifier for each, place, time and manner.

    It has no names and no pronouns, and its agent is definite. NLI and paraphrase data vary such events.
    """
    topic = rng.randrange(TOPICS)
    verb = world.verb(topic, rng)
    while not world.verb_class(verb).patients or world.verb_class(verb).recipients:
        verb = world.verb(topic, rng)
    verb_class = world.verb_class(verb)
    agent = patient = world.member(verb_class.agents, topic, rng)
    while patient == agent:
        patient = world.companion(verb, verb_class.patients, topic, rng)
    return Frame(
        verb,
        agent=Entity(agent, definite=True, modifier=world.modifier(agent, rng)),
        patient=Entity(patient, modifier=world.modifier(patient, rng)),
        place=Entity(world.member(("place",), topic, rng)),
        relation=rng.choice(verb_class.relations),
        time=world.member(("time",), topic, rng),
        manner=world.companion(verb, ("manner",), topic, rng),
        tense=rng.choice(TENSES),
    )


def swap_role(world: World, frame: Frame, role: str) -> Frame | None:
    """Swap the agent or patient of main and subordinate clause, or return None if one does not fit.

    Only the concepts are swapped: the words and their forms stay the same in every language, their positions do not.
    """
    clause = frame.clause
    assert clause is not None
    here, there = getattr(frame, role), getattr(clause, role)
    fitting = getattr(world.verb_class(frame.verb), f"{role}s"), getattr(world.verb_class(clause.verb), f"{role}s")
    concepts = [entity.concept for one in (frame, clause) for entity in (one.agent, one.patient) if entity]
    if len(set(concepts)) < len(concepts):  # an agent would act on itself, or nothing would change
        return None
    if any(world.class_of[one.concept] not in classes for one in (here, there) for classes in fitting):
        return None
    other = replace(clause, **{role: replace(there, concept=here.concept)})
    return replace(frame, **{role: replace(here, concept=there.concept)}, clause=other)


PRONOUN = "pronoun"
# Placeholders of the questioned part, and the function words that express them. As in many languages these are
# conjunctions, so that questions need no words that are missing from the corpora.
WHAT, WHEN = "what", "when"
QUESTION_WORDS = {WHAT: "that", WHEN: "when"}


def is_name(concept: str) -> bool:
    """Return whether a concept is the name of a person or town, which all languages have in common."""
    return concept.startswith(("name-", "town-"))


@dataclass(frozen=True, slots=True)
class Entity:
    """A participant of an event."""

    concept: str
    _: KW_ONLY
    plural: bool = False
    definite: bool = False
    modifier: str | None = None
    count: int | None = None
    pronoun: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """One event: who did what to whom, where, when and how, with tense, polarity and modality.

    A subordinate clause is a frame of its own, joined by a linker (because, when, if, that).
    """

    verb: str
    agent: Entity
    _: KW_ONLY
    patient: Entity | None = None
    recipient: Entity | None = None
    place: Entity | None = None
    relation: str | None = None
    time: str | None = None
    manner: str | None = None
    tense: str = "present"
    negated: bool = False
    modality: str | None = None
    linker: str | None = None
    clause: Frame | None = None

    def concepts(self, path: str = "") -> dict[str, str]:
        """Return concepts by node, the path to a part of the frame: `verb`, `agent.modifier`, `clause.patient`."""
        found = {path + "verb": self.verb}
        for role, entity in self.entities():
            node = path + role
            found[node] = PRONOUN if entity.pronoun else entity.concept
            if entity.modifier:
                found[node + ".modifier"] = entity.modifier
            if entity.count:
                found[node + ".count"] = str(entity.count)
        if self.time:
            found[path + "time"] = self.time
        if self.manner:
            found[path + "manner"] = self.manner
        if self.clause:
            found |= self.clause.concepts(path + "clause.")
        return found

    def entities(self) -> list[tuple[str, Entity]]:
        """Return the participants by role, without those of the subordinate clause."""
        roles = (("agent", self.agent), ("patient", self.patient), ("recipient", self.recipient), ("place", self.place))
        return [(role, entity) for role, entity in roles if entity is not None]

    def key(self) -> tuple[tuple[str, str], ...]:
        """Return a key that ignores tense, number, polarity and modality.

        Held-out sentences are excluded from training text by this key. So no training sentence differs from a test
        sentence in grammar alone.
        """
        return tuple(self.concepts().items())

    def without(self, *parts: str) -> Frame:
        """Return the frame without these optional parts. The relation goes with the place."""
        dropped: dict[str, Any] = dict.fromkeys([*parts, "relation"] if "place" in parts else parts)
        return replace(self, **dropped)

    def to_json(self) -> dict[str, Any]:
        """Return the same as `asdict` in a tenth of the time."""
        found = {name: getattr(self, name) for name in _FIELDS[Frame]}
        for role, entity in self.entities():
            found[role] = {name: getattr(entity, name) for name in _FIELDS[Entity]}
        return found | {"clause": self.clause and self.clause.to_json()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Frame:
        parts = dict(value)
        for role in ("agent", "patient", "recipient", "place"):
            parts[role] = Entity(**value[role]) if value[role] else None
        parts["clause"] = cls.from_json(value["clause"]) if value["clause"] else None
        return cls(**parts)


_FIELDS = {kind: [field.name for field in fields(kind)] for kind in (Frame, Entity)}
