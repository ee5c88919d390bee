"""Rows of tab-separated pairs, with or without a score.

A file has one layout, which its first lines decide:

| columns | content | for instance |
|---|---|---|
| 2 | source, target | |
| 3 | score, source, target | CCMatrix |
| 3 | source, target, score | CCAligned, sentences |
| 4 | domain or URL, source, target, score | CCAligned |
| 5 | URL, source, URL, target, score | CCAligned |

Rows with another number of columns are skipped, because a tab inside a sentence would shift the sides.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from crossling.corpora.text_files import SkipReason, TextFile, map_rows, read_lines

SAMPLE_LINES = 100  # that decide the layout
SAMPLE_CHARACTERS = 1 << 16
MIN_NUMBERS = 0.9  # least fraction of numbers in a column of scores
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", re.ASCII | re.IGNORECASE)


class RowLayout(NamedTuple):
    """Positions of the columns that are read."""

    columns: int
    source: int
    target: int
    score: int | None = None


PLAIN = RowLayout(2, 0, 1)
SCORED = (RowLayout(3, 1, 2, 0), RowLayout(3, 0, 1, 2), RowLayout(4, 1, 2, 3), RowLayout(5, 1, 3, 4))


def has_scores(file: TextFile) -> bool:
    """Return True for a TSV file with a column of scores."""
    return file.format == "tsv" and _layout_of([*_take(read_lines(file.path))]).score is not None


def read_tsv(file: TextFile) -> Iterator[tuple[str, str] | SkipReason]:
    """Yield both sides of every row. Rows with a score below `file.min_score` are skipped."""
    layout = _layout_of([*_take(read_lines(file.path))])
    lines = read_lines(file.path, span=file.span)
    return map_rows(lambda line: _select_sides(line.split("\t"), layout, file.min_score), lines)


def _layout_of(sample: Sequence[str | SkipReason]) -> RowLayout:
    return find_layout([line.split("\t") for line in sample if isinstance(line, str)])


def _take(lines: Iterator[str | SkipReason]) -> Iterator[str | SkipReason]:
    """Yield the first lines, and fewer of them if they are long: all are in memory at once."""
    size = 0
    for line in islice(lines, SAMPLE_LINES):
        yield line
        size += len(line) if isinstance(line, str) else 0
        if size > SAMPLE_CHARACTERS:
            return


def find_layout(rows: Sequence[Sequence[str]]) -> RowLayout:
    """Return the layout of the most frequent number of columns. Without one column of scores it is two columns."""
    columns = max(Counter(map(len, rows)).items(), key=lambda item: item[1], default=(PLAIN.columns, 0))[0]
    complete = [row for row in rows if len(row) == columns]
    layouts = [layout for layout in SCORED if layout.columns == columns and _has_scores(complete, layout)]
    return layouts[0] if len(layouts) == 1 else PLAIN  # numbers on both ends: either may be a sentence


def _has_scores(rows: Sequence[Sequence[str]], layout: RowLayout) -> bool:
    scores = [row[layout.score] for row in rows if layout.score is not None]
    return sum(_NUMBER.fullmatch(score) is not None for score in scores) >= MIN_NUMBERS * len(rows)


def _select_sides(row: Sequence[str], layout: RowLayout, min_score: float | None) -> tuple[str, str] | SkipReason:
    if len(row) != layout.columns:
        return SkipReason.NOT_TWO_COLUMNS
    if layout.score is not None:
        score = row[layout.score]
        if not _NUMBER.fullmatch(score):
            return SkipReason.NO_SCORE
        if min_score is not None and float(score) < min_score:
            return SkipReason.LOW_SCORE
    return row[layout.source], row[layout.target]
