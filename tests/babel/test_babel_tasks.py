"""The data sets for fine-tuning and mining: formats, rows that are parallel, held-out meaning, closed shortcuts."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from math import log
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling import cli
from crossling.babel import Examples, babel, frames
from crossling.babel.domain import DOMAINS
from crossling.babel.family import Family
from crossling.babel.frame import Frame
from crossling.babel.grammar import REORDERED, TEMPLATES
from crossling.babel.language import found_languages, text
from crossling.babel.paraphrase import Paraphrase
from crossling.babel.tasks import PARTS
from crossling.babel.world import World
from crossling.errors import BadInput

SEED = 11
CODES = ["qaa", "qab", "qac", "qad", "qae"]  # all orders and morphologies
EXAMPLES = Examples(train=600, dev=48, test=360)
TABLES = ("xnli", "pawsx", "udpos", "panx")
LABELS = {"xnli": ("entailment", "neutral", "contradiction"), "pawsx": ("0", "1")}
Row = tuple[str, str, str]


@dataclass(frozen=True)
class Made:
    folder: Path
    domain: str

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def table(self, name: str, split: str, code: str, ending: str = "tsv") -> str:
        of_others = f"translated/{code}/{split}.{ending}"
        path = of_others if split == "train" and code != "qaa" else f"{split}-{code}.{ending}"
        return (self.data / name / path).read_text(encoding="utf-8")

    def rows(self, name: str, split: str, code: str) -> list[Row]:
        rows = [line.split("\t") for line in self.table(name, split, code).splitlines()]
        assert all(len(row) == 3 and all(row) for row in rows)
        return [(first, second, label) for first, second, label in rows]

    def tagged(self, name: str, split: str, code: str) -> list[list[tuple[str, str]]]:
        blocks = self.table(name, split, code).removesuffix("\n\n").split("\n\n")
        lines = [[line.split("\t") for line in block.split("\n")] for block in blocks]
        return [[(word, tag) for word, tag in block] for block in lines]

    def squad(self, split: str, code: str) -> list[dict[str, Any]]:
        """The paragraphs."""
        if split == "test":
            content = (self.data / "xquad" / f"xquad.{code}.json").read_text(encoding="utf-8")
        else:
            content = self.table("xquad", split, code, "json")
        return [paragraph for article in json.loads(content)["data"] for paragraph in article["paragraphs"]]

    def side(self, pair: str, split: str, code: str) -> dict[str, str]:
        lines = (self.data / "bucc2018" / f"{pair}.{split}.{code}").read_text(encoding="utf-8").splitlines()
        return dict(line.split("\t") for line in lines)

    def gold(self, pair: str, split: str) -> list[list[str]]:
        lines = (self.data / "bucc2018" / f"{pair}.{split}.gold").read_text(encoding="utf-8").splitlines()
        return [line.split("\t") for line in lines]

    def sentences(self, part: str, code: str) -> set[str]:
        """All that a part of the data sets says in a language, but for questions."""
        name, split = part.split("/")
        if name in LABELS:
            return {sentence for row in self.rows(name, split, code) for sentence in row[:2]}
        if name in TABLES:
            return {" ".join(word for word, _ in sentence) for sentence in self.tagged(name, split, code)}
        if name == "xquad":
            return {line for paragraph in self.squad(split, code) for line in paragraph["context"].split("\n")}
        if name == "translation":
            return {*self.lines(split, code)}
        pair = f"{code}-qaa" if code != "qaa" else "qab-qaa"
        return {*self.side(pair, split, code).values()}

    def lines(self, split: str, code: str) -> list[str]:
        """Of the parallel text."""
        return (self.data / "translation" / f"{split}.{code}").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module", params=list(DOMAINS))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("tasks") / "made"
    babel(folder, 5, 300, SEED, test_sentences=5, alignment_sentences=5, domain=request.param, examples=EXAMPLES)
    return Made(folder, request.param)


@pytest.fixture(scope="module")
def family() -> Family:
    world = World(400, SEED)
    return Family(world, found_languages(5, world, SEED), SEED)


# ---- files --------------------------------------------------------------------------------------------------


def test_files_have_the_names_that_readers_know(made: Made) -> None:
    expected = {f"{name}/train-qaa.tsv" for name in TABLES} | {"xquad/train-qaa.json"}
    for code in CODES:
        expected |= {f"{name}/{split}-{code}.tsv" for name in TABLES for split in ("dev", "test")}
        expected |= {f"xquad/dev-{code}.json", f"xquad/xquad.{code}.json"}
        into = "qaa" if code != "qaa" else "qab"
        for split in ("dev", "test"):
            expected |= {f"{name}/translated/{into}/{split}-{code}.tsv" for name in TABLES}
            expected |= {f"xquad/translated/{into}/{split}-{code}.json"}
        expected |= {f"translation/{split}.{code}" for split in ("train", "dev", "test")}
        if code != "qaa":
            expected |= {f"{name}/translated/{code}/train.tsv" for name in TABLES}
            expected |= {f"xquad/translated/{code}/train.json"}
            ends = (code, "qaa", "gold")
            expected |= {f"bucc2018/{code}-qaa.{split}.{end}" for split in ("dev", "test") for end in ends}
    files = {path.relative_to(made.data).as_posix() for path in made.data.rglob("*") if path.is_file()}
    assert {file for file in files if not file.startswith(("tatoeba", "word-alignment"))} == expected


def test_the_card_tells_the_pivot_and_the_sizes(made: Made) -> None:
    card = json.loads((made.folder / "babel.json").read_text(encoding="utf-8"))
    assert card["pivot"] == max(card["languages"], key=lambda one: one["sentences"])["code"] == "qaa"
    assert card["examples"] == {"train": 600, "dev": 48, "test": 360}


@pytest.mark.parametrize(("split", "asked"), [("train", 600), ("dev", 48), ("test", 360)])
def test_as_many_examples_as_asked_for_in_every_language(made: Made, split: str, asked: int) -> None:
    for code in CODES:
        assert {len(made.rows(name, split, code)) for name in LABELS} == {asked}
        assert {len(made.tagged(name, split, code)) for name in ("udpos", "panx")} == {asked}
        assert sum(len(paragraph["qas"]) for paragraph in made.squad(split, code)) == asked


def test_sizes_follow_the_text_and_come_in_whole_groups(tmp_path: Path) -> None:
    assert Examples.plan(20_000) == Examples(train=2000, dev=200, test=400)
    small = Examples.plan(50)
    folder = babel(
        tmp_path / "out", 2, 50, 0, 300, test_sentences=5, alignment_sentences=5, examples=Examples(59, 24, 35)
    )
    card = json.loads((folder / "babel.json").read_text(encoding="utf-8"))
    assert card["examples"] == {"train": 59, "dev": small.dev, "test": 35}
    made = Made(folder, "general")
    assert [len(made.rows("xnli", split, "qab")) for split in ("train", "dev", "test")] == [48, 24, 24]
    assert [len(made.rows("pawsx", split, "qab")) for split in ("train", "dev", "test")] == [56, 24, 32]
    with pytest.raises(BadInput, match="other arguments"):
        babel(folder, 2, 50, 0, 300, test_sentences=5, alignment_sentences=5)


def test_a_folder_from_before_there_were_examples_is_not_taken_for_one_with_them(tmp_path: Path) -> None:
    folder = babel(tmp_path / "out", 2, 50, 0, 300, test_sentences=5, alignment_sentences=5)
    card = json.loads((folder / "babel.json").read_text(encoding="utf-8"))
    old = {name: value for name, value in card.items() if name not in ("examples", "pivot")}
    (folder / "babel.json").write_text(json.dumps(old), encoding="utf-8")
    assert next(iter(frames(folder, "retrieval")))
    with pytest.raises(BadInput, match="other arguments"):
        babel(folder, 2, 50, 0, 300, test_sentences=5, alignment_sentences=5)


@pytest.mark.parametrize("sizes", [(47, 24, 24), (48, 23, 24), (48, 24, 0)])
def test_too_few_examples_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(BadInput, match=r"examples: [0-9]+ given, expected at least"):
        Examples(*sizes)


def test_the_command_takes_the_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crossling(*more: str) -> int:
        size = ("--languages", "2", "--sentences", "80", "--lemmas", "300")
        monkeypatch.setattr(sys, "argv", ["crossling", "babel", "-o", str(tmp_path / "out"), *size, *more])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0)

    assert crossling("--dev", "1") == 2
    assert "dev examples: 1 given" in capsys.readouterr().err
    assert crossling("--train", "60", "--test", "36", "--json") == 0
    card = json.loads(capsys.readouterr().out)
    assert card["examples"] == {"train": 60, "dev": 24, "test": 36}
    assert card["pivot"] == "qaa"


# ---- parallel rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["dev", "test"])
def test_what_is_scored_has_its_translation_without_labels(made: Made, split: str) -> None:
    """For a model that reads both: in the pivot, and the pivot's own rows in the next language."""
    for code in CODES:
        into = "qaa" if code != "qaa" else "qab"

        def translated(name: str, ending: str = "tsv", place: str = f"{into}/{split}-{code}") -> str:
            return (made.data / name / "translated" / f"{place}.{ending}").read_text(encoding="utf-8")

        for name in LABELS:
            assert [tuple(line.split("\t")) for line in translated(name).splitlines()] == [
                row[:2] for row in made.rows(name, split, into)
            ]
        for name in ("udpos", "panx"):
            blocks = translated(name).removesuffix("\n\n").split("\n\n")
            words = [[word for word, _ in sentence] for sentence in made.tagged(name, split, into)]
            assert [block.split("\n") for block in blocks] == words
        bare = [
            paragraph
            for article in json.loads(translated("xquad", "json"))["data"]
            for paragraph in article["paragraphs"]
        ]
        full = made.squad(split, into)
        assert [paragraph["context"] for paragraph in bare] == [paragraph["context"] for paragraph in full]
        asked = [[(question["id"], question["question"]) for question in each["qas"]] for each in full]
        assert [[(question["id"], question["question"]) for question in each["qas"]] for each in bare] == asked
        assert not any(question["answers"] for paragraph in bare for question in paragraph["qas"])
    both = [made.data / "tatoeba" / place for place in ("v1/tatoeba.qaa-qab.qaa", "translated/qaa/tatoeba.qaa-qab.qab")]
    assert both[0].read_bytes() == both[1].read_bytes()


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_row_i_is_the_same_example_in_every_language(made: Made, split: str) -> None:
    for name in LABELS:
        assert len({tuple(label for *_, label in made.rows(name, split, code)) for code in CODES}) == 1
    for code in CODES[1:]:
        for here, there in zip(made.squad(split, "qaa"), made.squad(split, code), strict=True):
            assert here["context"].count("\n") == there["context"].count("\n")
            assert [one["id"] for one in here["qas"]] == [one["id"] for one in there["qas"]]
        for name, same in (("panx", ("B-PER", "B-LOC", "B-ORG")), ("udpos", ("NOUN", "VERB", "ADJ", "ADV", "NUM"))):
            for one, other in zip(made.tagged(name, split, "qaa"), made.tagged(name, split, code), strict=True):
                counts = [Counter(tag for _, tag in sentence if tag in same) for sentence in (one, other)]
                assert counts[0] == counts[1]


