"""The board: what every run cost, scored and showed on its way, and what became of the claims: of what there is."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from crossling.evaluate import scores
from crossling.evaluate.alignment import PROTOCOLS
from crossling.evaluate.analysis import TaskScore, task_scores
from crossling.evaluate.scores import LOWER_IS_BETTER, Row
from crossling.laboratory import curve
from crossling.laboratory.curve import Curve
from crossling.laboratory.plan import RETRIEVAL, Claim, Plan
from crossling.laboratory.unit import Unit
from crossling.laboratory.verdict import Judged, Scores, judged

MEASURES = ("sweep", PROTOCOLS["ot"], "xtreme")  # protocols, the one that counts first

Score = dict[str, Any]


def board(plan: Plan, units: Sequence[Unit]) -> dict[str, Any]:
    """Everything there is to know, without a path of this machine in it."""
    runs = [_told(unit) for unit in units]
    given = "" if plan.embedded else " --shards SHARDS --data DATA"
    return {
        "date": date.today().isoformat(),
        "command": f"crossling lab {shlex.quote(plan.name)} -o LAB{given}",
        "device": sorted({name for run in runs if run["cost"] for name in run["cost"]["machines"]}),
        "versions": [dict(each) for each in sorted({tuple(run["versions"].items()) for run in runs} - {()})],
        "plan": plan.stored,
        "shards": {unit.trial.vocab: unit.shards.fingerprint for unit in units},
        "runs": runs,
        "claims": [_judge(plan, claim, runs) for claim in plan.claims],
    }


def _told(unit: Unit) -> dict[str, Any]:
    trial, began, cost = unit.trial, unit.begun, unit.cost
    file = unit.folder / "scores.jsonl"
    rows = scores.read(file) if file.is_file() else []
    for task in unit.plan.finalists.tasks:
        tuned = unit.folder / task / "scores.jsonl"
        rows += scores.read(tuned) if tuned.is_file() else []
    measured = unit.measured
    return {
        "run": trial.name,
        "seed": unit.seed,
        "state": "finished" if unit.finished else "under way" if began else "not begun",
        "recipe": trial.recipe,
        "set": [*trial.set],
        "vocab": trial.vocab,
        "tuned": trial.tuned,
        "steps": began.steps if began else None,
        "cost": cost,
        "versions": unit.versions,
        "seconds_measuring": measured,
        "scores": {task: _scores(task, unit.plan.tasks[task], rows) for task in unit.plan.tasks if task in measured},
        "curve": [point.dump() for point in curve.read(unit.folder / "metrics.jsonl")],
    }


def _scores(task: str, metrics: Sequence[str], rows: Sequence[Row]) -> dict[str, Score]:
    """By metric: the mean over languages at the best layer, chosen by these very scores, and each language there."""
    own = [row for row in rows if row["task"] == task]
    found = {}
    for metric in metrics:
        measured = [each for each in task_scores(own, both_directions=True) if _counts(each, task, metric)]
        if measured:
            best = min(measured, key=_rank)
            found[metric] = {
                "mean": best.mean,
                "layer": best.layer,
                "by_layer": _by_layer(best, own),
                "languages": {code: best.languages[code].mean for code in best.counted},
            }
    return found


def _counts(score: TaskScore, task: str, metric: str) -> bool:
    return (score.measure.task, score.measure.metric) == (task, metric)


def _rank(score: TaskScore) -> tuple[bool, int]:
    protocol = score.measure.protocol
    return score.measure.split != "test", MEASURES.index(protocol) if protocol in MEASURES else len(MEASURES)


def _by_layer(score: TaskScore, rows: Sequence[Row]) -> dict[int, float] | None:
    measure = score.measure
    for each in scores.summary(rows):
        if (each.metric, each.protocol, each.split) == (measure.metric, measure.protocol, measure.split):
            return each.by_layer
    return None


def _judge(plan: Plan, claim: Claim, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """At the end of both runs, which is where the budget puts it; retrieval also on the curves, at what is not the
    budget's."""
    better, worse = (_Side(claim, [each for each in runs if each["run"] == run]) for run in (claim.better, claim.worse))
    own, other = ("steps", "FLOPs") if plan.steps else ("FLOPs", "steps")
    views = {f"equal {own}": judged("the end", better.scores, worse.scores, claim.metric in LOWER_IS_BETTER)}
    faster = None
    floor = False
    if better.curves and worse.curves:
        views[f"equal {other}"] = _on_the_curves(better, worse, "flops" if plan.steps else "step")
        faster = curve.speed_up(better.mean, worse.mean)
        floor = not curve.learned(better.mean) and not curve.learned(worse.mean)
    return {
        **vars(claim),
        "differs": plan.differences(claim),
        "views": {name: replace(view, floor=floor).dump() for name, view in views.items() if view is not None},
        "speed_up": faster,
    }


def _on_the_curves(better: _Side, worse: _Side, axis: curve.Axis) -> Judged | None:
    end = curve.common_end(better.mean, worse.mean, axis)
    one, other = ({seed: curve.at(each, axis, end) for seed, each in side.curves.items()} for side in (better, worse))
    return judged(f"{end:.3g} FLOPs" if axis == "flops" else f"{end:,.0f} steps", one, other)


@dataclass(frozen=True)
class _Side:
    """One run of a claim, as far as its seeds are trained."""

    claim: Claim
    told: Sequence[dict[str, Any]]

    @property
    def scores(self) -> Scores:
        claim = self.claim
        return {
            each["seed"]: each["scores"][claim.task][claim.metric]["languages"]
            for each in self.told
            if claim.metric in each["scores"].get(claim.task, {})
        }

    @property
    def curves(self) -> dict[int, Curve]:
        """Of retrieval; nothing for a claim of something else."""
        own = self.told if self.claim.task == RETRIEVAL else ()
        return {each["seed"]: _curve(each) for each in own if each["cost"] and each["curve"]}

    @property
    def mean(self) -> Curve:
        return curve.mean([*self.curves.values()])


def _curve(told: Mapping[str, Any]) -> Curve:
    return [curve.Point(**point) for point in told["curve"]]


def means(told: Sequence[Mapping[str, Any]]) -> dict[str, Curve]:
    """By run the curve of its seeds, as far as they are trained."""
    found: dict[str, list[Curve]] = {}
    for each in told:
        if each["cost"] and each["curve"]:
            found.setdefault(each["run"], []).append(_curve(each))
    return {run: curve.mean(curves) for run, curves in found.items()}
