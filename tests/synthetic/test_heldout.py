"""Held-out sentences: none means or reads like a training sentence, and gold links between their words."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from crossling.core.errors import BadInput
from crossling.synthetic import heldout as heldout_module
from crossling.synthetic.documents import documents
from crossling.synthetic.frames import Frame
from crossling.synthetic.heldout import (
    ALIGNMENT,
    RETRIEVAL,
    GoldLink,
    HeldOut,
    gather_pools,
    gold_links,
)
from crossling.synthetic.language import (
    Candidate,
    LanguageFamily,
    SyntheticLanguage,
    Word,
    create_languages,
    join_words,
)
from crossling.synthetic.world import World


class Candidates:
    """The candidates of retrieval and alignment."""

    def __init__(self, world: World, languages: list[SyntheticLanguage], wanted: dict[str, int]) -> None:
        self.heldout = HeldOut([language.code for language in languages])
        pools = gather_pools(LanguageFamily(world, languages, 2), self.heldout, wanted)
        self.pools = {pool.part: pool for pool in pools}

    def remaining(self, part: str) -> list[Candidate]:
        return self.pools[part].remaining()

    def all(self) -> list[Candidate]:
        return self.remaining(RETRIEVAL) + self.remaining(ALIGNMENT)


@pytest.fixture
def candidates() -> Candidates:
    world = World(300, seed=2)
    return Candidates(world, create_languages(3, world, seed=2), {RETRIEVAL: 20, ALIGNMENT: 10})


def test_candidates_have_the_requested_number_and_are_distinct(candidates: Candidates) -> None:
    held_out = candidates.all()
    assert len(held_out) == 30
    assert len({candidate.frame.key() for candidate in held_out}) == 30
    for code in ("qaa", "qab", "qac"):
        assert len({join_words(candidate.renderings[code]) for candidate in held_out}) == 30


def test_different_frames_with_equal_text_are_not_both_held_out() -> None:
    """In a language with a single stem only grammar distinguishes sentences; retrieval has one grammar."""
    world = World(300, seed=2)
    language, other = create_languages(2, world, seed=2)
    one_word = replace(language.lexicon, stems=dict.fromkeys(language.lexicon.stems, ("ta",)))
    candidates = Candidates(world, [replace(language, lexicon=one_word), other], {RETRIEVAL: 1, ALIGNMENT: 20})
    assert len({join_words(candidate.renderings["qaa"]) for candidate in candidates.all()}) == 21


def test_search_for_frames_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heldout_module, "MAX_TRIES", 5)
    world = World(300, seed=2)
    candidates = Candidates(world, create_languages(2, world, seed=2), {RETRIEVAL: 20, ALIGNMENT: 10})
    with pytest.raises(BadInput, match="of 20 candidates for retrieval"):
        candidates.remaining(RETRIEVAL)


def test_retrieval_sentences_differ_in_their_words_only(candidates: Candidates) -> None:
    held_out = candidates.remaining(RETRIEVAL)
    assert {tuple(candidate.frame.concepts()) for candidate in held_out} == {heldout_module.RETRIEVAL_PARTS}
    grammar = {
        (f.tense, f.negated, f.modality, f.relation, *((e.plural, e.definite, e.count) for _, e in f.entities()))
        for f in (candidate.frame for candidate in held_out)
    }
    assert len(grammar) == 1
    for code in ("qaa", "qab", "qac"):
        features = {tuple(word.feature for word in candidate.renderings[code]) for candidate in held_out}
        assert len({tuple(sorted(filter(None, names))) for names in features}) == 1


def test_frame_in_two_grammars_is_held_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubled(family: LanguageFamily, part: str) -> Iterator[list[Frame]]:
        for document in family.documents(part, 2000):
            yield [variant for frame in document for variant in (frame, replace(frame, negated=not frame.negated))]

    monkeypatch.setattr(heldout_module, "endless_documents", doubled)
    world = World(300, seed=2)
    candidates = Candidates(world, create_languages(2, world, seed=2), {RETRIEVAL: 10, ALIGNMENT: 10})
    assert len({candidate.frame.key() for candidate in candidates.all()}) == 20


def test_candidates_with_a_training_frame_are_dropped_in_any_grammar(candidates: Candidates) -> None:
    first, second, *_ = candidates.remaining(RETRIEVAL)
    candidates.heldout.add_training_frame(replace(first.frame, negated=not first.frame.negated, modality="must"))
    assert candidates.remaining(RETRIEVAL)[0] is second
    assert len(candidates.remaining(RETRIEVAL)) == 20


def test_candidates_with_training_text_are_dropped_in_any_language(candidates: Candidates) -> None:
    first, second, third, *_ = candidates.remaining(ALIGNMENT)
    candidates.heldout.add_training_text("qab", join_words(first.renderings["qab"]))
    candidates.heldout.add_training_text("qac", join_words(second.renderings["qac"]))
    candidates.heldout.add_training_text("qaa", join_words(third.renderings["qaa"]) + " and more")
    assert candidates.remaining(ALIGNMENT)[0] is third


def test_too_few_remaining_candidates_are_refused(candidates: Candidates) -> None:
    for _ in range(21):  # two candidates per requested sentence
        candidates.heldout.add_training_frame(candidates.remaining(RETRIEVAL)[0].frame)
    with pytest.raises(BadInput, match="only 19 of 20 candidates for retrieval"):
        candidates.remaining(RETRIEVAL)


# ---- groups -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairGroup:
    sentences: tuple[Candidate, ...]


def test_groups_are_dropped_as_a_whole(candidates: Candidates) -> None:
    sampled = candidates.all()
    fresh = HeldOut(["qaa", "qab", "qac"])
    groups = [PairGroup((sampled[number], sampled[number + 1])) for number in range(0, 8, 2)]
    pool = fresh.gather("pairs", 2, iter(groups))
    fresh.add_training_frame(groups[0].sentences[1].frame)
    fresh.add_training_text("qab", join_words(groups[2].sentences[0].renderings["qab"]))
    assert pool.remaining() == [groups[1], groups[3]]


def test_groups_have_no_sentence_in_common_and_none_twice(candidates: Candidates) -> None:
    one, two, three, *_ = candidates.all()
    duplicate = Candidate(two.frame, {"qaa": one.renderings["qaa"]})
    fresh = HeldOut(["qaa", "qab", "qac"])
    pool = fresh.gather(
        "pairs", 1, iter([PairGroup((one, duplicate)), None, PairGroup((one, two)), PairGroup((two, three)), three])
    )
    assert [group for _, group in pool.candidates] == [PairGroup((one, two)), three]


def test_sentence_may_be_held_out_in_some_languages_only() -> None:
    frame = next(documents(World(300, seed=2), 2, "any", 5))[0]
    fresh = HeldOut(["qaa", "qab"])
    pool = fresh.gather("any", 1, iter([Candidate(frame, {"qab": [Word("sings", "verb")]})]))
    fresh.add_training_text("qaa", "sings")
    assert len(pool.remaining()) == 1
    fresh.add_training_text("qab", "sings")
    with pytest.raises(BadInput):
        pool.remaining()


# ---- gold links ---------------------------------------------------------------------------------------------


def test_function_words_are_linked_to_the_word_with_their_meaning() -> None:
    """`the dog not sees` against a language that negates by affix and has no article: `sees-not dog`."""
    source = [
        Word("the", "agent", "definite"),
        Word("dog", "agent"),
        Word("not", "verb", "negation"),
        Word("sees", "verb"),
    ]
    target = [Word("seesnot", "verb"), Word("dog", "agent")]
    assert gold_links(source, target) == [
        GoldLink(0, 1, False),
        GoldLink(1, 1, True),
        GoldLink(2, 0, False),
        GoldLink(3, 0, True),
    ]


def test_equal_function_words_are_possible_links_of_each_other() -> None:
    one = [Word("not", "verb", "negation"), Word("sees", "verb")]
    other = [Word("voit", "verb"), Word("pas", "verb", "negation")]
    assert gold_links(one, other) == [GoldLink(0, 1, False), GoldLink(1, 0, True)]


def test_dropped_pronoun_is_linked_to_the_verb_of_its_clause() -> None:
    source = [Word("thinks", "verb"), Word("she", "clause.agent"), Word("sees", "clause.verb")]
    target = [Word("sees", "clause.verb"), Word("thinks", "verb")]
    assert gold_links(source, target) == [GoldLink(0, 1, True), GoldLink(1, 0, False), GoldLink(2, 0, True)]


def test_alignment_is_symmetric_and_links_every_word() -> None:
    world = World(300, seed=1)
    languages = create_languages(8, world, seed=1)
    rng = random.Random(0)
    for document in documents(world, 1, "test", 100):
        for frame in document:
            a, b = (language.render(frame, rng) for language in rng.sample(languages, 2))
            forward, backward = gold_links(a, b), gold_links(b, a)
            assert sorted(GoldLink(j, i, sure) for i, j, sure in backward) == forward
            assert {i for i, _, _ in forward} == set(range(len(a)))
            assert {j for _, j, _ in forward} == set(range(len(b)))
