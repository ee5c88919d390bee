"""Generated folders: formats, determinism, held-out content, no shortcuts, and refused arguments."""

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

from crossling.core.errors import BadInput
from crossling.synthetic import frames, synth
from crossling.synthetic.corpus_files import BitextNoise, select_pairs
from crossling.synthetic.language import SyntheticLanguage, create_languages
from crossling.synthetic.phonology import SCRIPTS
from crossling.synthetic.world import DOMAINS, World

SEED = 7
NOISE = BitextNoise(wrong=0.1, copies=0.05, near_duplicates=0.08, many_to_one=0.16)


@dataclass(frozen=True)
class GeneratedFolder:
    folder: Path
    card: dict[str, Any]
    languages: dict[str, SyntheticLanguage]

    def lines(self, path: str) -> list[str]:
        """Return all lines of a file, including empty ones."""
        content = (self.folder / path).read_text(encoding="utf-8")
        assert content.endswith("\n")
        return content[:-1].split("\n")

    def truth(self, name: str) -> list[dict[str, Any]]:
        with gzip.open(self.folder / "truth" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    def pairs(self, related: bool) -> list[tuple[str, str]]:
        pairs = combinations(self.languages, 2)
        return [(a, b) for a, b in pairs if (self.languages[a].family == self.languages[b].family) == related]


@pytest.fixture(scope="module", params=list(DOMAINS))
def generated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> GeneratedFolder:
    """Generate eight languages: every script, word order and morphology."""
    folder = tmp_path_factory.mktemp("synth") / "folder"
    synth(folder, languages=8, sentences=1000, seed=SEED, noise=NOISE, alignment_sentences=60, domain=request.param)
    card = json.loads((folder / "synthetic.json").read_text(encoding="utf-8"))
    world = World(card["lemmas"], SEED)
    return GeneratedFolder(folder, card, {language.code: language for language in create_languages(8, world, SEED)})


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def generate_small(folder: Path, **options: Any) -> Path:
    return synth(
        folder, **({"languages": 3, "sentences": 60, "test_sentences": 10, "alignment_sentences": 5} | options)
    )


def test_equal_arguments_give_equal_bytes_for_any_hash_seed(tmp_path: Path) -> None:
    noise = BitextNoise(wrong=0.1, near_duplicates=0.1)
    files = read_files(generate_small(tmp_path / "here", seed=4, noise=noise))
    program = (
        "import sys; from pathlib import Path; from crossling.synthetic import BitextNoise, synth; "
        "synth(Path(sys.argv[1]), languages=3, sentences=60, test_sentences=10, alignment_sentences=5, seed=4, "
        "noise=BitextNoise(wrong=0.1, near_duplicates=0.1))"
    )
    there = tmp_path / "there"
    environment = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program, str(there)], check=True, env=environment)
    assert read_files(there) == files
    assert all(file[4:8] == bytes(4) for name, file in files.items() if name.endswith(".gz")), (
        "gzip must not store the time"
    )


def test_seeds_give_different_languages(tmp_path: Path) -> None:
    one, other = (
        read_files(generate_small(tmp_path / "one", seed=1)),
        read_files(generate_small(tmp_path / "other", seed=2)),
    )
    assert one.keys() == other.keys()
    assert all(one[name] != other[name] for name in one if "noise" not in name)


