"""TSV files with scores: the layout of each public corpus, the filter by score, and no shift between the sides."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.corpora.corpus import Corpora
from crossling.corpora.scored_rows import PLAIN, SAMPLE_CHARACTERS, SCORED, RowLayout, find_layout
from crossling.corpora.text_files import TextFile

from .sample_files import COMPRESS, corpora_of, put, readable

LAYOUTS = {
    "ccmatrix": "{score}\t{source}\t{target}",
    "score last": "{source}\t{target}\t{score}",
    "ccaligned domain": "example.org\t{source}\t{target}\t{score}",
    "ccaligned urls": "http://a.org/en\t{source}\thttp://a.org/fr\t{target}\t{score}",
}
ROWS = [("one", "un", "1.25"), ("two – ２", "deux\xa0!", "1.06"), ("1.5", "2", "1.1e0"), ("四", "ﷺ", "0.7")]


def table(layout: str, rows: list[tuple[str, str, str]]) -> str:
    return "".join(LAYOUTS[layout].format(source=a, target=b, score=score) + "\r\n" for a, b, score in rows)


def read(
    root: Path, content: str | bytes, min_score: float | None = None
) -> tuple[list[tuple[str, str]], Counter[str]]:
    corpora = Corpora(put(root, {"pairs/ccmatrix.en-fr.tsv": content}))
    if min_score is not None:
        corpora = corpora.with_min_score(min_score)
    counts: Counter[str] = Counter()
    return list(corpora.pairs[0].rows(counts)), counts


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_found(tmp_path: Path, layout: str, suffix: str) -> None:
    put(tmp_path, {f"pairs/en-fr.tsv{suffix}": table(layout, ROWS)})
    assert list(Corpora(tmp_path).pairs[0].rows()) == [(a, b) for a, b, _ in ROWS]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pairs_below_the_least_score_are_counted(tmp_path: Path, layout: str) -> None:
    assert read(tmp_path, table(layout, ROWS), 1.06) == ([(a, b) for a, b, _ in ROWS[:3]], {"low score": 1})


def test_rows_of_another_layout_are_skipped_and_counted(tmp_path: Path) -> None:
    good = "1.1\tone\tun\n" * 20
    found, counts = read(tmp_path, good + "1.1\ttwo\ttabs\there\none\tun\nscore\tthree\ttrois\n1.2\tfour\t\n")
    assert found == [("one", "un")] * 20
    assert counts == {"not two columns": 2, "no score": 1, "empty side": 1}


def test_files_without_scores_keep_all_pairs(tmp_path: Path) -> None:
    assert read(tmp_path, "one\tun\n1.5\t2.5\n", 9.0) == ([("one", "un"), ("1.5", "2.5")], {})


def test_pairs_with_other_third_columns_are_not_guessed(tmp_path: Path) -> None:
    found, counts = read(tmp_path, "one\tun\n" + "two\tdeux\tsome note\n" * 5)
    assert (found, counts) == ([("one", "un")], {"not two columns": 5})


def test_numbers_on_both_ends_are_not_guessed() -> None:
    rows = [["1.1", "two", "2"]] * 20
    assert find_layout(rows) == PLAIN
    assert find_layout([*rows, *([["1.1", "two", "deux"]] * 20)]) == RowLayout(3, 1, 2, 0)
    assert find_layout([["nan", "two", "inf"]]) == find_layout([]) == PLAIN


def test_few_long_lines_decide(tmp_path: Path) -> None:
    long = "a" * (SAMPLE_CHARACTERS + 1)
    found, counts = read(tmp_path, f"1.2\t{long}\tun\n" + "x\ty\n" * 200)
    assert (found, counts) == ([(long, "un")], {"not two columns": 200})


def test_the_least_score_is_part_of_the_digest(tmp_path: Path) -> None:
    put(tmp_path, {"pairs/en-fr.tsv": table("ccmatrix", ROWS), "text/en.txt": "one\n"})
    corpora = Corpora(tmp_path)
    filtered = corpora.with_min_score(1.0)
    digests = {sources[0].digest() for each in (corpora, filtered) for sources in [each.pairs[0].sources]}
    assert len(digests) == 2
    assert filtered.text == corpora.text
    assert isinstance(corpora.pairs[0].sources[0], TextFile)
    assert corpora.pairs[0].sources[0].min_score is None


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.tuples(readable, readable, st.floats(-2, 2)), min_size=1, max_size=8),
    layout=st.sampled_from(["score last", "ccaligned domain", "ccaligned urls"]),
    suffix=st.sampled_from(list(COMPRESS)),
)
def test_arbitrary_text_is_read_as_written(rows: list[tuple[str, str, float]], layout: str, suffix: str) -> None:
    content = table(layout, [(f"a{source}", f"b{target}", str(score)) for source, target, score in rows])
    with corpora_of({f"pairs/en-fr.tsv{suffix}": content}) as corpora:
        assert list(corpora.pairs[0].rows()) == [(f"a{source}", f"b{target}") for source, target, _ in rows]


def test_no_two_layouts_are_equal() -> None:
    assert len({(layout.columns, layout.score) for layout in SCORED}) == len(SCORED)
