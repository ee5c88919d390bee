"""One run of one seed, from its first step to its last score. Each part is skipped where it was done before."""

from __future__ import annotations

import json
import platform
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from crossling.data.batches import Batches
from crossling.data.shards import Shards
from crossling.disk import write_json
from crossling.errors import BadInput
from crossling.evaluate.evaluate import evaluate
from crossling.finetune.finetune import finetune
from crossling.laboratory import curve
from crossling.laboratory.plan import RETRIEVAL, Plan, Trial, blamed
from crossling.load import load
from crossling.recipe import Recipe, pretrain
from crossling.recipe.cost import Load, flops_per_token, network, tokens
from crossling.train.checkpoint import all_steps
from crossling.train.run import Run
from crossling.vocabulary.vocabulary import Vocabulary

MEASURED = "measured.json"  # of each task that was begun: how it is fine-tuned, how long it took, whether it is done
VERSIONS = "versions.json"  # of the machine that worked at a run last
LIBRARIES = ("crossling", "torch", "transformers", "tokenizers", "numpy")


@dataclass(frozen=True, eq=False)
class Unit:
    """What is done whole or goes on: one recipe, one seed, a folder of its own."""

    plan: Plan
    trial: Trial
    seed: int
    shards: Shards
    data: Path
    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def recipe(self) -> Recipe:
        recipe = self.plan.recipe(self.trial, self.seed)
        if self.plan.flops is not None:
            began = self.begun
            recipe = recipe.but(steps=began.steps if began else steps_within(self.plan.flops, recipe, self.shards))
        return recipe.but(checkpoint_every=self._looks_every(recipe.steps))

    @property
    def begun(self) -> Recipe | None:
        file = self.folder / "recipe.json"
        return Recipe.load(file) if file.is_file() else None

    @property
    def cost(self) -> dict[str, Any] | None:
        """Of a trained one."""
        return _read(self.folder / "cost.json")

    @property
    def measured(self) -> dict[str, float]:
        """Seconds that each finished task took."""
        return {task: each["seconds"] for task, each in self._noted.items() if each["done"]}

    @property
    def versions(self) -> dict[str, str]:
        """What it was trained and measured with."""
        return _read(self.folder / VERSIONS) or {}

    @property
    def left(self) -> list[str]:
        """Tasks that are not measured yet."""
        return [task for task in self.plan.tasks_of(self.trial.name) if task not in self.measured]

    @property
    def finished(self) -> bool:
        return self.cost is not None and not self.left

    def check(self) -> None:
        """Refuses what these shards cannot give, and a folder of the same name with something else in it."""
        if self.cost is None:
            blamed(f"run {self.name}", self._check_recipe)
        if self.begun is not None:
            Run(self.folder, self.recipe.dump(), self.shards.fingerprint)
        for task, noted in self._noted.items():
            if task in self.plan.tasks and noted["set"] != self._tuning(task):
                raise BadInput(
                    f"{self.folder / task}: fine-tuned with {_told(noted['set'])}, and the plan has"
                    f" {_told(self._tuning(task))}; give the setting it was begun with, or another -o folder"
                )

    def work(self, check: Callable[[], None]) -> None:
        """Does what is left, asking before each part whether there is time for it."""
        if self.cost is None:
            check()
            every = self._looks_every(self.recipe.steps)
            pretrain(self.recipe, self.shards, self.folder, probe=self._probe(), probe_every=every)
        write_json(self.folder / VERSIONS, {"python": platform.python_version(), **_libraries()})
        for task in self.left:
            check()
            self._note(task, 0.0, done=False)
            started, done = time.monotonic(), False
            try:
                self._measure(task)
                done = True
            finally:
                self._note(task, time.monotonic() - started, done)
        for checkpoint in all_steps(self.folder / "checkpoints")[:-1]:  # none is gone back to
            shutil.rmtree(checkpoint)

    def _measure(self, task: str) -> None:
        if task in self.plan.measure:
            evaluate(load(self.folder), [task], self.data, self.folder, languages=self.plan.measure[task] or None)
        else:
            overrides: dict[str, Any] = {"seed": str(self.seed), **self._tuning(task)}
            finetune(self.folder, task, self.data, self.folder / task, **overrides)

    def _tuning(self, task: str) -> dict[str, str]:
        """Differences from the usual setting of a task of finalists."""
        pairs = (each.partition("=") for each in self.plan.finalists.tasks.get(task, ()))
        return {key: value for key, _, value in pairs}

    @property
    def _noted(self) -> dict[str, Any]:
        return _read(self.folder / MEASURED) or {}

    def _note(self, task: str, seconds: float, done: bool) -> None:
        """Seconds are those since the last note of it."""
        earlier = self._noted.get(task, {"seconds": 0.0})["seconds"]
        noted = {"set": self._tuning(task), "seconds": earlier + seconds, "done": done}
        write_json(self.folder / MEASURED, {**self._noted, task: noted})

    def _check_recipe(self) -> None:
        self.recipe.check()
        loads(self.recipe, self.shards)

    def _probe(self) -> curve.Probe | None:
        if RETRIEVAL not in self.plan.measure:
            return None
        vocabulary = Vocabulary.load(self.shards.vocabulary_path)
        return curve.probe(self.data, vocabulary, self.plan.measure[RETRIEVAL] or None, self.plan.sentences)

    def _looks_every(self, steps: int) -> int:
        return max(1, steps // self.plan.looks)


def steps_within(flops: float, recipe: Recipe, shards: Shards) -> int:
    """So many steps a recipe can make with these operations (all there are, in both directions)."""
    read = loads(recipe, shards)
    many = recipe.but(steps=1000)  # text and pairs may take turns
    of_token = flops_per_token(recipe, network(recipe, shards.vocabulary_size), read)["full"]
    of_step = of_token * tokens(many, read) / many.steps
    if flops < of_step:
        raise BadInput(f"'flops' {flops:.3g}: one step of {recipe.name} takes {of_step:.3g}; give more")
    return round(flops / of_step)


def loads(recipe: Recipe, shards: Shards) -> dict[str, Load]:
    """What each objective reads in a step; refuses what these shards cannot give."""
    batches = Batches(shards, recipe.objectives, recipe.sampling, recipe.seed, recipe.micro_tokens, recipe.alternate)
    return {name: Load(batches.draws[name].number, length) for name, length in batches.lengths.items()}


def _libraries() -> dict[str, str]:
    found = {}
    for library in LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:  # run from a checkout that was never installed
            continue
    return found | {"torch": torch.__version__}


def _told(tuning: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in tuning.items()) or "the usual setting"


def _read(file: Path) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        raise BadInput(f"{file}: damaged; remove {file.parent}, and the same command makes the run again") from None
    return found