@pytest.mark.parametrize("name", ["xnli", "pawsx"])
def test_a_sentence_of_one_language_has_one_translation_in_each_other(made: Made, name: str) -> None:
    """So sentences in two languages stand for each other row by row, on either side."""
    for code in CODES[1:]:
        partners = defaultdict(set)
        for here, there in zip(made.rows(name, "test", "qaa"), made.rows(name, "test", code), strict=True):
            for side in (0, 1):
                partners[here[side]].add(there[side])
        assert {len(found) for found in partners.values()} == {1}
        assert len(set.union(*partners.values())) == len(partners)


def test_lines_of_parallel_text_say_what_their_frames_say_in_every_language(made: Made) -> None:
    """Names and numbers of a frame, which all languages share as far as their sounds allow, are on the same lines."""
    for split in ("train", "dev", "test"):
        meant = list(frames(made.folder, f"translation/{split}"))
        for code in CODES:
            said = made.lines(split, code)
            assert len(said) == len(meant)
            for frame, line in zip(meant, said, strict=True):
                digits = sorted(concept for concept in frame.concepts().values() if concept.isdigit())
                assert sorted(word for word in line.split() if word.isdigit()) == digits


# ---- held-out meaning ---------------------------------------------------------------------------------------


def test_no_part_says_what_the_corpora_or_another_part_says(made: Made) -> None:
    card = json.loads((made.folder / "babel.json").read_text(encoding="utf-8"))
    corpora = ["multi", *(f"text/{code}" for code in CODES), *(f"pairs/{name}" for name in card["pairs"])]
    taken = {frame.key() for part in corpora for frame in frames(made.folder, part)}
    assert len(taken) > 500
    for part in ("retrieval", "alignment", *PARTS):
        keys = {frame.key() for frame in frames(made.folder, part)}
        assert keys
        assert not keys & taken
        taken |= keys


