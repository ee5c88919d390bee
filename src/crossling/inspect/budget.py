"""The size and the steps that some hours on some cards buy.

Size    the largest for which they buy 133 tokens for each parameter of the layers: twenty that are predicted (Hoffmann
        et al. 2022, what compute is best spent on) at the 15% that are masked. Less, and a smaller size learns more in
        the time. The papers give 900 (XLM-E XL) and more.
Steps   as many as fit; of a size the papers trained never more than they did, and of the shards no more than 40 times
        over (BERT's; for text seen more often than that Muennighoff et al. 2023 found no gain).
Batch   the recipe's, halved until there are 20,000 steps or 65,536 tokens a task (for many GPUs 8,192 for each): the
        papers' batches are made for hundreds of thousands of steps. The peak rate stays, the warm-up keeps its share.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crossling.data.shards import Shards
from crossling.errors import BadInput
from crossling.hardware import Card
from crossling.inspect import draws
from crossling.inspect.draws import Drawn
from crossling.inspect.estimate import Estimate, estimate
from crossling.inspect.memory import fitted, memory
from crossling.model.shape import SIZES
from crossling.objectives import Network
from crossling.recipe import Recipe
from crossling.recipe.cost import Load, layer_parameters, network, tokens
from crossling.recipes import has_size, named
from crossling.recipes.sizes import OURS
from crossling.sampling import OutOfReach, Pair

TOKENS_PER_PARAMETER = 133
MOST_EPOCHS = 40
WANTED_STEPS, LEAST_STEPS = 20_000, 1_000
LEAST_BATCH, LEAST_OF_A_GPU = 65_536, 8_192  # tokens of a task in one step
MACHINE = 8  # GPUs of one


@dataclass(frozen=True)
class Choice:
    name: str  # as the recipe was asked for
    size: str | None
    settings: list[str]  # key=value, those that were given first
    recipe: Recipe
    estimate: Estimate
    tokens_per_parameter: float
    why: str  # this many steps

    def command(self, shards: Shards) -> str:
        """What trains it, to be copied."""
        gpus = self.estimate.gpus
        words = ["crossling"]
        if 1 < gpus <= MACHINE:
            words = ["torchrun", "--standalone", f"--nproc-per-node={gpus}", "-m", "crossling"]
        elif gpus > MACHINE:
            meet = ["--rdzv-backend=c10d", "--rdzv-endpoint=HOST:29500"]
            words = ["torchrun", f"--nnodes={gpus // MACHINE}", f"--nproc-per-node={MACHINE}", *meet, "-m", "crossling"]
        out = f"runs/{'-'.join(filter(None, (self.recipe.name, self.size)))}"
        words += ["pretrain", self.name, "--shards", str(shards.path), "-o", out]
        words += ["--size", self.size] if self.size else []
        return shlex.join([*words, *(word for setting in self.settings for word in ("--set", setting))])

    def dump(self) -> dict[str, Any]:
        return {
            "size": self.size,
            "steps": self.recipe.steps,
            "settings": self.settings,
            "tokens_per_parameter": self.tokens_per_parameter,
            "why": self.why,
        }


@dataclass(frozen=True)
class Budget:
    hours: float
    gpus: int
    card: Card

    def __post_init__(self) -> None:
        if not 0 < self.hours < math.inf:
            raise BadInput(f"--hours {self.hours:g}: give a number of hours above 0")
        if self.gpus > MACHINE and self.gpus % MACHINE:
            raise BadInput(
                f"--gpus {self.gpus}: more than {MACHINE} are counted in machines of {MACHINE}; give a multiple"
            )

    def __str__(self) -> str:
        return f"{self.hours:g} hours on {self.gpus} x {self.card.name}"

    def choose(self, name: str, shards: Shards, size: str | None = None, differences: Sequence[str] = ()) -> Choice:
        """For a recipe, or the recipe.json of an earlier run. A size that is given is not questioned."""
        for key in ("steps", "alternate"):
            if any(each.startswith(f"{key}=") for each in differences):
                raise BadInput(f"--set {key}: --hours chooses the steps; leave it out")
        asked = size is not None or name.endswith(".json")
        sizes = [size] if asked else [each for each in reversed(SIZES) if has_size(name, each)]
        data = _Data.of(named(name, sizes[0] if sizes else None).set(differences), shards)
        reason = ""
        for each in sizes:
            last = each == sizes[-1]
            found = self._try(name, each, data, [*differences], asked, last)
            if isinstance(found, Choice):
                return found
            reason = found
        raise BadInput(reason)

    def _try(self, name: str, size: str | None, data: _Data, given: list[str], asked: bool, last: bool) -> Choice | str:
        """The choice at one size, or why it is not to be had."""
        began = named(name, size).set(given)
        net = network(began, data.shards.vocabulary_size)
        fewest = min(_units(began, data.loads(began)).values())
        if fewest < self.gpus:
            told = f"--gpus {self.gpus}: a step of {size or name} has {fewest} examples of a task"
            return f"{told}; give at most so many GPUs"
        trial = self._trial(began, size, net, data, given)
        if trial is None:
            return f"{size or name} does not fit on {self.gpus} x {self.card.name}; give more or larger GPUs"
        wanted, steps = TOKENS_PER_PARAMETER * layer_parameters(net), min(trial.bounds.values())
        bought = trial.affordable if last else steps  # few data do not rule out the smallest
        if trial.affordable < LEAST_STEPS or not (asked or bought * trial.a_step >= wanted):
            least = max(LEAST_STEPS * trial.a_step, 0 if asked else wanted) / trial.tokens_per_second / 3600
            return (
                f"--hours {self.hours:g}: {self.gpus} x {self.card.name} read {trial.affordable * trial.a_step:.2g}"
                f" tokens in that time, too few for {size or name}; give at least {least:.2g} hours"
            )
        chosen = [*trial.settings, *_differences(began, trial.recipe, steps, given)]
        recipe = began.set(chosen)
        recipe.check()
        found = estimate(recipe, net, trial.loads, self.card, self.gpus)
        why = min(trial.bounds, key=lambda each: trial.bounds[each])
        return Choice(name, size, [*given, *chosen], recipe, found, steps * trial.a_step / layer_parameters(net), why)

    def _trial(self, began: Recipe, size: str | None, net: Network, data: _Data, given: Sequence[str]) -> _Trial | None:
        """The recipe at the largest batch that leaves enough steps, or at the smallest; nothing if it fits nowhere."""
        trial = None
        for settings in _batches(began, size, data, given, self.gpus):
            recipe = began.set(settings)
            loads = data.loads(recipe)  # a batch changes nothing in the network
            if trial is not None and min(_units(recipe, loads).values()) < self.gpus:
                break  # every GPU has to have something to do
            fit = fitted(recipe, net, loads, self.card, self.gpus)
            if _sets(given, "micro_tokens", "recompute"):
                fit = recipe if memory(recipe, net, loads, self.card, self.gpus).fits(self.card) else None
            if fit is None:
                return None
            found = estimate(fit, net, loads, self.card, self.gpus)
            affordable = int(self.hours / (24 * found.days) * fit.steps)
            seen = data.steps(fit, loads)  # after which the shards were seen so often that more would gain nothing
            often = f"with more the shards would be seen over {MOST_EPOCHS} times"
            if seen < LEAST_STEPS:
                often = (
                    f"the fewest of a run, though the shards are so small that they are seen over {MOST_EPOCHS} times"
                )
            bounds = {f"as many as {self} buy": affordable, often: max(LEAST_STEPS, seen)}
            if size not in OURS:
                bounds["as many as were published; there is time left"] = fit.steps
            trial = _Trial(
                settings, fit, loads, tokens(fit, loads) / fit.steps, found.tokens_per_second, affordable, bounds
            )
            if min(bounds.values()) >= WANTED_STEPS:
                break
        return trial


@dataclass(frozen=True)
class _Trial:
    """A recipe at some batch."""

    settings: list[str]  # that make the batch
    recipe: Recipe  # computing at once what fits
    loads: dict[str, Load]
    a_step: float  # tokens
    tokens_per_second: float
    affordable: int  # steps
    bounds: dict[str, int]  # of the steps, by what sets them


@dataclass(frozen=True)
class _Data:
    shards: Shards
    text: Drawn[str] | None
    pairs: Drawn[Pair] | None

    @classmethod
    def of(cls, recipe: Recipe, shards: Shards) -> _Data:
        """Lengths hardly depend on whether a rule of sampling can be had strictly."""
        try:
            pairs = draws.pairs(recipe, shards)
        except OutOfReach:
            pairs = draws.pairs(recipe.but(sampling=replace(recipe.sampling, relax=True)), shards)
        return cls(shards, draws.text(recipe, shards), pairs)

    def loads(self, recipe: Recipe) -> dict[str, Load]:
        return draws.loads(recipe, self.shards, self.text, self.pairs)

    def steps(self, recipe: Recipe, loads: Mapping[str, Load]) -> int:
        """After which the text or the pairs were seen so many times over."""
        most = []
        for stream, drawn in {"text": self.text, "pairs": self.pairs}.items():
            if drawn is not None:
                of = [load for name, load in loads.items() if recipe.objectives[name].stream == stream]
                read = sum(load.tokens if stream == "text" else load.examples for load in of)  # as they are counted
                turns = recipe.turns(stream) / recipe.steps
                most.append(int(MOST_EPOCHS * sum(drawn.counts.values()) / (read * turns)))
        return min(most)


def _batches(recipe: Recipe, size: str | None, data: _Data, given: Sequence[str], gpus: int) -> Iterator[list[str]]:
    """The recipe's own batch, then ever smaller ones, as settings."""
    yield []
    if size in OURS or _sets(given, "tokens", "sequences", "pairs"):
        return
    least = max(LEAST_BATCH, LEAST_OF_A_GPU * gpus)
    share, largest = 2, max(load.tokens for load in data.loads(recipe).values())
    while largest / share >= least * 0.99:  # lengths are estimates
        yield [f"{name}.{key}={number // share}" for name, key, number in _counted(recipe)]
        share *= 2


