"""Tests of the training sample: smoothed proportions of languages, excerpts, and clusters that need a rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.core import files as disk
from crossling.core.jobs import Share
from crossling.corpora import source_parts
from crossling.corpora.corpus import Corpora
from crossling.vocabulary import text_sample as module
from crossling.vocabulary.text_sample import (
    EXCERPT_LINES,
    MAX_LINE_CHARACTERS,
    LineExcerpt,
    SampleSettings,
    TextSample,
    merge_excerpts,
    sample_corpora,
)
from crossling.vocabulary.vocabulary import Vocabulary

from .texts import folder_of


def sample_text(corpora: Corpora, folder: Path, **settings: float) -> TextSample:
    sample = sample_corpora(corpora, folder, SampleSettings(**settings))  # type: ignore[arg-type]
    assert sample is not None
    return sample


@pytest.fixture(scope="session")
def unequal(tmp_path_factory: pytest.TempPathFactory) -> Corpora:
    """Corpora in which de has 16 times the text of sw, and en 4 times. Each line names its language."""
    lines = {"de": 16_000, "en": 4000, "sw": 1000}
    root = tmp_path_factory.mktemp("unequal")
    return folder_of(root, {f"text/{code}.txt": [f"{code} {i:07}" for i in range(n)] for code, n in lines.items()})


CHARACTERS = {"de": 160_000, "en": 40_000, "sw": 10_000}


def test_statistics_count_characters(unequal: Corpora, tmp_path: Path) -> None:
    sample = sample_text(unequal, tmp_path)
    assert sample.characters == CHARACTERS
    assert sample.proportions(0.5) == pytest.approx({"de": 4 / 7, "en": 2 / 7, "sw": 1 / 7})


def test_excerpts_are_lines_at_equal_distances(unequal: Corpora, tmp_path: Path) -> None:
    for language, lines in sample_text(unequal, tmp_path).excerpts.items():
        numbers = [int(line.split()[1]) for line in lines]
        total = CHARACTERS[language] // 10
        assert EXCERPT_LINES <= len(numbers) < 2 * EXCERPT_LINES
        assert set(np.diff(numbers)) == {numbers[1] - numbers[0]}
        assert numbers[0] == 0
        assert numbers[-1] >= total - (numbers[1] - numbers[0])


@given(total=st.integers(0, 500), count=st.integers(1, 40), batch=st.integers(1, 60))
def test_an_excerpt_is_even_and_bounded(total: int, count: int, batch: int) -> None:
    excerpt = LineExcerpt(count)
    for start in range(0, total, batch):
        excerpt.add([*map(str, range(start, min(total, start + batch)))])
    numbers = list(map(int, excerpt.lines))
    assert numbers == list(range(0, total, excerpt.stride))
    assert len(numbers) < 2 * count
    assert len(numbers) >= min(total, count)


@given(totals=st.lists(st.integers(0, 200), max_size=6), count=st.integers(1, 40))
def test_merged_excerpts_are_even_and_bounded(totals: list[int], count: int) -> None:
    excerpts = []
    for number, total in enumerate(totals):
        excerpt = LineExcerpt(count)
        excerpt.add([f"{number} {line}" for line in range(total)])
        excerpts.append({"stride": excerpt.stride, "lines": excerpt.lines})
    merged = [tuple(map(int, line.split())) for line in merge_excerpts(excerpts, count)]
    assert len(merged) < max(2 * count, len(totals) + 1)
    assert {number for number, _ in merged} == {number for number, total in enumerate(totals) if total}
    strides = {b - a for (i, a), (j, b) in pairwise(merged) if i == j}
    assert len(strides) <= 1
    assert merged == sorted(merged)


def test_statistics_find_clusters_that_need_a_rule(tmp_path: Path) -> None:
    corpora = folder_of(tmp_path, {"text/yo.txt": ["e\u0335\u0323 ti", "o\u0301\u0323 ni"], "text/en.txt": ["plain"]})
    # Only the second of its two marks composes with the letter.
    assert sample_text(corpora, tmp_path / "work").unnormalized_clusters == {"e\u0335\u0323"}


def test_long_lines_are_truncated(tmp_path: Path) -> None:
    corpora = folder_of(tmp_path, {"text/en.txt": ["x" * 3 * MAX_LINE_CHARACTERS]})
    sample = sample_text(corpora, tmp_path / "work")
    assert sample.characters == {"en": 3 * MAX_LINE_CHARACTERS}
    assert sample.excerpts == sample.lines == {"en": ["x" * MAX_LINE_CHARACTERS]}


@pytest.mark.parametrize(("alpha", "parts"), [(1.0, (16, 4, 1)), (0.5, (4, 2, 1)), (0.0, (1, 1, 1))])
@pytest.mark.parametrize(("slice_bytes", "search_bytes"), [(1 << 30, 1 << 24), (9000, 1 << 24), (9000, 100)])
def test_proportions_of_the_sample_follow_alpha(
    unequal: Corpora,
    alpha: float,
    parts: tuple[int, ...],
    slice_bytes: int,
    search_bytes: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source_parts, "SLICE_BYTES", slice_bytes)
    monkeypatch.setattr(source_parts, "MAX_DOCUMENT_CHARACTERS", search_bytes)  # the text has no empty lines
    monkeypatch.setattr(module, "MIN_STORED", 2000)
    sample = sample_text(unequal, tmp_path, alpha=alpha, characters=25_000, seed=3)
    counts = np.array([len(sample.lines[code]) for code in ("de", "en", "sw")])
    assert all(line.startswith(code) for code, lines in sample.lines.items() for line in lines)
    assert sum(map(len, sample.all_lines())) == pytest.approx(25_000, rel=0.06)
    expected = 2500 * np.array(parts) / sum(parts)
    assert np.all(np.abs(counts - expected) < 4 * np.sqrt(expected))
    for lines in sample.lines.values():
        assert lines == sorted(lines)
        numbers = [int(line.split()[1]) for line in lines]
        total = CHARACTERS[lines[0][:2]] // 10
        assert np.mean(numbers) == pytest.approx(total / 2, rel=0.12)  # from all slices alike


def test_a_language_smaller_than_its_proportion_is_kept_whole(unequal: Corpora, tmp_path: Path) -> None:
    sample = sample_text(unequal, tmp_path, alpha=0.0, characters=60_000)
    assert sample.lines["sw"] == [f"sw {i:07}" for i in range(1000)]


def test_a_large_sample_keeps_every_line(unequal: Corpora, tmp_path: Path) -> None:
    lines = sample_text(unequal, tmp_path, alpha=1.0, characters=10**9).all_lines()
    assert len(lines) == len(set(lines)) == 21_000


def test_the_sample_depends_on_the_seed(unequal: Corpora, tmp_path: Path) -> None:
    first, again, other = (
        sample_text(unequal, tmp_path / f"{number}", characters=10_000, seed=seed)
        for number, seed in enumerate((1, 1, 2))
    )
    assert first.lines == again.lines != other.lines


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
    assert sample_text(corpora, tmp_path / "work", alpha=1.0).lines == {
        "en": ["one", "two", "three", "four", "five"],
        "fr": ["deux", "cinq"],
        "sw": ["tatu"],
    }


# ---- several processes and machines --------------------------------------------------------------------------


def contents(sample: TextSample) -> list[object]:
    return [
        sample.characters,
        sample.excerpts,
        sample.unnormalized_clusters,
        sample.lines,
        sample.token_counts.tolist(),
    ]


@pytest.mark.parametrize("numbers", [(1, 2, 3), (3, 1, 2)])
def test_machines_give_the_same_sample(
    unequal: Corpora,
    vocabulary: Vocabulary,
    numbers: tuple[int, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source_parts, "SLICE_BYTES", 30_000)
    monkeypatch.setattr(source_parts, "MAX_DOCUMENT_CHARACTERS", 100)
    monkeypatch.setattr(disk, "_flush", lambda _: None)
    settings = SampleSettings(20_000)
    whole = sample_corpora(unequal, tmp_path / "whole", settings, counted=vocabulary)
    assert whole is not None
    found = [
        sample_corpora(unequal, tmp_path / "work", settings, share=Share(n, 3), counted=vocabulary) for n in numbers
    ]
    assert found[:2] == [None, None]
    assert found[2] is not None
    assert contents(found[2]) == contents(whole)
    assert whole.token_counts.sum() == sum(
        vocabulary.count_tokens(unequal.lines(language)).sum() for language in unequal.languages
    )


def test_two_processes_give_the_same_sample(unequal: Corpora, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = sample_text(unequal, tmp_path / "one", characters=20_000)
    monkeypatch.setattr(module, "WORKERS_BYTES", 0)
    two = sample_corpora(unequal, tmp_path / "two", SampleSettings(20_000), workers=2)
    assert two is not None
    assert contents(two) == contents(one)


def test_an_interrupted_call_reads_no_slice_twice(
    unequal: Corpora, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_parts, "SLICE_BYTES", 30_000)
    monkeypatch.setattr(source_parts, "MAX_DOCUMENT_CHARACTERS", 100)
    read: list[str] = []
    documents = source_parts.SourcePart.documents

    def interrupted(part: source_parts.SourcePart, dropped: Counter[str]) -> Iterator[list[tuple[str, ...]]]:
        if len(read) == 4:
            read.append("interrupted")
            raise KeyboardInterrupt
        read.append(part.name)
        return documents(part, dropped)

    monkeypatch.setattr(source_parts.SourcePart, "documents", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sample_text(unequal, tmp_path / "work", characters=20_000)
    resumed = sample_text(unequal, tmp_path / "work", characters=20_000)
    slices = sum(part.slices for part in source_parts.source_parts(unequal))
    assert len(read) == slices + 1
    assert contents(resumed) == contents(sample_text(unequal, tmp_path / "whole", characters=20_000))


def test_changed_text_is_read_again(tmp_path: Path) -> None:
    for text in ("one", "another"):
        corpora = folder_of(tmp_path, {"text/en.txt": [text], "text/sw.txt": ["moja"]})
        assert sample_text(corpora, tmp_path / "work").lines == {"en": [text], "sw": ["moja"]}