def test_finished_folder_is_kept_and_never_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "out"
    generate_small(out, seed=1)
    (out / "corpora" / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(BadInput, match="holds languages made with other arguments"):
        generate_small(out, seed=2)
    with pytest.raises(BadInput, match="holds languages made with other arguments"):
        generate_small(out, seed=1, domain="science")
    generate_small(out, seed=1)
    assert (out / "corpora" / "mine.txt").read_text(encoding="utf-8") == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    science = generate_small(tmp_path / "science", seed=1, domain="science")
    assert generate_small(science, seed=1, domain="science") == science
    with pytest.raises(BadInput, match="holds languages made with other arguments"):
        generate_small(science, seed=1)


def test_text_has_documents_and_decreasing_sizes(generated: GeneratedFolder) -> None:
    sizes = []
    for language in generated.card["languages"]:
        lines = generated.lines(f"corpora/text/{language['code']}.txt")
        documents = "\n".join(lines).split("\n\n")
        assert all(1 <= len(document.split("\n")) <= 9 for document in documents)
        sizes.append(sum(bool(line) for line in lines))
        assert sizes[-1] == language["sentences"]
    assert sizes[0] == 1000
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 0.3 * sizes[0]


def test_text_has_letters_of_the_script_and_digits(generated: GeneratedFolder) -> None:
    for language in generated.languages.values():
        first, last = SCRIPTS[language.script]
        letters = Counter("".join(generated.lines(f"corpora/text/{language.code}.txt")))
        assert all(first <= ord(letter) <= last for letter in letters if letter not in " 0123456789")
        assert letters["2"] > 0


def test_pairs_have_two_columns_and_different_sizes(generated: GeneratedFolder) -> None:
    assert list(generated.card["pairs"]) == [f"{a}-{b}" for a, b in combinations(generated.languages, 2)]
    for name, rows in generated.card["pairs"].items():
        lines = generated.lines(f"corpora/pairs/synthetic.{name}.tsv")
        assert len(lines) == rows
        assert all(len(line.split("\t")) == 2 and all(line.split("\t")) for line in lines)
    assert max(generated.card["pairs"].values()) > 5 * min(generated.card["pairs"].values())


def test_selected_pairs_of_many_languages_connect_all() -> None:
    codes = [f"l{number:02}" for number in range(40)]
    pairs = select_pairs(codes)
    assert len(pairs) < 130
    assert {code for pair in pairs for code in pair} == set(codes)
    assert all((codes[0], code) in pairs for code in codes[1:])
    assert any(codes[0] not in pair for pair in pairs)


def test_multi_way_corpus_is_aligned_with_gaps_in_small_languages(generated: GeneratedFolder) -> None:
    columns = {code: generated.lines(f"corpora/multi/synthetic/{code}.txt") for code in generated.languages}
    assert {len(lines) for lines in columns.values()} == {generated.card["multi"]}
    present = {code: sum(bool(line) for line in lines) for code, lines in columns.items()}
    assert present["qaa"] == generated.card["multi"] > present["qac"] > present["qah"] > 0
    assert all(sum(bool(line) for line in row) >= 2 for row in zip(*columns.values(), strict=True))
    for number, frame in enumerate(frames(generated.folder, "multi")):
        for code, lines in columns.items():
            if lines[number]:
                assert_expresses(generated.languages[code], frame.concepts(), lines[number])


def assert_expresses(language: SyntheticLanguage, concepts: dict[str, str], sentence: str) -> None:
    """Assert that the sentence has a word for each concept, in scripts where affixes leave stems unchanged."""
    if language.script not in ("Latin", "Cyrillic"):
        return
    words = sentence.split(" ")
    for concept in concepts.values():
        if concept != "pronoun":
            stems = language.lexicon.stems.get(concept)
            forms = [language.inflect(stem, ()) for stem in stems] if stems else [concept]
            assert any(form in word for form in forms for word in words), (concept, sentence)


@pytest.mark.parametrize("part", ["text/qab", "pairs/qaa-qac", "retrieval", "alignment"])
def test_frames_describe_the_lines(generated: GeneratedFolder, part: str) -> None:
    files = {
        "text/qab": "corpora/text/qab.txt",
        "pairs/qaa-qac": "corpora/pairs/synthetic.qaa-qac.tsv",
        "retrieval": "data/tatoeba/v1/tatoeba.qaa-qab.qab",
        "alignment": "data/word-alignment/qab-qac/qab-qac.src-tgt",
    }
    code = "qaa" if part.startswith("pairs") else "qab"
    sentences = [re.split(r"\t| \|\|\| ", line)[0] for line in generated.lines(files[part]) if line]
    near_duplicates = {entry["row"] for entry in generated.truth("noise") if part == f"pairs/{entry['pair']}"}
    known_frames = list(frames(generated.folder, part))
    assert len(known_frames) == len(sentences)
    for row, (frame, sentence) in enumerate(zip(known_frames, sentences, strict=True)):
        if row not in near_duplicates:
            assert_expresses(generated.languages[code], frame.concepts(), sentence)


def test_noise_has_the_requested_proportions_and_is_recorded(generated: GeneratedFolder) -> None:
    record = generated.truth("noise")
    for name, rows in generated.card["pairs"].items():
        kinds = Counter(entry["kind"] for entry in record if entry["pair"] == name)
        assert kinds == {
            kind: round(proportion * rows)
            for kind, proportion in generated.card["noise"].items()
            if round(proportion * rows)
        }
        sides = [line.split("\t") for line in generated.lines(f"corpora/pairs/synthetic.{name}.tsv")]
        copies = {row for row, (source, target) in enumerate(sides) if source == target}
        assert copies == {entry["row"] for entry in record if entry["pair"] == name and entry["kind"] == "copies"}


def test_no_training_sentence_equals_a_test_sentence_in_meaning_or_form(generated: GeneratedFolder) -> None:
    parts = [
        "multi",
        *(f"text/{code}" for code in generated.languages),
        *(f"pairs/{name}" for name in generated.card["pairs"]),
    ]
    trained = {frame.key() for part in parts for frame in frames(generated.folder, part)}
    tested = [frame.key() for split in ("retrieval", "alignment") for frame in frames(generated.folder, split)]
    assert len(tested) == len(set(tested)) == 460
    assert not trained & set(tested)
    sentences = {
        sentence
        for file in (generated.folder / "corpora").rglob("*.t*")
        for line in file.read_text(encoding="utf-8").splitlines()
        for sentence in line.split("\t")
    }
    for file in (generated.folder / "data").rglob("*.*"):
        if {"tatoeba", "word-alignment"} & {*file.parts} and file.suffix != ".gold" and file.is_file():
            lines = file.read_text(encoding="utf-8").splitlines()
            assert not sentences & {side for line in lines for side in line.split(" ||| ")}


def test_retrieval_sentences_are_similar_and_distinct(generated: GeneratedFolder) -> None:
    """They have no names or numbers, the same number of content words, and no duplicates in any language."""
    for frame in frames(generated.folder, "retrieval"):
        concepts = frame.concepts()
        assert len(concepts) == 6
        assert not any(re.match(r"\d|name|town|pronoun", concept) for concept in concepts.values())
    for a, b in combinations(generated.languages, 2):
        for code in (a, b):
            lines = generated.lines(f"data/tatoeba/v1/tatoeba.{a}-{b}.{code}")
            assert len(lines) == len(set(lines)) == 400
            lengths = np.array([len(line.split()) for line in lines])
            assert np.mean(abs(lengths - np.median(lengths)) <= 2) > 0.9


def test_characters_and_length_do_not_retrieve_across_families(generated: GeneratedFolder) -> None:
    across = {pair: retrieval_accuracy(generated, *pair) for pair in generated.pairs(related=False)}
    assert max(characters for characters, _ in across.values()) < 0.02
    assert max(length for _, length in across.values()) < 0.025
    assert retrieval_accuracy(generated, "qaa", "qab")[0] > 0.1, "the baseline finds cognates inside a family"


def retrieval_accuracy(generated: GeneratedFolder, a: str, b: str) -> tuple[float, float]:
    """Return the accuracy of character 1- to 3-gram counts in the better direction, and of relative length."""
    sides = [generated.lines(f"data/tatoeba/v1/tatoeba.{a}-{b}.{code}") for code in (a, b)]
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
    distance += np.random.default_rng(0).random(distance.shape) * 1e-9  # break the many ties at random
    return float(characters), float(np.mean(distance.argmin(1) == truth))


def grams(line: str) -> Counter[str]:
    return Counter(line[i : i + n] for n in (1, 2, 3) for i in range(len(line) - n + 1))


def test_alignment_links_are_in_range_and_sure_links_share_a_concept(generated: GeneratedFolder) -> None:
    known_frames = list(frames(generated.folder, "alignment"))
    sure_links = possible_links = 0
    for a, b in combinations(generated.languages, 2):
        folder = f"data/word-alignment/{a}-{b}/{a}-{b}"
        texts, gold = generated.lines(f"{folder}.src-tgt"), generated.lines(f"{folder}.gold")
        assert len(texts) == len(gold) == 60
        for frame, words, marks in zip(known_frames, texts, gold, strict=True):
            source, target = (side.split(" ") for side in words.split(" ||| "))
            found = [re.fullmatch(r"(\d+)([-p])(\d+)", mark) for mark in marks.split(" ")]
            links = [(int(match[1]), match[2] == "-", int(match[3])) for match in found if match]
            assert len(links) == len(found) == len({(i, j) for i, _, j in links})
            assert all(1 <= i <= len(source) and 1 <= j <= len(target) for i, _, j in links)
            sure = [(source[i - 1], target[j - 1]) for i, is_sure, j in links if is_sure]
            sure_links, possible_links = sure_links + len(sure), possible_links + len(links) - len(sure)
            assert len(sure) >= 3
            concepts = list(frame.concepts().values())
            for pair in sure:
                shared = [
                    expressed(generated.languages[code], word, concepts)
                    for code, word in zip((a, b), pair, strict=True)
                ]
                assert shared[0] & shared[1], (a, b, pair, frame)
    assert possible_links > 0.1 * sure_links


def expressed(language: SyntheticLanguage, word: str, concepts: list[str]) -> set[str]:
    """Return the concepts that a written word can be a form of."""
    if word.isdigit():
        return {word}
    concepts_of_word = set()
    for concept in concepts:
        names = ("pronoun", "pronoun-plural") if concept == "pronoun" else (concept,)
        stems = [stem for name in names for stem in language.lexicon.stems.get(name, ())]
        if any(word in forms(language, stem) for stem in stems):
            concepts_of_word.add(concept)
    return concepts_of_word


def forms(language: SyntheticLanguage, stem: str) -> set[str]:
    """Return the stem with every sequence of affixes that a noun, an adjective or a verb can have."""

    def options(*choices: tuple[str, ...]) -> list[tuple[str, ...]]:
        chains: list[tuple[str, ...]] = [()]
        for choice in choices:
            affixes = [feature for feature in choice if feature in language.grammar.affixed]
            chains = chains + [(*chain, affix) for chain in chains for affix in affixes]
        return chains

    nouns = options(("plural",), ("definite",), ("accusative", "dative", "in", "near", "to", "from"))
    verbs = options(("can", "must", "want"), ("negation",), ("past", "future"), ("singular-verb", "plural-verb"))
    return {language.inflect(stem, chain) for chain in nouns + verbs}


@settings(max_examples=5, deadline=None)
@given(st.integers(2, 9), st.integers(0, 2**32))
@example(40, 0)
def test_any_number_of_languages_and_any_seed_work(languages: int, seed: int) -> None:
    with TemporaryDirectory() as parent:
        out = synth(Path(parent) / "out", languages, 50, seed, lemmas=300, test_sentences=5, alignment_sentences=3)
        card = json.loads((out / "synthetic.json").read_text(encoding="utf-8"))
        codes = [language["code"] for language in card["languages"]]
        assert len(set(codes)) == languages
        assert sorted(path.stem for path in (out / "corpora/text").iterdir()) == codes
        assert len(list((out / "data/tatoeba/v1").iterdir())) == 2 * len(card["pairs"])
        assert len(list((out / "data/word-alignment").iterdir())) == len(card["pairs"])
        if languages > 2:
            assert len({language["family"] for language in card["languages"]}) > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"languages": 1}, r"^languages=1: expected 2 to 40\.$"),
        ({"languages": 41}, "languages=41: expected 2 to 40"),
        ({"lemmas": 299}, "lemmas=299: expected 300 to 10000"),
        ({"sentences": 10}, r"^sentences=10: expected at least 50\.$"),
        ({"test_sentences": 0}, r"^test_sentences=0: expected at least 1\.$"),
        ({"alignment_sentences": 0}, "alignment_sentences=0: expected at least 1"),
        ({"domain": "sciences"}, "domain=sciences: unknown domain; did you mean 'science'"),
    ],
)
def test_invalid_arguments_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        generate_small(tmp_path / "out", **options)
    assert not list(tmp_path.iterdir())


def test_folder_with_other_files_is_refused_and_unchanged(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("ten years of work", encoding="utf-8")
    with pytest.raises(BadInput, match="not empty"):
        generate_small(tmp_path)
    with pytest.raises(BadInput, match="file"):
        generate_small(tmp_path / "thesis.tex")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_frames_of_an_unknown_folder_or_part_are_refused(generated: GeneratedFolder, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="synth"):
        frames(tmp_path, "multi")
    with pytest.raises(BadInput, match="did you mean 'text/qaa'"):
        frames(generated.folder, "text/qaaa")
