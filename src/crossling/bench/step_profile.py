"""Time of a training step by kind of operation on the device, and time of the host."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from crossling.bench.train_timing import TrainingLoop, scale_recipe
from crossling.bench.workload import BenchSetup
from crossling.recipes.recipe import Recipe

# Kinds of device operations by the names of kernels, and of operators on a CPU. The first match counts.
KINDS = {
    "attention": r"^(forward|backward_(keys|queries|distances))$|flash|fmha|scaled_dot_product",
    "head": r"_row_kernel|_gradient_kernel|_Prediction|cross_entropy|nll_loss|log_softmax",
    "matrix products": r"nvjet|gemm|cutlass|cublas|splitK|::(mm|addmm|bmm|baddbmm|linear)$",
    "optimizer": r"FusedOptimizer|adam|lerp|LpNorm|foreach_norm",
    "norms and GELU": r"_norm_|_gelu_|layer_norm|LayerNorm|gelu|GammaBeta",
    "embedding": r"embedding",
    "copies": r"Memcpy|Memset|copy_|_copy|CatArray|::(cat|clone|contiguous|fill_|zero_)$",
}
OTHER, IDLE = "other elementwise and sums", "idle"
PROFILE_COLUMNS = ("part", "ms", "% of the step", "launches", "speed without it")


@dataclass(frozen=True)
class StepPart:
    """Time of one kind of operations in a step."""

    name: str
    seconds: float
    operations: float  # number of launches in a step
    fraction: float  # of the step

    @property
    def speedup(self) -> float:
        """Speed of a step without this part, relative to that of the step."""
        return 1 / (1 - self.fraction) if self.fraction < 1 else float("inf")


@dataclass(frozen=True, kw_only=True)
class StepProfile:
    """Time of a step, its parts on the device, and the time until the host has launched it."""

    name: str
    seconds: float
    host_seconds: float
    tokens: int
    parts: list[StepPart]  # longest first

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> StepProfile:
        """Return a profile from its JSON."""
        return cls(**{**stored, "parts": [StepPart(**part) for part in stored["parts"]]})

    @property
    def title(self) -> str:
        """Name, time and throughput of the step."""
        host = f"of which the host needs {self.host_seconds * 1e3:.1f} ms"
        return f"{self.name}: {self.seconds * 1e3:.1f} ms, {host}; {self.tokens / self.seconds:,.0f} tokens/s"

    def cells(self) -> list[list[str]]:
        """Return a table row for each part, with `PROFILE_COLUMNS`."""
        return [
            [
                part.name,
                f"{part.seconds * 1e3:.2f}",
                f"{100 * part.fraction:.1f}",
                f"{part.operations:.0f}",
                f"{part.speedup:.2f}x",
            ]
            for part in self.parts
        ]


def profile_step(name: str, recipe: Recipe, at: BenchSetup, batch: int) -> StepProfile:
    """Measure a step of a recipe and the time of each kind of operation."""
    training = TrainingLoop(scale_recipe(recipe, at, batch), at)
    work = training.batches[0].pin_memory() if at.on_gpu else training.batches[0]
    for _ in range(at.warmup):
        training.step(work)
    host_seconds, seconds = [], []
    for _ in range(at.times):
        _synchronize(at)
        start = time.perf_counter()
        training.step(work)
        host_seconds.append(time.perf_counter() - start)
    _synchronize(at)
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(at.times):
            training.step(work)
        _synchronize(at)
        seconds.append((time.perf_counter() - start) / at.times)
    activity = ProfilerActivity.CUDA if at.on_gpu else ProfilerActivity.CPU
    with profile(activities=[activity]) as profiler:
        for _ in range(at.times):
            training.step(work)
        _synchronize(at)
    found: dict[str, tuple[float, float]] = {}
    for event in profiler.key_averages():
        microseconds = event.self_device_time_total if at.on_gpu else event.self_cpu_time_total
        found[event.key] = microseconds / 1e6 / at.times, event.count / at.times
    return StepProfile(
        name=name,
        seconds=median(seconds),
        host_seconds=median(host_seconds),
        tokens=work.tokens,
        parts=group_operations(found, median(seconds)),
    )


def group_operations(operations: Mapping[str, tuple[float, float]], step_seconds: float) -> list[StepPart]:
    """Add up seconds and launches by kind. The rest of the step time is idle."""
    sums: dict[str, list[float]] = {}
    for name, (seconds, count) in operations.items():
        kind = next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), OTHER)
        total = sums.setdefault(kind, [0.0, 0.0])
        total[0] += seconds
        total[1] += count if seconds else 0
    busy = sum(seconds for seconds, _ in sums.values())
    sums[IDLE] = [max(0.0, step_seconds - busy), 0.0]
    parts = [
        StepPart(kind, seconds, count, seconds / max(step_seconds, busy)) for kind, (seconds, count) in sums.items()
    ]
    return sorted(parts, key=lambda part: -part.seconds)


def _synchronize(at: BenchSetup) -> None:
    if at.on_gpu:
        torch.cuda.synchronize(at.device)
