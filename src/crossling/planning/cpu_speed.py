"""Speed of this CPU at a recipe, measured by a few small training steps.

A step of C FLOPs by a network of p parameters is taken to last

    t = C / f + p / u

where f is the speed of the forward and backward pass and u that of the optimizer. Both are measured on random tokens
with the recipe itself. Of a large network only two layers and a part of the vocabulary are built. The result is stored
for each machine, number of threads and recipe, so that it is measured once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from statistics import median
from typing import Any

import torch

from crossling.core.files import write_json
from crossling.core.hardware import cpu_name, library_versions, user_cache
from crossling.core.progress import print_status
from crossling.core.resumable import fingerprint
from crossling.data.batches import StepWork
from crossling.objectives import Network, PretrainingObjective
from crossling.planning.random_shards import RandomShards
from crossling.recipes.network import (
    ObjectiveLoad,
    build_meta_network,
    build_network,
    count_parameters,
    flops_per_token,
    make_batches,
)
from crossling.recipes.pretrain import configure_network
from crossling.recipes.recipe import Recipe
from crossling.recipes.sampling_preview import preview_loads, preview_pairs, preview_text
from crossling.sampling import Sampling
from crossling.train.parallel import ParallelNetwork
from crossling.train.step import Schedule, TrainStep

MAX_AGE = 24 * 3600  # seconds: the machine may have been busy while a speed was measured
FORMAT = 1  # of the stored speeds
PROBE_SIZE = 1024  # of the matrices whose product gives a first estimate
BATCH_SECONDS = 0.25  # of the batch that is timed, by this estimate
MIN_SEQUENCES = 2  # of each objective in it
REPETITIONS, MAX_SECONDS = 2, 8.0  # once if they would take longer
MAX_PARAMETERS = 50_000_000  # of a network that is built as it is
LAYERS, LENGTH, VOCABULARY, QUEUE = 2, 64, 32_768, 4096  # at most, of a larger one


@dataclass(frozen=True)
class CpuSpeed:
    """Measured speed of a CPU at a recipe.

    Args:
        flops: FLOPs per second of data preparation, forward and backward pass together.
        parameters: Parameters that the optimizer updates per second.
    """

    flops: float
    parameters: float

    def step_seconds(self, flops: float, parameters: float) -> float:
        """Return the time of a step of so many FLOPs by a network of so many parameters."""
        return flops / self.flops + parameters / self.parameters


def cpu_speed(recipe: Recipe, net: Network, loads: Mapping[str, ObjectiveLoad]) -> CpuSpeed:
    """Return the speed of this CPU at a recipe, measured now or within the last day.

    Args:
        recipe: Recipe to train.
        net: Its network, which may be on the meta device.
        loads: Load of each objective.

    Returns:
        The speed with the present number of threads.

    Example:
        >>> cpu_speed(recipe, build_meta_network(recipe, 8000), loads).step_seconds(flops=1e11, parameters=2e6)
        1.9
    """
    rows = net.encoder.config.vocab_size
    is_large = sum(count_parameters(net).values()) > MAX_PARAMETERS
    base = _shorten(recipe) if is_large else recipe
    rows = min(rows, VOCABULARY) if is_large else rows
    described = {"format": FORMAT, "vocabulary": rows, **_describe(base), **_describe_machine()}
    file = user_cache() / "cpu-speed" / f"{fingerprint(described)}.json"
    with suppress(OSError, ValueError, TypeError, KeyError):
        if time.time() - file.stat().st_mtime < MAX_AGE:
            return CpuSpeed(**json.loads(file.read_text(encoding="utf-8"))["speed"])
    print_status(f"Measuring the speed of {cpu_name()} with {torch.get_num_threads()} threads, a few seconds ...")
    flops = flops_per_token(recipe, net, loads)["full"] * sum(load.tokens for load in loads.values())
    speed = _measure(_shrink_batch(base, min(1.0, BATCH_SECONDS * matmul_flops() / flops)), rows)
    with suppress(OSError):  # the cache cannot be written
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, {"speed": asdict(speed), **described})
    return speed


def matmul_flops() -> float:
    """Return the FLOPs per second of a matrix product in float32. Training is slower."""
    one = torch.ones(PROBE_SIZE, PROBE_SIZE)
    seconds = [_seconds(lambda: torch.mm(one, one)) for _ in range(5)]
    return 2 * PROBE_SIZE**3 / min(seconds)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _shorten(recipe: Recipe) -> Recipe:
    """Return a recipe with fewer layers of the same width in crossling's architecture, and with short sequences."""
    shape = replace(
        recipe.model,
        layers=min(LAYERS, recipe.model.layers),
        generator_layers=1,
        universal_layer=None,
        architecture=None,
        native=None,
    )
    changes: dict[str, Any] = {
        name: replace(objective, length=min(LENGTH, objective.length))  # type: ignore[type-var]
        for name, objective in recipe.objectives.items()
    }
    if recipe.xlco is not None:
        changes["xlco"] = replace(changes["xlco"], layer=None, queue=min(recipe.xlco.queue, QUEUE))
    return recipe.replace(model=shape, **changes)


