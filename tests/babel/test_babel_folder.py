"""What is on disk: formats, determinism, held-out meaning, closed shortcuts, and refusals."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crossling.babel import Noise, babel, frames
from crossling.babel.domain import DOMAINS
from crossling.babel.language import Language, found_languages
from crossling.babel.resources import chosen_pairs
from crossling.babel.script import SCRIPTS
from crossling.babel.world import World
from crossling.errors import BadInput

SEED = 7
NOISE = Noise(wrong=0.1, copies=0.05, near_duplicates=0.08, many_to_one=0.16)


@dataclass(frozen=True)
class Made:
    folder: Path
    card: dict[str, Any]
    languages: dict[str, Language]

    def lines(self, path: str) -> list[str]:
        """All lines of a file, the empty ones too."""
        content = (self.folder / path).read_text(encoding="utf-8")
        assert content.endswith("\n")
        return content[:-1].split("\n")

    def truth(self, name: str) -> list[dict[str, Any]]:
        with gzip.open(self.folder / "truth" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    def pairs(self, related: bool) -> list[tuple[str, str]]:
        every = combinations(self.languages, 2)
        return [(a, b) for a, b in every if (self.languages[a].family == self.languages[b].family) == related]


@pytest.fixture(scope="module", params=list(DOMAINS))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Eight languages, so every script, order and morphology; all that is true of a folder is so in any domain."""
    folder = tmp_path_factory.mktemp("babel") / "made"
    babel(folder, languages=8, sentences=1000, seed=SEED, noise=NOISE, alignment_sentences=60, domain=request.param)
    card = json.loads((folder / "babel.json").read_text(encoding="utf-8"))
    world = World(card["lemmas"], SEED)
    return Made(folder, card, {one.code: one for one in found_languages(8, world, SEED)})


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def small(folder: Path, **options: Any) -> Path:
    return babel(
        folder, **({"languages": 3, "sentences": 60, "test_sentences": 10, "alignment_sentences": 5} | options)
    )


def test_equal_arguments_equal_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    noise = Noise(wrong=0.1, near_duplicates=0.1)
    here = content(small(tmp_path / "here", seed=4, noise=noise))
    program = (
        "import sys; from pathlib import Path; from crossling.babel import babel, Noise; "
        "babel(Path(sys.argv[1]), languages=3, sentences=60, test_sentences=10, alignment_sentences=5, seed=4, "
        "noise=Noise(wrong=0.1, near_duplicates=0.1))"
    )
    there = tmp_path / "there"
    environment = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program, str(there)], check=True, env=environment)
    assert content(there) == here
    assert all(file[4:8] == bytes(4) for name, file in here.items() if name.endswith(".gz")), "gzip's time of day"


def test_another_seed_is_another_family(tmp_path: Path) -> None:
    one, other = content(small(tmp_path / "one", seed=1)), content(small(tmp_path / "other", seed=2))
    assert one.keys() == other.keys()
    assert all(one[name] != other[name] for name in one if "noise" not in name)


