"""Meters of a run: training cost, time to completion, and the metrics of a log row.

FLOPs are counted in two conventions (docs/research/scaling.md). `full` counts all of them, for model FLOPs utilization
(MFU). `paper` counts as XLM-E's Table 4 seems to, to compare runs with published ones.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from crossling.core.distributed import all_reduce_sum, device_count, is_main_process, world_size
from crossling.core.hardware import device_name, local_accelerator

ROW_WEIGHT = 0.2  # of the newest row in the mean step time, which becomes a mean of about five rows

RareEvent = Literal["save", "probe", "resample"]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Machine:
    """All devices of a run together."""

    name: str
    peak: float | None  # FLOPs per second; None: unknown


def describe_machine(device: torch.device) -> Machine:
    """Return name and peak FLOP/s of all devices of the run, which are taken to be alike."""
    accelerator = local_accelerator() if device.type == "cuda" else None
    number = device_count()
    name = f"{number} x {device_name(device)}" if device.type == "cuda" else device_name(device)
    return Machine(name, number * accelerator.peak_flops if accelerator else None)


class TrainingCost:
    """Tokens, seconds and FLOPs of a run, over all its restarts and machines."""

    def __init__(self, flops_per_token: Mapping[str, float], machine: Machine) -> None:
        self.flops_per_token, self.machine = flops_per_token, machine
        self.tokens = 0
        self.seconds: dict[str, float] = {machine.name: 0.0}  # by machine
        self.available_flops: float | None = 0.0  # of all machines in that time; None: the peak of one is unknown

    def add_seconds(self, seconds: float) -> None:
        """Add time on the present machine."""
        self.seconds[self.machine.name] += seconds
        if self.machine.peak is None:
            self.available_flops = None
        elif self.available_flops is not None:
            self.available_flops += seconds * self.machine.peak

    @property
    def flops(self) -> dict[str, float]:
        """FLOPs of the run, in each convention."""
        return {convention: flops * self.tokens for convention, flops in self.flops_per_token.items()}

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilization of the whole run, including waiting times."""
        return self.flops["full"] / self.available_flops if self.available_flops else None

    @property
    def _totals(self) -> dict[str, float]:
        return {"tokens": self.tokens, "seconds": sum(self.seconds.values())}

    def row(self, tokens_per_second: float) -> dict[str, float]:
        """Return the cost for a row of metrics, with the throughput of that row."""
        row = {**self._totals, "flops": self.flops["full"], "tokens_per_second": tokens_per_second}
        if self.machine.peak is not None:
            row["mfu"] = tokens_per_second * self.flops_per_token["full"] / self.machine.peak
        return row

    def summary(self, steps: int) -> dict[str, Any]:
        """Return the total cost, for cost.json."""
        return {"steps": steps, **self._totals, "machines": self.seconds, "flops": self.flops, "mfu": self.mfu}

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {**self._totals, "machines": self.seconds, "available_flops": self.available_flops}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.tokens, self.available_flops = state["tokens"], state["available_flops"]
        self.seconds = {**state["machines"]}
        self.seconds.setdefault(self.machine.name, 0.0)


