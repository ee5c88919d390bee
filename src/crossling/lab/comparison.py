"""Comparison of the runs of a lab: costs, scores and learning curves, and the status of every claim."""
# R resamples, S seeds, L languages

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

import numpy as np

from crossling.core.files import atomic_file, template_environment
from crossling.core.progress import format_count, format_duration
from crossling.evaluate.word_alignment import PROTOCOLS
from crossling.lab import learning_curve as curve
from crossling.lab.lab_plan import FORMAT, RETRIEVAL, LabPlan, PaperClaim
from crossling.lab.lab_run import LabRun
from crossling.lab.learning_curve import Curve
from crossling.report.analysis import TITLES, TaskScore, task_scores
from crossling.report.charts import LinePlot, Series, line_chart
from crossling.tasks import scores
from crossling.tasks.bootstrap import CONFIDENCE, RESAMPLES
from crossling.tasks.scores import LOWER_IS_BETTER, ScoreRow

Status = Literal["supported", "contradicted", "inconclusive", "floor effect"]
MIN_LANGUAGES = 3  # for an interval


@dataclass(frozen=True)
class ClaimStatus:
    """Difference of two runs with its interval."""

    where: str  # "end", "1.2e+15 FLOPs"
    difference: float  # in points; positive if the run that the paper calls better is better
    low: float | None
    high: float | None
    languages: int
    kind: str  # "languages", or "pairs" of them
    seeds: int  # of the run that has fewer
    floor_effect: bool = False

    @property
    def status(self) -> Status:
        """Supported if the whole interval is above 0, contradicted if it is below 0."""
        if self.floor_effect:
            return "floor effect"
        if self.low is not None and self.low > 0:
            return "supported"
        if self.high is not None and self.high < 0:
            return "contradicted"
        return "inconclusive"

    def dump(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {**asdict(self), "status": self.status}


Scores = Mapping[int, Mapping[str, float]]  # seed -> language -> score


def compare_scores(where: str, better: Scores, worse: Scores, lower_is_better: bool = False) -> ClaimStatus | None:
    """Compare all seeds of two runs on the languages that all of them have. None if there are no such languages."""
    seeds = [*better.values(), *worse.values()]
    languages = [code for code in seeds[0] if all(code in scores for scores in seeds)] if better and worse else []
    if not languages:
        return None
    better_SL, worse_SL = (
        np.array([[values[code] for code in languages] for values in side.values()]) for side in (better, worse)
    )
    if lower_is_better:
        better_SL, worse_SL = worse_SL, better_SL
    low, high = _interval(better_SL, worse_SL) if len(languages) >= MIN_LANGUAGES else (None, None)
    difference = float(better_SL.mean() - worse_SL.mean())
    kind = "pairs" if all("-" in code for code in languages) else "languages"
    fewest = min(len(better), len(worse))
    return ClaimStatus(where, difference, low, high, languages=len(languages), kind=kind, seeds=fewest)


def _interval(better_SL: np.ndarray, worse_SL: np.ndarray) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    languages = better_SL.shape[1]
    languages_RL = rng.integers(languages, size=(RESAMPLES, languages))
    means = []
    for side_SL in (better_SL, worse_SL):
        seeds_RS = rng.integers(len(side_SL), size=(RESAMPLES, len(side_SL)))
        means.append(side_SL[seeds_RS[:, :, None], languages_RL[:, None, :]].mean(axis=(1, 2)))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means[0] - means[1], [tail, 1 - tail])
    return float(low), float(high)


PREFERRED_PROTOCOLS = ("sweep", PROTOCOLS["ot"], "xtreme")  # the best first


def compare_runs(plan: LabPlan, runs: Sequence[LabRun]) -> dict[str, Any]:
    """Return the content of lab.json. It contains no path of this machine."""
    results = [_run_results(run) for run in runs]
    inputs = "" if plan.synthetic else " --shards SHARDS --data DATA"
    return {
        "version": FORMAT,
        "date": date.today().isoformat(),
        "command": f"crossling lab {shlex.quote(plan.name)} -o LAB{inputs}",
        "device": sorted({name for run in results if run["cost"] for name in run["cost"]["machines"]}),
        "versions": [dict(each) for each in sorted({tuple(run["versions"].items()) for run in results} - {()})],
        "plan": plan.stored,
        "shards": {run.run_plan.vocab: run.shards.fingerprint for run in runs},
        "runs": results,
        "claims": [_check_claim(plan, claim, results) for claim in plan.claims],
    }


def _run_results(run: LabRun) -> dict[str, Any]:
    run_plan, recipe, seconds = run.run_plan, run.started_recipe, run.evaluation_seconds
    files = [run.folder / "scores.jsonl", *(run.folder / task / "scores.jsonl" for task in run.plan.finetune.tasks)]
    rows = [row for file in files if file.is_file() for row in scores.read_scores(file)]
    return {
        "run": run.run,
        "seed": run.seed,
        "state": "finished" if run.is_finished else "in progress" if recipe else "not started",
        "recipe": run_plan.recipe,
        "set": [*run_plan.set],
        "vocab": run_plan.vocab,
        "tuning": run_plan.tuning,
        "steps": recipe.steps if recipe else None,
        "cost": run.cost,
        "versions": run.versions,
        "evaluation_seconds": seconds,
        "scores": {task: _scores(task, metrics, rows) for task, metrics in run.plan.tasks.items() if task in seconds},
        "curve": [asdict(point) for point in curve.read_curve(run.folder / "metrics.jsonl")],
    }


