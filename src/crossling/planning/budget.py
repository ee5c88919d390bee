"""Size, steps and batch size that a compute budget buys: hours on a number of GPUs, or on this CPU.

Size    The largest for which the budget buys 133 tokens per parameter of the layers. That is 20 predicted tokens
        (Hoffmann et al. 2022) at a masking rate of 15%. With fewer, a smaller size learns more in the time. The papers
        have 900 (XLM-E XL) and more. A CPU trains the smallest size on fewer.
Steps   As many as the budget allows. Never more than the paper trained a size for, and at most 40 epochs over the
        shards (as BERT; Muennighoff et al. 2023 found no gain from more).
Batch   That of the recipe, halved until there are 20,000 steps or 65,536 tokens per objective (with many GPUs, 8,192
        for each). The papers' batch sizes suit hundreds of thousands of steps. The peak learning rate stays, and the
        warm-up keeps its fraction of the steps.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crossling.core.errors import BadInput
from crossling.core.hardware import Accelerator
from crossling.data.shards import Shards
from crossling.model.model_shape import SIZES
from crossling.objectives import Network
from crossling.planning.communication import GPUS_PER_NODE, check_gpus
from crossling.planning.estimate import RunEstimate, describe_hardware, estimate_memory, estimate_run, fit_to_memory
from crossling.recipes import get_recipe, has_size
from crossling.recipes.network import (
    ObjectiveLoad,
    build_meta_network,
    count_layer_parameters,
    flops_per_token,
    total_tokens,
)
from crossling.recipes.recipe import Recipe
from crossling.recipes.sampling_preview import SamplingPreview, preview_loads, preview_pairs, preview_text
from crossling.recipes.training_defaults import OWN_SIZES
from crossling.sampling import InfeasibleMarginals, Pair

TOKENS_PER_PARAMETER = 133
MAX_EPOCHS = 40
TARGET_STEPS, MIN_STEPS = 20_000, 1_000
MIN_BATCH, MIN_BATCH_PER_GPU = 65_536, 8_192  # tokens of an objective per step


@dataclass(frozen=True, kw_only=True)
class BudgetChoice:
    """The recipe that a budget buys."""

    name: str  # of the recipe, as requested
    shards: Path
    size: str | None
    settings: list[str]  # key=value, those of the user first
    recipe: Recipe
    estimate: RunEstimate
    tokens_per_parameter: float
    reason: str  # for this number of steps

    @property
    def command(self) -> str:
        """The command that trains it."""
        gpus = self.estimate.gpus
        words = ["crossling"]
        if 1 < gpus <= GPUS_PER_NODE:
            words = ["torchrun", "--standalone", f"--nproc-per-node={gpus}", "-m", "crossling"]
        elif gpus > GPUS_PER_NODE:
            nodes = [f"--nnodes={gpus // GPUS_PER_NODE}", f"--nproc-per-node={GPUS_PER_NODE}"]
            rendezvous = ["--rdzv-backend=c10d", "--rdzv-endpoint=HOST:29500"]
            words = ["torchrun", *nodes, *rendezvous, "-m", "crossling"]
        out = f"runs/{'-'.join(filter(None, (self.recipe.name, self.size)))}"
        words += ["pretrain", self.name, "--shards", str(self.shards), "-o", out]
        words += ["--size", self.size] if self.size else []
        return shlex.join([*words, *(word for setting in self.settings for word in ("--set", setting))])

    def dump(self) -> dict[str, Any]:
        """Return the choice as a JSON object."""
        return {
            "size": self.size,
            "steps": self.recipe.steps,
            "settings": self.settings,
            "tokens_per_parameter": self.tokens_per_parameter,
            "why": self.reason,
            "command": self.command,
        }


@dataclass(frozen=True)
class ComputeBudget:
    """Hours on a number of GPUs, or on this CPU."""

    hours: float
    gpus: int
    accelerator: Accelerator

    def __post_init__(self) -> None:
        if not 0 < self.hours < math.inf:
            raise BadInput(f"hours={self.hours:g}: expected a number above 0.")
        check_gpus(self.gpus)

    @property
    def hardware(self) -> str:
        """Number and name of the GPUs, or name of the CPU."""
        return describe_hardware(self.accelerator, self.gpus)

    def choose(
        self, name: str, shards: Shards, size: str | None = None, assignments: Sequence[str] = ()
    ) -> BudgetChoice:
        """Return the recipe that the budget buys.

        Args:
            name: Recipe, or the recipe.json of an earlier run.
            shards: Data of the run.
            size: Size that is used in any case [default: the largest that the budget buys].
            assignments: `key=value` settings, which are not changed.
        """
        for key in ("steps", "alternate"):
            if any(assignment.startswith(f"{key}=") for assignment in assignments):
                raise BadInput(f"{key}: the budget in hours determines the steps. Omit it.")
        is_given = size is not None or name.endswith(".json")
        sizes = [size] if is_given else [each for each in reversed(SIZES) if has_size(name, each)]
        data = _Data.preview(get_recipe(name, sizes[0] if sizes else None).set(assignments), shards)
        reason = ""
        for each in sizes:
            # Few data do not rule out the smallest size.
            choice = self._try_size(name, each, data, [*assignments], is_given=is_given, is_last=each == sizes[-1])
            if isinstance(choice, BudgetChoice):
                return choice
            reason = choice
        raise BadInput(reason)

    def _try_size(
        self, name: str, size: str | None, data: _Data, given: list[str], *, is_given: bool, is_last: bool
    ) -> BudgetChoice | str:
        """Return the choice at one size, or why there is none."""
        initial = get_recipe(name, size).set(given)
        net = build_meta_network(initial, data.shards.vocabulary_size)
        if problem := gpu_problem(initial, data.loads(initial), self.gpus, size or name):
            return problem
        is_fixed = is_given or is_last
        if self.accelerator.is_cpu and not is_fixed and self._is_out_of_reach(initial, net, data):
            return f"{size}: too large for {self.hours:g} hours on {self.hardware}. Give a smaller size."
        candidate = self._find_batch(initial, size, net, data, given)
        if candidate is None:
            fix = "a smaller size" if self.accelerator.is_cpu else "more or larger GPUs"
            return f"{size or name}: does not fit on {self.hardware}. Give {fix}."
        target, steps = TOKENS_PER_PARAMETER * count_layer_parameters(net), min(candidate.step_limits.values())
        bought = candidate.affordable_steps if is_last else steps
        needs_target = not (is_given or (is_last and self.accelerator.is_cpu))
        is_enough = not needs_target or bought * candidate.tokens_per_step >= target
        if candidate.affordable_steps < MIN_STEPS or not is_enough:
            tokens = max(MIN_STEPS * candidate.tokens_per_step, target if needs_target else 0)
            return (
                f"hours={self.hours:g}: {self.hardware} train on"
                f" {candidate.affordable_steps * candidate.tokens_per_step:.2g} tokens in that time, too few for"
                f" {size or name}. Give at least {tokens / candidate.tokens_per_second / 3600:.2g} hours."
            )
        settings = [*candidate.settings, *_changed_settings(initial, candidate.recipe, steps, given)]
        recipe = initial.set(settings)
        recipe.check()
        return BudgetChoice(
            name=name,
            shards=data.shards.path,
            size=size,
            settings=[*given, *settings],
            recipe=recipe,
            estimate=estimate_run(recipe, net, candidate.loads, self.accelerator, gpus=self.gpus),
            tokens_per_parameter=steps * candidate.tokens_per_step / count_layer_parameters(net),
            reason=min(candidate.step_limits, key=lambda reason: candidate.step_limits[reason]),
        )

    def _is_out_of_reach(self, recipe: Recipe, net: Network, data: _Data) -> bool:
        """Return whether a CPU cannot buy enough tokens even at the speed of plain matrix products."""
        from crossling.planning.cpu_speed import matmul_flops

        tokens = 3600 * self.hours * matmul_flops() / flops_per_token(recipe, net, data.loads(recipe))["full"]
        return tokens < TOKENS_PER_PARAMETER * count_layer_parameters(net)

    def _find_batch(
        self, initial: Recipe, size: str | None, net: Network, data: _Data, given: Sequence[str]
    ) -> _Candidate | None:
        """Return the largest batch that leaves enough steps, or the smallest. None if the model does not fit."""
        candidate = None
        for settings in _batch_settings(initial, size, data, given, self.gpus):
            recipe = initial.set(settings)
            loads = data.loads(recipe)  # the batch size changes nothing in the network
            if candidate is not None and gpu_problem(recipe, loads, self.gpus, recipe.name):
                break  # every GPU needs at least one example
            fitting = fit_to_memory(recipe, net, loads, self.accelerator, gpus=self.gpus)
            if _is_set(given, "micro_tokens", "gradient_checkpointing"):
                memory = estimate_memory(recipe, net, loads, self.accelerator, gpus=self.gpus)
                fitting = recipe if memory.fits(self.accelerator) else None
            if fitting is None:
                return None
            estimate = estimate_run(fitting, net, loads, self.accelerator, gpus=self.gpus)
            affordable = int(self.hours / (24 * estimate.days) * fitting.steps)
            useful = data.steps_for_epochs(fitting, loads)
            limits = {f"all that {self.hours:g} hours on {self.hardware} buy": affordable}
            if useful >= MIN_STEPS:
                limits[f"more would be over {MAX_EPOCHS} epochs on the shards"] = useful
            else:
                small = "the minimum of a run, though the shards are so small that it is over"
                limits[f"{small} {MAX_EPOCHS} epochs"] = MIN_STEPS
            if size not in OWN_SIZES:
                limits["as published; the budget would buy more"] = fitting.steps
            candidate = _Candidate(
                settings=settings,
                recipe=fitting,
                loads=loads,
                tokens_per_step=total_tokens(fitting, loads) / fitting.steps,
                tokens_per_second=estimate.tokens_per_second,
                affordable_steps=affordable,
                step_limits=limits,
            )
            if min(limits.values()) >= TARGET_STEPS:
                break
        return candidate


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """A recipe at some batch size."""

    settings: list[str]  # of the batch size
    recipe: Recipe  # with the micro-batch that fits
    loads: dict[str, ObjectiveLoad]
    tokens_per_step: float
    tokens_per_second: float
    affordable_steps: int
    step_limits: dict[str, int]  # by reason


@dataclass(frozen=True)
class _Data:
    """Shards and how a recipe samples them."""

    shards: Shards
    text: SamplingPreview[str] | None
    pairs: SamplingPreview[Pair] | None

    @classmethod
    def preview(cls, recipe: Recipe, shards: Shards) -> _Data:
        """Preview the sampling. Lengths hardly depend on whether the rule is relaxed."""
        try:
            pairs = preview_pairs(recipe, shards)
        except InfeasibleMarginals:
            pairs = preview_pairs(recipe.replace(sampling=replace(recipe.sampling, relax=True)), shards)
        return cls(shards, preview_text(recipe, shards), pairs)

    def loads(self, recipe: Recipe) -> dict[str, ObjectiveLoad]:
        """Return the load of each objective."""
        return preview_loads(recipe, self.shards, self.text, self.pairs)

    def steps_for_epochs(self, recipe: Recipe, loads: Mapping[str, ObjectiveLoad]) -> int:
        """Return the steps after which text or pairs were read MAX_EPOCHS times."""
        steps = []
        for stream, preview in {"text": self.text, "pairs": self.pairs}.items():
            if preview is not None:
                own = [load for name, load in loads.items() if recipe.objectives[name].stream == stream]
                read = sum(load.tokens if stream == "text" else load.examples for load in own)  # in units of counts
                fraction = recipe.stream_steps(stream) / recipe.steps
                steps.append(int(MAX_EPOCHS * sum(preview.counts.values()) / (read * fraction)))
        return min(steps, default=recipe.steps)


def _batch_settings(
    recipe: Recipe, size: str | None, data: _Data, given: Sequence[str], gpus: int
) -> Iterator[list[str]]:
    """Yield settings for the batch size of the recipe, then for half of it, a quarter and so on."""
    yield []
    objectives = recipe.objectives
    if size in OWN_SIZES or _is_set(given, *(objective.batch_setting for objective in objectives.values())):
        return
    least = max(MIN_BATCH, MIN_BATCH_PER_GPU * gpus)
    sizes = {f"{name}.{each.batch_setting}": getattr(each, each.batch_setting) for name, each in objectives.items()}
    divisor, largest = 2, max(load.tokens for load in data.loads(recipe).values())
    while largest / divisor >= least * 0.99:  # lengths are estimates
        yield [f"{key}={number // divisor}" for key, number in sizes.items()]
        divisor *= 2


def gpu_problem(recipe: Recipe, loads: Mapping[str, ObjectiveLoad], gpus: int, name: str) -> str | None:
    """Return an error message if a step has fewer examples, single or joined, than there are GPUs."""
    fewest = min(load.examples // recipe.objectives[name].examples_per_unit for name, load in loads.items())
    if fewest >= gpus:
        return None
    return f"gpus={gpus}: a step of {name} has {fewest} examples of an objective. Give at most {fewest} GPUs."


def _changed_settings(initial: Recipe, fitting: Recipe, steps: int, given: Sequence[str]) -> Iterator[str]:
    yield f"steps={steps}"
    optimizer = initial.optimizer
    if steps != initial.steps and optimizer.warmup >= 1 and not _is_set(given, "warmup"):
        yield f"optimizer.warmup={optimizer.warmup_steps(initial.steps) / initial.steps:.3g}"
    if fitting.micro_tokens != initial.micro_tokens:
        yield f"micro_tokens={fitting.micro_tokens}"
    if fitting.gradient_checkpointing and not initial.gradient_checkpointing:
        yield "gradient_checkpointing=true"


def _is_set(assignments: Sequence[str], *keys: str) -> bool:
    return any(assignment.partition("=")[0].rpartition(".")[2] in keys for assignment in assignments)