class EtaMeter:
    """Estimates the remaining time: that of the steps, and of the saves and probes ahead.

    Each kind is averaged separately, because saves and probes are rare and may take long. The step time is that of the
    latest rows of metrics, so compilation and another machine before a restart soon have no effect.
    """

    def __init__(self, steps: int, every: Mapping[RareEvent, int], now: Clock = time.perf_counter) -> None:
        """Create a meter.

        Args:
            steps: Steps of the run.
            every: Steps between two events of a kind, which also happens at the end. 0: only at the end.
            now: Clock.
        """
        self.steps, self.every, self.now = steps, every, now
        self.step_seconds: float | None = None
        self.seconds: dict[RareEvent, float] = dict.fromkeys(every, 0.0)
        self.counts: dict[RareEvent, int] = dict.fromkeys(every, 0)
        self._rows = 0
        self.start(0)

    def start(self, step: int) -> None:
        """Start the time of the next row."""
        self._first_step, self._started = step, self.now()
        self._event_seconds = 0.0  # since then

    @contextmanager
    def timed(self, event: RareEvent) -> Iterator[None]:
        """Measure the time of an event."""
        started = self.now()
        yield
        seconds = self.now() - started
        self._event_seconds += seconds
        self.seconds[event] += seconds
        self.counts[event] += 1

    def add_row(self, step: int) -> None:
        """Measure the time of the steps since the last row. The device must be synchronized."""
        seconds = (self.now() - self._started - self._event_seconds) / max(1, step - self._first_step)
        # The second row replaces the first, which includes compilation.
        weight = max(1 / max(1, self._rows), ROW_WEIGHT)
        self._rows += 1
        before = seconds if self.step_seconds is None else self.step_seconds
        self.step_seconds = before + weight * (seconds - before)
        self.start(step)

    def seconds_left(self, step: int) -> float | None:
        """Return the estimate. None before the first row."""
        if self.step_seconds is None:
            return None
        means = {event: self.seconds[event] / max(1, self.counts[event]) for event in self.every}
        events = sum(seconds * self._events_ahead(event, step) for event, seconds in means.items())
        return self.step_seconds * (self.steps - step) + events

    def _events_ahead(self, event: RareEvent, step: int) -> int:
        every = self.every[event] or self.steps
        return -(-self.steps // every) - step // every if step < self.steps else 0

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint: the estimate of a resumed run until its first row."""
        return {"step_seconds": self.step_seconds, "seconds": self.seconds, "counts": self.counts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.step_seconds = state["step_seconds"]
        self.seconds |= {event: state["seconds"].get(event, 0.0) for event in self.every}
        self.counts |= {event: state["counts"].get(event, 0) for event in self.every}


def report_first_step(started: float, begin: float, waited: float, device: torch.device) -> None:
    """Report the seconds from the start of a command to the end of its first step, and their parts.

    Args:
        started: Time when the command started.
        begin: Time when the step began.
        waited: Seconds that were waited for its data before.
        device: Device to wait for.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    if is_main_process():
        now = time.perf_counter()
        step = f"{now - begin:.1f} s in the step{' with compilation' if device.type == 'cuda' else ''}"
        parts = f"{begin - waited - started:.1f} s before training, {waited:.1f} s loading data, {step}"
        warnings.warn(f"first step after {now - started:.1f} s ({parts})", stacklevel=4)


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """Result of one step. Tensors stay on the device until a row is logged, so no step has to synchronize."""

    sums: Mapping[str, Tensor]  # of this process
    counts: Mapping[str, int]  # of all processes, as everything below
    tokens: int
    metrics: Mapping[str, Tensor]  # scalars of the step; a row has their means
    skipped: Tensor  # 1: the step was skipped


class MetricsAccumulator:
    """Sums between two rows of metrics. Skipped steps count only for their tokens."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.sums: dict[str, float] = {}  # of this process
        self.counts: dict[str, int] = {}
        self.step_metrics: dict[str, list[float]] = {}  # values of each step
        self.tokens = 0
        self.waited = 0.0  # seconds that this process waited for data
        self._on_device: list[StepResult] = []

    def add(self, result: StepResult, waited: float = 0.0) -> None:
        """Add a step, and the seconds that were waited for its data."""
        self._on_device.append(result)
        self.tokens += result.tokens
        self.waited += waited

    def means(self) -> dict[str, float]:
        """Return the means over all processes. All of them must call it."""
        means = {name: value / max(1, self.counts[name]) for name, value in self._global_sums().items()}
        return means | {name: sum(values) / len(values) for name, values in self.step_metrics.items()}

    def seconds(self) -> float:
        """Return the seconds since the last row."""
        return time.perf_counter() - self.started

    def waiting_fraction(self) -> float:
        """Return the fraction of time spent waiting for data, averaged over all processes."""
        fraction = torch.tensor(self.waited / self.seconds(), dtype=torch.float64)
        return float(all_reduce_sum(fraction)) / world_size()

    def _global_sums(self) -> dict[str, float]:
        """Return the sums over all processes. Copies results from the device, which synchronizes with it."""
        results, self._on_device = self._on_device, []
        for result in results:
            if result.skipped:
                continue
            values = torch.stack([value.double() for value in result.sums.values()]).tolist()
            for name, value in zip(result.sums, values, strict=True):
                self.sums[name] = self.sums.get(name, 0.0) + value
                self.counts[name] = self.counts.get(name, 0) + result.counts[name]
            for name, metric in result.metrics.items():
                self.step_metrics.setdefault(name, []).append(float(metric))
        sums = all_reduce_sum(torch.tensor([*self.sums.values()], dtype=torch.float64)).tolist()
        return dict(zip(self.sums, sums, strict=True))

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint between two rows, for any world size."""
        state = {"sums": self._global_sums(), "counts": self.counts, "step_metrics": self.step_metrics}
        return {**state, "tokens": self.tokens, "seconds": self.seconds(), "waited": self.waited}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.sums = {name: value if is_main_process() else 0.0 for name, value in state["sums"].items()}
        self.counts, self.step_metrics, self.tokens = state["counts"], state["step_metrics"], state["tokens"]
        self.started -= state["seconds"]
        self.waited = state["waited"]
