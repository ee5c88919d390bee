"""Score against size and against cost: where dots and their names lie. Both grow by factors, so the scale is one of
factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from crossling.evaluate.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Tick, compact, ticks

LETTER = 6.2  # about how wide one is
CLEAR = 12  # height of a name


@dataclass(frozen=True)
class Spot:
    name: str
    x: float
    y: float
    colour: int | None = None  # none: from a paper
    title: str = ""


@dataclass(frozen=True)
class Placed:
    spot: Spot
    x: float
    y: float
    anchor: str | None = None  # of the name: start, end, middle; none: no room for it
    name_x: float = 0
    name_y: float = 0


@dataclass(frozen=True)
class Scatter:
    title: str
    x_name: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    spots: list[Placed]


def scatter(title: str, x_name: str, spots: Sequence[Spot]) -> Scatter:
    low, high = (math.log10(pick(spot.x for spot in spots)) for pick in (min, max))
    margin = 0.06 * ((high - low) or 1)
    low, high = low - margin, high + margin
    y_values = ticks(min(spot.y for spot in spots), max(spot.y for spot in spots), 5)

    def x_at(x: float) -> float:
        return round(LEFT + (math.log10(x) - low) / (high - low) * (WIDTH - LEFT - RIGHT), 1)

    def y_at(y: float) -> float:
        share = (y - y_values[0]) / (y_values[-1] - y_values[0])
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)

    x_values = [value for value in _factors(low, high) if low <= math.log10(value) <= high]
    return Scatter(
        title,
        x_name,
        [Tick(x_at(value), _power(value)) for value in x_values],
        [Tick(y_at(value), compact(value)) for value in y_values],
        _placed([(spot, x_at(spot.x), y_at(spot.y)) for spot in spots]),
    )


def _placed(spots: Sequence[tuple[Spot, float, float]]) -> list[Placed]:
    """Names to the right of their dots, else to the left, above, below, or none; the runs' names come first."""
    taken: list[tuple[float, float, float]] = [(x - 4, x + 4, y) for _, x, y in spots]
    placed: dict[Spot, Placed] = {}
    for spot, x, y in sorted(spots, key=lambda each: each[0].colour is None):
        placed[spot] = Placed(spot, x, y)
        width = LETTER * len(spot.name)
        sides = (
            ("start", x + 7, 0),
            ("end", x - 7 - width, 0),
            ("middle", x - width / 2, -CLEAR),
            ("middle", x - width / 2, CLEAR),
        )
        for anchor, start, shift in sides:
            end, middle = start + width, y + shift
            free = all(end < left or start > right or abs(middle - other) >= CLEAR for left, right, other in taken)
            if free and start >= LEFT and end <= WIDTH:
                name_x = {"start": start, "end": end, "middle": x}[anchor]
                placed[spot] = Placed(spot, x, y, anchor, round(name_x, 1), round(middle + 4, 1))
                taken.append((start, end, middle))
                break
    return [placed[spot] for spot, _, _ in spots]


def _factors(low: float, high: float) -> list[float]:
    powers = range(math.floor(low), math.ceil(high) + 1)
    steps = (1, 2, 5) if high - low < 2.5 else (1,)
    return [step * 10.0**power for power in powers for step in steps]


def _power(value: float) -> str:
    return compact(value) if value < 1e12 else f"{value:.0e}".replace("e+", "e")
