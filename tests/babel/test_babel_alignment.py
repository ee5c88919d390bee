from __future__ import annotations

import random

from crossling.babel.alignment import Link, links
from crossling.babel.language import Word, found_languages
from crossling.babel.story import documents
from crossling.babel.world import World


def test_function_words_are_linked_to_what_carries_their_meaning() -> None:
    """`the dog not sees` against a language that negates by affix and has no article: `sees-not dog`."""
    source = [
        Word("the", "agent", "definite"),
        Word("dog", "agent"),
        Word("not", "verb", "negation"),
        Word("sees", "verb"),
    ]
    target = [Word("seesnot", "verb"), Word("dog", "agent")]
    assert links(source, target) == [Link(0, 1, False), Link(1, 1, True), Link(2, 0, False), Link(3, 0, True)]


def test_equal_function_words_are_possible_links_of_each_other() -> None:
    one = [Word("not", "verb", "negation"), Word("sees", "verb")]
    other = [Word("voit", "verb"), Word("pas", "verb", "negation")]
    assert links(one, other) == [Link(0, 1, False), Link(1, 0, True)]


def test_a_dropped_pronoun_belongs_to_the_verb_of_its_clause() -> None:
    source = [Word("says", "verb"), Word("she", "clause.agent"), Word("sees", "clause.verb")]
    target = [Word("sees", "clause.verb"), Word("says", "verb")]
    assert links(source, target) == [Link(0, 1, True), Link(1, 0, False), Link(2, 0, True)]


def test_alignment_is_symmetric_and_leaves_no_word_alone() -> None:
    world = World(300, seed=1)
    languages = found_languages(8, world, seed=1)
    rng = random.Random(0)
    for document in documents(world, 1, "test", 100):
        for frame in document:
            a, b = (language.render(frame, rng) for language in rng.sample(languages, 2))
            there, back = links(a, b), links(b, a)
            assert sorted(Link(j, i, sure) for i, j, sure in back) == there
            assert {i for i, _, _ in there} == set(range(len(a)))
            assert {j for _, j, _ in there} == set(range(len(b)))
