"""Languages: word order, morphology, families and scripts."""

from __future__ import annotations

import random
from collections import Counter
from difflib import SequenceMatcher
from itertools import combinations

import pytest

from crossling.synthetic.documents import documents
from crossling.synthetic.frames import Frame
from crossling.synthetic.grammar import MORPHOLOGIES, TEMPLATES
from crossling.synthetic.language import SyntheticLanguage, create_languages, join_words, language_code
from crossling.synthetic.phonology import SCRIPTS, write
from crossling.synthetic.world import World


@pytest.fixture(scope="module")
def world() -> World:
    return World(300, seed=5)


@pytest.fixture(scope="module")
def languages(world: World) -> list[SyntheticLanguage]:
    return create_languages(12, world, seed=5)


@pytest.fixture(scope="module")
def frames(world: World) -> list[Frame]:
    return [frame for document in documents(world, 5, "test", 1500) for frame in document]


def test_codes_are_in_the_private_range_and_in_order() -> None:
    assert [language_code(number) for number in (0, 1, 25, 26, 39)] == ["qaa", "qab", "qaz", "qba", "qbn"]


def test_first_languages_have_every_typology(languages: list[SyntheticLanguage]) -> None:
    default, eight = languages[:6], languages[:8]
    assert len({language.family for language in default}) >= 3
    assert {language.grammar.order for language in default} == set(TEMPLATES)
    assert {language.grammar.morphology for language in default} == set(MORPHOLOGIES)
    assert {language.script for language in eight} == set(SCRIPTS)
    related = [(a.script == b.script, a.family == b.family) for a, b in combinations(default, 2)]
    assert (True, True) in related, "related languages in one script have visible cognates"
    assert (True, False) in related, "unrelated languages in one script have meaningless overlap"


def test_sentences_have_the_word_order_of_the_grammar(languages: list[SyntheticLanguage], frames: list[Frame]) -> None:
    roles = {"agent": "S", "verb": "V", "patient": "O"}
    rng = random.Random(0)
    for language in languages:
        orders: Counter[str] = Counter()
        for frame in frames[:400]:
            if frame.patient and not frame.agent.pronoun:
                words = language.render(frame, rng)
                orders["".join(roles[w.node] for w in words if w.node in roles and not w.feature)] += 1
        if language.grammar.order == "free":
            assert len(orders) >= 4
        else:
            assert list(orders) == [language.grammar.order]


def test_verb_final_languages_are_head_final(languages: list[SyntheticLanguage], frames: list[Frame]) -> None:
    """Adpositions follow their noun, auxiliaries follow the verb and clauses precede the main one."""
    found: set[str] = set()
    for language in languages:
        is_final = language.grammar.order == "SOV"
        for frame in frames[:300]:
            words = language.render(frame, random.Random(0))
            at = {(word.node, word.feature): position for position, word in enumerate(words)}
            if frame.clause and frame.linker:
                assert (at["clause.verb", ""] < at["clause", frame.linker] < at["verb", ""]) == is_final
                found.add(f"clause {is_final}")
            if frame.relation and ("place", frame.relation) in at:
                assert (at["place", frame.relation] > at["place", ""]) == is_final
                found.add(f"place {is_final}")
            if frame.modality and ("verb", frame.modality) in at:
                assert (at["verb", frame.modality] > at["verb", ""]) == is_final
                found.add(f"modality {is_final}")
    assert len(found) == 6


def test_only_related_languages_have_cognates(world: World, languages: list[SyntheticLanguage]) -> None:
    similar: dict[bool, list[float]] = {True: [], False: []}
    for a, b in combinations(languages[:8], 2):
        stems = [(a.lexicon.stems[concept][0], b.lexicon.stems[concept][0]) for concept in world.lemmas[::4]]
        ratio = sum(SequenceMatcher(None, left, right).ratio() for left, right in stems) / len(stems)
        similar[a.family == b.family].append(ratio)
    assert min(similar[True]) > max(similar[False]) + 0.15
    assert max(similar[False]) < 0.4


