"""What is summed between two rows of metrics."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from crossling.distributed import processes, speaks, summed


@dataclass(frozen=True)
class Taken:
    """What one step gave. Tensors stay on the device until a row is made, so that no step waits for them."""

    sums: Mapping[str, Tensor]  # of this process
    counts: Mapping[str, int]  # of all processes, like everything else
    tokens: int
    norm: Tensor
    skipped: Tensor  # 1: it was left out


class Window:
    """Steps that were left out count for nothing but their tokens."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.sums: dict[str, float] = {}  # of this process
        self.counts: dict[str, int] = {}
        self.norms: list[float] = []
        self.tokens = 0
        self.waited = 0.0  # seconds of this process for its data
        self._waiting: list[Taken] = []

    def add(self, step: Taken, waited: float = 0.0) -> None:
        self._waiting.append(step)
        self.tokens += step.tokens
        self.waited += waited

    def means(self) -> dict[str, float]:
        """Over all processes, which make this row together."""
        self._read()
        sums = summed(torch.tensor([*self.sums.values()], dtype=torch.float64)).tolist()
        means = {name: value / max(1, self.counts[name]) for name, value in zip(self.sums, sums, strict=True)}
        return {**means, "gradient_norm": sum(self.norms) / len(self.norms)} if self.norms else {}

    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def wait(self) -> float:
        """The share of the time that went into waiting for data, the mean over all processes."""
        share = torch.tensor(self.waited / self.seconds(), dtype=torch.float64)
        return float(summed(share)) / processes()

    def _read(self) -> None:
        """From the device, which is waited for."""
        waiting, self._waiting = self._waiting, []
        for step in waiting:
            if step.skipped:
                continue
            values = torch.stack([value.double() for value in step.sums.values()]).tolist()
            for name, value in zip(step.sums, values, strict=True):
                self.sums[name] = self.sums.get(name, 0.0) + value
                self.counts[name] = self.counts.get(name, 0) + step.counts[name]
            self.norms.append(float(step.norm))

    def dump(self) -> dict[str, Any]:
        """For a checkpoint between two rows: the row after it then says the same as without a stop, in any number of
        processes."""
        self._read()
        sums = summed(torch.tensor([*self.sums.values()], dtype=torch.float64)).tolist()
        return {
            "sums": dict(zip(self.sums, sums, strict=True)),
            "counts": self.counts,
            "norms": self.norms,
            "tokens": self.tokens,
            "seconds": self.seconds(),
            "waited": self.waited,
        }

    @classmethod
    def load(cls, dumped: Mapping[str, Any]) -> Window:
        window = cls()
        window.sums = {name: value if speaks() else 0.0 for name, value in dumped["sums"].items()}
        window.counts, window.norms, window.tokens = dumped["counts"], dumped["norms"], dumped["tokens"]
        window.started -= dumped["seconds"]
        window.waited = dumped["waited"]
        return window
