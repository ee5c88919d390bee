"""Time the training step on random tokens. Only this module of the benchmarks uses the trainer."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median

import torch
from torch.utils.data import DataLoader

from crossling.bench.workload import BenchSetup, Measurement
from crossling.data.batches import StepWork
from crossling.planning.random_shards import RandomShards
from crossling.recipes.network import ObjectiveLoad, build_meta_network, build_network, flops_per_token, make_batches
from crossling.recipes.pretrain import configure_network, default_workers
from crossling.recipes.recipe import Recipe
from crossling.recipes.sampling_preview import preview_loads, preview_pairs, preview_text
from crossling.train.parallel import ParallelNetwork
from crossling.train.step import Schedule, TrainStep


def scale_recipe(recipe: Recipe, at: BenchSetup, batch: int) -> Recipe:
    """Scale a recipe to the model shape and batch size of the benchmark.

    The largest objective gets `batch` sequences, the others in proportion. Each is one micro-batch.
    """
    objectives = recipe.objectives
    longest = max(task.length for task in objectives.values())
    most = max(task.tokens or 0 for task in objectives.values())
    factor = batch * longest / most
    changes = {}
    for name, task in objectives.items():
        counts = {key: getattr(task, key, None) for key in ("tokens", "sequences", "pairs")}
        scaled = {key: max(2, round(count * factor)) for key, count in counts.items() if count}
        if "tokens" in scaled:
            scaled["tokens"] = scaled["tokens"] * at.length // longest
        changes[name] = replace(task, **scaled, length=min(task.length, at.length))  # type: ignore[type-var]
    own = recipe.model
    kept = {key: getattr(own, key) for key in ("relative", "gate", "cross_attention", "dropout", "attention_dropout")}
    return recipe.replace(
        **changes,
        sampling=replace(recipe.sampling, min_pairs=None),
        model=replace(at.shape, max_length=at.length, **kept),
        micro_tokens=8 * batch * at.length,
        # Only the first steps are timed, with the small learning rates of warm-up: random tokens must not give NaN.
        steps=10**6,
    )


def measure_speed(recipe: Recipe, at: BenchSetup) -> Measurement:
    """Measure training steps of a recipe on batches in memory."""
    training = TrainingLoop(recipe, at)
    works = [training.batches[number].pin_memory() if at.on_gpu else training.batches[number] for number in (0, 1)]
    if not training.batches.alternate:
        works = works[:1]

    def steps() -> None:
        for work in works:
            training.step(work)

    timing = at.time(steps)
    host = _host_seconds(steps, at) / timing.seconds if at.on_gpu else None
    tokens = sum(work.tokens for work in works) / timing.seconds
    mfu = tokens * step_flops(recipe, at) / at.matmul
    return Measurement(tokens, "tokens/s", timing.peak_gib, mfu, path=training.path, host=host)


def _host_seconds(steps: Callable[[], None], at: BenchSetup) -> float:
    """Return the median time until the host has launched the steps, while the device has nothing else to do."""
    seconds = []
    for _ in range(at.times):
        torch.cuda.synchronize(at.device)
        start = time.perf_counter()
        steps()
        seconds.append(time.perf_counter() - start)
    return median(seconds)


def loader_wait(recipe: Recipe, at: BenchSetup, steps: int) -> float:
    """Return the percentage of step time spent waiting for the loader."""
    training = TrainingLoop(recipe, at)
    ready = training.load(at.warmup + steps)
    waited = start = 0.0
    for number in range(at.warmup + steps):
        if number == at.warmup:
            waited, start = 0.0, time.perf_counter()
        requested = time.perf_counter()
        work = next(ready)
        waited += time.perf_counter() - requested
        training.step(work)
        if at.on_gpu:
            torch.cuda.synchronize(at.device)  # otherwise earlier GPU work would count as waiting
    return 100 * waited / (time.perf_counter() - start)


def random_loads(recipe: Recipe, at: BenchSetup) -> dict[str, ObjectiveLoad]:
    """Return the examples of each objective in a step on random tokens."""
    shards = RandomShards.of(at.vocabulary, at.length)
    return preview_loads(recipe, shards, preview_text(recipe, shards), preview_pairs(recipe, shards))


def step_flops(recipe: Recipe, at: BenchSetup) -> float:
    """Return FLOPs per token: all matrix products, heads and attention, forward and backward."""
    return flops_per_token(recipe, build_meta_network(recipe, at.vocabulary), random_loads(recipe, at))["full"]


class TrainingLoop:
    """The network of a recipe, its batches and its training step."""

    def __init__(self, recipe: Recipe, at: BenchSetup) -> None:
        recipe.check()
        self.at, self.shards = at, RandomShards.of(at.vocabulary, at.length)
        uses_graphs = recipe.cuda_graphs and at.on_gpu
        self.batches = make_batches(recipe, self.shards, has_bucketed_shapes=uses_graphs)
        with torch.device(at.device):  # initialization is much faster there
            net = build_network(recipe, self.shards.vocabulary_size)
        configure_network(net, recipe)
        schedule = Schedule(
            steps=recipe.steps, lr=recipe.lr, log_every=recipe.log_every, checkpoint_every=recipe.checkpoint_every
        )
        network = ParallelNetwork(net, at.device)
        self.train_step = TrainStep(
            network,
            objectives=recipe.objectives,
            optimizer=recipe.optimizer,
            schedule=schedule,
            cuda_graphs=uses_graphs,
        )

    @property
    def compiled(self) -> bool:
        """Return whether parts of the network are compiled."""
        return any(module._compiled_call_impl is not None for module in self.train_step.network.net.modules())

    @property
    def path(self) -> str:
        """Return the code path of the step."""
        path = f"{self.at.path}, compiled" if self.compiled else self.at.path
        if self.train_step.graphs is not None:
            path += ", CUDA graphs" if self.train_step.graphs.enabled else ", graphs failed"
        return path

    def load(self, steps: int) -> Iterator[StepWork]:
        """Load the batches of the first steps, with the loader processes of a run."""
        workers = default_workers(self.at.device)
        loader = DataLoader(
            self.batches,
            sampler=range(steps),
            batch_size=None,
            num_workers=workers,
            prefetch_factor=4 if workers else None,
            pin_memory=self.at.on_gpu,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about machines with fewer cores
            return iter(loader)

    def step(self, work: StepWork) -> None:
        """Run the first step again: its learning rate is close to 0."""
        self.train_step.run(0, work, work.counts, work.tokens)