def test_related_languages_differ_by_regular_sound_changes(world: World, languages: list[SyntheticLanguage]) -> None:
    """A sound of qaa corresponds to the same sound of qab in most words, and not always to itself."""
    first, second = languages[0], languages[1]
    matches: dict[str, Counter[str]] = {}
    for concept in world.lemmas:
        left, right = first.lexicon.stems[concept][0], second.lexicon.stems[concept][0]
        if len(left) == len(right) and SequenceMatcher(None, left, right).ratio() > 0.5:  # inherited in both
            for a, b in zip(left, right, strict=True):
                matches.setdefault(a, Counter())[b] += 1
    common = {sound: counts for sound, counts in matches.items() if counts.total() >= 10}
    usual = {sound: counts.most_common(1)[0] for sound, counts in common.items()}
    assert sum(times for _, times in usual.values()) / sum(c.total() for c in common.values()) > 0.8
    assert any(sound != answer for sound, (answer, _) in usual.items())


def test_names_are_similar_across_families(world: World, languages: list[SyntheticLanguage]) -> None:
    """Names are adapted to the sounds of a language. Other words are unrelated across families."""
    first, second = languages[0], languages[2]
    assert first.family != second.family
    assert first.script == second.script

    def likeness(concepts: list[str]) -> float:
        pairs = [(first.lexicon.stems[one][0], second.lexicon.stems[one][0]) for one in concepts]
        return sum(SequenceMatcher(None, left, right).ratio() for left, right in pairs) / len(pairs)

    assert likeness(world.names["name"]) > 0.7 > 0.4 > likeness(world.lemmas[:40])


def test_synonyms_and_ambiguous_words_are_few(world: World, languages: list[SyntheticLanguage]) -> None:
    for language in languages:
        stems = [language.lexicon.stems[concept] for concept in world.lemmas]
        assert 0.04 < sum(len(forms) == 2 for forms in stems) / len(stems) < 0.2
        uses = Counter(write(form, language.script) for forms in stems for form in forms)
        assert 1 <= sum(count > 1 for count in uses.values()) <= 0.05 * len(stems)


def test_both_synonyms_are_used(languages: list[SyntheticLanguage], frames: list[Frame]) -> None:
    language, rng = languages[4], random.Random(0)  # isolating: forms are stems
    uses = Counter(word.text for frame in frames for word in language.render(frame, rng))
    concepts = Counter(concept for frame in frames for concept in frame.concepts().values())
    usual, other = next(
        language.lexicon.stems[concept]
        for concept, _ in concepts.most_common()
        if len(language.lexicon.stems.get(concept, ())) == 2
    )
    assert uses[language.inflect(usual, ())] > uses[language.inflect(other, ())] > 0


def test_isolating_languages_do_not_inflect(
    world: World, languages: list[SyntheticLanguage], frames: list[Frame]
) -> None:
    def forms(language: SyntheticLanguage) -> int:
        rng = random.Random(0)
        return len({word.text for frame in frames for word in language.render(frame, rng) if not word.feature})

    by_kind = {language.grammar.morphology: forms(language) for language in languages[:6]}
    assert by_kind["isolating"] < 400
    assert all(count > 1.5 * by_kind["isolating"] for kind, count in by_kind.items() if kind == "agreement")
    isolating = languages[4]
    assert all(len(isolating.inflect(isolating.lexicon.stems[one][0], ())) <= 2 for one in world.lemmas)


def test_agreement_drops_pronouns_and_others_keep_them(languages: list[SyntheticLanguage], frames: list[Frame]) -> None:
    rng = random.Random(0)
    for language in languages:
        for frame in (one for one in frames[:200] if one.agent.pronoun):
            has_agent = any(word.node == "agent" for word in language.render(frame, rng))
            assert has_agent != language.grammar.agreement


def test_every_content_node_is_expressed_once(languages: list[SyntheticLanguage], frames: list[Frame]) -> None:
    rng = random.Random(0)
    for language in languages:
        for frame in frames[:200]:
            nodes = [word.node for word in language.render(frame, rng) if not word.feature]
            dropped = {
                node
                for node, concept in frame.concepts().items()
                if concept == "pronoun" and language.grammar.agreement
            }
            assert sorted(nodes) == sorted(set(frame.concepts()) - dropped)


def test_sentences_have_single_spaces_and_plausible_lengths(
    languages: list[SyntheticLanguage], frames: list[Frame]
) -> None:
    rng = random.Random(0)
    for language in languages:
        sentences = [join_words(language.render(frame, rng)) for frame in frames[:300]]
        assert all(sentence == " ".join(sentence.split()) for sentence in sentences)
        lengths = sorted(len(sentence.split()) for sentence in sentences)
        assert lengths[0] >= 3
        assert lengths[len(lengths) * 98 // 100] <= 18