def test_nothing_of_an_earlier_folder_is_lost(tmp_path: Path) -> None:
    out = tmp_path / "out"
    small(out, seed=1)
    (out / "corpora" / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(BadInput, match="holds languages made with other arguments"):
        small(out, seed=2)
    with pytest.raises(BadInput, match="holds languages made with other arguments"):
        small(out, seed=1, domain="science")
    small(out, seed=1)
    assert (out / "corpora" / "mine.txt").read_text(encoding="utf-8") == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    science = small(tmp_path / "science", seed=1, domain="science")
    assert small(science, seed=1, domain="science") == science
    with pytest.raises(BadInput, match="holds languages made with other arguments"):
        small(science, seed=1)


def test_text_is_documents_of_sentences_and_resources_fall(made: Made) -> None:
    sizes = []
    for language in made.card["languages"]:
        lines = made.lines(f"corpora/text/{language['code']}.txt")
        documents = "\n".join(lines).split("\n\n")
        assert all(1 <= len(document.split("\n")) <= 9 for document in documents)
        sizes.append(sum(bool(line) for line in lines))
        assert sizes[-1] == language["sentences"]
    assert sizes[0] == 1000
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 0.3 * sizes[0]


def test_letters_are_of_the_script_and_numbers_in_digits(made: Made) -> None:
    for language in made.languages.values():
        first, last = SCRIPTS[language.script]
        letters = Counter("".join(made.lines(f"corpora/text/{language.code}.txt")))
        assert all(first <= ord(letter) <= last for letter in letters if letter not in " 0123456789")
        assert letters["2"] > 0


def test_pairs_are_two_columns_of_unequal_sizes(made: Made) -> None:
    assert list(made.card["pairs"]) == [f"{a}-{b}" for a, b in combinations(made.languages, 2)]
    for name, rows in made.card["pairs"].items():
        lines = made.lines(f"corpora/pairs/babel.{name}.tsv")
        assert len(lines) == rows
        assert all(len(line.split("\t")) == 2 and all(line.split("\t")) for line in lines)
    assert max(made.card["pairs"].values()) > 5 * min(made.card["pairs"].values())


def test_many_languages_have_bitext_for_some_pairs_that_connect_all() -> None:
    codes = [f"l{number:02}" for number in range(40)]
    pairs = chosen_pairs(codes)
    assert len(pairs) < 130
    assert {code for pair in pairs for code in pair} == set(codes)
    assert all((codes[0], code) in pairs for code in codes[1:])
    assert any(codes[0] not in pair for pair in pairs)


def test_multi_is_line_aligned_with_gaps_where_resources_are_few(made: Made) -> None:
    columns = {code: made.lines(f"corpora/multi/babel/{code}.txt") for code in made.languages}
    assert {len(lines) for lines in columns.values()} == {made.card["multi"]}
    present = {code: sum(bool(line) for line in lines) for code, lines in columns.items()}
    assert present["qaa"] == made.card["multi"] > present["qac"] > present["qah"] > 0
    assert all(sum(bool(line) for line in row) >= 2 for row in zip(*columns.values(), strict=True))
    for number, frame in enumerate(frames(made.folder, "multi")):
        for code, lines in columns.items():
            if lines[number]:
                assert_says(made.languages[code], frame.concepts(), lines[number])


def assert_says(language: Language, concepts: dict[str, str], sentence: str) -> None:
    """The sentence has a word of its own for each concept; looked up only where affixes leave stems unchanged."""
    if language.script not in ("Latin", "Cyrillic"):
        return
    words = sentence.split(" ")
    for concept in concepts.values():
        if concept != "pronoun":
            stems = language.lexicon.stems.get(concept)
            forms = [language.inflect(stem, ()) for stem in stems] if stems else [concept]
            assert any(form in word for form in forms for word in words), (concept, sentence)


@pytest.mark.parametrize("part", ["text/qab", "pairs/qaa-qac", "retrieval", "alignment"])
def test_frames_are_the_meaning_of_the_lines(made: Made, part: str) -> None:
    files = {
        "text/qab": "corpora/text/qab.txt",
        "pairs/qaa-qac": "corpora/pairs/babel.qaa-qac.tsv",
        "retrieval": "data/tatoeba/v1/tatoeba.qaa-qab.qab",
        "alignment": "data/word-alignment/qab-qac/qab-qac.src-tgt",
    }
    code = "qaa" if part.startswith("pairs") else "qab"
    sentences = [re.split(r"\t| \|\|\| ", line)[0] for line in made.lines(files[part]) if line]
    near_duplicates = {one["row"] for one in made.truth("noise") if part == f"pairs/{one['pair']}"}
    meant = list(frames(made.folder, part))
    assert len(meant) == len(sentences)
    for row, (frame, sentence) in enumerate(zip(meant, sentences, strict=True)):
        if row not in near_duplicates:
            assert_says(made.languages[code], frame.concepts(), sentence)


def test_noise_is_at_the_stated_rates_and_recorded(made: Made) -> None:
    record = made.truth("noise")
    for name, rows in made.card["pairs"].items():
        kinds = Counter(one["kind"] for one in record if one["pair"] == name)
        assert kinds == {kind: round(rate * rows) for kind, rate in made.card["noise"].items() if round(rate * rows)}
        sides = [line.split("\t") for line in made.lines(f"corpora/pairs/babel.{name}.tsv")]
        copies = {row for row, (source, target) in enumerate(sides) if source == target}
        assert copies == {one["row"] for one in record if one["pair"] == name and one["kind"] == "copies"}


def test_no_training_sentence_means_or_reads_like_a_test_sentence(made: Made) -> None:
    parts = ["multi", *(f"text/{code}" for code in made.languages), *(f"pairs/{name}" for name in made.card["pairs"])]
    trained = {frame.key() for part in parts for frame in frames(made.folder, part)}
    tested = [frame.key() for split in ("retrieval", "alignment") for frame in frames(made.folder, split)]
    assert len(tested) == len(set(tested)) == 460
    assert not trained & set(tested)
    seen = {
        sentence
        for file in (made.folder / "corpora").rglob("*.t*")
        for line in file.read_text(encoding="utf-8").splitlines()
        for sentence in line.split("\t")
    }
    for file in (made.folder / "data").rglob("*.*"):
        if {"tatoeba", "word-alignment"} & {*file.parts} and file.suffix != ".gold" and file.is_file():
            lines = file.read_text(encoding="utf-8").splitlines()
            assert not seen & {side for line in lines for side in line.split(" ||| ")}


def test_retrieval_is_hard(made: Made) -> None:
    """No anchors, one number of content words, and no two sentences alike in any language."""
    for frame in frames(made.folder, "retrieval"):
        concepts = frame.concepts()
        assert len(concepts) == 6
        assert not any(re.match(r"\d|name|town|pronoun", concept) for concept in concepts.values())
    for a, b in combinations(made.languages, 2):
        for code in (a, b):
            lines = made.lines(f"data/tatoeba/v1/tatoeba.{a}-{b}.{code}")
            assert len(lines) == len(set(lines)) == 400
            lengths = np.array([len(line.split()) for line in lines])
            assert np.mean(abs(lengths - np.median(lengths)) <= 2) > 0.9


def test_neither_characters_nor_length_retrieve_across_families(made: Made) -> None:
    across = {pair: retrieved(made, *pair) for pair in made.pairs(related=False)}
    assert max(characters for characters, _ in across.values()) < 0.02
    assert max(length for _, length in across.values()) < 0.025
    assert retrieved(made, "qaa", "qab")[0] > 0.1, "cognates show inside a family, so the baseline does work"


def retrieved(made: Made, a: str, b: str) -> tuple[float, float]:
    """Accuracy by cosine of character 1- to 3-gram counts, the better direction; and by relative length."""
    sides = [made.lines(f"data/tatoeba/v1/tatoeba.{a}-{b}.{code}") for code in (a, b)]
    counts = [[grams(line) for line in lines] for lines in sides]
    column = {gram: number for number, gram in enumerate(sorted(set().union(*counts[0], *counts[1])))}
    vectors = np.zeros((2, 400, len(column)), dtype=np.float32)
    for side in (0, 1):
        for row, uses in enumerate(counts[side]):
            vectors[side, row, [column[gram] for gram in uses]] = list(uses.values())
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    scores = vectors[0] @ vectors[1].T
    truth = np.arange(400)
    characters = max(np.mean(scores.argmax(axis) == truth) for axis in (0, 1))
    lengths = [np.array([len(line) for line in lines]) / sum(map(len, lines)) for lines in sides]
    distance = abs(lengths[0][:, None] - lengths[1][None, :])
    distance += np.random.default_rng(0).random(distance.shape) * 1e-9  # ties are many: break them blindly
    return float(characters), float(np.mean(distance.argmin(1) == truth))


def grams(line: str) -> Counter[str]:
    return Counter(line[i : i + n] for n in (1, 2, 3) for i in range(len(line) - n + 1))


def test_alignment_links_are_in_range_and_sure_ones_join_one_concept(made: Made) -> None:
    meant = list(frames(made.folder, "alignment"))
    sure_links = possible_links = 0
    for a, b in combinations(made.languages, 2):
        folder = f"data/word-alignment/{a}-{b}/{a}-{b}"
        texts, gold = made.lines(f"{folder}.src-tgt"), made.lines(f"{folder}.gold")
        assert len(texts) == len(gold) == 60
        for frame, words, marks in zip(meant, texts, gold, strict=True):
            source, target = (side.split(" ") for side in words.split(" ||| "))
            found = [re.fullmatch(r"(\d+)([-p])(\d+)", mark) for mark in marks.split(" ")]
            links = [(int(one[1]), one[2] == "-", int(one[3])) for one in found if one]
            assert len(links) == len(found) == len({(i, j) for i, _, j in links})
            assert all(1 <= i <= len(source) and 1 <= j <= len(target) for i, _, j in links)
            sure = [(source[i - 1], target[j - 1]) for i, is_sure, j in links if is_sure]
            sure_links, possible_links = sure_links + len(sure), possible_links + len(links) - len(sure)
            assert len(sure) >= 3
            concepts = list(frame.concepts().values())
            for pair in sure:
                shared = [says(made.languages[code], word, concepts) for code, word in zip((a, b), pair, strict=True)]
                assert shared[0] & shared[1], (a, b, pair, frame)
    assert possible_links > 0.1 * sure_links


def says(language: Language, word: str, concepts: list[str]) -> set[str]:
    """Which of the concepts a written word can be a form of."""
    if word.isdigit():
        return {word}
    said = set()
    for concept in concepts:
        names = ("pronoun", "pronoun-plural") if concept == "pronoun" else (concept,)
        stems = [stem for name in names for stem in language.lexicon.stems.get(name, ())]
        if any(word in forms(language, stem) for stem in stems):
            said.add(concept)
    return said


def forms(language: Language, stem: str) -> set[str]:
    """The stem with every sequence of affixes that a noun, an adjective or a verb can have."""

    def options(*choices: tuple[str, ...]) -> list[tuple[str, ...]]:
        chains: list[tuple[str, ...]] = [()]
        for choice in choices:
            said = [one for one in choice if one in language.grammar.affixed]
            chains = chains + [(*chain, one) for chain in chains for one in said]
        return chains

    nouns = options(("plural",), ("definite",), ("accusative", "dative", "in", "near", "to", "from"))
    verbs = options(("can", "must", "want"), ("negation",), ("past", "future"), ("singular-verb", "plural-verb"))
    return {language.inflect(stem, chain) for chain in nouns + verbs}


@settings(max_examples=5, deadline=None)
@given(st.integers(2, 9), st.integers(0, 2**32))
@example(40, 0)
def test_any_number_of_languages_and_any_seed(languages: int, seed: int) -> None:
    with TemporaryDirectory() as parent:
        out = babel(Path(parent) / "out", languages, 50, seed, 300, test_sentences=5, alignment_sentences=3)
        card = json.loads((out / "babel.json").read_text(encoding="utf-8"))
        codes = [one["code"] for one in card["languages"]]
        assert len(set(codes)) == languages
        assert sorted(path.stem for path in (out / "corpora/text").iterdir()) == codes
        assert len(list((out / "data/tatoeba/v1").iterdir())) == 2 * len(card["pairs"])
        assert len(list((out / "data/word-alignment").iterdir())) == len(card["pairs"])
        if languages > 2:
            assert len({one["family"] for one in card["languages"]}) > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"languages": 1}, "languages"),
        ({"languages": 41}, "languages"),
        ({"lemmas": 299}, "lemmas"),
        ({"sentences": 10}, "sentences"),
        ({"test_sentences": 0}, "test sentences"),
        ({"alignment_sentences": 0}, "test sentences"),
        ({"domain": "sciences"}, "domain: there is no 'sciences'; did you mean 'science'"),
    ],
)
def test_what_cannot_be_made_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        small(tmp_path / "out", **options)
    assert not list(tmp_path.iterdir())


def test_a_folder_of_someone_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("ten years of work", encoding="utf-8")
    with pytest.raises(BadInput, match="not empty"):
        small(tmp_path)
    with pytest.raises(BadInput, match="file"):
        small(tmp_path / "thesis.tex")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_frames_of_no_folder_or_no_part(made: Made, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="babel"):
        frames(tmp_path, "multi")
    with pytest.raises(BadInput, match="did you mean 'text/qaa'"):
        frames(made.folder, "text/qaaa")
