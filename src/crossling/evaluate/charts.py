"""Where things lie in a picture. The template only draws what is computed here; colours are the page's own."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 400, 232
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 12, 40
CELL = 32  # of the alignment grid
MOST_POINTS = 80  # of a curve; more are averaged in groups, which also keeps the page small

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    name: str
    colour: int
    points: Sequence[Point]


@dataclass(frozen=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True)
class Dot:
    x: float
    y: float
    title: str


@dataclass(frozen=True)
class Line:
    name: str
    colour: int
    dots: list[Dot]


@dataclass(frozen=True)
class LineChart:
    title: str
    x_name: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    lines: list[Line]
    rule: Tick | None  # a level to compare with
    marks: bool  # points are drawn, not only shown on hovering


def line_chart(
    title: str, x_name: str, series: Sequence[Series], percent: bool = False, rule: tuple[float, str] | None = None
) -> LineChart:
    """A chart of all series; with `percent`, values start at 0 and points are few and drawn."""
    drawn = [Series(each.name, each.colour, _thinned(each.points)) for each in series if each.points]
    xs = [x for each in drawn for x, _ in each.points]
    ys = [y for each in drawn for _, y in each.points]
    x_values = ticks(min(xs), max(xs), 6, whole=True)
    y_values = ticks(0 if percent else min(ys), max([*ys, rule[0]] if rule else ys), 5)
    x_low, x_high = min(xs), max(xs)
    y_low, y_high = min(y_values[0], *ys), max(y_values[-1], *ys)

    def x_at(x: float) -> float:
        return round(LEFT + (x - x_low) / ((x_high - x_low) or 1) * (WIDTH - LEFT - RIGHT), 1)

    def y_at(y: float) -> float:
        return round(HEIGHT - BOTTOM - (y - y_low) / ((y_high - y_low) or 1) * (HEIGHT - TOP - BOTTOM), 1)

    lines = [
        Line(
            each.name,
            each.colour,
            [Dot(x_at(x), y_at(y), f"{each.name}, {x_name} {compact(x)}: {y:.4g}") for x, y in each.points],
        )
        for each in drawn
    ]
    return LineChart(
        title,
        x_name,
        [Tick(x_at(x), compact(x)) for x in x_values if x_low <= x <= x_high],
        [Tick(y_at(y), compact(y)) for y in y_values],
        lines,
        Tick(y_at(rule[0]), rule[1]) if rule else None,
        percent,
    )


def ticks(low: float, high: float, most: int, whole: bool = False) -> list[float]:
    """Round numbers from at or below `low` to at or above `high`: steps of 1, 2 or 5 times a power of ten."""
    span = (high - low) or abs(high) or 1.0
    size = 10.0 ** math.floor(math.log10(span / most))
    step = next(size * factor for factor in (1, 2, 5, 10, 20) if span / (size * factor) <= most)
    if whole:
        step = max(1.0, step)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 10) for number in range(first, max(last, first + 1) + 1)]


def compact(number: float) -> str:
    """2000 as 2k, 1500000 as 1.5M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= unit:
            return f"{number / unit:.4g}{name}"
    return f"{number:.4g}"


@dataclass(frozen=True)
class Cell:
    x: float
    y: float
    shade: float  # 0 to 1
    gold: str  # "sure", "possible" or nothing
    predicted: bool
    title: str


@dataclass(frozen=True)
class Grid:
    width: float
    height: float
    left: float
    top: float
    rows: list[Tick]
    columns: list[Tick]
    cells: list[Cell]


def alignment_grid(alignment: dict[str, Any]) -> Grid:
    """Source words down, target words across; the shade is the similarity, from the least to the most alike pair."""
    source, target, similarity = alignment["source"], alignment["target"], alignment["similarity"]
    links = {kind: {tuple(link) for link in alignment[kind]} for kind in ("predicted", "sure", "possible")}
    flat = [value for row in similarity for value in row] or [0.0]
    low, span = min(flat), (max(flat) - min(flat)) or 1
    left = 12 + max((_text_width(word) for word in source), default=0)
    top = 12 + max((_text_width(word) for word in target), default=0) * 0.82  # words lean at 55 degrees
    lean = max(
        (_text_width(word) * 0.57 - CELL * (len(target) - column - 0.5) for column, word in enumerate(target)),
        default=0,
    )
    cells = []
    for i, first in enumerate(source):
        for j, second in enumerate(target):
            gold = "sure" if (i, j) in links["sure"] else "possible" if (i, j) in links["possible"] else ""
            predicted = (i, j) in links["predicted"]
            marks = [f"similarity {similarity[i][j]:.2f}", *([f"gold: {gold}"] if gold else []), *["found"] * predicted]
            shade = round((similarity[i][j] - low) / span, 3)
            title = f"{first} – {second}: {', '.join(marks)}"
            cells.append(Cell(left + j * CELL, top + i * CELL, shade, gold, predicted, title))
    return Grid(
        round(left + CELL * len(target) + max(2, lean + 4)),
        round(top + CELL * len(source) + 2),
        left,
        top,
        [Tick(top + (row + 0.5) * CELL, word) for row, word in enumerate(source)],
        [Tick(left + (column + 0.5) * CELL, word) for column, word in enumerate(target)],
        cells,
    )


def _thinned(points: Sequence[Point]) -> list[Point]:
    size = math.ceil(len(points) / MOST_POINTS)
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(group[-1][0], sum(y for _, y in group) / len(group)) for group in groups]


def _text_width(text: str) -> float:
    """About how wide a word is at 13 px; wide scripts take twice the room."""
    return sum(13.0 if unicodedata.east_asian_width(letter) in "WF" else 7.6 for letter in text)
