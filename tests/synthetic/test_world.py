"""Worlds and their domains: the same words with other frequencies, and no held-out content in any training data."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from crossling.synthetic import frames, synth
from crossling.synthetic.frames import Frame, is_name
from crossling.synthetic.language import create_languages
from crossling.synthetic.world import ANIMATE, DOMAINS, GENERAL, SCIENCE, THINGS, VERBS, World
from crossling.vocabulary.vocabulary import UNK, Vocabulary

SEED = 5
LANGUAGES = 5  # the fifth is isolating: its words are stems


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    parent = tmp_path_factory.mktemp("domains")
    return {
        name: synth(parent / name, LANGUAGES, 500, SEED, test_sentences=200, alignment_sentences=50, domain=name)
        for name in DOMAINS
    }


@pytest.fixture(scope="module")
def world() -> World:
    return World(400, SEED)


def training_frames(folder: Path) -> Iterator[Frame]:
    """Yield the frame of every training sentence."""
    card = json.loads((folder / "synthetic.json").read_text(encoding="utf-8"))
    texts = [f"text/{language['code']}" for language in card["languages"]]
    for part in ("multi", *texts, *(f"pairs/{name}" for name in card["pairs"])):
        yield from frames(folder, part)


def held_out_frames(folder: Path) -> list[Frame]:
    return [frame for split in ("retrieval", "alignment") for frame in frames(folder, split)]


def test_world_has_the_requested_number_of_lemmas() -> None:
    for lemmas in (300, 401, 3000):
        world = World(lemmas, seed=0)
        assert len(world.lemmas) == len(set(world.lemmas)) == lemmas
        assert all(len(members) >= 4 for members in world.classes.values())


# ---- the same languages -------------------------------------------------------------------------------------


def test_languages_are_the_same_in_every_domain() -> None:
    general, science = (create_languages(8, World(500, 3, domain), 3) for domain in (GENERAL, SCIENCE))
    assert general == science


def test_a_third_of_the_words_of_every_class_are_terms(world: World) -> None:
    assert 0.25 < len(world.terms) / len(world.lemmas) < 0.34
    assert {world.class_of[term] for term in world.terms} == {*world.classes}
    assert world.terms == World(400, SEED, SCIENCE).terms


def test_cards_of_domains_differ_in_the_domain_only(folders: dict[str, Path]) -> None:
    general, science = (json.loads((folders[name] / "synthetic.json").read_text(encoding="utf-8")) for name in DOMAINS)
    assert science == general | {"domain": "science"}


def test_both_folders_have_the_same_files(folders: dict[str, Path]) -> None:
    names = [{path.relative_to(folder) for path in folder.rglob("*")} for folder in folders.values()]
    assert names[0] == names[1]


def test_bytes_of_a_general_folder_are_stable(tmp_path: Path) -> None:
    folder = synth(tmp_path / "out", languages=3, sentences=60, test_sentences=10, alignment_sentences=5)
    digest = hashlib.sha256()
    for place in ("corpora", "data/tatoeba/v1", "data/word-alignment", "truth/frames.jsonl.gz", "truth/noise.jsonl.gz"):
        below = [folder / place, *sorted((folder / place).rglob("*"))]
        for file in (file for file in below if file.is_file()):
            content = file.read_bytes()
            digest.update(gzip.decompress(content) if file.suffix == ".gz" else content)  # versions of zlib differ
    assert digest.hexdigest() == "8d0478e58bd4d464f0377a821e1fdbe858b77ff9c7234b2a0a428df76bcd6b40"


# ---- content of a domain -------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["text/qaa", "pairs/qaa-qab", "retrieval", "alignment"])
def test_terms_are_rare_in_general_and_frequent_in_science(folders: dict[str, Path], world: World, part: str) -> None:
    def proportion(folder: Path) -> float:
        used = [c for frame in frames(folder, part) for c in frame.concepts().values() if c in {*world.lemmas}]
        return sum(concept in world.terms for concept in used) / len(used)

    assert proportion(folders["general"]) < 0.15
    assert proportion(folders["science"]) > 0.6


@pytest.mark.parametrize("file", ["corpora/text/qae.txt", "data/tatoeba/v1/tatoeba.qaa-qae.qae"])
def test_words_of_terms_are_rare_in_general_files_and_frequent_in_science(
    folders: dict[str, Path], world: World, file: str
) -> None:
    language = create_languages(LANGUAGES, world, SEED)[4]
    assert language.grammar.morphology == "isolating"
    lemmas, terms = (
        {language.inflect(stem, ()) for concept in concepts for stem in language.lexicon.stems[concept]}
        for concepts in ({*world.lemmas} - world.terms, world.terms)
    )

    def proportion(folder: Path) -> float:
        words = Counter((folder / file).read_text(encoding="utf-8").split())
        of_terms = sum(n for word, n in words.items() if word in terms - lemmas)
        return of_terms / (of_terms + sum(n for word, n in words.items() if word in lemmas - terms))

    assert proportion(folders["general"]) < 0.15
    assert proportion(folders["science"]) > 0.6


def test_science_has_no_names_pronouns_or_reported_speech(folders: dict[str, Path], world: World) -> None:
    science = list(training_frames(folders["science"]))
    clauses = [clause for frame in science for clause in (frame, frame.clause) if clause]
    assert {world.class_of[clause.agent.concept] for clause in clauses} == {*THINGS}
    assert not any(entity.pronoun or is_name(entity.concept) for c in clauses for _, entity in c.entities())
    assert {world.class_of[clause.verb] for clause in clauses} == {*SCIENCE.verbs} < {*VERBS}
    assert "that" not in {frame.linker for frame in science}
    assert sum(frame.tense == "present" for frame in science) > 0.6 * len(science)
    assert sum(frame.tense == "past" for frame in training_frames(folders["general"])) > 0.4 * len(science)


def test_verb_classes_of_domains_exist(world: World) -> None:
    for domain in DOMAINS.values():
        assert {*domain.verbs} <= {*VERBS}
        for verb in domain.verbs.values():
            assert {*verb.agents, *verb.patients, *verb.recipients} <= {*world.classes}
            assert {*verb.agents} <= {*domain.cast}
    assert not {*ANIMATE} & {*THINGS}


# ---- held-out content ---------------------------------------------------------------------------------------


def test_no_training_data_has_held_out_content_of_any_domain(folders: dict[str, Path]) -> None:
    for training in folders.values():
        keys = {frame.key() for frame in training_frames(training)}
        trained = {
            sentence
            for file in (training / "corpora").rglob("*.t*")
            for line in file.read_text(encoding="utf-8").splitlines()
            for sentence in line.split("\t")
        }
        for folder in folders.values():
            held_out = held_out_frames(folder)
            assert len(held_out) == 250
            assert not keys & {frame.key() for frame in held_out}
            for file in (folder / "data").rglob("tatoeba.*"):
                assert not trained & {*file.read_text(encoding="utf-8").splitlines()}


def test_domains_have_no_frame_in_common(folders: dict[str, Path]) -> None:
    general, science = ({frame.key() for frame in training_frames(folders[name])} for name in DOMAINS)
    assert not general & science


# ---- the same alphabet --------------------------------------------------------------------------------------


def test_general_vocabulary_covers_science(synth_folder: Path, vocabulary_folder: Path, tmp_path: Path) -> None:
    """Scripts with letters only: syllabic scripts may have new characters, and digits may be rare."""
    card = json.loads((synth_folder / "synthetic.json").read_text(encoding="utf-8"))
    assert {language["script"] for language in card["languages"]} == {"Latin"}
    science = synth(
        tmp_path / "science", 3, 200, lemmas=300, test_sentences=12, alignment_sentences=6, domain="science"
    )
    vocabulary = Vocabulary.load(vocabulary_folder)
    lengths = {}
    for folder in (synth_folder, science):
        text = (folder / "corpora/text/qaa.txt").read_text(encoding="utf-8")
        lines = re.sub(r"[0-9]+ ", "", text).splitlines()
        counts = vocabulary.count_tokens(lines)
        assert counts[UNK] == 0
        lengths[folder] = counts.sum() / sum(len(line.split()) for line in lines)
    assert lengths[science] > 1.1 * lengths[synth_folder], "terms have more tokens"
