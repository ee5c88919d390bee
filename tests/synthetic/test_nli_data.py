"""NLI and paraphrase data: labels follow from the meaning of the sentences, and not from shortcuts."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, combinations, islice, pairwise
from math import log
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.synthetic import frames, synth
from crossling.synthetic.frames import Frame
from crossling.synthetic.grammar import REORDERED, TEMPLATES
from crossling.synthetic.language import LanguageFamily, create_languages, join_words
from crossling.synthetic.nli_data import (
    CONTRADICTION,
    ENTAILMENT,
    NEUTRAL,
    NLITask,
    ParaphraseTask,
    Statement,
    relation,
)
from crossling.synthetic.world import DOMAINS, World

from .task_folder import CODES, LABELS, SEED, Row, TaskFolder

DETAILS = ("place", "time", "kind")
KINDS = [frozenset(some) for many in range(4) for some in combinations(DETAILS, many)]  # of events
WORLDS = [frozenset(some) for some in chain.from_iterable(combinations(KINDS, many) for many in range(len(KINDS) + 1))]


def holds(claim: Statement, world: frozenset[frozenset[str]]) -> bool:
    """Return whether an event with all details of the claim happened, or none did if it is negated."""
    return any(claim.details <= event for event in world) != claim.negated


def label_by_worlds(premise: Statement, hypothesis: Statement) -> str:
    possible = [world for world in WORLDS if holds(premise, world)]
    true = sum(holds(hypothesis, world) for world in possible)
    return ENTAILMENT if true == len(possible) else NEUTRAL if true else CONTRADICTION


claims = st.builds(Statement, st.frozensets(st.sampled_from(DETAILS), min_size=1), st.booleans())


@settings(max_examples=200)
@given(claims, claims)
def test_relation_agrees_with_all_possible_worlds(premise: Statement, hypothesis: Statement) -> None:
    assert relation(premise, hypothesis) == label_by_worlds(premise, hypothesis)


@given(st.integers(2, 5), st.integers(2, 5), st.booleans(), st.booleans())
def test_numbers_are_exact(one: int, other: int, denied: bool, denies: bool) -> None:
    """Every world has one number, or no event."""
    kept = frozenset({"place"})
    possible = [number for number in (None, 2, 3, 4, 5, 6) if (number == one) != denied]
    true = sum((number == other) != denies for number in possible)
    expected = ENTAILMENT if true == len(possible) else NEUTRAL if true else CONTRADICTION
    assert relation(Statement(kept, denied, one), Statement(kept, denies, other)) == expected


@given(claims, claims)
def test_other_events_are_neutral(premise: Statement, hypothesis: Statement) -> None:
    other = Statement(hypothesis.details, hypothesis.negated, swapped=True)
    assert relation(premise, other) == relation(other, premise) == NEUTRAL


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(sorted(DOMAINS)))
def test_each_sentence_of_a_group_has_each_label_once(seed: int, domain: str) -> None:
    world = World(300, seed, DOMAINS[domain])
    family = LanguageFamily(world, create_languages(2, world, seed), seed)
    for group in islice(filter(None, NLITask(family).sample_groups("test")), 30):
        for side in (0, 1):
            uses = Counter((id(example[side]), example[2]) for example in group.examples)
            assert len(uses) == 4 * 3
            assert {*uses.values()} == {1}
        assert len(group.sentences) == 8
        assert {len(sentence.frame.concepts()) >= 5 for sentence in group.sentences} == {True}


# ---- shortcuts -----------------------------------------------------------------------------------------------


class NaiveBayes:
    """Naive Bayes classifier of words and bigrams, with add-one smoothing."""

    def __init__(self, texts: list[str], labels: list[str]) -> None:
        self.counts: dict[str, Counter[str]] = {label: Counter() for label in sorted(set(labels))}
        for one, label in zip(texts, labels, strict=True):
            self.counts[label].update(self.grams(one))
        size = len(set().union(*self.counts.values()))
        self.totals = {label: counts.total() + size for label, counts in self.counts.items()}

    def grams(self, one: str) -> list[str]:
        words = ["<s>", *one.split(), "</s>"]
        return words + [" ".join(pair) for pair in pairwise(words)]

    def accuracy(self, texts: list[str], labels: list[str]) -> float:
        return sum(self.guess(one) == label for one, label in zip(texts, labels, strict=True)) / len(texts)

    def guess(self, one: str) -> str:
        grams = self.grams(one)
        scores = {
            label: sum(log((counts[gram] + 1) / self.totals[label]) for gram in grams)
            for label, counts in self.counts.items()
        }
        return max(scores, key=scores.__getitem__)


def shortcut_accuracy(tasks: TaskFolder, name: str, code: str, feature: Callable[[str, str], object]) -> float:
    """Return the accuracy of the label that is most frequent in training for each value of a feature."""
    usual: dict[object, Counter[str]] = defaultdict(Counter)
    for one, other, label in tasks.rows(name, "train", code):
        usual[feature(one, other)][label] += 1
    rows = tasks.rows(name, "test", code)
    guesses = [max(LABELS[name], key=usual[feature(one, other)].__getitem__) for one, other, _ in rows]
    return sum(guess == label for guess, (*_, label) in zip(guesses, rows, strict=True)) / len(rows)


def overlap(one: str, other: str) -> tuple[int, int]:
    """Return the number of words of each sentence that the other lacks."""
    left, right = Counter(one.split()), Counter(other.split())
    return (left - right).total(), (right - left).total()


@pytest.mark.parametrize("split", ["train", "dev", "test"])
@pytest.mark.parametrize("name", ["xnli", "pawsx"])
def test_every_sentence_has_each_label_once_on_either_side(tasks: TaskFolder, name: str, split: str) -> None:
    for code in CODES:
        rows = tasks.rows(name, split, code)
        for side in (0, 1):
            labels_of: dict[str, Counter[str]] = defaultdict(Counter)
            for row in rows:
                labels_of[row[side]][row[2]] += 1
            assert all(labels == dict.fromkeys(LABELS[name], 1) for labels in labels_of.values())


@pytest.mark.parametrize("name", ["xnli", "pawsx"])
@pytest.mark.parametrize("side", [0, 1])
def test_one_sentence_alone_does_not_predict_the_label(tasks: TaskFolder, name: str, side: int) -> None:
    chance = 1 / len(LABELS[name])
    for code in CODES:
        (trained, labels), (tested, gold) = (
            ([row[side] for row in rows], [row[2] for row in rows])
            for rows in (tasks.rows(name, "train", code), tasks.rows(name, "test", code))
        )
        assert abs(NaiveBayes(trained, labels).accuracy(tested, gold) - chance) < 0.05
        # The same classifier finds a word that predicts the label.
        trained, tested = (
            [f"{one} {label}" for one, label in zip(*some, strict=True)] for some in ((trained, labels), (tested, gold))
        )
        assert NaiveBayes(trained, labels).accuracy(tested, gold) > 0.95


def test_overlap_and_length_hardly_predict_the_label(tasks: TaskFolder) -> None:
    for code in CODES:
        assert shortcut_accuracy(tasks, "xnli", code, overlap) < 0.66
        assert shortcut_accuracy(tasks, "xnli", code, lambda one, other: (len(one.split()), len(other.split()))) < 0.42
        assert shortcut_accuracy(tasks, "pawsx", code, overlap) < 0.58
        rows = tasks.rows("pawsx", "test", code)
        assert sum(overlap(one, other)[0] for one, other, _ in rows) < 0.08 * sum(len(row[0].split()) for row in rows)


# ---- NLI ----------------------------------------------------------------------------------------------------


def test_labels_follow_from_the_frames(tasks: TaskFolder) -> None:
    for split in ("train", "test"):
        frame_of = frames_of_sentences(tasks, f"xnli/{split}", "qae")
        for premise, hypothesis, label in tasks.rows("xnli", split, "qae"):
            assert label == label_of_frames(frame_of[premise], frame_of[hypothesis])


def frames_of_sentences(
    tasks: TaskFolder, part: str, code: str, orders: tuple[bool, ...] = (False,)
) -> dict[str, Frame]:
    """Return the frame of every sentence. Renders each frame until the text is one of the sentences."""
    language = create_languages(5, World(400, SEED), SEED)[CODES.index(code)]
    wanted = tasks.sentences(part, code)
    rng = random.Random(0)
    found: dict[str, Frame] = {}
    for frame in frames(tasks.folder, part):
        for reordered in orders:
            renderings = (join_words(language.render(frame, rng, reordered)) for _ in range(500))
            found[next(sentence for sentence in renderings if sentence in wanted)] = frame
    assert found.keys() == wanted
    return found


def label_of_frames(premise: Frame, hypothesis: Frame) -> str:
    """Return the label by cases, from the frames alone."""
    known, claimed = premise.concepts(), hypothesis.concepts()
    if any(known[node] != claimed[node] for node in ("verb", "agent", "patient")):
        return "neutral"
    numbers = known.get("patient.count"), claimed.get("patient.count")
    details = ("place", "time", "manner", "patient.modifier")
    fewer, more = ({node: one[node] for node in details if node in one} for one in (claimed, known))
    if premise.negated:
        fewer, more = more, fewer
    if not fewer.items() <= more.items():
        return "neutral"
    assert numbers[0] is None or not premise.negated
    same = (premise.negated == hypothesis.negated) == (numbers[0] == numbers[1])
    return "entailment" if same else "contradiction"


def test_labels_occur_with_every_negation_and_number(tasks: TaskFolder) -> None:
    """All labels that logic allows occur for each combination of negations."""
    frame_of = frames_of_sentences(tasks, "xnli/train", "qae")
    combinations_of: dict[str, Counter[tuple[bool, bool, bool]]] = defaultdict(Counter)
    for premise, hypothesis, label in tasks.rows("xnli", "train", "qae"):
        one, other = frame_of[premise], frame_of[hypothesis]
        numbered = bool(one.patient and one.patient.count)
        combinations_of[label][one.negated, other.negated, numbered] += 1
    assert {(False, False, False), (True, True, False), (False, True, True)} <= combinations_of["entailment"].keys()
    assert {(False, True, False), (True, False, False), (False, False, True)} <= combinations_of["contradiction"].keys()
    every = {(a, b, False) for a in (False, True) for b in (False, True)}
    assert {*every, (False, False, True), (False, True, True)} == combinations_of["neutral"].keys()


# ---- paraphrase ---------------------------------------------------------------------------------------------


def test_only_paraphrases_have_equal_frames(tasks: TaskFolder) -> None:
    frame_of = frames_of_sentences(tasks, "pawsx/test", "qae", orders=(False, True))
    for one, other, label in tasks.rows("pawsx", "test", "qae"):
        assert (frame_of[one].key() == frame_of[other].key()) == (label == "1")
        concepts = [Counter(frame_of[sentence].concepts().values()) for sentence in (one, other)]
        assert concepts[0] == concepts[1]


def test_sentences_of_a_paraphrase_pair_differ(tasks: TaskFolder) -> None:
    for code in CODES:
        assert all(one != other for one, other, _ in tasks.rows("pawsx", "test", code))


def test_reordered_templates_differ_from_usual_ones_if_there_is_a_time() -> None:
    for order, templates in REORDERED.items():
        for parts in ("SVT", "SVOT", "SVOTM", "SVOPT", "SVORPTM"):
            usual, moved = (
                {"".join(slot for slot in template if slot in parts) for template in some}
                for some in (TEMPLATES[order], templates)
            )
            assert not usual & moved
            assert {"".join(slot for slot in one if slot in "SVO") for one in moved} <= {
                "".join(slot for slot in one if slot in "SVO") for one in usual
            }


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(sorted(DOMAINS)))
def test_paraphrase_groups_have_the_same_words_in_every_language(seed: int, domain: str) -> None:
    """Without synonyms, the sentences of a group differ in word order only."""
    world = World(300, seed, DOMAINS[domain])
    family = LanguageFamily(world, create_languages(8, world, seed), seed)
    for group in islice(filter(None, ParaphraseTask(family).sample_groups("test")), 6):
        for language in family.languages:
            usual = {concept: stems[:1] for concept, stems in language.lexicon.stems.items()}
            plain = replace(language, family=0, lexicon=type(language.lexicon)(usual, language.lexicon.features))
            bags = [
                sorted(word.text for word in plain.render(one.frame, random.Random(0), moved))
                for one in (group.sentences[0], group.sentences[2])
                for moved in (False, True)
            ]
            assert bags[0] == bags[1] == bags[2] == bags[3]


@settings(max_examples=3, deadline=None)
@given(st.integers(2, 9), st.integers(0, 2**32), st.sampled_from(sorted(DOMAINS)))
def test_any_seed_gives_balanced_labels(languages: int, seed: int, domain: str) -> None:
    with TemporaryDirectory() as parent:
        folder = Path(parent) / "out"
        synth(folder, languages, 50, seed, lemmas=300, test_sentences=5, alignment_sentences=5, domain=domain)
        for rows in labelled_rows(TaskFolder(folder, domain), languages):
            for side in (0, 1):
                uses = Counter((row[side], row[2]) for row in rows)
                assert {*uses.values()} == {1}
                assert len(uses) == len({row[side] for row in rows}) * len({label for *_, label in rows})


def labelled_rows(tasks: TaskFolder, languages: int) -> Iterator[list[Row]]:
    for name in LABELS:
        for code in [f"qa{letter}" for letter in "abcdefghi"[:languages]]:
            yield from (tasks.rows(name, split, code) for split in ("train", "dev", "test"))
