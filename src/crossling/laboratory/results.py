"""What a laboratory found, for readers: tables in Markdown, and the curves as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from crossling.disk import new_file
from crossling.evaluate import charts
from crossling.evaluate.analysis import TITLES
from crossling.evaluate.charts import LineChart, Series, compact, line_chart
from crossling.laboratory.board import means
from crossling.laboratory.curve import Curve
from crossling.laboratory.plan import Plan
from crossling.progress import duration
from crossling.templates import templates

CURVES = "curves.svg"
VIEWS = ("equal steps", "equal FLOPs")
HERE = Path(__file__).parent
SHORT = {"accuracy": "%", "aer": "AER", "f1": "F1", "exact_match": "EM"}
COLOURS = (
    *("#2862b9", "#c9581f", "#2c8a5b", "#8a46a8", "#9a7400", "#566573"),
    *("#c2185b", "#00838f", "#6d4c41", "#558b2f", "#303f9f", "#e64a19"),
)


def write_results(out: Path, plan: Plan, board: Mapping[str, Any]) -> Path:
    """`out`/results.md and, as soon as there are curves, `out`/curves.svg."""
    curves = {run: curve for run, curve in means(board["runs"]).items() if len(curve) > 1}
    if curves:
        drawn = {"charts": _charts(curves), "names": [*curves], "colours": COLOURS, "chart": charts, "title": 24}
        _write(out / CURVES, templates(HERE).get_template("curves.svg.jinja").render(drawn))
    page = templates(HERE, markup=False).get_template("results.md.jinja")
    told = {
        "plan": plan,
        "board": board,
        "columns": [heading for _, _, heading in _columns(plan)],
        "lines": [_line(plan, run, board["runs"]) for run in plan.runs],
        "claims": [_claim(claim) for claim in board["claims"]],
        "views": VIEWS,
        "vocabularies": {trial.vocab for trial in plan.runs.values()},
        "budget": f"{plan.steps:,} steps" if plan.steps else f"{plan.flops:.3g} FLOPs",
        "curves": CURVES if curves else "",
    }
    return _write(out / "results.md", page.render(told))


def _write(file: Path, text: str) -> Path:
    with new_file(file) as new:
        new.write_text(text, encoding="utf-8")
    return file


def _columns(plan: Plan) -> list[tuple[str, str, str]]:
    return [
        (task, metric, f"{TITLES.get(task, task)} {SHORT.get(metric, metric)}")
        for task, metrics in plan.tasks.items()
        for metric in metrics
    ]


def _line(plan: Plan, run: str, told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    own = [each for each in told if each["run"] == run]
    costs = [each["cost"] for each in own if each["cost"]]
    cells = []
    for task, metric, _ in _columns(plan):
        found = [each["scores"][task][metric] for each in own if metric in each["scores"].get(task, {})]
        layers = sorted({score["layer"] for score in found if score["layer"] is not None})
        at = f" ({', '.join(map(str, layers))})" if layers else ""
        cells.append(spread([score["mean"] for score in found]) + at)
    trial = plan.runs[run]
    return {
        "run": run,
        "what": " ".join([f"`{trial.recipe}`", *(f"`{each}`" for each in trial.set), *_vocab(trial.vocab)]),
        "tuned": trial.tuned,
        "seeds": f"{sum(each['state'] == 'finished' for each in own)} of {len(own)}",
        "steps": f"{costs[0]['steps']:,}" if costs else "",
        "tokens": compact(fmean(cost["tokens"] for cost in costs)) if costs else "",
        "flops": f"{fmean(cost['flops']['full'] for cost in costs):.3g}" if costs else "",
        "time": duration(fmean(cost["seconds"] for cost in costs)) if costs else "",
        "cells": cells,
    }


def spread(values: Sequence[float]) -> str:
    """The mean, and the deviation over seeds where there are several."""
    if not values:
        return "–"
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def _vocab(name: str) -> list[str]:
    return [] if name == "joint" else [f"vocabulary by {name}"]


def _claim(claim: Mapping[str, Any]) -> dict[str, Any]:
    views = [told_of(claim["views"][name]) if name in claim["views"] else "–" for name in VIEWS]
    faster = claim["speed_up"]
    differs = ", ".join(f"`{key}`" for key in claim["differs"]) or "nothing"
    return {**claim, "differs": differs, "views": views, "speed_up": f"{faster:.2f}x" if faster else "–"}


def told_of(view: Mapping[str, Any]) -> str:
    """`held: +3.1 (+1.0 to +5.2), 28 languages, 2 seeds`; of one seed `held (one seed): ...`"""
    interval = f" ({view['low']:+.1f} to {view['high']:+.1f})" if view["low"] is not None else ""
    where = "" if view["where"] == "the end" else f"at {view['where']}, "
    one, several = (" (one seed)", "") if view["seeds"] == 1 else ("", f", {view['seeds']} seeds")
    found = f"{view['difference']:+.1f}{interval}, {where}{view['languages']} {view['kind']}"
    return f"{view['verdict']}{one}: {found}{several}"


def _charts(curves: Mapping[str, Curve]) -> list[LineChart]:
    """Retrieval by operations and by steps."""
    power = math.floor(math.log10(max(curve[-1].flops for curve in curves.values()))) - 1
    drawn = []
    for name, axis, unit in ((f"10^{power} FLOPs", "flops", 10.0**power), ("steps", "step", 1.0)):
        series = [
            Series(run, place, [(getattr(point, axis) / unit, point.value) for point in curve])
            for place, (run, curve) in enumerate(curves.items())
        ]
        drawn.append(line_chart(f"Retrieval, % by {name}", name, series, percent=True))
    return drawn
