from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from crossling.babel.corpora import Corpora
from crossling.babel.frame import Frame
from crossling.babel.heldout import HeldOut
from crossling.babel.language import Language, found_languages
from crossling.babel.noise import Noise
from crossling.babel.resources import Resources
from crossling.babel.story import documents
from crossling.babel.world import World


class Witness:
    """Stands for the held-out candidates, and remembers all that it is told."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.texts: set[tuple[str, str]] = set()

    def saw(self, frame: Frame) -> None:
        self.frames.append(frame)

    def saw_text(self, code: str, sentence: str) -> None:
        if sentence:
            self.texts.add((code, sentence))


@pytest.fixture
def witness() -> Witness:
    return Witness()


@pytest.fixture
def corpora(tmp_path: Path, witness: Witness) -> Corpora:
    return Corpora(tmp_path, World(300, seed=1), 1, cast(HeldOut, witness))


@pytest.fixture
def languages(corpora: Corpora) -> list[Language]:
    return found_languages(3, corpora.world, seed=1)


def meant(corpora: Corpora, part: str, sentences: int) -> list[Frame]:
    return [frame for document in documents(corpora.world, 1, part, sentences) for frame in document]


def test_all_of_a_text_is_told(corpora: Corpora, languages: list[Language], witness: Witness) -> None:
    corpora.text(languages[0], 50)
    lines = (corpora.folder / "text" / "qaa.txt").read_text(encoding="utf-8").split("\n")
    assert witness.texts == {("qaa", line) for line in lines if line}
    assert witness.frames == meant(corpora, "text/qaa", 50)


def test_all_of_a_pair_is_told_as_noise_left_it(corpora: Corpora, languages: list[Language], witness: Witness) -> None:
    record = corpora.pair(languages[0], languages[2], 50, Noise(near_duplicates=0.3))
    rows = (corpora.folder / "pairs" / "babel.qaa-qac.tsv").read_text(encoding="utf-8").splitlines()
    assert len(record) == 15
    assert witness.texts == {pair for row in rows for pair in zip(("qaa", "qac"), row.split("\t"), strict=True)}
    assert witness.frames == meant(corpora, "pairs/qaa-qac", 50)


def test_all_of_the_multi_way_corpus_is_told(corpora: Corpora, languages: list[Language], witness: Witness) -> None:
    corpora.multi(languages, Resources.plan(["qaa", "qab", "qac"], 250))
    files = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in corpora.folder.rglob("*.txt")}
    assert sorted(files) == ["qaa", "qab", "qac"]
    assert witness.texts == {(code, line) for code, lines in files.items() for line in lines if line}
    assert witness.frames == meant(corpora, "multi", 50)
