from __future__ import annotations

import random
from collections import Counter
from difflib import SequenceMatcher
from itertools import combinations

import pytest

from crossling.babel.frame import Frame
from crossling.babel.grammar import MORPHOLOGIES, TEMPLATES
from crossling.babel.language import Language, code_of, found_languages, text
from crossling.babel.script import SCRIPTS, write
from crossling.babel.story import documents
from crossling.babel.world import World


@pytest.fixture(scope="module")
def world() -> World:
    return World(300, seed=5)


@pytest.fixture(scope="module")
def languages(world: World) -> list[Language]:
    return found_languages(12, world, seed=5)


@pytest.fixture(scope="module")
def frames(world: World) -> list[Frame]:
    return [frame for document in documents(world, 5, "test", 1500) for frame in document]


def test_codes_are_private_and_in_order() -> None:
    assert [code_of(number) for number in (0, 1, 25, 26, 39)] == ["qaa", "qab", "qaz", "qba", "qbn"]


def test_the_first_languages_show_what_there_is(languages: list[Language]) -> None:
    default, eight = languages[:6], languages[:8]
    assert len({one.family for one in default}) >= 3
    assert {one.grammar.order for one in default} == set(TEMPLATES)
    assert {one.grammar.morphology for one in default} == set(MORPHOLOGIES)
    assert {one.script for one in eight} == set(SCRIPTS)
    related = [(a.script == b.script, a.family == b.family) for a, b in combinations(default, 2)]
    assert (True, True) in related, "cousins in one script: cognates to be seen"
    assert (True, False) in related, "strangers in one script: overlap that means nothing"


def test_word_orders(languages: list[Language], frames: list[Frame]) -> None:
    roles = {"agent": "S", "verb": "V", "patient": "O"}
    rng = random.Random(0)
    for language in languages:
        orders: Counter[str] = Counter()
        for frame in frames[:400]:
            if frame.patient and not frame.agent.pronoun:
                said = language.render(frame, rng)
                orders["".join(roles[w.node] for w in said if w.node in roles and not w.feature)] += 1
        if language.grammar.order == "free":
            assert len(orders) >= 4
        else:
            assert list(orders) == [language.grammar.order]


def test_verb_final_languages_are_head_final(languages: list[Language], frames: list[Frame]) -> None:
    """With the verb come adpositions after their noun, auxiliaries after the verb and clauses before the main one."""
    seen: set[str] = set()
    for language in languages:
        last = language.grammar.order == "SOV"
        for frame in frames[:300]:
            words = language.render(frame, random.Random(0))
            at = {(word.node, word.feature): place for place, word in enumerate(words)}
            if frame.clause and frame.linker:
                assert (at["clause.verb", ""] < at["clause", frame.linker] < at["verb", ""]) == last
                seen.add(f"clause {last}")
            if frame.relation and ("place", frame.relation) in at:
                assert (at["place", frame.relation] > at["place", ""]) == last
                seen.add(f"place {last}")
            if frame.modality and ("verb", frame.modality) in at:
                assert (at["verb", frame.modality] > at["verb", ""]) == last
                seen.add(f"modality {last}")
    assert len(seen) == 6


def test_cognates_inside_families_and_none_across(world: World, languages: list[Language]) -> None:
    similar: dict[bool, list[float]] = {True: [], False: []}
    for a, b in combinations(languages[:8], 2):
        stems = [(a.lexicon.stems[concept][0], b.lexicon.stems[concept][0]) for concept in world.lemmas[::4]]
        ratio = sum(SequenceMatcher(None, left, right).ratio() for left, right in stems) / len(stems)
        similar[a.family == b.family].append(ratio)
    assert min(similar[True]) > max(similar[False]) + 0.15
    assert max(similar[False]) < 0.4


