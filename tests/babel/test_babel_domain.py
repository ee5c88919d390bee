"""One family of languages in two domains: the same words, other things said with them, and nothing held out told."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from crossling.babel import babel, frames
from crossling.babel.domain import ANIMATE, DOMAINS, GENERAL, SCIENCE, THINGS
from crossling.babel.frame import Frame, is_name
from crossling.babel.language import found_languages
from crossling.babel.world import VERBS, World
from crossling.vocabulary.vocabulary import UNK, Vocabulary

SEED = 5
LANGUAGES = 5  # the fifth is isolating: its words are stems


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    parent = tmp_path_factory.mktemp("domains")
    return {
        name: babel(parent / name, LANGUAGES, 500, SEED, test_sentences=200, alignment_sentences=50, domain=name)
        for name in DOMAINS
    }


@pytest.fixture(scope="module")
def world() -> World:
    return World(400, SEED)


def trained(folder: Path) -> Iterator[Frame]:
    """The meaning of every training sentence."""
    card = json.loads((folder / "babel.json").read_text(encoding="utf-8"))
    texts = [f"text/{one['code']}" for one in card["languages"]]
    for part in ("multi", *texts, *(f"pairs/{name}" for name in card["pairs"])):
        yield from frames(folder, part)


def held_out(folder: Path) -> list[Frame]:
    return [frame for split in ("retrieval", "alignment") for frame in frames(folder, split)]


# ---- the same languages -------------------------------------------------------------------------------------


def test_a_lemma_is_said_by_the_same_words_in_every_domain() -> None:
    general, science = (found_languages(8, World(500, 3, domain), 3) for domain in (GENERAL, SCIENCE))
    assert general == science


def test_a_third_of_the_words_of_every_class_are_terms(world: World) -> None:
    assert 0.25 < len(world.terms) / len(world.lemmas) < 0.34
    assert {world.class_of[term] for term in world.terms} == {*world.classes}
    assert world.terms == World(400, SEED, SCIENCE).terms


def test_a_card_tells_the_domain_and_nothing_else_differs(folders: dict[str, Path]) -> None:
    general, science = (json.loads((folders[name] / "babel.json").read_text(encoding="utf-8")) for name in DOMAINS)
    assert science == general | {"domain": "science"}


def test_both_folders_have_the_same_files(folders: dict[str, Path]) -> None:
    names = [{path.relative_to(folder) for path in folder.rglob("*")} for folder in folders.values()]
    assert names[0] == names[1]


def test_a_general_folder_has_the_bytes_it_had_before_there_were_domains_and_tasks(tmp_path: Path) -> None:
    folder = babel(tmp_path / "out", languages=3, sentences=60, test_sentences=10, alignment_sentences=5)
    digest = hashlib.sha256()
    for place in ("corpora", "data/tatoeba/v1", "data/word-alignment", "truth/frames.jsonl.gz", "truth/noise.jsonl.gz"):
        below = [folder / place, *sorted((folder / place).rglob("*"))]
        for file in (file for file in below if file.is_file()):
            content = file.read_bytes()
            digest.update(str(file.relative_to(folder).as_posix()).encode())
            digest.update(gzip.decompress(content) if file.suffix == ".gz" else content)  # versions of zlib differ
    assert digest.hexdigest() == "b18818ed60a7a44ea4bc4cbd7ca8508bad77cbe26e8f48d229914447bab778be"


# ---- what is said -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["text/qaa", "pairs/qaa-qab", "retrieval", "alignment"])
def test_terms_are_rare_in_general_and_most_of_the_science(folders: dict[str, Path], world: World, part: str) -> None:
    def share(folder: Path) -> float:
        said = [c for frame in frames(folder, part) for c in frame.concepts().values() if c in {*world.lemmas}]
        return sum(concept in world.terms for concept in said) / len(said)

    assert share(folders["general"]) < 0.15
    assert share(folders["science"]) > 0.6


@pytest.mark.parametrize("file", ["corpora/text/qae.txt", "data/tatoeba/v1/tatoeba.qaa-qae.qae"])
def test_so_are_their_words_on_disk(folders: dict[str, Path], world: World, file: str) -> None:
    language = found_languages(LANGUAGES, world, SEED)[4]
    assert language.grammar.morphology == "isolating"
    lemmas, terms = (
        {language.inflect(stem, ()) for concept in concepts for stem in language.lexicon.stems[concept]}
        for concepts in ({*world.lemmas} - world.terms, world.terms)
    )

    def share(folder: Path) -> float:
        words = Counter((folder / file).read_text(encoding="utf-8").split())
        of_terms = sum(n for word, n in words.items() if word in terms - lemmas)
        return of_terms / (of_terms + sum(n for word, n in words.items() if word in lemmas - terms))

    assert share(folders["general"]) < 0.15
    assert share(folders["science"]) > 0.6


def test_the_science_speaks_of_things_without_names_pronouns_or_speech(folders: dict[str, Path], world: World) -> None:
    told = list(trained(folders["science"]))
    clauses = [clause for frame in told for clause in (frame, frame.clause) if clause]
    assert {world.class_of[clause.agent.concept] for clause in clauses} == {*THINGS}
    assert not any(entity.pronoun or is_name(entity.concept) for c in clauses for _, entity in c.entities())
    assert {world.class_of[clause.verb] for clause in clauses} == {*SCIENCE.verbs} < {*VERBS}
    assert "that" not in {frame.linker for frame in told}
    assert sum(frame.tense == "present" for frame in told) > 0.6 * len(told)
    assert sum(frame.tense == "past" for frame in trained(folders["general"])) > 0.4 * len(told)


def test_what_a_domain_asks_for_is_among_the_classes_there_are(world: World) -> None:
    for domain in DOMAINS.values():
        assert {*domain.verbs} <= {*VERBS}
        for verb in domain.verbs.values():
            assert {*verb.agents, *verb.patients, *verb.recipients} <= {*world.classes}
            assert {*verb.agents} <= {*domain.cast}
    assert not {*ANIMATE} & {*THINGS}


# ---- nothing held out is told -------------------------------------------------------------------------------


def test_no_folder_trains_on_what_is_held_out_of_any(folders: dict[str, Path]) -> None:
    for training in folders.values():
        keys = {frame.key() for frame in trained(training)}
        said = {
            sentence
            for file in (training / "corpora").rglob("*.t*")
            for line in file.read_text(encoding="utf-8").splitlines()
            for sentence in line.split("\t")
        }
        for folder in folders.values():
            kept = held_out(folder)
            assert len(kept) == 250
            assert not keys & {frame.key() for frame in kept}
            for file in (folder / "data").rglob("tatoeba.*"):
                assert not said & {*file.read_text(encoding="utf-8").splitlines()}


def test_the_domains_mean_nothing_in_common(folders: dict[str, Path]) -> None:
    general, science = ({frame.key() for frame in trained(folders[name])} for name in DOMAINS)
    assert not general & science


# ---- the same alphabet --------------------------------------------------------------------------------------


def test_a_vocabulary_of_the_general_folder_can_write_the_science(
    babel_folder: Path, vocabulary_folder: Path, tmp_path: Path
) -> None:
    """Of scripts with letters: in those with a character for every syllable some may be new, and digits may be rare."""
    card = json.loads((babel_folder / "babel.json").read_text(encoding="utf-8"))
    assert {one["script"] for one in card["languages"]} == {"Latin"}
    science = babel(
        tmp_path / "science", 3, 200, lemmas=300, test_sentences=12, alignment_sentences=6, domain="science"
    )
    vocabulary = Vocabulary.load(vocabulary_folder)
    lengths = {}
    for folder in (babel_folder, science):
        text = (folder / "corpora/text/qaa.txt").read_text(encoding="utf-8")
        lines = re.sub(r"[0-9]+ ", "", text).splitlines()
        counts = vocabulary.counts(lines)
        assert counts[UNK] == 0
        lengths[folder] = counts.sum() / sum(len(line.split()) for line in lines)
    assert lengths[science] > 1.1 * lengths[babel_folder], "its terms are made of more pieces"
