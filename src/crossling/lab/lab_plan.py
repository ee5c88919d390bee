"""Plan of a lab: the recipes to compare, their budget, the evaluation tasks, and the claims of the papers.

A plan is a JSON file that is read strictly; docs/how-to/compare-recipes.md explains every key. Some plans ship with
the package and are known by name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from crossling.core.errors import BadInput, prefix_errors, suggestion
from crossling.core.files import check_format
from crossling.core.settings import AT_LEAST_1, POSITIVE, check_bounds, from_dict
from crossling.finetune.finetune_settings import finetune_grid
from crossling.recipes import get_recipe
from crossling.recipes.recipe import OBJECTIVES, Recipe
from crossling.tasks.benchmark_files import TRAINING_FREE_TASKS
from crossling.tasks.metrics import METRICS
from crossling.tasks.registry import DATASETS
from crossling.train.run_folder import CHANGEABLE_SETTINGS
from crossling.vocabulary.build_vocabulary import ALLOCATIONS

PLANS = Path(__file__).parent / "plans"
FORMAT = 2  # of plans, lab folders and lab.json
GUIDE = "docs/how-to/compare-recipes.md"
RETRIEVAL = "tatoeba"  # task of the learning curves
FREE_METRICS = {"tatoeba": ["accuracy"], "flores": ["accuracy"], "bucc2018": ["f1"], "word-alignment": ["aer"]}
FIXED_SETTINGS = ("name", "seed", "steps")  # settings of a recipe that only the plan may set
_RUN_NAME = re.compile(r"\w[\w.+-]*")


@dataclass(frozen=True)
class RunPlan:
    """One recipe to train."""

    recipe: str
    set: tuple[str, ...] = ()  # settings that differ from the recipe
    seeds: tuple[int, ...] | None = None  # those of the plan if None
    vocab: str = ALLOCATIONS[0]  # how the vocabulary of synthetic languages is allocated
    tuning: str = ""  # how the settings were tuned


@dataclass(frozen=True)
class PaperClaim:
    """A paper's claim that one run is better than another."""

    claim: str
    better: str  # name of a run
    worse: str
    task: str
    metric: str
    differs: tuple[str, ...] | None = None  # settings that may differ between the runs; None allows all


@dataclass(frozen=True)
class FinetunePlan:
    """Runs to fine-tune, and the fine-tuning settings of every task that differ from its defaults."""

    runs: tuple[str, ...] = ()
    tasks: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class SyntheticInputs:
    """Synthetic languages that the lab generates for itself."""

    languages: int = 6
    sentences: int = 20_000
    lemmas: int = 400
    vocabulary_size: int = 4000
    test_sentences: int = 400
    alignment_sentences: int = 100
    seed: int = 0


@dataclass(frozen=True)
class PlanFile:
    """The keys of a plan file."""

    version: int
    size: str
    runs: dict[str, RunPlan]
    about: str = ""
    steps: Annotated[int | None, AT_LEAST_1] = None  # budget of each run: number of steps,
    flops: Annotated[float | None, POSITIVE] = None  # or as many steps as these FLOPs allow
    seeds: tuple[int, ...] = (0,)
    set: tuple[str, ...] = ()  # settings of all runs; those of an objective apply to runs that have it
    evaluations: Annotated[int, AT_LEAST_1] = 10  # retrieval probes during a run, for its learning curve
    sentences: Annotated[int, AT_LEAST_1] = 200  # per language in a probe
    # Training-free tasks of all runs, with their languages (all if empty).
    measure: dict[str, tuple[str, ...]] = field(default_factory=lambda: {RETRIEVAL: (), "word-alignment": ()})
    finetune: FinetunePlan = FinetunePlan()
    claims: tuple[PaperClaim, ...] = ()
    synthetic: SyntheticInputs | None = None