def test_no_sentence_is_written_in_two_places(made: Made) -> None:
    for code in CODES:
        files = [*(made.folder / "corpora").rglob(f"{code}.txt"), *(made.folder / "corpora").rglob(f"*{code}*.tsv")]
        taken = {
            sentence
            for file in files
            for line in file.read_text(encoding="utf-8").splitlines()
            for sentence in line.split("\t")
        }
        for part in PARTS:
            said = made.sentences(part, code)
            assert len(said) > 10
            assert not said & taken
            taken |= said


def test_the_frames_of_a_part_are_what_it_says(made: Made) -> None:
    """Every sentence of a part has its frame, each once."""
    for part in PARTS:
        meant = list(frames(made.folder, part))
        if part.startswith("bucc2018"):  # some of its sentences are of the pivot alone, some of the others
            partners = len(made.gold("qab-qaa", part.split("/")[1]))
            assert len(meant) == len(made.sentences(part, "qaa")) + len(made.sentences(part, "qab")) - partners
        else:
            assert len(meant) == len(made.sentences(part, "qab"))


# ---- what gives labels away ---------------------------------------------------------------------------------


class NaiveBayes:
    """Of words and pairs of them that follow each other, with add-one smoothing."""

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


def guessed(made: Made, name: str, code: str, feature: Callable[[str, str], object]) -> float:
    """Accuracy of the label that is most usual, in training, for the value of a feature."""
    usual: dict[object, Counter[str]] = defaultdict(Counter)
    for one, other, label in made.rows(name, "train", code):
        usual[feature(one, other)][label] += 1
    rows = made.rows(name, "test", code)
    guesses = [max(LABELS[name], key=usual[feature(one, other)].__getitem__) for one, other, _ in rows]
    return sum(guess == label for guess, (*_, label) in zip(guesses, rows, strict=True)) / len(rows)