def _scores(task: str, metrics: Sequence[str], rows: Sequence[ScoreRow]) -> dict[str, dict[str, Any]]:
    """Return by metric the mean over languages at the best layer, selected on these scores, and every language."""
    task_rows = [row for row in rows if row["task"] == task]
    by_metric = {}
    for metric in metrics:
        candidates = [
            score
            for score in task_scores(task_rows, both_directions=True)
            if (score.measure.task, score.measure.metric) == (task, metric)
        ]
        if candidates:
            best = min(candidates, key=_protocol_rank)
            by_metric[metric] = {
                "mean": best.mean,
                "layer": best.layer,
                "by_layer": _by_layer(best, task_rows),
                "languages": {code: best.languages[code].mean for code in best.mean_languages},
            }
    return by_metric


def _protocol_rank(score: TaskScore) -> tuple[bool, int]:
    protocols, protocol = PREFERRED_PROTOCOLS, score.measure.protocol
    return score.measure.split != "test", protocols.index(protocol) if protocol in protocols else len(protocols)


def _by_layer(score: TaskScore, rows: Sequence[ScoreRow]) -> dict[int, float] | None:
    wanted = score.measure.metric, score.measure.protocol, score.measure.split
    found = {(each.metric, each.protocol, each.split): each.by_layer for each in scores.summarize_layers(rows)}
    return found.get(wanted)