def test_cousins_differ_by_regular_sound_laws(world: World, languages: list[Language]) -> None:
    """Where one sound of qaa answers to another in qab, it does so in word after word; and some do."""
    here, there = languages[0], languages[1]
    answers: dict[str, Counter[str]] = {}
    for concept in world.lemmas:
        left, right = here.lexicon.stems[concept][0], there.lexicon.stems[concept][0]
        if len(left) == len(right) and SequenceMatcher(None, left, right).ratio() > 0.5:  # inherited in both
            for a, b in zip(left, right, strict=True):
                answers.setdefault(a, Counter())[b] += 1
    common = {sound: counts for sound, counts in answers.items() if counts.total() >= 10}
    usual = {sound: counts.most_common(1)[0] for sound, counts in common.items()}
    assert sum(times for _, times in usual.values()) / sum(c.total() for c in common.values()) > 0.8
    assert any(sound != answer for sound, (answer, _) in usual.items())


def test_names_cross_families(world: World, languages: list[Language]) -> None:
    """The same names in the same script, up to adaptation; ordinary words have nothing to do with each other."""
    here, there = languages[0], languages[2]
    assert here.family != there.family
    assert here.script == there.script

    def likeness(concepts: list[str]) -> float:
        pairs = [(here.lexicon.stems[one][0], there.lexicon.stems[one][0]) for one in concepts]
        return sum(SequenceMatcher(None, left, right).ratio() for left, right in pairs) / len(pairs)

    assert likeness(world.names["name"]) > 0.7 > 0.4 > likeness(world.lemmas[:40])


def test_synonyms_and_ambiguity_are_there_but_few(world: World, languages: list[Language]) -> None:
    for language in languages:
        stems = [language.lexicon.stems[concept] for concept in world.lemmas]
        assert 0.04 < sum(len(forms) == 2 for forms in stems) / len(stems) < 0.2
        uses = Counter(write(form, language.script) for forms in stems for form in forms)
        assert 1 <= sum(count > 1 for count in uses.values()) <= 0.05 * len(stems)


def test_both_synonyms_are_said(languages: list[Language], frames: list[Frame]) -> None:
    language, rng = languages[4], random.Random(0)  # isolating: forms are stems
    said = Counter(word.text for frame in frames for word in language.render(frame, rng))
    concepts = Counter(concept for frame in frames for concept in frame.concepts().values())
    usual, other = next(
        language.lexicon.stems[concept]
        for concept, _ in concepts.most_common()
        if len(language.lexicon.stems.get(concept, ())) == 2
    )
    assert said[language.inflect(usual, ())] > said[language.inflect(other, ())] > 0


def test_isolating_languages_do_not_inflect(world: World, languages: list[Language], frames: list[Frame]) -> None:
    def forms(language: Language) -> int:
        rng = random.Random(0)
        return len({word.text for frame in frames for word in language.render(frame, rng) if not word.feature})

    by_kind = {language.grammar.morphology: forms(language) for language in languages[:6]}
    assert by_kind["isolating"] < 400
    assert all(count > 1.5 * by_kind["isolating"] for kind, count in by_kind.items() if kind == "agreement")
    isolating = languages[4]
    assert all(len(isolating.inflect(isolating.lexicon.stems[one][0], ())) <= 2 for one in world.lemmas)


def test_agreement_drops_pronouns_and_others_keep_them(languages: list[Language], frames: list[Frame]) -> None:
    rng = random.Random(0)
    for language in languages:
        for frame in (one for one in frames[:200] if one.agent.pronoun):
            said = any(word.node == "agent" for word in language.render(frame, rng))
            assert said != language.grammar.agreement


def test_every_content_node_is_said_once(languages: list[Language], frames: list[Frame]) -> None:
    rng = random.Random(0)
    for language in languages:
        for frame in frames[:200]:
            said = [word.node for word in language.render(frame, rng) if not word.feature]
            dropped = {
                node
                for node, concept in frame.concepts().items()
                if concept == "pronoun" and language.grammar.agreement
            }
            assert sorted(said) == sorted(set(frame.concepts()) - dropped)


def test_sentences_differ_in_what_they_mean_and_not_in_spaces(languages: list[Language], frames: list[Frame]) -> None:
    rng = random.Random(0)
    for language in languages:
        sentences = [text(language.render(frame, rng)) for frame in frames[:300]]
        assert all(sentence == " ".join(sentence.split()) for sentence in sentences)
        lengths = sorted(len(sentence.split()) for sentence in sentences)
        assert lengths[0] >= 3
        assert lengths[len(lengths) * 98 // 100] <= 18
