"""What a run costs: tokens, time and operations, from its first start to its end, whatever it ran on.

Operations are counted in two conventions (docs/scaling.md): `full` is all there are, for MFU, the share that is used of
what the devices can do; `paper` is what XLM-E's Table 4 seems to count, to compare runs with the published ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Machine:
    """All devices of a stretch of it together."""

    name: str
    peak: float | None  # operations a second; none: not known


class Account:
    def __init__(self, flops_per_token: Mapping[str, float], machine: Machine) -> None:
        self.flops_per_token, self.machine = flops_per_token, machine
        self.tokens = 0
        self.seconds: dict[str, float] = {machine.name: 0.0}  # on each machine
        self.possible: float | None = 0.0  # operations, of all machines in that time; none: one has no known peak

    def add(self, seconds: float) -> None:
        self.seconds[self.machine.name] += seconds
        if self.machine.peak is None:
            self.possible = None
        elif self.possible is not None:
            self.possible += seconds * self.machine.peak

    @property
    def flops(self) -> dict[str, float]:
        return {kind: each * self.tokens for kind, each in self.flops_per_token.items()}

    @property
    def mfu(self) -> float | None:
        """Of the whole run, with all it waited for."""
        return self.flops["full"] / self.possible if self.possible else None

    def row(self, tokens_per_second: float) -> dict[str, float]:
        """For a row of metrics, at the speed of that row."""
        row = {"tokens": self.tokens, "seconds": sum(self.seconds.values()), "flops": self.flops["full"]}
        row["tokens_per_second"] = tokens_per_second
        if self.machine.peak is not None:
            row["mfu"] = tokens_per_second * self.flops_per_token["full"] / self.machine.peak
        return row

    def bill(self, steps: int) -> dict[str, Any]:
        """The whole, for cost.json."""
        spent = {"steps": steps, "tokens": self.tokens, "seconds": sum(self.seconds.values())}
        return {**spent, "machines": self.seconds, "flops": self.flops, "mfu": self.mfu}

    def dump(self) -> dict[str, Any]:
        """For a checkpoint."""
        spent = {"tokens": self.tokens, "seconds": sum(self.seconds.values())}
        return {**spent, "machines": self.seconds, "possible": self.possible}

    def load(self, dumped: Mapping[str, Any]) -> None:
        self.tokens, self.possible = dumped["tokens"], dumped["possible"]
        self.seconds = {**dumped["machines"]}
        self.seconds.setdefault(self.machine.name, 0.0)
