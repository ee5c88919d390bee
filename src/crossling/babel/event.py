"""Events told in full, for the benchmarks that vary what is said of them: inference and paraphrase."""

from __future__ import annotations

import random
from dataclasses import replace

from crossling.babel.frame import Entity, Frame
from crossling.babel.world import TOPICS, World

TENSES = ("past", "present", "future")


def draw_event(world: World, rng: random.Random) -> Frame:
    """Someone acts on something: with a modifier for each, a place, a time and a manner.

    Nobody has a name or is a pronoun, and who acts is known already.
    """
    topic = rng.randrange(TOPICS)
    verb = world.verb(topic, rng)
    while not world.verb_class(verb).patients or world.verb_class(verb).recipients:
        verb = world.verb(topic, rng)
    asks = world.verb_class(verb)
    agent = patient = world.member(asks.agents, topic, rng)
    while patient == agent:
        patient = world.companion(verb, asks.patients, topic, rng)
    return Frame(
        verb,
        agent=Entity(agent, definite=True, modifier=world.modifier(agent, rng)),
        patient=Entity(patient, modifier=world.modifier(patient, rng)),
        recipient=None,
        place=Entity(world.member(("place",), topic, rng)),
        relation=rng.choice(asks.relations),
        time=world.member(("time",), topic, rng),
        manner=world.companion(verb, ("manner",), topic, rng),
        tense=rng.choice(TENSES),
        negated=False,
        modality=None,
    )


def exchanged(world: World, frame: Frame, role: str) -> Frame | None:
    """The frame with its agent or patient in its subordinate clause and that of the clause in its place, if they fit.

    Only the concepts go: all words are the same and have the same forms in every language, but where they stand.
    """
    clause = frame.clause
    assert clause is not None
    here, there = getattr(frame, role), getattr(clause, role)
    fitting = getattr(world.verb_class(frame.verb), f"{role}s"), getattr(world.verb_class(clause.verb), f"{role}s")
    concepts = [entity.concept for one in (frame, clause) for entity in (one.agent, one.patient) if entity]
    if len(set(concepts)) < len(concepts):  # somebody would act on themselves, or nothing would change
        return None
    if any(world.class_of[one.concept] not in classes for one in (here, there) for classes in fitting):
        return None
    other = replace(clause, **{role: replace(there, concept=here.concept)})
    return replace(frame, **{role: replace(here, concept=there.concept)}, clause=other)
