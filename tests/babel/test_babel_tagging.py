"""Tags: of parts of speech and of names, as the frames know them."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.babel.domain import DOMAINS
from crossling.babel.family import Family
from crossling.babel.frame import is_name
from crossling.babel.grammar import FEATURES
from crossling.babel.heldout import Candidate
from crossling.babel.language import Language, found_languages
from crossling.babel.story import documents
from crossling.babel.tagging import TAG_OF_FEATURE, Names, PartsOfSpeech, Tagging, with_names
from crossling.babel.world import World

SEED = 4


@pytest.fixture(scope="module")
def family() -> Family:
    world = World(400, SEED)
    return Family(world, found_languages(8, world, SEED), SEED)


def drawn(data_set: Tagging, split: str, many: int = 300) -> list[Candidate]:
    return list(islice(filter(None, data_set.draw(split)), many))


def tagged(data_set: Tagging, one: Candidate, language: Language) -> list[tuple[str, str]]:
    words = one.renderings[language.code]
    return [(word.text, tag) for word, tag in zip(words, data_set.tags(one.frame, words), strict=True)]


# ---- parts of speech ----------------------------------------------------------------------------------------


def test_every_feature_that_a_word_can_say_has_a_tag() -> None:
    assert TAG_OF_FEATURE.keys() == {*FEATURES}


def test_words_have_the_tag_of_what_they_say(family: Family) -> None:
    data_set = PartsOfSpeech(family)
    world = family.world
    expected = {"person": "NOUN", "place": "NOUN", "say": "VERB", "look": "ADJ", "time": "ADV", "manner": "ADV"}
    expected |= {"name": "PROPN", "town": "PROPN"}
    for language in family.languages:
        forms = defaultdict(set)
        for concept, stems in language.lexicon.stems.items():
            if len(stems) == 1:
                forms[language.inflect(stems[0], ())].add(world.class_of.get(concept, concept))
        seen = Counter()
        for one in drawn(data_set, "test"):
            for word, tag in tagged(data_set, one, language):
                kinds = forms[word]
                if len(kinds) == 1 and (kind := next(iter(kinds))) in expected:
                    assert tag == expected[kind] or tag in TAG_OF_FEATURE.values()
                    seen[tag] += 1
                assert not word.isdigit() or tag == "NUM"
        assert {"NOUN", "ADV"} <= seen.keys()


def test_all_that_languages_have_is_tagged(family: Family) -> None:
    data_set = PartsOfSpeech(family)
    tags = {
        language.code: {tag for one in drawn(data_set, "test") for _, tag in tagged(data_set, one, language)}
        for language in family.languages
    }
    content = {"NOUN", "VERB", "ADJ", "ADV", "NUM", "PROPN", "SCONJ"}
    assert all(content <= found for found in tags.values())
    assert set().union(*tags.values()) == content | {"PRON", "DET", "ADP", "AUX", "PART"}
    for language in family.languages:
        assert ("PRON" in tags[language.code]) != language.grammar.agreement


def test_a_word_alone_does_not_always_tell_its_part_of_speech(family: Family) -> None:
    data_set = PartsOfSpeech(family)
    tags = defaultdict(set)
    for one in drawn(data_set, "train", 1000):
        for word, tag in tagged(data_set, one, family.languages[0]):
            tags[word].add(tag)
    assert any(len(found) > 1 for found in tags.values())


# ---- names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["train", "test"])
def test_names_are_tagged_from_their_first_word_to_their_last(family: Family, split: str) -> None:
    data_set = Names(family)
    for one in drawn(data_set, split):
        for language in family.languages:
            before = "O"
            tags = [tag for _, tag in tagged(data_set, one, language)]
            for tag in tags:
                assert not tag.startswith("I-") or before in (f"B-{tag[2:]}", tag)
                before = tag
            concepts = one.frame.concepts()
            names = sum(is_name(concept) for concept in concepts.values())
            inside = Counter(tag[2:] for tag in tags if tag != "O")
            assert inside.total() == names + Counter(tags)["B-ORG"], "an organisation has one name and one noun"
            assert any(tag != "O" for tag in tags)


def test_all_kinds_of_names_are_met_and_their_words_do_not_tell_the_kind(family: Family) -> None:
    data_set = Names(family)
    kinds = defaultdict(set)
    met = Counter()
    for one in drawn(data_set, "train", 600):
        for word, tag in tagged(data_set, one, family.languages[4]):  # isolating: no cases
            kinds[word].add(tag)
            met[tag] += 1
    assert met.keys() == {"O", "B-PER", "I-PER", "B-LOC", "B-ORG", "I-ORG"}
    assert all(met[tag] > 0.01 * met.total() for tag in met)
    names = [found for found in kinds.values() if found != {"O"}]
    assert sum(len(found) > 1 for found in names) > 0.8 * len(names)


def test_some_names_are_in_no_training_sentence(family: Family) -> None:
    data_set = Names(family)
    concepts = {
        split: {c for one in drawn(data_set, split, 1500) for c in one.frame.concepts().values() if is_name(c)}
        for split in ("train", "test")
    }
    unseen = concepts["test"] - concepts["train"]
    assert 0.2 < len(unseen) / len(concepts["test"]) < 0.3


def test_the_science_has_organisations_and_places() -> None:
    world = World(400, SEED, DOMAINS["science"])
    data_set = Names(Family(world, found_languages(2, world, SEED), SEED))
    language = data_set.family.languages[0]
    met = Counter(tag for one in drawn(data_set, "test") for _, tag in tagged(data_set, one, language))
    assert {"B-ORG", "I-ORG", "B-LOC"} <= met.keys()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["train", "test"]))
def test_giving_names_changes_nothing_else(seed: int, split: str) -> None:
    world = World(300, seed)
    rng = random.Random(seed)
    for frame in next(documents(world, seed, "any", 20)):
        named = with_names(frame, world, split, rng)
        for before, after in ((frame, named), (frame.clause, named.clause)):
            if before and after:
                assert (before.verb, before.tense, before.time, before.relation) == (
                    after.verb, after.tense, after.time, after.relation
                )  # fmt: skip
                assert [role for role, _ in before.entities()] == [role for role, _ in after.entities()]
                assert before.agent.pronoun == after.agent.pronoun
