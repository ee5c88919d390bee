"""The trainer's own step on random tokens, ready to be timed. All that the benches know of the trainer is here."""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import replace

import torch
from torch.utils.data import DataLoader

from crossling.bench.chance import ChanceShards
from crossling.bench.clock import Speed
from crossling.bench.setting import Setting
from crossling.data.batches import Batches, Work
from crossling.inspect import draws
from crossling.model.transformer import CrosslingModel
from crossling.recipe import Recipe, build
from crossling.recipe.cost import flops_per_token, network
from crossling.train.parallel import Engine
from crossling.train.step import Learner, Schedule


def sized(recipe: Recipe, at: Setting, batch: int) -> Recipe:
    """The recipe at the shape of the setting and at `batch` sequences a step: its largest task has so many, the others
    in proportion, and all of a task is computed at once."""
    tasks = recipe.objectives
    longest = max(task.length for task in tasks.values())
    most = max(getattr(task, "tokens", 0) for task in tasks.values())
    share = batch * longest / most
    changes = {}
    for name, task in tasks.items():
        counts = {key: getattr(task, key, None) for key in ("tokens", "sequences", "pairs")}
        scaled = {key: max(2, round(count * share)) for key, count in counts.items() if count}
        if "tokens" in scaled:
            scaled["tokens"] = scaled["tokens"] * at.length // longest
        changes[name] = replace(task, **scaled, length=min(task.length, at.length))  # type: ignore[type-var]
    own = recipe.model
    kept = {key: getattr(own, key) for key in ("relative", "gate", "cross_attention", "dropout", "attention_dropout")}
    return recipe.but(
        **changes,
        model=replace(at.shape, max_length=at.length, **kept),
        micro_tokens=8 * batch * at.length,
        steps=10**6,  # of which the first ones are timed, at the rates of a warm-up: noise must not end in NaN
    )


def measured(recipe: Recipe, at: Setting) -> Speed:
    """Steps of a recipe on batches that are there already."""
    training = _Training(recipe, at)
    works = [training.batches[number].pin_memory() if at.on_gpu else training.batches[number] for number in (0, 1)]
    if not training.batches.alternate:
        works = works[:1]

    def steps() -> None:
        for work in works:
            training.step(work)

    timing = at.timed(steps)
    tokens = sum(work.tokens for work in works) / timing.seconds
    mfu = tokens * operations(recipe, training.shards) / at.matmul
    return Speed(tokens, timing.peak_gib, mfu, f"{at.path}, compiled" if training.compiled else at.path)


def waiting(recipe: Recipe, at: Setting, steps: int) -> float:
    """The share of the time of steps that is spent waiting for the loader, in percent."""
    training = _Training(recipe, at)
    workers = max(1, min(12, (os.cpu_count() or 1) - 2)) if at.on_gpu else 0  # as in pretrain
    loader = DataLoader(
        training.batches,
        sampler=range(at.warmup + steps),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=4 if workers else None,
        pin_memory=at.on_gpu,
    )
    waited = start = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of machines with fewer cores
        ready = iter(loader)
    for number in range(at.warmup + steps):
        if number == at.warmup:
            waited, start = 0.0, time.perf_counter()
        asked = time.perf_counter()
        work = next(ready)
        waited += time.perf_counter() - asked
        training.step(work)
        if at.on_gpu:
            torch.cuda.synchronize(at.device)  # else the wait would be for what was asked of the GPU before
    return 100 * waited / (time.perf_counter() - start)


def operations(recipe: Recipe, shards: ChanceShards) -> float:
    """For each token of a step: all matrices, heads and attention, both ways."""
    drawn = [stream(recipe, shards) for stream in (draws.text, draws.pairs)]
    loads = {name: load for each in drawn if each is not None for name, load in each.loads.items()}
    return flops_per_token(recipe, network(recipe, shards.vocabulary_size), loads)["full"]


class _Training:
    """The network of a recipe and all that a step of it takes."""

    def __init__(self, recipe: Recipe, at: Setting) -> None:
        recipe.check()
        self.shards = ChanceShards.of(at.vocabulary, at.length)
        self.batches = Batches(
            self.shards, recipe.objectives, recipe.sampling, recipe.seed, recipe.micro_tokens, recipe.alternate
        )
        with torch.device(at.device):  # where its many weights are drawn much faster
            net = build(recipe, self.shards.vocabulary_size)
        if recipe.recompute:
            for part in (net.encoder, *net.parts.values()):
                if isinstance(part, CrosslingModel):
                    part.gradient_checkpointing_enable()
        schedule = Schedule(recipe.steps, recipe.lr, recipe.seed, recipe.log_every, recipe.checkpoint_every)
        self.learner = Learner(Engine(net, at.device), recipe.objectives, recipe.optimizer, schedule)

    @property
    def compiled(self) -> bool:
        """Whether the trainer has compiled parts of the network."""
        return any(module._compiled_call_impl is not None for module in self.learner.engine.net.modules())

    def step(self, work: Work) -> None:
        """The first step, again and again: its rate is next to nothing."""
        self.learner.step(0, work, work.counts, work.tokens)
