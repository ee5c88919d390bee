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
from crossling.benchmarks.pairs import scored_in_pairs
from crossling.benchmarks.sets import find
from crossling.disk import new_folder
from crossling.distributed import first_one_then_all, speaks, together
from crossling.errors import BadInput, nearest
from crossling.evaluate import scores
from crossling.evaluate.asked import TRANSLATION, check_trained
from crossling.evaluate.scores import Row
from crossling.evaluate.tuned import score_seed
from crossling.finetune import selection as rules
from crossling.finetune import unit
from crossling.finetune.links import linked
from crossling.finetune.material import SETTINGS, Setting, Teacher, gather
from crossling.finetune.plan import Plan, plans
from crossling.finetune.selection import SELECTIONS, Selection
from crossling.finetune.training import Job, train
from crossling.finetune.translation.tuning import translators
from crossling.load import load
from crossling.progress import say
from crossling.transfer.tuned import LANGUAGES, Facts, Tuned, is_tuned

OURS = ("seed-*", "grid", "teacher", unit.UNDER_WAY)  # what a folder that goes on may hold


def finetune(
    model: Path | str,
    task: str,
    data: Path | str,
    out: Path | str,
    setting: Setting = "zero-shot",
    seeds: int = 1,
    selection: Selection = "english-dev",
    grid: str | None = None,
    plug_in: bool = False,
    pairs: str | Sequence[str] | None = None,
    random: bool = False,
    **overrides: Any,
) -> list[Row]:
    """Trains one model for each seed and scores it in every language; the rows are also in `out`/scores.jsonl.

    zero-shot trains on one language, translate-train on its translations too. `grid` names a paper whose settings are
    tried first, with the first seed. `plug_in` uses the cross-attention of VECO: every example is read with its
    translation, in training and in scoring. `overrides` are differences from the data set's usual setting: lr=1e-5.

    The task `translation` makes translators of the directions in `pairs`, such as en-de,de-en; with `random` they have
    the shape of the model and none of its weights (docs/translation.md).
    """
    data, out = Path(data), Path(out)
    for name, value, valid in (("setting", setting, SETTINGS), ("selection", selection, SELECTIONS)):
        if value not in valid:
            raise BadInput(f"--{name} {value}: no such {name}{nearest(value, valid)}")
    if seeds < 1:
        raise BadInput(f"--seeds {seeds}: expected at least 1")
    if task == TRANSLATION:
        if (setting, selection, grid, plug_in) != ("zero-shot", "english-dev", None, False):
            raise BadInput("--setting, --selection, --grid and --plug-in are not for translation; leave them out")
        _check_place(out)
        return translators(model, data, out, pairs, seeds, random, overrides)
    if pairs is not None or random:
        raise BadInput(f"--pairs and --random are for --task {TRANSLATION}, not for {task}; leave them out")
    if plug_in and setting == "zero-shot":
        raise BadInput(
            "--plug-in: in the zero-shot setting there is no translated pair (x, y) for cross-attention to read; give"
            " --setting translate-train, or leave --plug-in out"
        )
    check_trained(task, model, data)
    data_set = find(task)
    points = plans(data_set, grid, [f"{key}={value}" for key, value in overrides.items()])
    _check_place(out)
    _to_score(data_set, data, plug_in)  # a damaged file is told of before the long part
    with together():
        torch.manual_seed(0)  # of a pooler that the encoder does not have
        encoder = load(model)
        if plug_in:
            encoder.check_plug_in()

        def teacher() -> Teacher:
            return _teacher(model, task, data, out / "teacher", selection, overrides)

        material = gather(data_set, data, setting, teacher, selection != "last" or len(points) > 1, plug_in)
        if material.trained_on != task and speaks():
            warnings.warn(f"{task} has no training files here: trained on {material.trained_on}", stacklevel=2)
        job = Job(encoder, material, setting, selection)
        plan = _searched(job, points, out) if len(points) > 1 else next(iter(points.values()))
        known = [_seed(job, replace(plan, seed=plan.seed + number), out) for number in range(seeds)]
        best = max(known, key=lambda each: rules.value(selection, each.dev))  # the first of equals
        rows = [row for each in known for row in _scored(out, each, data_set, data)]
        unit.finish(out, best.seed, rows)
        return rows


def _check_place(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out}: this is a file; give a folder to write")
    if out.is_dir() and any(out.iterdir()) and not any(path for name in OURS for path in out.glob(name)):
        raise BadInput(f"{out}: the folder is not empty and holds nothing fine-tuned; give another -o folder")
    if out.is_dir():
        scores.check_place(out)


def _seed(job: Job, plan: Plan, out: Path) -> Facts:
    return train(job, plan, *unit.place(out, plan.seed))


def _searched(job: Job, points: dict[str, Plan], out: Path) -> Plan:
    """The best point of a grid by the score models are chosen by; its model is that of the first seed."""
    found: dict[str, float] = {}
    for number, (name, plan) in enumerate(points.items(), start=1):
        folder = out / "grid" / name
        known = train(job, plan, folder, out / unit.UNDER_WAY / f"grid-{name}")
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
    kept = scores.read(out / unit.SCORES) if (out / unit.SCORES).is_file() else []
    own = [row for row in kept if row.get("seed") == known.seed and row["task"] == known.task]
    if own and {row["language"] for row in own} == {*_to_score(data_set, data, known.form.plug_in)}:
        return own
    folder = out / f"seed-{known.seed}"
    rows = score_seed(folder, data, keep=folder)
    if speaks():
        scores.add(out / unit.SCORES, rows)
    return rows


def _to_score(data_set: DataSet, data: Path, plug_in: bool) -> list[str]:
    """The languages a model is scored in."""
    return scored_in_pairs(data_set, data, data_set.source(data)[1]) if plug_in else data_set.tested(data)


def _teacher(
    model: Path | str, task: str, data: Path, out: Path, selection: Selection, overrides: dict[str, Any]
) -> Teacher:
    """Fine-tuned without translations, it tags them (VECO)."""
    finetune(model, task, data, out, selection=selection, **overrides)
    tuned = Tuned.load(out)

    def tag(examples: Sequence[Example]) -> Sequence[tuple[str, ...]]:
        return tuned.predict(examples)  # type: ignore[return-value]  # tags, as the examples are sentences

    return tag