def overlap(one: str, other: str) -> tuple[int, int]:
    """How many words of each sentence the other lacks."""
    left, right = Counter(one.split()), Counter(other.split())
    return (left - right).total(), (right - left).total()


@pytest.mark.parametrize("split", ["train", "dev", "test"])
@pytest.mark.parametrize("name", ["xnli", "pawsx"])
def test_every_sentence_of_either_side_is_met_equally_often_with_each_label(made: Made, name: str, split: str) -> None:
    for code in CODES:
        rows = made.rows(name, split, code)
        for side in (0, 1):
            met: dict[str, Counter[str]] = defaultdict(Counter)
            for row in rows:
                met[row[side]][row[2]] += 1
            assert all(labels == dict.fromkeys(LABELS[name], 1) for labels in met.values())


@pytest.mark.parametrize("name", ["xnli", "pawsx"])
@pytest.mark.parametrize("side", [0, 1])
def test_one_sentence_alone_tells_nothing(made: Made, name: str, side: int) -> None:
    chance = 1 / len(LABELS[name])
    for code in CODES:
        (trained, labels), (tested, gold) = (
            ([row[side] for row in rows], [row[2] for row in rows])
            for rows in (made.rows(name, "train", code), made.rows(name, "test", code))
        )
        assert abs(NaiveBayes(trained, labels).accuracy(tested, gold) - chance) < 0.05
        # The same classifier does find a word that gives the label away.
        trained, tested = (
            [f"{one} {label}" for one, label in zip(*some, strict=True)] for some in ((trained, labels), (tested, gold))
        )
        assert NaiveBayes(trained, labels).accuracy(tested, gold) > 0.95


