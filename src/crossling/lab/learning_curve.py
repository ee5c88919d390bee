"""Learning curves: retrieval accuracy during a run, and the comparison of two curves.

A curve can be read at equal steps and at equal FLOPs, whichever of them the budget was given in. Before its end, the
learning rate of a run has not decayed yet. So a curve that is cut off there is slightly below what a run with that
budget would reach.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Literal

import numpy as np

Axis = Literal["step", "flops"]
VALUE = "probe/retrieval"  # the mean; `probe/retrieval/LANGUAGE` for each language


@dataclass(frozen=True)
class CurvePoint:
    """Training cost and retrieval accuracy at one step."""

    step: int
    tokens: int
    seconds: float
    flops: float
    value: float  # percent, mean over languages at the best layer
    languages: dict[str, float]


Curve = Sequence[CurvePoint]


def read_curve(metrics: Path) -> list[CurvePoint]:
    """Read the probes from the metrics of a run. Empty if there are none yet."""
    points = []
    for line in metrics.read_text(encoding="utf-8").splitlines() if metrics.is_file() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # incomplete last line
        if VALUE in row:
            languages = {key.removeprefix(f"{VALUE}/"): row[key] for key in row if key.startswith(f"{VALUE}/")}
            # The probe before the first step has no cost.
            cost = {key: row.get(key, 0) for key in ("tokens", "seconds", "flops")}
            points.append(CurvePoint(row["step"], **cost, value=row[VALUE], languages=languages))
    return points


def mean_curve(curves: Sequence[Curve]) -> list[CurvePoint]:
    """Average the curves of several seeds, which have probes at the same steps."""
    return [
        CurvePoint(
            step=points[0].step,
            tokens=round(fmean(point.tokens for point in points)),
            seconds=fmean(point.seconds for point in points),
            flops=fmean(point.flops for point in points),
            value=fmean(point.value for point in points),
            languages={name: fmean(point.languages[name] for point in points) for name in points[0].languages},
        )
        for points in zip(*curves, strict=True)
    ]


def common_end(first: Curve, second: Curve, axis: Axis) -> float:
    """Return the end of the shorter curve."""
    end: float = min(getattr(curve[-1], axis) for curve in (first, second))
    return end


def interpolate(curve: Curve, axis: Axis, x: float) -> dict[str, float]:
    """Return the accuracy of each language at `x`, by linear interpolation."""
    xs = [getattr(point, axis) for point in curve]
    return {name: float(np.interp(x, xs, [point.languages[name] for point in curve])) for name in curve[0].languages}


def has_learned(curve: Curve) -> bool:
    """True if the curve ends above its untrained start."""
    return curve[-1].value > curve[0].value


def speed_up(better: Curve, worse: Curve) -> float | None:
    """Return how many times fewer FLOPs the better curve needs to reach the end of the worse one.

    It is below 1 if the curve called better ends lower. None if one of them has not learned anything.
    """
    if not (has_learned(better) and has_learned(worse)):
        return None
    if better[-1].value < worse[-1].value:
        faster = speed_up(worse, better)
        return 1 / faster if faster else None
    goal = worse[-1].value
    for before, after in pairwise(better):
        if before.value < goal <= after.value:
            share = (goal - before.value) / (after.value - before.value)
            return worse[-1].flops / (before.flops + share * (after.flops - before.flops))
    return None