def _check_claim(plan: LabPlan, claim: PaperClaim, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Compare the two runs of a claim at the end of their budget.

    Retrieval is also compared on the learning curves: at equal FLOPs if the budget is in steps, and vice versa.
    """
    better, worse = (
        _ClaimSide(claim, [each for each in results if each["run"] == run]) for run in (claim.better, claim.worse)
    )
    budget, other = ("steps", "FLOPs") if plan.steps else ("FLOPs", "steps")
    views = {f"equal {budget}": compare_scores("end", better.scores, worse.scores, claim.metric in LOWER_IS_BETTER)}
    speed_up, has_floor_effect = None, False
    if better.curves and worse.curves:
        views[f"equal {other}"] = _compare_curves(better, worse, "flops" if plan.steps else "step")
        speed_up = curve.speed_up(better.mean, worse.mean)
        has_floor_effect = not curve.has_learned(better.mean) and not curve.has_learned(worse.mean)
    return {
        **vars(claim),
        "differs": plan.differences(claim),
        "views": {name: replace(view, floor_effect=has_floor_effect).dump() for name, view in views.items() if view},
        "speed_up": speed_up,
    }


def _compare_curves(better: _ClaimSide, worse: _ClaimSide, axis: curve.Axis) -> ClaimStatus | None:
    end = curve.common_end(better.mean, worse.mean, axis)
    better_scores, worse_scores = (
        {seed: curve.interpolate(points, axis, end) for seed, points in side.curves.items()} for side in (better, worse)
    )
    where = f"{end:.3g} FLOPs" if axis == "flops" else f"{end:,.0f} steps"
    return compare_scores(where, better_scores, worse_scores)


@dataclass(frozen=True)
class _ClaimSide:
    """The seeds of one run of a claim."""

    claim: PaperClaim
    results: Sequence[dict[str, Any]]

    @property
    def scores(self) -> Scores:
        task, metric = self.claim.task, self.claim.metric
        return {
            each["seed"]: each["scores"][task][metric]["languages"]
            for each in self.results
            if metric in each["scores"].get(task, {})
        }

    @property
    def curves(self) -> dict[int, Curve]:
        """Learning curves by seed. Empty for a claim about another task than retrieval."""
        results = self.results if self.claim.task == RETRIEVAL else ()
        return {each["seed"]: _curve(each) for each in results if each["cost"] and each["curve"]}

    @property
    def mean(self) -> Curve:
        return curve.mean_curve([*self.curves.values()])


def _curve(result: Mapping[str, Any]) -> Curve:
    return [curve.CurvePoint(**point) for point in result["curve"]]


def mean_curves(results: Sequence[Mapping[str, Any]]) -> dict[str, Curve]:
    """Return the mean learning curve of the trained seeds of every run."""
    curves: dict[str, list[Curve]] = {}
    for each in results:
        if each["cost"] and each["curve"]:
            curves.setdefault(each["run"], []).append(_curve(each))
    return {run: curve.mean_curve(seeds) for run, seeds in curves.items()}


CURVES = "curves.svg"
VIEWS = ("equal steps", "equal FLOPs")
METRIC_NAMES = {"accuracy": "%", "aer": "AER", "f1": "F1", "exact_match": "EM"}


def write_results(out: Path, plan: LabPlan, results: Mapping[str, Any]) -> Path:
    """Write `out`/results.md and, if there are learning curves, `out`/curves.svg. Return the page.

    Args:
        out: Folder to write to.
        plan: Plan of the lab.
        results: Content of lab.json.
    """
    curves = {run: curve for run, curve in mean_curves(results["runs"]).items() if len(curve) > 1}
    if curves:
        label = "Retrieval accuracy during training"
        _write(out / CURVES, line_chart([_curve_plots(curves)], label=label, legend=True, standalone=True))
    template = template_environment(Path(__file__).parent, escape=False).get_template("results.md.jinja")
    context = {
        "plan": plan,
        "results": results,
        "columns": [heading for _, _, heading in _columns(plan)],
        "rows": [_run_row(plan, run, results["runs"]) for run in plan.runs],
        "claims": [_claim_row(claim) for claim in results["claims"]],
        "views": VIEWS,
        "vocabularies": {run_plan.vocab for run_plan in plan.runs.values()},
        "budget": f"{plan.steps:,} steps" if plan.steps else f"{plan.flops:.3g} FLOPs",
        "curves": CURVES if curves else "",
    }
    return _write(out / "results.md", template.render(context))


def _write(file: Path, text: str) -> Path:
    with atomic_file(file) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return file


def _columns(plan: LabPlan) -> list[tuple[str, str, str]]:
    """(task, metric, heading) of every score column."""
    return [
        (task, metric, f"{TITLES.get(task, task)} {METRIC_NAMES.get(metric, metric)}")
        for task, metrics in plan.tasks.items()
        for metric in metrics
    ]


def _run_row(plan: LabPlan, run: str, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    seeds = [each for each in results if each["run"] == run]
    costs = [each["cost"] for each in seeds if each["cost"]]
    cells = []
    for task, metric, _ in _columns(plan):
        scores = [each["scores"][task][metric] for each in seeds if metric in each["scores"].get(task, {})]
        layers = sorted({score["layer"] for score in scores if score["layer"] is not None})
        at_layers = f" ({', '.join(map(str, layers))})" if layers else ""
        cells.append(format_spread([score["mean"] for score in scores]) + at_layers)
    run_plan = plan.runs[run]
    vocabulary = [] if run_plan.vocab == "joint" else [f"vocabulary by {run_plan.vocab}"]
    return {
        "run": run,
        "settings": " ".join([f"`{run_plan.recipe}`", *(f"`{each}`" for each in run_plan.set), *vocabulary]),
        "tuning": run_plan.tuning,
        "seeds": f"{sum(each['state'] == 'finished' for each in seeds)} of {len(seeds)}",
        "steps": f"{costs[0]['steps']:,}" if costs else "",
        "tokens": format_count(fmean(cost["tokens"] for cost in costs)) if costs else "",
        "flops": f"{fmean(cost['flops']['full'] for cost in costs):.3g}" if costs else "",
        "time": format_duration(fmean(cost["seconds"] for cost in costs)) if costs else "",
        "cells": cells,
    }


def format_spread(values: Sequence[float]) -> str:
    """Format the mean, with the standard deviation if there are several seeds."""
    if not values:
        return "–"
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def _claim_row(claim: Mapping[str, Any]) -> dict[str, Any]:
    views = [format_claim_status(claim["views"][name]) if name in claim["views"] else "–" for name in VIEWS]
    differs = ", ".join(f"`{key}`" for key in claim["differs"]) or "nothing"
    speed_up = f"{claim['speed_up']:.2f}x" if claim["speed_up"] else "–"
    return {**claim, "differs": differs, "views": views, "speed_up": speed_up}


def format_claim_status(view: Mapping[str, Any]) -> str:
    """Format one view of a claim: `supported: +3.1 (+1.0 to +5.2), 28 languages, 2 seeds`."""
    interval = f" ({view['low']:+.1f} to {view['high']:+.1f})" if view["low"] is not None else ""
    where = "" if view["where"] == "end" else f"at {view['where']}, "
    one_seed, seeds = (" (one seed)", "") if view["seeds"] == 1 else ("", f", {view['seeds']} seeds")
    difference = f"{view['difference']:+.1f}{interval}, {where}{view['languages']} {view['kind']}"
    return f"{view['status']}{one_seed}: {difference}{seeds}"


def _curve_plots(curves: Mapping[str, Curve]) -> list[LinePlot]:
    """Retrieval accuracy by FLOPs and by steps. The runs that end best come first, and are the coloured ones."""
    best = sorted(curves, key=lambda run: -curves[run][-1].value)
    power = math.floor(math.log10(max(curve[-1].flops for curve in curves.values()))) - 1
    plots = []
    for x_label, axis, scale in ((f"10^{power} FLOPs", "flops", 10.0**power), ("steps", "step", 1.0)):
        series = [
            Series(run, number, [(getattr(point, axis) / scale, point.value) for point in curves[run]])
            for number, run in enumerate(best)
        ]
        plots.append(LinePlot(f"Retrieval by {x_label}", x_label, "accuracy, %", series, from_zero=True))
    return plots
