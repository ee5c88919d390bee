"""One run of a lab with one seed: training, training-free evaluation and fine-tuning. Finished parts are skipped."""

from __future__ import annotations

import json
import platform
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from crossling.core.errors import BadInput, prefix_errors
from crossling.core.files import write_json
from crossling.core.hardware import library_versions
from crossling.data.shards import Shards
from crossling.evaluate.evaluate import evaluate
from crossling.evaluate.probes import Probe, make_retrieval_probe
from crossling.finetune.finetune import finetune
from crossling.inference.load import load
from crossling.lab.lab_plan import RETRIEVAL, LabPlan, RunPlan
from crossling.recipes.network import (
    build_meta_network,
    flops_per_token,
    make_batches,
    objective_loads,
    total_tokens,
)
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.train.checkpoint import Retention, best_checkpoints, list_checkpoints
from crossling.train.run_folder import RunFolder
from crossling.vocabulary.open_vocabulary import open_vocabulary

# Not a `PartialOutput`: training, evaluation and fine-tuning resume by themselves, and these notes stay in the run.
EVALUATIONS = "evaluations.json"  # settings, seconds and completion of each task that was started
VERSIONS = "versions.json"  # libraries of the last process that worked on the run
LIBRARIES = ("crossling", "torch", "transformers", "tokenizers", "numpy")


@dataclass(frozen=True, eq=False)
class LabRun:
    """A run with one seed, in a folder of its own."""

    plan: LabPlan
    run: str  # name in the plan
    seed: int
    shards: Shards
    data: Path
    folder: Path

    @property
    def name(self) -> str:
        """Run and seed: `xlm_e-0`."""
        return self.folder.name

    @property
    def run_plan(self) -> RunPlan:
        """The entry of the run in the plan."""
        return self.plan.runs[self.run]

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe with the number of steps of its budget."""
        recipe = self.plan.recipe(self.run, self.seed).as_started(self.folder)
        if self.plan.flops is not None:
            started = self.started_recipe
            steps = started.steps if started else steps_within(self.plan.flops, recipe, self.shards)
            recipe = recipe.replace(steps=steps)
        return recipe.replace(checkpoint_every=self._probe_interval(recipe.steps))

    @property
    def started_recipe(self) -> Recipe | None:
        """The recipe in the run folder, or None before training starts."""
        file = self.folder / "recipe.json"
        return Recipe.load(file) if file.is_file() else None

    @property
    def cost(self) -> dict[str, Any] | None:
        """Training cost of a trained run."""
        return _read(self.folder / "cost.json")

    @property
    def evaluation_seconds(self) -> dict[str, float]:
        """Time of each finished task."""
        return {task: record["seconds"] for task, record in self._records.items() if record["done"]}

    @property
    def versions(self) -> dict[str, str]:
        """Versions of Python and libraries of the last process."""
        return _read(self.folder / VERSIONS) or {}

    @property
    def remaining_tasks(self) -> list[str]:
        """Tasks that are not evaluated yet."""
        return [task for task in self.plan.tasks_of(self.run) if task not in self.evaluation_seconds]

    @property
    def is_finished(self) -> bool:
        """True if the run is trained and evaluated on all tasks."""
        return self.cost is not None and not self.remaining_tasks

    def check(self) -> None:
        """Raise BadInput if the shards do not suffice, or if the folder has other settings."""
        if self.cost is None:
            with prefix_errors(f"run {self.name}"):
                self._check_recipe()
        if self.started_recipe is not None:
            RunFolder(self.folder, self.recipe.dump(), self.shards.fingerprint)
        for task, record in self._records.items():
            if task in self.plan.tasks and record["set"] != self._tuning(task):
                raise BadInput(
                    f"{self.folder / task}: fine-tuned with {_format_settings(record['set'])}, but the plan has"
                    f" {_format_settings(self._tuning(task))}. Give the first settings, or another `out` folder."
                )

    def work(self, check_time: Callable[[], None]) -> None:
        """Do the remaining work. Calls `check_time` before each part."""
        if self.cost is None:
            check_time()
            interval = self._probe_interval(self.recipe.steps)
            pretrain(self.recipe, self.shards, self.folder, probe=self._probe(), probe_every=interval)
        write_json(self.folder / VERSIONS, {"python": platform.python_version(), **library_versions(LIBRARIES)})
        for task in self.remaining_tasks:
            check_time()
            self._record(task, 0.0, done=False)
            started, done = time.monotonic(), False
            try:
                self._evaluate(task)
                done = True
            finally:
                self._record(task, time.monotonic() - started, done)
        checkpoints, every = list_checkpoints(self.folder / "checkpoints"), Retention(every=self.recipe.keep_every)
        best = best_checkpoints(checkpoints).get(self.recipe.keep_best or "")
        for checkpoint in checkpoints[:-1]:  # keep only the last, unless requested
            if checkpoint != best and not every.is_kept_forever(int(checkpoint.name)):
                shutil.rmtree(checkpoint)

    def _evaluate(self, task: str) -> None:
        if task in self.plan.measure:
            evaluate(load(self.folder), [task], self.data, self.folder, languages=self.plan.measure[task] or None)
        else:
            overrides: dict[str, Any] = {"seed": str(self.seed), **self._tuning(task)}
            finetune(self.folder, task, self.data, self.folder / task, **overrides)

    def _tuning(self, task: str) -> dict[str, str]:
        """Fine-tuning settings of a task that differ from its defaults."""
        pairs = (each.partition("=") for each in self.plan.finetune.tasks.get(task, ()))
        return {key: value for key, _, value in pairs}

    @property
    def _records(self) -> dict[str, Any]:
        return _read(self.folder / EVALUATIONS) or {}

    def _record(self, task: str, seconds: float, done: bool) -> None:
        """Add `seconds` to those of earlier processes."""
        earlier = self._records.get(task, {"seconds": 0.0})["seconds"]
        record = {"set": self._tuning(task), "seconds": earlier + seconds, "done": done}
        write_json(self.folder / EVALUATIONS, {**self._records, task: record})

    def _check_recipe(self) -> None:
        self.recipe.check()
        objective_loads(make_batches(self.recipe, self.shards))

    def _probe(self) -> Probe | None:
        """Return a probe at the best layer. It differs between recipes: a fixed layer would favour some of them."""
        if RETRIEVAL not in self.plan.measure:
            return None
        vocabulary, languages = open_vocabulary(self.shards.vocabulary_path), self.plan.measure[RETRIEVAL] or None
        return make_retrieval_probe(self.data, vocabulary, self.plan.sentences, languages, best_layer=True)

    def _probe_interval(self, steps: int) -> int:
        return max(1, steps // self.plan.evaluations)


def steps_within(flops: float, recipe: Recipe, shards: Shards) -> int:
    """Return the number of steps that a budget of FLOPs allows (forward and backward, everything counted)."""
    loads = objective_loads(make_batches(recipe, shards))
    many_steps = recipe.replace(steps=1000)  # average over steps, since text and pairs may alternate
    token_flops = flops_per_token(recipe, build_meta_network(recipe, shards.vocabulary_size), loads)["full"]
    step_flops = token_flops * total_tokens(many_steps, loads) / many_steps.steps
    if flops < step_flops:
        raise BadInput(f"'flops' {flops:.3g}: one step of {recipe.name} takes {step_flops:.3g}. Give more.")
    return round(flops / step_flops)


def _format_settings(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items()) or "the default settings"


def _read(file: Path) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    try:
        stored: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        raise BadInput(f"{file}: damaged. Remove {file.parent}: the same command trains the run again.") from None
    return stored