@dataclass(frozen=True, kw_only=True)
class LabPlan(PlanFile):
    """A checked plan."""

    name: str
    stored: Mapping[str, Any]  # the JSON object of the file

    @cached_property
    def tasks(self) -> dict[str, list[str]]:
        """All tasks with their metrics."""
        finetuned = {
            task: list(dict.fromkeys(METRICS[name].name for name in DATASETS[task].metrics))
            for task in self.finetune.tasks
        }
        return {task: FREE_METRICS[task] for task in self.measure} | finetuned

    def tasks_of(self, run: str) -> list[str]:
        """Return the tasks that a run is evaluated on."""
        return [*self.measure, *(self.finetune.tasks if run in self.finetune.runs else ())]

    def seeds_of(self, run: str) -> tuple[int, ...]:
        """Return the seeds of a run."""
        return self.runs[run].seeds or self.seeds

    def recipe(self, run: str, seed: int = 0) -> Recipe:
        """Return the recipe of a run. With a budget in FLOPs its number of steps is not set yet."""
        run_plan = self.runs[run]
        switches = [each for each in run_plan.set if each.partition("=")[0] in OBJECTIVES]
        recipe = get_recipe(run_plan.recipe, self.size).set(switches)
        common = [each for each in self.set if _part(each) not in OBJECTIVES or _part(each) in recipe.objectives]
        recipe = recipe.set(common).set(each for each in run_plan.set if each not in switches)
        return recipe.replace(seed=seed, **({"steps": self.steps} if self.steps else {}))

    def check_names(self, runs: Iterable[str]) -> None:
        """Raise BadInput if the plan has no run of one of these names."""
        for name in runs:
            if name not in self.runs:
                raise BadInput(f"only={name}: there is no such run in plan {self.name}{suggestion(name, self.runs)}")

    def differences(self, claim: PaperClaim) -> list[str]:
        """Return the settings in which the two runs of a claim differ, and objectives that only one of them has."""
        better, worse = (
            dict(self.recipe(run).settings(), vocab=self.runs[run].vocab) for run in (claim.better, claim.worse)
        )
        keys = {*better, *worse} - {"name", *CHANGEABLE_SETTINGS}
        differing = {key for key in keys if (key in better, better.get(key)) != (key in worse, worse.get(key))}
        return sorted(key for key in differing if key.rpartition(".")[0] not in differing)  # `tlm` covers `tlm.rate`


def read_plan(plan: str | os.PathLike[str]) -> LabPlan:
    """Read a plan by its name, or from its file."""
    if str(plan).endswith(".json"):
        file = Path(plan)
        name = file.name
    else:
        file, name = PLANS / f"{plan}.json", str(plan)
        if not file.is_file():
            names = [each.stem for each in PLANS.glob("*.json")]
            raise BadInput(f"{plan}: neither a plan that ships nor a .json file{suggestion(str(plan), names)}")
    if not file.is_file():
        raise BadInput(f"{file}: there is no such file. Give a plan file, or the name of a plan that ships.")
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{file}: not a readable plan ({error}). Expected JSON as in {GUIDE}.") from None
    return parse_plan(name, stored, str(file))


def parse_plan(name: str, stored: Any, where: str) -> LabPlan:
    """Return the plan of a JSON object. Errors start with `where`."""
    if isinstance(stored, dict):
        check_format(f"{where}: plan", stored.get("version", 1), FORMAT, f"Rewrite it as {GUIDE} shows.")
    plan_file = from_dict(PlanFile, stored, where)
    check_bounds(plan_file, where)
    plan = LabPlan(**vars(plan_file), name=name, stored=stored)
    _check(plan, where)
    return plan


