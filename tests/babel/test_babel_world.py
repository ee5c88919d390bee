from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import log

import numpy as np
import pytest

from crossling.babel.frame import PRONOUN, Frame, is_name
from crossling.babel.story import documents
from crossling.babel.world import World


@pytest.fixture(scope="module")
def world() -> World:
    return World(400, seed=3)


@pytest.fixture(scope="module")
def told(world: World) -> list[list[Frame]]:
    return list(documents(world, 3, "test", 6000))


def test_as_many_lemmas_as_asked_for_in_every_class() -> None:
    for lemmas in (300, 401, 3000):
        world = World(lemmas, seed=0)
        assert len(world.lemmas) == len(set(world.lemmas)) == lemmas
        assert all(len(members) >= 4 for members in world.classes.values())


def test_as_many_sentences_as_asked_for_in_documents(told: list[list[Frame]]) -> None:
    assert sum(len(document) for document in told) == 6000
    assert all(4 <= len(document) <= 9 for document in told[:-1])


def test_frequencies_fall_after_zipf(told: list[list[Frame]]) -> None:
    uses = Counter(concept for document in told for frame in document for concept in frame.concepts().values())
    counts = [count for concept, count in uses.most_common() if "-" in concept][:200]
    slope = np.polyfit(np.log(np.arange(1, 201)), np.log(counts), 1)[0]
    assert -1.3 < slope < -0.6
    assert counts[0] > 20 * counts[199]


def test_verbs_get_what_they_ask_for(world: World, told: list[list[Frame]]) -> None:
    for frame in (frame for document in told for frame in document):
        asks = world.verb_class(frame.verb)
        assert (frame.patient is not None) == bool(asks.patients)
        assert (frame.recipient is not None) == bool(asks.recipients)
        assert (frame.relation is not None) == (frame.place is not None)
        assert frame.relation is None or frame.relation in asks.relations
        if frame.patient:
            assert world.class_of[frame.patient.concept] in asks.patients
            assert frame.patient.concept != frame.agent.concept
        if asks.complement:
            assert frame.linker == "that"
            assert frame.clause is not None


def test_context_tells_about_a_word(world: World, told: list[list[Frame]]) -> None:
    """Given the verb, the patient is surer than given the verb's class alone: selection is lexical too."""
    pairs = [(frame.verb, frame.patient.concept) for document in told for frame in document if frame.patient]
    # Only verbs seen often: the entropy of a rare one is small for want of data.
    often = {verb for verb, count in Counter(verb for verb, _ in pairs).items() if count > 100}
    pairs = [(verb, noun) for verb, noun in pairs if verb in often]
    given_class = _conditional_entropy([(world.class_of[verb], noun) for verb, noun in pairs])
    assert _conditional_entropy(pairs) < given_class - 0.3


def _conditional_entropy(pairs: list[tuple[str, str]]) -> float:
    joint, heads = Counter(pairs), Counter(head for head, _ in pairs)
    return -sum(count * log(count / heads[head], 2) for (head, _), count in joint.items()) / len(pairs)


def test_documents_are_coherent(told: list[list[Frame]]) -> None:
    """The agents of a document come back more often than those of sentences that were put together at random."""

    def repeated(document: list[Frame]) -> int:
        return len(document) - len({frame.agent.concept for frame in document})

    frames = [frame for document in told for frame in document]
    shuffled = [frames[start :: len(told)][:6] for start in range(len(told))]
    here = np.mean([repeated(document) / len(document) for document in told])
    there = np.mean([repeated(document) / len(document) for document in shuffled])
    assert here > there + 0.2


def test_a_document_keeps_to_its_topic(world: World, told: list[list[Frame]]) -> None:
    """Events of one document are of one field more often than those of two; verbs, for they do not come back."""

    def alike(pairs: list[tuple[Frame, Frame]]) -> float:
        other = [(a, b) for a, b in pairs if a.verb != b.verb]
        return sum(world._topic[a.verb] == world._topic[b.verb] for a, b in other) / len(other)

    inside = [(d[0], d[-1]) for d in told if len(d) > 1]
    across = [(a[0], b[-1]) for a, b in pairwise(told)]
    assert alike(inside) > 1.3 * alike(across)


def test_time_moves_on(world: World, told: list[list[Frame]]) -> None:
    for document in told:
        days = [world.calendar[frame.time] for frame in document if frame.time]
        assert days == sorted(days)


def test_pronouns_and_definite_nouns_have_been_mentioned(told: list[list[Frame]]) -> None:
    pronouns = definite = 0
    for document in told:
        known: set[str] = set()
        for frame in document:
            for part in (frame, frame.clause):
                for _, entity in part.entities() if part else ():
                    if entity.pronoun:
                        pronouns += 1
                        assert entity.concept in known
                    if entity.definite:
                        definite += 1
                        assert entity.concept in known
                    known.add(entity.concept)
    assert pronouns > 300
    assert definite > 300


def test_every_kind_of_meaning_is_expressed(told: list[list[Frame]]) -> None:
    frames = [frame for document in told for frame in document]
    concepts = [concept for frame in frames for concept in frame.concepts().values()]
    assert {frame.tense for frame in frames} == {"past", "present", "future"}
    assert {frame.modality for frame in frames} == {None, "can", "must", "want"}
    assert {frame.linker for frame in frames} == {None, "that", "because", "when", "if"}
    assert {frame.negated for frame in frames} == {False, True}
    assert any(concept.isdigit() for concept in concepts)
    assert any(is_name(concept) for concept in concepts)
    assert PRONOUN in concepts
    assert min(len(frame.concepts()) for frame in frames) >= 4


def test_key_is_content_without_grammar(told: list[list[Frame]]) -> None:
    frame = told[0][0]
    inflected = replace(frame, tense="future", negated=not frame.negated, agent=replace(frame.agent, plural=True))
    assert inflected.key() == frame.key()
    assert replace(frame, verb="other").key() != frame.key()


def test_frames_survive_json(told: list[list[Frame]]) -> None:
    frames = [frame for document in told[:100] for frame in document]
    assert any(frame.clause for frame in frames)
    assert [Frame.from_json(json.loads(json.dumps(frame.to_json()))) for frame in frames] == frames
