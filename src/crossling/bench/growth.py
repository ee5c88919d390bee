"""Growth of step cost with sequence length, vocabulary, batch size and layers.

One is changed at a time; with the length, the tokens per step stay the same. The peer of each row is the reference,
so that the ratio is the effect on speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from crossling import recipes
from crossling.bench.train_timing import measure_speed, scale_recipe
from crossling.bench.workload import BenchRow, BenchSetup, Measurement, compare
from crossling.report.charts import LinePlot, Series, line_chart

TIMES = 6  # runs of each measurement


@dataclass(frozen=True)
class GrowthPoint:
    """One changed size."""

    what: str
    value: int
    at: BenchSetup
    batch: int


def points(at: BenchSetup) -> list[GrowthPoint]:
    """Return all measurements; each kind includes the reference step."""
    batch, length, vocabulary, layers = at.batches[0], at.length, at.vocabulary, at.shape.layers
    lengths = [128, 512, 1024, 2048] if at.on_gpu else [length // 2, length]
    sizes = [32_000, 128_000, 250_002, 500_000] if at.on_gpu else [vocabulary // 2, vocabulary]
    batches = [16, 64, 256] if at.on_gpu else [batch, 2 * batch]
    depths = [6, 12, 24] if at.on_gpu else [1, layers]
    return [
        *(GrowthPoint("length", each, replace(at, length=each), max(1, batch * length // each)) for each in lengths),
        *(GrowthPoint("vocabulary", each, replace(at, vocabulary=each), batch) for each in sizes),
        *(GrowthPoint("batch", each, at, each) for each in batches),
        *(GrowthPoint("layers", each, replace(at, shape=replace(at.shape, layers=each)), batch) for each in depths),
    ]


def growth_rows(at: BenchSetup) -> Iterator[BenchRow]:
    at = replace(at, times=min(at.times, TIMES))
    text = recipes.xlm_e().replace(trtd=None)
    batch = at.batches[0]
    reference = at.try_measure("the reference step", measure_speed, scale_recipe(text, at, batch), at)
    if reference is None:
        return
    description = f"{at.length} tokens, {at.vocabulary:,} vocabulary entries, batch {batch}, {at.shape.layers} layers"
    for point in points(at):
        name = f"{point.what} {point.value:,}"
        speed: Measurement | None = reference
        if (point.at, point.batch) != (at, batch):
            speed = at.try_measure(name, measure_speed, scale_recipe(text, point.at, point.batch), point.at)
        if speed is not None:
            yield compare(name, speed, reference, description)


FIGURES = {"ours": "tokens/s", "peak_gib": "peak GiB"}
COLUMNS = ("length", "vocabulary", "batch", "layers")


def growth_chart(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return an SVG chart of the rows of the benchmark `growth`, or None if no size has two rows."""
    points: dict[str, list[tuple[float, Mapping[str, Any]]]] = {}
    for row in rows:
        if row.get("bench") == "growth":
            what, _, value = row["name"].rpartition(" ")
            points.setdefault(what, []).append((float(value.replace(",", "")), row))
    panels: dict[str, list[LinePlot]] = {}
    for (key, name), what in product(FIGURES.items(), COLUMNS):
        known = sorted((value, float(row[key])) for value, row in points.get(what, []) if row.get(key) is not None)
        if len(known) > 1:
            plot = LinePlot(f"{name} by {what}", what, name, [Series(name, 0, known)], from_zero=True)
            panels.setdefault(key, []).append(plot)
    return line_chart([*panels.values()], label="Cost of a step by size", standalone=True) if panels else None