def _check(plan: LabPlan, where: str) -> None:
    """Check what the types and bounds do not."""
    if (plan.steps is None) == (plan.flops is None):
        raise BadInput(f"{where}: expected a budget, either 'steps' or 'flops'.")
    if not plan.runs:
        raise BadInput(f"{where}: runs: expected at least one.")
    for task in plan.measure:
        _check_name("training-free task", task, TRAINING_FREE_TASKS, f"{where}: measure")
    for each in (*plan.set, *(each for run_plan in plan.runs.values() for each in run_plan.set)):
        if each.partition("=")[0] in FIXED_SETTINGS:
            raise BadInput(f"{where}: {each}: set by the plan for all runs. Use 'steps' or 'flops', and 'seeds'.")
    _check_seeds(plan.seeds, where)
    for run in plan.runs:
        _check_run(plan, run, where)
    for run in plan.finetune.runs:
        _check_name("run", run, plan.runs, f"{where}: finetune")
    for task, settings in plan.finetune.tasks.items():
        _check_name("task", task, DATASETS, f"{where}: finetune")
        with prefix_errors(f"{where}: finetune: {task}"):
            finetune_grid(DATASETS[task], None, settings)
    for claim in plan.claims:
        _check_claim(plan, claim, f"{where}: claim {claim.claim!r}")


def _check_seeds(seeds: Sequence[int], where: str) -> None:
    if not seeds or len({*seeds}) < len(seeds) or min(seeds) < 0:
        raise BadInput(f"{where}: seeds: expected different whole numbers from 0, found {list(seeds)}.")


def _check_run(plan: LabPlan, run: str, where: str) -> None:
    run_plan = plan.runs[run]
    if not _RUN_NAME.fullmatch(run):
        raise BadInput(f"{where}: runs: {run}: expected a name of letters, digits, and _ . + - inside.")
    _check_seeds(plan.seeds_of(run), f"{where}: runs: {run}")
    _check_name("vocabulary", run_plan.vocab, ALLOCATIONS, f"{where}: run {run}")
    if run_plan.vocab != ALLOCATIONS[0] and plan.synthetic is None:
        raise BadInput(f"{where}: run {run}: only plans with 'synthetic' languages build vocabularies. Remove 'vocab'.")
    with prefix_errors(f"{where}: run {run}"):
        plan.recipe(run).check()


def _check_claim(plan: LabPlan, claim: PaperClaim, where: str) -> None:
    for run in (claim.better, claim.worse):
        _check_name("run", run, plan.runs, where)
    if claim.better == claim.worse:
        raise BadInput(f"{where}: {claim.better} is compared with itself. Name two runs.")
    _check_name("task", claim.task, plan.tasks, where)
    _check_name("metric", claim.metric, plan.tasks[claim.task], f"{where}: {claim.task}")
    for run in (claim.better, claim.worse):
        if claim.task not in plan.tasks_of(run):
            raise BadInput(
                f"{where}: {claim.task} needs fine-tuning and {run} is not fine-tuned."
                " Add it to the runs of 'finetune', or use another task."
            )
    if claim.differs is not None:
        _check_differences(claim, plan.differences(claim), where)


def _check_differences(claim: PaperClaim, differences: Sequence[str], where: str) -> None:
    """Check that the runs of a claim differ in the settings that it names, and in no others."""
    runs = f"{claim.better} and {claim.worse}"
    covered = {name: [key for key in differences if f"{key}.".startswith(f"{name}.")] for name in claim.differs or ()}
    unnamed = [key for key in differences if not any(key in keys for keys in covered.values())]
    if unnamed:
        raise BadInput(f"{where}: {runs} also differ in {', '.join(unnamed)}. Set it alike, or name it in 'differs'.")
    for name, keys in covered.items():
        if not keys:
            raise BadInput(f"{where}: 'differs': {runs} do not differ in {name!r}{suggestion(name, differences)}")


def _check_name(kind: str, name: str, known: Iterable[str], where: str) -> None:
    if name not in known:
        raise BadInput(f"{where}: there is no {kind} {name!r}{suggestion(name, known)}")


def _part(assignment: str) -> str:
    return assignment.partition("=")[0].partition(".")[0]
