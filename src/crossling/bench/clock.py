"""How long something takes, and how much of the device's memory."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import torch


@dataclass(frozen=True)
class Timing:
    seconds: float  # the median
    peak_gib: float | None  # with what was there before; none where the device does not tell


@dataclass(frozen=True)
class Speed:
    """Of something that reads tokens."""

    tokens: float  # real ones a second
    peak_gib: float | None
    mfu: float | None = None
    path: str | None = None  # that ours took


def timed(work: Callable[[], object], device: torch.device, warmup: int, times: int, recorded: bool = False) -> Timing:
    """`work` is run `warmup` times for nothing and then `times` times. On a GPU each run is timed by the GPU itself and
    none waits for the one before: as in training, the host runs ahead. Of work so short that it cannot, the kernels are
    `recorded` once and replayed."""
    for _ in range(warmup):
        work()
    if device.type != "cuda":
        seconds = []
        for _ in range(times):
            start = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - start)
        return Timing(median(seconds), None)
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    if recorded:  # whose memory is set apart: that of a run like any other counts
        work()
        peak = torch.cuda.max_memory_allocated(device)
        work = _recorded(work)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
    events[0].record()
    for event in events[1:]:
        work()
        event.record()
    torch.cuda.synchronize(device)
    between = [start.elapsed_time(end) / 1e3 for start, end in pairwise(events)]
    return Timing(median(between), (peak if recorded else torch.cuda.max_memory_allocated(device)) / 2**30)


def _recorded(work: Callable[[], object]) -> Callable[[], object]:
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        work()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def fresh() -> None:
    """Gives back what earlier work left on the GPU; and lets go of what was compiled for it: after eight shapes of one
    function the compiler would give up on it without a word."""
    gc.collect()
    torch.compiler.reset()
    torch.cuda.empty_cache()
