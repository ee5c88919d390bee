"""Each language has its smoothed share of the sample; excerpts come from all over the text; odd letters are found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.corpora.corpus import Corpora
from crossling.vocabulary.sample import EXCERPT, LONGEST, _Spread, joined, smoothed_sample, survey

from .texts import folder_of


@pytest.fixture(scope="session")
def unequal(tmp_path_factory: pytest.TempPathFactory) -> Corpora:
    """de has 16 times the text of sw, en 4 times; each line names its language."""
    lines = {"de": 16_000, "en": 4000, "sw": 1000}
    root = tmp_path_factory.mktemp("unequal")
    return folder_of(root, {f"text/{code}.txt": [f"{code} {i:07}" for i in range(n)] for code, n in lines.items()})


CHARACTERS = {"de": 160_000, "en": 40_000, "sw": 10_000}


def test_a_survey_counts_characters(unequal: Corpora) -> None:
    seen = survey(unequal)
    assert seen.characters == CHARACTERS
    assert seen.shares(0.5) == pytest.approx({"de": 4 / 7, "en": 2 / 7, "sw": 1 / 7})


def test_excerpts_come_from_all_over_the_text(unequal: Corpora) -> None:
    for language, lines in survey(unequal).excerpts.items():
        numbers = [int(line.split()[1]) for line in lines]
        total = CHARACTERS[language] // 10
        assert EXCERPT <= len(numbers) < 2 * EXCERPT
        assert set(np.diff(numbers)) == {numbers[1] - numbers[0]}
        assert numbers[0] == 0
        assert numbers[-1] >= total - (numbers[1] - numbers[0])


@given(total=st.integers(0, 500), count=st.integers(1, 40))
def test_a_spread_is_even_and_bounded(total: int, count: int) -> None:
    spread = _Spread(count)
    for number in range(total):
        spread.add(str(number))
    numbers = list(map(int, spread.lines))
    assert numbers == list(range(0, total, spread.stride))
    assert len(numbers) < 2 * count
    assert len(numbers) >= min(total, count)


def test_a_survey_finds_letters_that_need_a_rule(tmp_path: Path) -> None:
    corpora = folder_of(tmp_path, {"text/yo.txt": ["e\u0335\u0323 ti", "o\u0301\u0323 ni"], "text/en.txt": ["plain"]})
    assert survey(corpora).odd == {"e\u0335\u0323"}  # two marks, of which only the second becomes one with the letter


def test_long_lines_are_cut(tmp_path: Path) -> None:
    corpora = folder_of(tmp_path, {"text/en.txt": ["x" * 3 * LONGEST]})
    seen = survey(corpora)
    assert seen.characters == {"en": 3 * LONGEST}
    assert seen.excerpts == {"en": ["x" * LONGEST]} == smoothed_sample(corpora, seen.characters, 1.0)


@pytest.mark.parametrize(("alpha", "parts"), [(1.0, (16, 4, 1)), (0.5, (4, 2, 1)), (0.0, (1, 1, 1))])
def test_shares_of_the_sample_follow_alpha(unequal: Corpora, alpha: float, parts: tuple[int, ...]) -> None:
    sample = smoothed_sample(unequal, CHARACTERS, alpha, budget=25_000, seed=3)
    counts = np.array([len(sample[code]) for code in ("de", "en", "sw")])
    assert all(line.startswith(code) for code, lines in sample.items() for line in lines)
    assert sum(map(len, joined(sample))) == pytest.approx(25_000, rel=0.06)
    expected = 2500 * np.array(parts) / sum(parts)
    assert np.all(np.abs(counts - expected) < 4 * np.sqrt(expected))


def test_language_smaller_than_its_share_is_kept_whole(unequal: Corpora) -> None:
    sample = smoothed_sample(unequal, CHARACTERS, 0.0, budget=60_000)
    assert sample["sw"] == [f"sw {i:07}" for i in range(1000)]


def test_everything_when_there_is_room(unequal: Corpora) -> None:
    sample = joined(smoothed_sample(unequal, CHARACTERS, 1.0, budget=10**9))
    assert len(sample) == len(set(sample)) == 21_000


def test_sample_depends_on_the_seed_alone(unequal: Corpora) -> None:
    first, again, other = (smoothed_sample(unequal, CHARACTERS, 0.5, 10_000, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_sample_reads_text_pairs_and_multi_way_sets(tmp_path: Path) -> None:
    corpora = folder_of(
        tmp_path,
        {
            "text/en.txt": ["one", "", "two"],
            "pairs/en-sw.tsv": ["three\ttatu"],
            "multi/set/en.txt": ["four", "", "five"],
            "multi/set/fr.txt": ["", "deux", "cinq"],
        },
    )
    assert smoothed_sample(corpora, survey(corpora).characters, 1.0) == {
        "en": ["one", "two", "three", "four", "five"],
        "fr": ["deux", "cinq"],
        "sw": ["tatu"],
    }
