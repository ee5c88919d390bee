from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from crossling.babel import heldout as heldout_module
from crossling.babel.frame import Frame
from crossling.babel.heldout import ALIGNMENT, RETRIEVAL, HeldOut
from crossling.babel.language import found_languages, text
from crossling.babel.story import documents
from crossling.babel.world import World
from crossling.errors import BadInput


@pytest.fixture
def heldout() -> HeldOut:
    world = World(300, seed=2)
    return HeldOut(world, found_languages(3, world, seed=2), 2, {RETRIEVAL: 20, ALIGNMENT: 10})


def test_candidates_are_as_many_as_wanted_and_all_different(heldout: HeldOut) -> None:
    kept = heldout.remaining(RETRIEVAL) + heldout.remaining(ALIGNMENT)
    assert len(kept) == 30
    assert len({one.frame.key() for one in kept}) == 30
    for code in ("qaa", "qab", "qac"):
        assert len({text(one.renderings[code]) for one in kept}) == 30


def test_different_meanings_that_read_alike_are_not_both_held_out() -> None:
    """In a language of a single word only the grammar tells sentences apart; those for retrieval have all the same."""
    world = World(300, seed=2)
    language, other = found_languages(2, world, seed=2)
    one_word = replace(language.lexicon, stems=dict.fromkeys(language.lexicon.stems, ("ta",)))
    heldout = HeldOut(world, [replace(language, lexicon=one_word), other], 2, {RETRIEVAL: 1, ALIGNMENT: 20})
    kept = heldout.remaining(RETRIEVAL) + heldout.remaining(ALIGNMENT)
    assert len({text(one.renderings["qaa"]) for one in kept}) == 21


def test_the_search_for_meanings_ends_where_there_are_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heldout_module, "TRIES", 5)
    world = World(300, seed=2)
    heldout = HeldOut(world, found_languages(2, world, seed=2), 2, {RETRIEVAL: 20, ALIGNMENT: 10})
    with pytest.raises(BadInput, match="of 20 retrieval sentences"):
        heldout.remaining(RETRIEVAL)


def test_retrieval_sentences_differ_in_the_meaning_of_words_alone(heldout: HeldOut) -> None:
    kept = heldout.remaining(RETRIEVAL)
    assert {tuple(one.frame.concepts()) for one in kept} == {heldout_module.RETRIEVAL_PARTS}
    grammar = {
        (f.tense, f.negated, f.modality, f.relation, *((e.plural, e.definite, e.count) for _, e in f.entities()))
        for f in (one.frame for one in kept)
    }
    assert len(grammar) == 1
    for code in ("qaa", "qab", "qac"):
        said = {tuple(word.feature for word in one.renderings[code]) for one in kept}
        assert len({tuple(sorted(filter(None, features))) for features in said}) == 1


def test_one_meaning_in_two_grammars_is_held_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(world: World, seed: int, split: str) -> Iterator[Frame]:
        for document in documents(world, seed, split, 2000):
            for frame in document:
                yield from (frame, replace(frame, negated=not frame.negated))

    monkeypatch.setattr(heldout_module, "_frames", twice)
    world = World(300, seed=2)
    heldout = HeldOut(world, found_languages(2, world, seed=2), 2, {RETRIEVAL: 10, ALIGNMENT: 10})
    kept = heldout.remaining(RETRIEVAL) + heldout.remaining(ALIGNMENT)
    assert len({one.frame.key() for one in kept}) == 20


def test_what_training_means_is_dropped_whatever_its_grammar(heldout: HeldOut) -> None:
    first, second, *_ = heldout.remaining(RETRIEVAL)
    heldout.saw(replace(first.frame, negated=not first.frame.negated, modality="must"))
    assert heldout.remaining(RETRIEVAL)[0] is second
    assert len(heldout.remaining(RETRIEVAL)) == 20


def test_what_training_says_is_dropped_in_whatever_language(heldout: HeldOut) -> None:
    first, second, third, *_ = heldout.remaining(ALIGNMENT)
    heldout.saw_text("qab", text(first.renderings["qab"]))
    heldout.saw_text("qac", text(second.renderings["qac"]))
    heldout.saw_text("qaa", text(third.renderings["qaa"]) + " and more")
    assert heldout.remaining(ALIGNMENT)[0] is third


def test_too_few_left_is_bad_input(heldout: HeldOut) -> None:
    for _ in range(21):  # two candidates for each sentence wanted
        heldout.saw(heldout.remaining(RETRIEVAL)[0].frame)
    with pytest.raises(BadInput, match="only 19 of 20 retrieval sentences"):
        heldout.remaining(RETRIEVAL)
