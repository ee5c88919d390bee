"""Throughput of several small runs that train on one device at the same time, as processes of a lab do.

The baseline is one run after another: its throughput is that of a single run. All processes start once. They train
together first, and then fewer of them while the others wait, so that every number of runs has the same conditions.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from threading import Barrier, BrokenBarrierError

import torch

from crossling.bench.bench_step import STEP_SIZES, text_recipe
from crossling.bench.train_timing import TrainingLoop, scale_recipe
from crossling.bench.workload import BenchRow, BenchSetup, Measurement, compare, throughput
from crossling.recipes.recipe import Recipe

NUMBERS = (4, 2, 1)  # of runs at once on a GPU; on a CPU all but the first
WARMUP_STEPS = 30  # on a GPU: they compile, and capture a CUDA graph for each shape
STEPS_BETWEEN_CHECKS = 10  # of the time on a GPU: the host runs ahead meanwhile, as in training
SECONDS = 5.0  # of each number of runs on a GPU
LIMIT = 200.0  # seconds that a process waits for the others


def concurrent_run_rows(at: BenchSetup) -> Iterator[BenchRow]:
    own = replace(BenchSetup.of("small"), failed=at.failed) if at.on_gpu else at
    batch = STEP_SIZES["small"][0] if at.on_gpu else at.batches[0]
    name = f"xlm_e small, batch {batch}" if at.on_gpu else f"xlm_e, batch {batch}"
    recipe = scale_recipe(text_recipe(), own, batch)
    totals = own.try_measure(f"{name}, several runs at once", _measure_together, recipe, own) or {}
    for number in sorted(totals):
        if number == 1:
            yield compare(f"{name}, one run", totals[1])
        else:
            yield compare(f"{name}, {number} runs at once", totals[number], totals[1], "one run after another")


def _measure_together(recipe: Recipe, at: BenchSetup) -> dict[int, Measurement]:
    """Return the throughput of all runs together, by number of runs at once."""
    numbers = NUMBERS if at.on_gpu else NUMBERS[1:]
    context = get_context("spawn")  # a forked process cannot use the GPU
    with context.Manager() as manager, ProcessPoolExecutor(numbers[0], mp_context=context) as pool:
        barrier = manager.Barrier(numbers[0], timeout=LIMIT)
        runs = [pool.submit(train_beside_others, recipe, at, index, numbers, barrier) for index in range(numbers[0])]
        errors = [error for run in runs if (error := run.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, BrokenBarrierError)):
        raise error  # the cause: the other processes only waited for that one
    found = [run.result() for run in runs]
    return {number: _add([run[number] for run in found if number in run]) for number in numbers}


def _add(runs: list[Measurement]) -> Measurement:
    memory = [run.peak_gib for run in runs if run.peak_gib is not None]
    total = sum(run.value for run in runs)
    return replace(runs[0], value=total, peak_gib=sum(memory) if memory else None)


def train_beside_others(
    recipe: Recipe, at: BenchSetup, index: int, numbers: tuple[int, ...], barrier: Barrier
) -> dict[int, Measurement]:
    """Train one of several runs, and return its throughput by number of runs at once.

    Args:
        recipe: Recipe of all runs.
        at: Device and size.
        index: Index of this run. With 2 runs at once, those of index 0 and 1 train.
        numbers: Numbers of runs at once, the largest first.
        barrier: Lets all runs start at the same time.
    """
    try:
        training = TrainingLoop(recipe, at)
        batches = training.load(recipe.steps)

        def train(steps: int) -> int:
            tokens = 0
            for _ in range(steps):
                work = next(batches)
                training.step(work)
                tokens += work.tokens
            if at.on_gpu:
                torch.cuda.synchronize(at.device)
            return tokens

        train(WARMUP_STEPS if at.on_gpu else at.warmup)
        steps, seconds = (STEPS_BETWEEN_CHECKS, SECONDS) if at.on_gpu else (1, 0.1)
        found = {}
        for number in numbers:
            barrier.wait()
            if index < number:
                value = throughput(lambda _: train(steps), seconds)
                memory = torch.cuda.max_memory_reserved(at.device) / 2**30 if at.on_gpu else None
                found[number] = Measurement(value, "tokens/s", memory, path=training.path)
        barrier.wait()  # the end of a process would take time from the others
    except Exception:
        barrier.abort()
        raise
    return found