def test_overlap_hardly_tells_what_follows_and_not_at_all_what_is_a_paraphrase(made: Made) -> None:
    for code in CODES:
        assert guessed(made, "xnli", code, overlap) < 0.66
        assert guessed(made, "xnli", code, lambda one, other: (len(one.split()), len(other.split()))) < 0.42
        assert guessed(made, "pawsx", code, overlap) < 0.58
        rows = made.rows("pawsx", "test", code)
        assert sum(overlap(one, other)[0] for one, other, _ in rows) < 0.08 * sum(len(row[0].split()) for row in rows)


# ---- inference ----------------------------------------------------------------------------------------------


def test_labels_follow_from_what_the_sentences_mean(made: Made) -> None:
    for split in ("train", "test"):
        meant = meanings(made, f"xnli/{split}", "qae")
        for premise, hypothesis, label in made.rows("xnli", split, "qae"):
            assert label == what_follows(meant[premise], meant[hypothesis])


def meanings(made: Made, part: str, code: str, orders: tuple[bool, ...] = (False,)) -> dict[str, Frame]:
    """The frame of every sentence, found by saying it again until it is said by the same words."""
    language = found_languages(5, World(400, SEED), SEED)[CODES.index(code)]
    wanted = made.sentences(part, code)
    rng = random.Random(0)
    said: dict[str, Frame] = {}
    for frame in frames(made.folder, part):
        for reordered in orders:
            sayings = (text(language.render(frame, rng, reordered)) for _ in range(500))
            said[next(sentence for sentence in sayings if sentence in wanted)] = frame
    assert said.keys() == wanted
    return said


def what_follows(premise: Frame, hypothesis: Frame) -> str:
    """Told from the frames alone, by cases."""
    told, asked = premise.concepts(), hypothesis.concepts()
    if any(told[node] != asked[node] for node in ("verb", "agent", "patient")):
        return "neutral"
    numbers = told.get("patient.count"), asked.get("patient.count")
    details = ("place", "time", "manner", "patient.modifier")
    fewer, more = ({node: one[node] for node in details if node in one} for one in (asked, told))
    if premise.negated:
        fewer, more = more, fewer
    if not fewer.items() <= more.items():
        return "neutral"
    assert numbers[0] is None or not premise.negated
    same = (premise.negated == hypothesis.negated) == (numbers[0] == numbers[1])
    return "entailment" if same else "contradiction"


def test_inference_takes_negation_numbers_and_who_did_what(made: Made) -> None:
    """All labels are met whatever the signs of both sides are, so far as logic allows."""
    meant = meanings(made, "xnli/train", "qae")
    seen: dict[str, Counter[tuple[bool, bool, bool]]] = defaultdict(Counter)
    for premise, hypothesis, label in made.rows("xnli", "train", "qae"):
        one, other = meant[premise], meant[hypothesis]
        numbered = bool(one.patient and one.patient.count)
        seen[label][one.negated, other.negated, numbered] += 1
    assert {(False, False, False), (True, True, False), (False, True, True)} <= seen["entailment"].keys()
    assert {(False, True, False), (True, False, False), (False, False, True)} <= seen["contradiction"].keys()
    every = {(a, b, False) for a in (False, True) for b in (False, True)}
    assert {*every, (False, False, True), (False, True, True)} == seen["neutral"].keys()


# ---- paraphrase ---------------------------------------------------------------------------------------------


def test_paraphrases_mean_the_same_and_the_others_do_not(made: Made) -> None:
    meant = meanings(made, "pawsx/test", "qae", orders=(False, True))
    for one, other, label in made.rows("pawsx", "test", "qae"):
        assert (meant[one].key() == meant[other].key()) == (label == "1")
        concepts = [Counter(meant[sentence].concepts().values()) for sentence in (one, other)]
        assert concepts[0] == concepts[1]


