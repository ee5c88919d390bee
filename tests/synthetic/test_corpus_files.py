"""Corpus files: their content is registered as training data, and noise is exact and recorded."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.synthetic.corpus_files import BitextNoise, Resources, SyntheticCorpora, add_noise
from crossling.synthetic.frames import Frame
from crossling.synthetic.heldout import HeldOut
from crossling.synthetic.language import LanguageFamily, SyntheticLanguage, create_languages
from crossling.synthetic.world import World

ROWS = [(f"a{i} b{i} c{i} d{i}", f"w{i} x{i} y{i}") for i in range(400)]


class Recorder:
    """Stand-in for the held-out candidates that records all content."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.texts: set[tuple[str, str]] = set()

    def add_training_frame(self, frame: Frame) -> None:
        self.frames.append(frame)

    def add_training_text(self, code: str, sentence: str) -> None:
        if sentence:
            self.texts.add((code, sentence))


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def corpora(tmp_path: Path, recorder: Recorder) -> SyntheticCorpora:
    world = World(300, seed=1)
    family = LanguageFamily(world, create_languages(3, world, seed=1), seed=1)
    return SyntheticCorpora(tmp_path, family, cast(HeldOut, recorder))


@pytest.fixture
def languages(corpora: SyntheticCorpora) -> list[SyntheticLanguage]:
    return corpora.family.languages


def frames_of(corpora: SyntheticCorpora, part: str, sentences: int) -> list[Frame]:
    return [frame for document in corpora.family.documents(part, sentences) for frame in document]


def test_text_is_registered(corpora: SyntheticCorpora, languages: list[SyntheticLanguage], recorder: Recorder) -> None:
    corpora.text(languages[0], 50)
    lines = (corpora.folder / "text" / "qaa.txt").read_text(encoding="utf-8").split("\n")
    assert recorder.texts == {("qaa", line) for line in lines if line}
    assert recorder.frames == frames_of(corpora, "text/qaa", 50)


def test_bitext_is_registered_after_noise(
    corpora: SyntheticCorpora, languages: list[SyntheticLanguage], recorder: Recorder
) -> None:
    record = corpora.pair(languages[0], languages[2], 50, BitextNoise(near_duplicates=0.3))
    rows = (corpora.folder / "pairs" / "synthetic.qaa-qac.tsv").read_text(encoding="utf-8").splitlines()
    assert len(record) == 15
    assert recorder.texts == {pair for row in rows for pair in zip(("qaa", "qac"), row.split("\t"), strict=True)}
    assert recorder.frames == frames_of(corpora, "pairs/qaa-qac", 50)


def test_multi_way_corpus_is_registered(corpora: SyntheticCorpora, recorder: Recorder) -> None:
    corpora.multi(Resources.plan(["qaa", "qab", "qac"], 250))
    files = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in corpora.folder.rglob("*.txt")}
    assert sorted(files) == ["qaa", "qab", "qac"]
    assert recorder.texts == {(code, line) for code, lines in files.items() for line in lines if line}
    assert recorder.frames == frames_of(corpora, "multi", 50)


# ---- noise --------------------------------------------------------------------------------------------------


def test_no_noise_changes_nothing() -> None:
    assert add_noise(ROWS, BitextNoise(), random.Random(0)) == (ROWS, [])


@given(
    st.lists(st.integers(0, 25), min_size=4, max_size=4),
    st.integers(0, 1000),
)
@example([25, 25, 25, 25], 39)  # all rows get noise: a many-to-one row must not get its own target
def test_proportions_are_exact_and_every_change_is_recorded(percents: list[int], seed: int) -> None:
    noise = BitextNoise(*(percent / 100 for percent in percents))
    noisy, record = add_noise(ROWS, noise, random.Random(seed))
    assert len(noisy) == len(ROWS)
    kinds = Counter(entry.kind for entry in record)
    assert {kind: kinds[kind] for kind in asdict(noise)} == {
        kind: round(proportion * len(ROWS)) for kind, proportion in asdict(noise).items()
    }
    assert {entry.row for entry in record} == {i for i in range(len(ROWS)) if noisy[i] != ROWS[i]}


def test_each_kind_of_noise_has_its_form() -> None:
    noisy, record = add_noise(ROWS, BitextNoise(0.1, 0.1, 0.1, 0.1), random.Random(0))
    crowds: Counter[int] = Counter()
    for row, kind, origin in record:
        source, target = noisy[row]
        if kind == "copies":
            assert source == target == ROWS[row][0]
            continue
        assert noisy[origin] == ROWS[origin], "rows that are copied from have no noise"
        assert target == ROWS[origin][1] != ROWS[row][1]
        if kind == "near_duplicates":
            assert source != ROWS[origin][0]
            assert len(set(source.split()) & set(ROWS[origin][0].split())) >= 3
        else:
            assert source == ROWS[row][0]
        if kind == "many_to_one":
            crowds[origin] += 1
    assert max(crowds.values()) >= 8
    assert len(crowds) <= 5


@pytest.mark.parametrize("proportions", [{"wrong": -0.1}, {"copies": 1.5}, {"wrong": 0.6, "many_to_one": 0.6}])
def test_impossible_proportions_are_refused(proportions: dict[str, float]) -> None:
    with pytest.raises(BadInput, match=r"^noise: .* at most 1"):
        BitextNoise(**proportions)
