from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from crossling.babel import heldout as heldout_module
from crossling.babel.frame import Frame
from crossling.babel.heldout import ALIGNMENT, RETRIEVAL, Candidate, HeldOut, Pool, Sentences
from crossling.babel.language import Language, Word, found_languages, text
from crossling.babel.story import documents
from crossling.babel.world import World
from crossling.errors import BadInput


class Gathered:
    """The candidates for both benchmarks of single sentences."""

    def __init__(self, world: World, languages: list[Language], wanted: dict[str, int]) -> None:
        self.heldout = HeldOut([language.code for language in languages])
        sentences = Sentences(world, languages, 2, self.heldout)
        self.pools: dict[str, Pool[Candidate]] = {part: sentences.gather(part, many) for part, many in wanted.items()}

    def remaining(self, part: str) -> list[Candidate]:
        return self.pools[part].remaining()

    def every(self) -> list[Candidate]:
        return self.remaining(RETRIEVAL) + self.remaining(ALIGNMENT)


@pytest.fixture
def gathered() -> Gathered:
    world = World(300, seed=2)
    return Gathered(world, found_languages(3, world, seed=2), {RETRIEVAL: 20, ALIGNMENT: 10})


def test_candidates_are_as_many_as_wanted_and_all_different(gathered: Gathered) -> None:
    kept = gathered.every()
    assert len(kept) == 30
    assert len({one.frame.key() for one in kept}) == 30
    for code in ("qaa", "qab", "qac"):
        assert len({text(one.renderings[code]) for one in kept}) == 30


def test_different_meanings_that_read_alike_are_not_both_held_out() -> None:
    """In a language of a single word only the grammar tells sentences apart; those for retrieval have all the same."""
    world = World(300, seed=2)
    language, other = found_languages(2, world, seed=2)
    one_word = replace(language.lexicon, stems=dict.fromkeys(language.lexicon.stems, ("ta",)))
    gathered = Gathered(world, [replace(language, lexicon=one_word), other], {RETRIEVAL: 1, ALIGNMENT: 20})
    assert len({text(one.renderings["qaa"]) for one in gathered.every()}) == 21


def test_the_search_for_meanings_ends_where_there_are_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heldout_module, "TRIES", 5)
    world = World(300, seed=2)
    gathered = Gathered(world, found_languages(2, world, seed=2), {RETRIEVAL: 20, ALIGNMENT: 10})
    with pytest.raises(BadInput, match="of 20 candidates for retrieval"):
        gathered.remaining(RETRIEVAL)


def test_retrieval_sentences_differ_in_the_meaning_of_words_alone(gathered: Gathered) -> None:
    kept = gathered.remaining(RETRIEVAL)
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
    def twice(world: World, seed: int, part: str) -> Iterator[list[Frame]]:
        for document in documents(world, seed, part, 2000):
            yield [said for frame in document for said in (frame, replace(frame, negated=not frame.negated))]

    monkeypatch.setattr(heldout_module, "told", twice)
    world = World(300, seed=2)
    gathered = Gathered(world, found_languages(2, world, seed=2), {RETRIEVAL: 10, ALIGNMENT: 10})
    assert len({one.frame.key() for one in gathered.every()}) == 20


def test_what_training_means_is_dropped_whatever_its_grammar(gathered: Gathered) -> None:
    first, second, *_ = gathered.remaining(RETRIEVAL)
    gathered.heldout.saw(replace(first.frame, negated=not first.frame.negated, modality="must"))
    assert gathered.remaining(RETRIEVAL)[0] is second
    assert len(gathered.remaining(RETRIEVAL)) == 20


def test_what_training_says_is_dropped_in_whatever_language(gathered: Gathered) -> None:
    first, second, third, *_ = gathered.remaining(ALIGNMENT)
    gathered.heldout.saw_text("qab", text(first.renderings["qab"]))
    gathered.heldout.saw_text("qac", text(second.renderings["qac"]))
    gathered.heldout.saw_text("qaa", text(third.renderings["qaa"]) + " and more")
    assert gathered.remaining(ALIGNMENT)[0] is third


def test_too_few_left_is_bad_input(gathered: Gathered) -> None:
    for _ in range(21):  # two candidates for each sentence wanted
        gathered.heldout.saw(gathered.remaining(RETRIEVAL)[0].frame)
    with pytest.raises(BadInput, match="only 19 of 20 candidates for retrieval"):
        gathered.remaining(RETRIEVAL)


# ---- groups -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Both:
    sentences: tuple[Candidate, ...]


def test_sentences_that_belong_together_are_struck_together(gathered: Gathered) -> None:
    drawn = gathered.every()
    fresh = HeldOut(["qaa", "qab", "qac"])
    groups = [Both((drawn[number], drawn[number + 1])) for number in range(0, 8, 2)]
    pool = fresh.gather("pairs", 2, iter(groups))
    fresh.saw(groups[0].sentences[1].frame)
    fresh.saw_text("qab", text(groups[2].sentences[0].renderings["qab"]))
    assert pool.remaining() == [groups[1], groups[3]]


def test_no_two_groups_share_a_sentence_and_none_says_one_twice(gathered: Gathered) -> None:
    one, two, three, *_ = gathered.every()
    echo = Candidate(two.frame, {"qaa": one.renderings["qaa"]})
    fresh = HeldOut(["qaa", "qab", "qac"])
    pool = fresh.gather("pairs", 1, iter([Both((one, echo)), None, Both((one, two)), Both((two, three)), three]))
    assert [group for _, group in pool.candidates] == [Both((one, two)), three]


def test_a_sentence_may_be_held_out_in_some_languages_only() -> None:
    frame = next(documents(World(300, seed=2), 2, "any", 5))[0]
    fresh = HeldOut(["qaa", "qab"])
    pool = fresh.gather("any", 1, iter([Candidate(frame, {"qab": [Word("said", "verb")]})]))
    fresh.saw_text("qaa", "said")
    assert len(pool.remaining()) == 1
    fresh.saw_text("qab", "said")
    with pytest.raises(BadInput):
        pool.remaining()