def test_no_two_sentences_of_a_pair_read_alike(made: Made) -> None:
    for code in CODES:
        assert all(one != other for one, other, _ in made.rows("pawsx", "test", code))


def test_reordered_sentences_have_an_order_of_their_own_as_soon_as_there_is_a_time() -> None:
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
def test_exchanged_sentences_have_the_same_forms_in_every_language(seed: int, domain: str) -> None:
    """Where there are no synonyms, that is word for word: the order of the two is all there is."""
    world = World(300, seed, DOMAINS[domain])
    family = Family(world, found_languages(8, world, seed), seed)
    for group in islice(filter(None, Paraphrase(family).draw("test")), 6):
        for language in family.languages:
            usual = {concept: stems[:1] for concept, stems in language.lexicon.stems.items()}
            plain = type(language)(
                language.code,
                0,
                language.script,
                language.grammar,
                type(language.lexicon)(usual, language.lexicon.features),
            )
            bags = [
                sorted(word.text for word in plain.render(one.frame, random.Random(0), moved))
                for one in (group.one, group.other)
                for moved in (False, True)
            ]
            assert bags[0] == bags[1] == bags[2] == bags[3]


# ---- mining -------------------------------------------------------------------------------------------------


def test_mining_has_texts_most_of_whose_sentences_have_no_partner(made: Made) -> None:
    for code in CODES[1:]:
        pair = f"{code}-qaa"
        for split, examples in (("dev", 48), ("test", 360)):
            there, here, gold = made.side(pair, split, code), made.side(pair, split, "qaa"), made.gold(pair, split)
            assert len(there) == len(here) == 4 * examples == 8 * len(gold)
            assert {one for one, _ in gold} <= there.keys()
            assert {other for _, other in gold} <= here.keys()
            assert len({one for one, _ in gold}) == len({other for _, other in gold}) == len(gold)
            assert not any(letter.isdigit() for sentence in (*there.values(), *here.values()) for letter in sentence)


def test_partners_are_the_sentences_that_mean_the_same(made: Made) -> None:
    meant = list(frames(made.folder, "bucc2018/dev"))
    assert len({frame.key() for frame in meant}) == len(meant)
    families = [[f"{code}-qaa" for code in CODES[1:]]]
    for pairs in families:
        golds = [[(one[4:], other) for one, other in made.gold(pair, "dev")] for pair in pairs]
        assert all(gold == golds[0] for gold in golds), "the languages other than the pivot say the same in one order"
    assert len(meant) == 2 * 4 * 48 - len(golds[0])


def test_where_partners_stand_is_no_help(made: Made) -> None:
    places = [tuple(int(one[4:]) for one in row) for row in made.gold("qab-qaa", "test")]
    closer = sum(abs(one - other) < 200 for one, other in places) / len(places)
    assert closer < 0.4  # 0.26 by chance


# ---- all of it, whatever the languages ----------------------------------------------------------------------


@settings(max_examples=3, deadline=None)
@given(st.integers(2, 9), st.integers(0, 2**32), st.sampled_from(sorted(DOMAINS)))
def test_any_seed_gives_balanced_sets(languages: int, seed: int, domain: str) -> None:
    with TemporaryDirectory() as parent:
        folder = Path(parent) / "out"
        babel(folder, languages, 50, seed, 300, test_sentences=5, alignment_sentences=5, domain=domain)
        for rows in labelled(Made(folder, domain), languages):
            for side in (0, 1):
                met = Counter((row[side], row[2]) for row in rows)
                assert {*met.values()} == {1}
                assert len(met) == len({row[side] for row in rows}) * len({label for *_, label in rows})


def labelled(made: Made, languages: int) -> Iterator[list[Row]]:
    for name in LABELS:
        for code in [f"qa{letter}" for letter in "abcdefghi"[:languages]]:
            yield from (made.rows(name, split, code) for split in ("train", "dev", "test"))
