"""Documents: coherent sequences of events with the distributions of natural text."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import log

import numpy as np
import pytest

from crossling.synthetic.documents import documents
from crossling.synthetic.frames import PRONOUN, Frame, is_name
from crossling.synthetic.world import World


@pytest.fixture(scope="module")
def world() -> World:
    return World(400, seed=3)


@pytest.fixture(scope="module")
def sampled(world: World) -> list[list[Frame]]:
    return list(documents(world, 3, "test", 6000))


def test_documents_have_the_requested_number_of_sentences(sampled: list[list[Frame]]) -> None:
    assert sum(len(document) for document in sampled) == 6000
    assert all(4 <= len(document) <= 9 for document in sampled[:-1])


def test_frequencies_follow_zipf(sampled: list[list[Frame]]) -> None:
    uses = Counter(concept for document in sampled for frame in document for concept in frame.concepts().values())
    counts = [count for concept, count in uses.most_common() if "-" in concept][:200]
    slope = np.polyfit(np.log(np.arange(1, 201)), np.log(counts), 1)[0]
    assert -1.3 < slope < -0.6
    assert counts[0] > 20 * counts[199]


def test_verbs_have_the_arguments_of_their_class(world: World, sampled: list[list[Frame]]) -> None:
    for frame in (frame for document in sampled for frame in document):
        verb_class = world.verb_class(frame.verb)
        assert (frame.patient is not None) == bool(verb_class.patients)
        assert (frame.recipient is not None) == bool(verb_class.recipients)
        assert (frame.relation is not None) == (frame.place is not None)
        assert frame.relation is None or frame.relation in verb_class.relations
        if frame.patient:
            assert world.class_of[frame.patient.concept] in verb_class.patients
            assert frame.patient.concept != frame.agent.concept
        if verb_class.complement:
            assert frame.linker == "that"
            assert frame.clause is not None


def test_verb_predicts_its_patient(world: World, sampled: list[list[Frame]]) -> None:
    """The verb predicts the patient better than the class of the verb does: selection is lexical too."""
    pairs = [(frame.verb, frame.patient.concept) for document in sampled for frame in document if frame.patient]
    # Only frequent verbs: the entropy of a rare one is underestimated.
    frequent = {verb for verb, count in Counter(verb for verb, _ in pairs).items() if count > 100}
    pairs = [(verb, noun) for verb, noun in pairs if verb in frequent]
    given_class = _conditional_entropy([(world.class_of[verb], noun) for verb, noun in pairs])
    assert _conditional_entropy(pairs) < given_class - 0.3


def _conditional_entropy(pairs: list[tuple[str, str]]) -> float:
    joint, heads = Counter(pairs), Counter(head for head, _ in pairs)
    return -sum(count * log(count / heads[head], 2) for (head, _), count in joint.items()) / len(pairs)


def test_documents_are_coherent(sampled: list[list[Frame]]) -> None:
    """Agents repeat more often in a document than in a random set of sentences."""

    def repeated(document: list[Frame]) -> int:
        return len(document) - len({frame.agent.concept for frame in document})

    frames = [frame for document in sampled for frame in document]
    shuffled = [frames[start :: len(sampled)][:6] for start in range(len(sampled))]
    in_documents = np.mean([repeated(document) / len(document) for document in sampled])
    at_random = np.mean([repeated(document) / len(document) for document in shuffled])
    assert in_documents > at_random + 0.2


def test_document_has_one_topic(world: World, sampled: list[list[Frame]]) -> None:
    """Verbs of one document share their topic more often than verbs of two documents."""

    def same_topic(pairs: list[tuple[Frame, Frame]]) -> float:
        other = [(a, b) for a, b in pairs if a.verb != b.verb]
        return sum(world._topic[a.verb] == world._topic[b.verb] for a, b in other) / len(other)

    inside = [(d[0], d[-1]) for d in sampled if len(d) > 1]
    across = [(a[0], b[-1]) for a, b in pairwise(sampled)]
    assert same_topic(inside) > 1.3 * same_topic(across)


def test_time_never_decreases_in_a_document(world: World, sampled: list[list[Frame]]) -> None:
    for document in sampled:
        days = [world.calendar[frame.time] for frame in document if frame.time]
        assert days == sorted(days)


def test_pronouns_and_definite_nouns_refer_to_mentioned_entities(sampled: list[list[Frame]]) -> None:
    pronouns = definite = 0
    for document in sampled:
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


def test_every_kind_of_meaning_is_expressed(sampled: list[list[Frame]]) -> None:
    frames = [frame for document in sampled for frame in document]
    concepts = [concept for frame in frames for concept in frame.concepts().values()]
    assert {frame.tense for frame in frames} == {"past", "present", "future"}
    assert {frame.modality for frame in frames} == {None, "can", "must", "want"}
    assert {frame.linker for frame in frames} == {None, "that", "because", "when", "if"}
    assert {frame.negated for frame in frames} == {False, True}
    assert any(concept.isdigit() for concept in concepts)
    assert any(is_name(concept) for concept in concepts)
    assert PRONOUN in concepts
    assert min(len(frame.concepts()) for frame in frames) >= 4
