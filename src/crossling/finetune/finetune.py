"""An encoder and a task become a TUNED folder.

TUNED/ config.json  model.safetensors  tokenizer.json  tuned.json    the seed with the best dev score
       seed-N/                                                       the model of each seed, and its predictions
       scores.jsonl                                                  rows of all seeds
       grid/POINT/                                                   each setting that was tried
       teacher/                                                      who tagged the translations, where that was needed
       training/                                                     what is under way

Each model is a unit: a finished one is not made again, one that was stopped goes on.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from crossling.benchmarks.dataset import DataSet
from crossling.benchmarks.examples import Example
from crossling.benchmarks.sets import find
from crossling.disk import new_folder
from crossling.distributed import first_one_then_all, speaks, together
from crossling.errors import BadInput, nearest
from crossling.evaluate import scores
from crossling.evaluate.scores import Row
from crossling.evaluate.tuned import score_seed
from crossling.finetune import selection as rules
from crossling.finetune.links import linked
from crossling.finetune.material import SETTINGS, Setting, Teacher, gather
from crossling.finetune.plan import Plan, plans
from crossling.finetune.selection import SELECTIONS, Selection
from crossling.finetune.training import Job, train
from crossling.load import load
from crossling.progress import say
from crossling.transfer.tuned import LANGUAGES, Facts, Tuned, is_tuned

OURS = ("seed-*", "grid", "teacher", "training")  # what a folder that goes on may hold


def finetune(
    model: Path | str,
    task: str,
    data: Path | str,
    out: Path | str,
    setting: Setting = "zero-shot",
    seeds: int = 1,
    selection: Selection = "english-dev",
    grid: str | None = None,
    **overrides: Any,
) -> list[Row]:
    """Trains one model for each seed and scores it in every language; the rows are also in `out`/scores.jsonl.

    zero-shot trains on one language, translate-train on its translations too. `grid` names a paper whose settings are
    tried first, with the first seed. `overrides` are differences from the data set's usual setting: lr=1e-5, steps=100.
    """
    data, out = Path(data), Path(out)
    for name, value, valid in (("setting", setting, SETTINGS), ("selection", selection, SELECTIONS)):
        if value not in valid:
            raise BadInput(f"--{name} {value}: no such {name}{nearest(value, valid)}")
    if seeds < 1:
        raise BadInput(f"--seeds {seeds}: expected at least 1")
    data_set = find(task)
    points = plans(data_set, grid, [f"{key}={value}" for key, value in overrides.items()])
    _check_place(out)
    data_set.tested(data)  # a damaged file is told of before the long part
    with together():
        torch.manual_seed(0)  # of a pooler that the encoder does not have
        encoder = load(model)

        def teacher() -> Teacher:
            return _teacher(model, task, data, out / "teacher", selection, overrides)

        material = gather(data_set, data, setting, teacher, chosen=selection != "last" or len(points) > 1)
        if material.trained_on != task and speaks():
            warnings.warn(f"{task} has no training files here: trained on {material.trained_on}", stacklevel=2)
        job = Job(encoder, material, setting, selection)
        plan = _searched(job, points, out) if len(points) > 1 else next(iter(points.values()))
        known = [_seed(job, replace(plan, seed=plan.seed + number), out) for number in range(seeds)]
        best = max(known, key=lambda each: rules.value(selection, each.dev))  # the first of equals
        rows = [row for each in known for row in _scored(out, each, data_set, data)]
        if speaks():
            linked(out / f"seed-{best.seed}", out, deep=False)
            scores.add(out / "scores.jsonl", rows)
            shutil.rmtree(out / "training", ignore_errors=True)
        return rows


def _check_place(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out}: this is a file; give a folder to write")
    if out.is_dir() and any(out.iterdir()) and not any(path for name in OURS for path in out.glob(name)):
        raise BadInput(f"{out}: the folder is not empty and holds nothing fine-tuned; give another -o folder")
    if out.is_dir():
        scores.check_place(out)


def _seed(job: Job, plan: Plan, out: Path) -> Facts:
    name = f"seed-{plan.seed}"
    return train(job, plan, out / name, out / "training" / name)


def _searched(job: Job, points: dict[str, Plan], out: Path) -> Plan:
    """The best point of a grid by the score models are chosen by; its model is that of the first seed."""
    found: dict[str, float] = {}
    for number, (name, plan) in enumerate(points.items(), start=1):
        folder = out / "grid" / name
        known = train(job, plan, folder, out / "training" / f"grid-{name}")
        found[name] = rules.value(job.selection, known.dev)
        best = max(found, key=lambda each: found[each])
        if speaks():
            say(f"grid {number}/{len(points)}: {name} {found[name]:.2f} (best: {best} {found[best]:.2f})")
            for other in found:
                if other != best:
                    _without_weights(out / "grid" / other)
    plan = points[best]
    seed = out / f"seed-{plan.seed}"
    with first_one_then_all():
        if speaks() and not is_tuned(seed):
            with new_folder(seed) as new:
                linked(out / "grid" / best, new)
    return plan


def _without_weights(folder: Path) -> None:
    """What it scored is kept: the model is not needed."""
    shutil.rmtree(folder / LANGUAGES, ignore_errors=True)
    for file in folder.glob("*.safetensors"):
        file.unlink()


def _scored(out: Path, known: Facts, data_set: DataSet, data: Path) -> list[Row]:
    """Rows of one seed: those of an earlier call, if they are of all that can be scored now, or new ones."""
    kept = scores.read(out / "scores.jsonl") if (out / "scores.jsonl").is_file() else []
    own = [row for row in kept if row.get("seed") == known.seed and row["task"] == known.task]
    if own and {row["language"] for row in own} == {*data_set.tested(data)}:
        return own
    folder = out / f"seed-{known.seed}"
    rows = score_seed(folder, data, keep=folder)
    if speaks():
        scores.add(out / "scores.jsonl", rows)
    return rows


def _teacher(
    model: Path | str, task: str, data: Path, out: Path, selection: Selection, overrides: dict[str, Any]
) -> Teacher:
    """Fine-tuned without translations, it tags them (VECO)."""
    finetune(model, task, data, out, selection=selection, **overrides)
    tuned = Tuned.load(out)

    def tag(examples: Sequence[Example]) -> Sequence[tuple[str, ...]]:
        return tuned.predict(examples)  # type: ignore[return-value]  # tags, as the examples are sentences

    return tag
