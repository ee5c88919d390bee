"""Plan of a pre-training run: sampling, parameters, FLOPs, memory and time, computed without training."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from crossling.core.errors import BadInput
from crossling.core.hardware import ACCELERATORS, Accelerator, get_accelerator, local_accelerator
from crossling.data.example_sampler import most_paired_language
from crossling.data.shards import Shards
from crossling.planning.budget import BudgetChoice, ComputeBudget, gpu_problem
from crossling.planning.communication import check_gpus
from crossling.planning.estimate import PublishedSize, RunEstimate, estimate_run, published_sizes
from crossling.planning.plan_page import write_page
from crossling.recipes import adapt_recipe, get_recipe
from crossling.recipes.initialization import load_initial_model
from crossling.recipes.network import ObjectiveLoad, build_meta_network, count_parameters, flops_per_token, total_tokens
from crossling.recipes.recipe import Recipe
from crossling.recipes.run_warnings import run_warnings
from crossling.recipes.sampling_preview import (
    SamplingPreview,
    format_key,
    preview_loads,
    preview_rules,
    preview_text,
)
from crossling.sampling import MOST_PAIRED, Pair


@dataclass(frozen=True, kw_only=True)
class PretrainingPlan:
    """Sampling, size and cost of a run."""

    recipe: Recipe
    parameters: dict[str, int]  # by module
    flops_per_token: dict[str, float]  # by convention
    loads: dict[str, ObjectiveLoad]  # by objective
    text: SamplingPreview[str] | None
    pairs: SamplingPreview[Pair] | None  # None also if the rule of the recipe is infeasible
    rules: dict[str, SamplingPreview[Pair] | str]  # pairs under each rule, or the error of an infeasible one
    estimate: RunEstimate
    published: list[PublishedSize]  # sizes of the recipe's paper on the same GPUs
    budget: BudgetChoice | None = None  # the choice of size and steps, if hours were given

    @property
    def feasible_rules(self) -> dict[str, SamplingPreview[Pair]]:
        """Pairs under each rule that is feasible."""
        return {rule: preview for rule, preview in self.rules.items() if isinstance(preview, SamplingPreview)}

    @property
    def tokens_per_step(self) -> float:
        """Mean over steps on text and on pairs, if they alternate."""
        return total_tokens(self.recipe, self.loads) / self.recipe.steps

    @property
    def pair_description(self) -> str:
        """The pairs that are used, in words."""
        sampling = self.recipe.sampling
        if sampling.pivot != MOST_PAIRED or self.pairs is None:
            return sampling.pair_description
        return f"{sampling.pair_description}, {most_paired_language(self.pairs.counts)},"

    def dump(self) -> dict[str, Any]:
        """Return the plan as the JSON object that `crossling plan --json` prints."""
        streams: dict[str, SamplingPreview[Any] | None] = {"text": self.text, "pairs": self.pairs}
        previews = {stream: preview for stream, preview in streams.items() if preview is not None}
        budget = {"budget": self.budget.dump()} if self.budget else {}
        return {
            "recipe": self.recipe.dump(),
            "parameters": sum(self.parameters.values()),
            "parameters_by_part": self.parameters,
            "flops_per_token": self.flops_per_token,
            "tokens_per_step": self.tokens_per_step,
            **self.estimate.dump(),
            "published": [size.dump() for size in self.published],
            "examples_per_step": {name: load.examples for name, load in self.loads.items()},
            "counts": {
                stream: {format_key(key): n for key, n in preview.counts.items()}
                for stream, preview in previews.items()
            },
            "rates": {stream: preview.dump()["rates"] for stream, preview in previews.items()},
            "epochs": {stream: preview.dump()["epochs"] for stream, preview in previews.items()},
            "rules": {
                rule: {"cannot": preview} if isinstance(preview, str) else preview.dump()
                for rule, preview in self.rules.items()
            },
            **budget,
        }


def plan(
    recipe: Recipe | str | os.PathLike[str],
    shards: Shards | str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    size: str | None = None,
    set: Sequence[str] = (),
    init: str | os.PathLike[str] | None = None,
    hours: float | None = None,
    gpus: int | None = None,
    device: str | None = None,
) -> PretrainingPlan:
    """Compute sampling, epochs, parameters, FLOPs, memory and time of a recipe. Writes no run.

    Without a GPU, the speed of this CPU is measured at the recipe in a few seconds, and stored in the user's cache.

    Args:
        recipe: Name of a recipe, the `recipe.json` of an earlier run, or a `Recipe`.
        shards: Tokenized data, or its folder; only its manifest is read.
        out: HTML file to write the plan to.
        size: Size of the model [default: base, for veco large; with `hours` the largest that they buy].
        set: `key=value` settings of the recipe, as `Recipe.set` takes them.
        init: Model that the run is initialized from, as of `pretrain`. The plan has its architecture.
        hours: Budget of a recipe given by name. The plan is that of the size and steps that it buys.
        gpus: Number of GPUs, above 8 a multiple of 8 [default: 1 if there is a GPU].
        device: Name of a GPU, for instance `h100`, or `cpu` [default: the GPU here, or this CPU]. An H200 is assumed if
            the GPU is unknown, or if `gpus` are given and there is none.

    Returns:
        The plan. Its `dump()` is a JSON object.

    Raises:
        BadInput: The recipe contradicts itself, the shards lack data that it needs, or a step has fewer examples than
            there are GPUs.

    Example:
        >>> crossling.plan("xlm_e", "shards", gpus=8, device="h100").estimate.hardware
        '8 x H100-80GB'
        >>> crossling.plan("xlm_e", "shards", hours=24).budget.size
        'small'
    """
    accelerator, gpus, choice = _select_device(gpus, device), 1 if gpus is None else gpus, None
    shards = Shards.open(shards) if isinstance(shards, str | os.PathLike) else shards
    if hours is None:
        recipe = _initialized_recipe(recipe, init, size, set) if init else get_recipe(recipe, size).set(set)
    else:
        if isinstance(recipe, Recipe):
            raise BadInput(f"hours={hours:g}: a budget needs the name or recipe.json of {recipe.name}. Give that.")
        if init is not None:
            raise BadInput(f"init={os.fspath(init)}: a budget in hours chooses the size itself. Omit one of them.")
        choice = ComputeBudget(hours, gpus, accelerator).choose(os.fspath(recipe), shards, size, set)
        recipe = choice.recipe
    recipe.check()
    vocabulary_size = shards.vocabulary_size
    text, rules = preview_text(recipe, shards), preview_rules(recipe, shards)
    rule = recipe.sampling.pair_rule
    is_relaxed = f"{rule} relaxed" in rules
    pairs = rules.get(f"{rule} relaxed" if is_relaxed else rule)
    assert not isinstance(pairs, str)  # every relaxed rule is feasible
    loads = preview_loads(recipe, shards, text, pairs)
    if problem := gpu_problem(recipe, loads, gpus, recipe.name):
        raise BadInput(problem)
    net = build_meta_network(recipe, vocabulary_size)
    published: list[PublishedSize] = []
    if not accelerator.is_cpu:
        loads_of = partial(preview_loads, shards=shards, text=text, pairs=pairs)
        published += published_sizes(recipe, loads_of, vocabulary_size, accelerator, gpus=gpus)
    planned = PretrainingPlan(
        recipe=recipe,
        parameters=count_parameters(net),
        flops_per_token=flops_per_token(recipe, net, loads),
        loads=loads,
        text=text,
        pairs=None if is_relaxed and not recipe.sampling.relax else pairs,
        rules=rules,
        estimate=estimate_run(recipe, net, loads, accelerator, gpus=gpus),
        published=published,
        budget=choice,
    )
    for problem in run_warnings(recipe, text, planned.pairs):
        warnings.warn(problem, stacklevel=2)
    if out is not None:
        write_page(planned, shards.path, Path(out))
    return planned


def _select_device(gpus: int | None, name: str | None) -> Accelerator:
    """Return the device to plan for. Warn if it is assumed."""
    if gpus is not None:
        check_gpus(gpus)
    accelerator = get_accelerator(name)
    if accelerator.is_cpu and gpus is not None:
        if name is not None:
            raise BadInput(f"gpus={gpus}: the device is {name}. Omit one of them.")
        accelerator = ACCELERATORS["h200"]
    if name is None and not accelerator.is_cpu and local_accelerator() is None:
        warnings.warn(
            f"no known GPU here, so memory and time are predicted for an {accelerator.name}. Set device for another.",
            stacklevel=3,
        )
    return accelerator


def _initialized_recipe(
    recipe: Recipe | str | os.PathLike[str], init: str | os.PathLike[str], size: str | None, assignments: Sequence[str]
) -> Recipe:
    """Return the recipe with the architecture of a model."""
    architecture = get_recipe(recipe, size).set(assignments).model.architecture
    model = load_initial_model(init, architecture=architecture)
    if isinstance(recipe, Recipe):
        return model.adapt(get_recipe(recipe, size).set(assignments))
    return adapt_recipe(os.fspath(recipe), model, size, assignments)
