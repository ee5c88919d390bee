"""Score against size, as XY-LENT's Figure 1, and operations, as XLM-E's Figure 1, papers beside runs.

Sizes are from XLM-E's Tables 3 and 4 and XY-LENT's Table 11, operations from XLM-E's Table 4, their scores from its
Table 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from crossling.evaluate.analysis import TaskScore, total
from crossling.evaluate.board import Entry, counting
from crossling.evaluate.published import Printed, of_table
from crossling.evaluate.runs import Run
from crossling.evaluate.scatter import Scatter, Spot, scatter

FEWEST = 3  # dots that make a picture


def against(runs: Sequence[tuple[Run, Entry]]) -> list[Scatter]:
    """A picture for each score that a run with a known size or cost has."""
    found = []
    for name, column, value in (
        ("XTREME average", "xtreme-7/average/mean", _average),
        ("XNLI accuracy", "xnli/accuracy/mean", _xnli),
        ("Tatoeba accuracy", "", _tatoeba),
    ):
        scored = [(run, entry, score) for run, entry in runs if (score := value(entry)) is not None]
        sizes = [Spot(entry.name, run.parameters, score, entry.colour, f"{entry.name}: {score:.1f}")
                 for run, entry, score in scored if run.parameters]  # fmt: skip
        costs = [Spot(entry.name, flops, score, entry.colour, f"{entry.name}: {score:.1f}, {flops:.2g} operations")
                 for run, entry, score in scored if (flops := run.cost.get("flops", {}).get("paper"))]  # fmt: skip
        for title, axis, own, printed in (
            (f"{name} by size", "parameters", sizes, _sized(column)),
            (f"{name} by cost", "operations of training, as the papers count", costs, _costed(column)),
        ):
            if own and len(own) + len(printed) >= FEWEST:
                found.append(scatter(f"{title}, %", axis, [*own, *printed]))
    return found


def _average(entry: Entry) -> float | None:
    mean = total(counting(entry, "zero-shot"))
    return mean.mean if mean else None


def _xnli(entry: Entry) -> float | None:
    score = counting(entry, "zero-shot").get("xnli")
    return score.mean if score else None


def _tatoeba(entry: Entry) -> float | None:
    """The mean of all directions; no paper has one of the same languages and a cost."""
    scores = [score for score in entry.scores if _is_retrieval(score)]
    return sum(score.mean for score in scores) / len(scores) if scores else None


def _is_retrieval(score: TaskScore) -> bool:
    measure = score.measure
    return (measure.task, measure.protocol, measure.pooling) == ("tatoeba", "sweep", "mean")


def _sized(column: str) -> list[Spot]:
    found: dict[tuple[str, float], Spot] = {}
    for row in (*of_table("XLM-E", "3", "4"), *of_table("XY-LENT", "11", setting="zero-shot")):
        size = row.parameters or row.values.get("cost/parameters")
        if size and column in row.values:  # what XY-LENT has from XLM-E, once
            found.setdefault((row.name, row.values[column]), _spot(row, size, row.values[column]))
    return list(found.values())


def _costed(column: str) -> list[Spot]:
    rows = of_table("XLM-E", "4")
    scores = {row.name: row.values[column] for row in of_table("XLM-E", "1") if column in row.values}
    return [_spot(row, row.values["cost/flops"], scores[row.name]) for row in rows if row.name in scores]


def _spot(row: Printed, x: float, y: float) -> Spot:
    return Spot(row.name, x, y, None, f"{row.name}: {y:.1f} ({row.place}, as published)")
