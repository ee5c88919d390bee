"""POS and NER data: tags follow from the frames."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.synthetic.documents import documents
from crossling.synthetic.frames import is_name
from crossling.synthetic.grammar import FEATURES
from crossling.synthetic.language import Candidate, LanguageFamily, SyntheticLanguage, create_languages
from crossling.synthetic.tagging_data import TAG_OF_FEATURE, NERTask, POSTask, TaggingTask, insert_names
from crossling.synthetic.world import DOMAINS, World

SEED = 4


@pytest.fixture(scope="module")
def family() -> LanguageFamily:
    world = World(400, SEED)
    return LanguageFamily(world, create_languages(8, world, SEED), SEED)


def sample(task: TaggingTask, split: str, count: int = 300) -> list[Candidate]:
    return list(islice(filter(None, task.sample_groups(split)), count))


def tagged(task: TaggingTask, one: Candidate, language: SyntheticLanguage) -> list[tuple[str, str]]:
    words = one.renderings[language.code]
    return [(word.text, tag) for word, tag in zip(words, task.tags(one.frame, words), strict=True)]


# ---- POS ----------------------------------------------------------------------------------------------------


def test_every_feature_has_a_tag() -> None:
    assert TAG_OF_FEATURE.keys() == {*FEATURES}


def test_words_have_the_tag_of_their_class(family: LanguageFamily) -> None:
    task = POSTask(family)
    world = family.world
    expected = {"person": "NOUN", "place": "NOUN", "say": "VERB", "look": "ADJ", "time": "ADV", "manner": "ADV"}
    expected |= {"name": "PROPN", "town": "PROPN"}
    for language in family.languages:
        forms = defaultdict(set)
        for concept, stems in language.lexicon.stems.items():
            if len(stems) == 1:
                forms[language.inflect(stems[0], ())].add(world.class_of.get(concept, concept))
        tags = Counter()
        for one in sample(task, "test"):
            for word, tag in tagged(task, one, language):
                kinds = forms[word]
                if len(kinds) == 1 and (kind := next(iter(kinds))) in expected:
                    assert tag == expected[kind] or tag in TAG_OF_FEATURE.values()
                    tags[tag] += 1
                assert not word.isdigit() or tag == "NUM"
        assert {"NOUN", "ADV"} <= tags.keys()


def test_languages_have_all_tags_of_their_grammar(family: LanguageFamily) -> None:
    task = POSTask(family)
    tags = {
        language.code: {tag for one in sample(task, "test") for _, tag in tagged(task, one, language)}
        for language in family.languages
    }
    content = {"NOUN", "VERB", "ADJ", "ADV", "NUM", "PROPN", "SCONJ"}
    assert all(content <= found for found in tags.values())
    assert set().union(*tags.values()) == content | {"PRON", "DET", "ADP", "AUX", "PART"}
    for language in family.languages:
        assert ("PRON" in tags[language.code]) != language.grammar.agreement


def test_some_words_have_several_tags(family: LanguageFamily) -> None:
    task = POSTask(family)
    tags = defaultdict(set)
    for one in sample(task, "train", 1000):
        for word, tag in tagged(task, one, family.languages[0]):
            tags[word].add(tag)
    assert any(len(found) > 1 for found in tags.values())


# ---- NER ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["train", "test"])
def test_names_are_tagged_with_valid_spans(family: LanguageFamily, split: str) -> None:
    task = NERTask(family)
    for one in sample(task, split):
        for language in family.languages:
            before = "O"
            tags = [tag for _, tag in tagged(task, one, language)]
            for tag in tags:
                assert not tag.startswith("I-") or before in (f"B-{tag[2:]}", tag)
                before = tag
            concepts = one.frame.concepts()
            names = sum(is_name(concept) for concept in concepts.values())
            inside = Counter(tag[2:] for tag in tags if tag != "O")
            assert inside.total() == names + Counter(tags)["B-ORG"], "an organisation has one name and one noun"
            assert any(tag != "O" for tag in tags)


def test_all_entity_types_occur_and_words_do_not_determine_them(family: LanguageFamily) -> None:
    task = NERTask(family)
    kinds = defaultdict(set)
    uses = Counter()
    for one in sample(task, "train", 600):
        for word, tag in tagged(task, one, family.languages[4]):  # isolating: no cases
            kinds[word].add(tag)
            uses[tag] += 1
    assert uses.keys() == {"O", "B-PER", "I-PER", "B-LOC", "B-ORG", "I-ORG"}
    assert all(uses[tag] > 0.01 * uses.total() for tag in uses)
    names = [found for found in kinds.values() if found != {"O"}]
    assert sum(len(found) > 1 for found in names) > 0.8 * len(names)


def test_some_test_names_are_not_in_training(family: LanguageFamily) -> None:
    task = NERTask(family)
    concepts = {
        split: {c for one in sample(task, split, 1500) for c in one.frame.concepts().values() if is_name(c)}
        for split in ("train", "test")
    }
    unseen = concepts["test"] - concepts["train"]
    assert 0.2 < len(unseen) / len(concepts["test"]) < 0.3


def test_science_has_organisations_and_places() -> None:
    world = World(400, SEED, DOMAINS["science"])
    task = NERTask(LanguageFamily(world, create_languages(2, world, SEED), SEED))
    language = task.family.languages[0]
    uses = Counter(tag for one in sample(task, "test") for _, tag in tagged(task, one, language))
    assert {"B-ORG", "I-ORG", "B-LOC"} <= uses.keys()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["train", "test"]))
def test_inserting_names_changes_nothing_else(seed: int, split: str) -> None:
    world = World(300, seed)
    rng = random.Random(seed)
    for frame in next(documents(world, seed, "any", 20)):
        named = insert_names(frame, world, split, rng)
        for before, after in ((frame, named), (frame.clause, named.clause)):
            if before and after:
                assert (before.verb, before.tense, before.time, before.relation) == (
                    after.verb, after.tense, after.time, after.relation
                )  # fmt: skip
                assert [role for role, _ in before.entities()] == [role for role, _ in after.entities()]
                assert before.agent.pronoun == after.agent.pronoun