def _units(recipe: Recipe, loads: Mapping[str, Load]) -> dict[str, int]:
    """What a step of each objective can be shared out in: examples, or two of them that mixup joins."""
    return {
        name: load.examples // (1 + getattr(recipe.objectives[name], "mixup", False)) for name, load in loads.items()
    }


def _counted(recipe: Recipe) -> Iterator[tuple[str, str, int]]:
    """What each objective counts its batch by."""
    for name, objective in recipe.objectives.items():
        key = next(key for key in ("pairs", "sequences", "tokens") if getattr(objective, key, None) is not None)
        yield name, key, getattr(objective, key)


def _differences(began: Recipe, fit: Recipe, steps: int, given: Sequence[str]) -> Iterator[str]:
    yield f"steps={steps}"
    adam = began.optimizer
    if steps != began.steps and adam.warmup >= 1 and not _sets(given, "warmup"):
        yield f"optimizer.warmup={adam.warmup_steps(began.steps) / began.steps:.3g}"
    if fit.micro_tokens != began.micro_tokens:
        yield f"micro_tokens={fit.micro_tokens}"
    if fit.recompute and not began.recompute:
        yield "recompute=true"


def _sets(given: Sequence[str], *keys: str) -> bool:
    return any(each.partition("=")[0].rpartition(".")[2] in keys for each in given)