def _shrink_batch(recipe: Recipe, factor: float) -> Recipe:
    """Return a recipe with a fraction of the batch, and with what random tokens can be sampled by."""
    changes: dict[str, PretrainingObjective] = {}
    for name, objective in recipe.objectives.items():
        key = objective.batch_setting
        least = MIN_SEQUENCES * (objective.length if key == "tokens" else 2)
        number = max(least, round(getattr(objective, key) * factor))
        changes[name] = replace(objective, **{key: number})  # type: ignore[type-var]
    steps = 10**6  # the first one is timed, whose learning rate is almost zero
    return recipe.replace(**changes, sampling=Sampling(), phases=None, dro=None, steps=steps, freeze_steps=0)


def _describe(recipe: Recipe) -> dict[str, Any]:
    """Return the settings that the speed depends on. The batch size is not one of them."""
    objectives: dict[str, Any] = {}
    for name, objective in recipe.objectives.items():
        own = {each.name: getattr(objective, each.name) for each in fields(objective)}  # type: ignore[arg-type]
        objectives[name] = {key: value for key, value in own.items() if key != objective.batch_setting}
    settings = {key: getattr(recipe, key) for key in ("gradient_checkpointing", "alternate")}
    return {**settings, "model": asdict(recipe.model), "matrices": recipe.optimizer.matrices, "objectives": objectives}


def _describe_machine() -> dict[str, Any]:
    versions = library_versions(("crossling",))
    return {"cpu": cpu_name(), "threads": torch.get_num_threads(), "versions": versions}


def _measure(recipe: Recipe, vocabulary: int) -> CpuSpeed:
    """Time a step, and one whose gradient is computed twice, so that the difference has no optimizer in it."""
    shards = RandomShards.of(vocabulary, max(objective.length for objective in recipe.objectives.values()))
    loads = preview_loads(recipe, shards, preview_text(recipe, shards), preview_pairs(recipe, shards))
    batches = make_batches(recipe, shards)
    numbers = (0, 1) if recipe.alternate else (0,)
    works = [batches[number] for number in numbers]
    with torch.random.fork_rng(devices=[]):
        net = build_network(recipe, vocabulary)
        configure_network(net, recipe)
        schedule = Schedule(steps=recipe.steps, lr=recipe.lr, log_every=1, checkpoint_every=1)
        network = ParallelNetwork(net, torch.device("cpu"))
        step = TrainStep(network, objectives=recipe.objectives, optimizer=recipe.optimizer, schedule=schedule)

        def run(works: list[StepWork]) -> None:
            for work in works:
                step.run(0, work, work.counts, work.tokens)

        twice = [replace(work, micro_batches=work.micro_batches * 2, seeds=work.seeds * 2) for work in works]
        first = _seconds(lambda: run(works))  # allocates memory
        repetitions = REPETITIONS if 3 * REPETITIONS * first < MAX_SECONDS else 1
        seconds = [(_seconds(lambda: run(works)), _seconds(lambda: run(twice))) for _ in range(repetitions)]
        data = median(_seconds(lambda: [batches[number] for number in numbers]) for _ in range(REPETITIONS))
    whole, doubled = (median(each) for each in zip(*seconds, strict=True))
    gradient = min(max(doubled - whole, 0.3 * whole), 0.99 * whole)
    per_token = flops_per_token(recipe, build_meta_network(recipe, vocabulary), loads)["full"]
    flops = per_token * sum(work.tokens for work in works)
    parameters = len(works) * sum(count_parameters(net).values())
    return CpuSpeed(flops=flops / (gradient + data), parameters=parameters / (whole - gradient))
