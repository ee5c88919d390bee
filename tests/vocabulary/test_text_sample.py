"""Tests of the training sample: smoothed proportions of languages, excerpts, and clusters that need a rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.corpora.corpus import Corpora
from crossling.vocabulary.unigram import (
    EXCERPT_LINES,
    MAX_LINE_CHARACTERS,
    _Excerpt,
    collect_statistics,
    join_languages,
    sample_lines,
)

from .texts import folder_of


@pytest.fixture(scope="session")
def unequal(tmp_path_factory: pytest.TempPathFactory) -> Corpora:
    """Corpora in which de has 16 times the text of sw, and en 4 times. Each line names its language."""
    lines = {"de": 16_000, "en": 4000, "sw": 1000}
    root = tmp_path_factory.mktemp("unequal")
    return folder_of(root, {f"text/{code}.txt": [f"{code} {i:07}" for i in range(n)] for code, n in lines.items()})


CHARACTERS = {"de": 160_000, "en": 40_000, "sw": 10_000}


def test_statistics_count_characters(unequal: Corpora) -> None:
    statistics = collect_statistics(unequal)
    assert statistics.characters == CHARACTERS
    assert statistics.proportions(0.5) == pytest.approx({"de": 4 / 7, "en": 2 / 7, "sw": 1 / 7})


def test_excerpts_are_lines_at_equal_distances(unequal: Corpora) -> None:
    for language, lines in collect_statistics(unequal).excerpts.items():
        numbers = [int(line.split()[1]) for line in lines]
        total = CHARACTERS[language] // 10
        assert EXCERPT_LINES <= len(numbers) < 2 * EXCERPT_LINES
        assert set(np.diff(numbers)) == {numbers[1] - numbers[0]}
        assert numbers[0] == 0
        assert numbers[-1] >= total - (numbers[1] - numbers[0])


@given(total=st.integers(0, 500), count=st.integers(1, 40))
def test_an_excerpt_is_even_and_bounded(total: int, count: int) -> None:
    excerpt = _Excerpt(count)
    for number in range(total):
        excerpt.add(str(number))
    numbers = list(map(int, excerpt.lines))
    assert numbers == list(range(0, total, excerpt.stride))
    assert len(numbers) < 2 * count
    assert len(numbers) >= min(total, count)


def test_statistics_find_clusters_that_need_a_rule(tmp_path: Path) -> None:
    corpora = folder_of(tmp_path, {"text/yo.txt": ["e\u0335\u0323 ti", "o\u0301\u0323 ni"], "text/en.txt": ["plain"]})
    # Only the second of its two marks composes with the letter.
    assert collect_statistics(corpora).unnormalized_clusters == {"e\u0335\u0323"}


def test_long_lines_are_truncated(tmp_path: Path) -> None:
    corpora = folder_of(tmp_path, {"text/en.txt": ["x" * 3 * MAX_LINE_CHARACTERS]})
    statistics = collect_statistics(corpora)
    assert statistics.characters == {"en": 3 * MAX_LINE_CHARACTERS}
    assert (
        statistics.excerpts
        == {"en": ["x" * MAX_LINE_CHARACTERS]}
        == sample_lines(corpora, statistics.characters, alpha=1.0)
    )


@pytest.mark.parametrize(("alpha", "parts"), [(1.0, (16, 4, 1)), (0.5, (4, 2, 1)), (0.0, (1, 1, 1))])
def test_proportions_of_the_sample_follow_alpha(unequal: Corpora, alpha: float, parts: tuple[int, ...]) -> None:
    sample = sample_lines(unequal, CHARACTERS, alpha=alpha, budget=25_000, seed=3)
    counts = np.array([len(sample[code]) for code in ("de", "en", "sw")])
    assert all(line.startswith(code) for code, lines in sample.items() for line in lines)
    assert sum(map(len, join_languages(sample))) == pytest.approx(25_000, rel=0.06)
    expected = 2500 * np.array(parts) / sum(parts)
    assert np.all(np.abs(counts - expected) < 4 * np.sqrt(expected))


def test_a_language_smaller_than_its_proportion_is_kept_whole(unequal: Corpora) -> None:
    sample = sample_lines(unequal, CHARACTERS, alpha=0.0, budget=60_000)
    assert sample["sw"] == [f"sw {i:07}" for i in range(1000)]


def test_a_large_budget_keeps_every_line(unequal: Corpora) -> None:
    sample = join_languages(sample_lines(unequal, CHARACTERS, alpha=1.0, budget=10**9))
    assert len(sample) == len(set(sample)) == 21_000


def test_the_sample_depends_on_the_seed_alone(unequal: Corpora) -> None:
    first, again, other = (sample_lines(unequal, CHARACTERS, alpha=0.5, budget=10_000, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_the_sample_has_text_pairs_and_multiway_corpora(tmp_path: Path) -> None:
    corpora = folder_of(
        tmp_path,
        {
            "text/en.txt": ["one", "", "two"],
            "pairs/en-sw.tsv": ["three\ttatu"],
            "multi/set/en.txt": ["four", "", "five"],
            "multi/set/fr.txt": ["", "deux", "cinq"],
        },
    )
    assert sample_lines(corpora, collect_statistics(corpora).characters, alpha=1.0) == {
        "en": ["one", "two", "three", "four", "five"],
        "fr": ["deux", "cinq"],
        "sw": ["tatu"],
    }
