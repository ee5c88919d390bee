"""Retrieval while a run learns: how it is measured, and what two curves say of each other.

A curve has the same runs at equal steps and at equal operations (FLOPs), whichever of the two the budget was in. Before
the end a run's rate has not come down yet, so that a run which is cut short there is shown a little below what it
would have reached with that budget.
"""
# K layers with the embeddings, N sentences, D width

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np

from crossling.evaluate.retrieval import accuracy, read_tatoeba
from crossling.load import encoder_of
from crossling.objectives import Network
from crossling.train.trainer import Probe
from crossling.vocabulary.vocabulary import Vocabulary

Axis = Literal["step", "flops"]
VALUE = "probe/retrieval"  # the mean; after a further slash that of each language


@dataclass(frozen=True)
class Point:
    step: int
    tokens: int
    seconds: float
    flops: float
    value: float  # percent, the mean over languages at the best layer
    languages: dict[str, float]

    def dump(self) -> dict[str, Any]:
        return asdict(self)


Curve = Sequence[Point]


def probe(data: Path, vocabulary: Vocabulary, languages: Sequence[str] | None, sentences: int) -> Probe:
    """Percent of translations found among at most so many, in both directions, at the layer where the mean is highest:
    which layer that is differs between recipes, and none shall be at a disadvantage."""
    bitexts = [
        [(side.language, side.sentences[:sentences]) for side in bitext.sides]
        for bitext in read_tatoeba(data, languages)
    ]
    distinct = dict.fromkeys(sentence for bitext in bitexts for _, side in bitext for sentence in side)
    row_of = {sentence: row for row, sentence in enumerate(distinct)}

    def look(net: Network) -> dict[str, float]:
        pooled_KND = encoder_of(net, vocabulary, "the model in training").pooled(list(distinct))
        by_layer: list[dict[str, float]] = []
        for vectors_ND in pooled_KND:
            found = {}
            for (one, first), (other, second) in bitexts:
                first_ND, second_ND = (vectors_ND[[row_of[each] for each in side]] for side in (first, second))
                ways = (first_ND, second_ND, second), (second_ND, first_ND, first)
                name = "-".join(language for language in (one, other) if language != "en")
                found[f"retrieval/{name}"] = fmean(accuracy(*way) for way in ways)
            by_layer.append(found)
        best = max(by_layer, key=lambda found: fmean(found.values()))
        return {"retrieval": fmean(best.values()), **best}

    return look


def read(metrics: Path) -> list[Point]:
    """From a run's metrics; nothing of a run that was not looked at yet."""
    points = []
    for line in metrics.read_text(encoding="utf-8").splitlines() if metrics.is_file() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # being written, or cut off
        if VALUE in row:
            languages = {key.removeprefix(f"{VALUE}/"): row[key] for key in row if key.startswith(f"{VALUE}/")}
            # nothing is spent before the first step
            tokens, seconds, flops = (row.get(key, 0) for key in ("tokens", "seconds", "flops"))
            points.append(Point(row["step"], tokens, seconds, flops, row[VALUE], languages))
    return points


def mean(curves: Sequence[Curve]) -> list[Point]:
    """Of the seeds of one recipe, which were looked at at the same steps."""
    return [
        Point(
            step=looks[0].step,
            tokens=round(fmean(look.tokens for look in looks)),
            seconds=fmean(look.seconds for look in looks),
            flops=fmean(look.flops for look in looks),
            value=fmean(look.value for look in looks),
            languages={name: fmean(look.languages[name] for look in looks) for name in looks[0].languages},
        )
        for looks in zip(*curves, strict=True)
    ]


def common_end(first: Curve, second: Curve, axis: Axis) -> float:
    """How far both go."""
    return min(getattr(curve[-1], axis) for curve in (first, second))


def at(curve: Curve, axis: Axis, x: float) -> dict[str, float]:
    """The value of each language there, on the line between two looks."""
    xs = [getattr(point, axis) for point in curve]
    return {name: float(np.interp(x, xs, [point.languages[name] for point in curve])) for name in curve[0].languages}


def learned(curve: Curve) -> bool:
    """Whether it ends above where it began, untrained."""
    return curve[-1].value > curve[0].value


def speed_up(better: Curve, worse: Curve) -> float | None:
    """How many times fewer operations the better one needs for what the worse one ends with. Below 1 where it is the
    other way round, and the one called better ends lower. None where one of them ends where it began."""
    if not (learned(better) and learned(worse)):
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
