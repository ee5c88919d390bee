"""How long the rest of a run takes: its steps, and the saves and probes that are still to come.

Each kind is counted by itself, as saves and probes are rare and may take long. The steps are those of the latest rows
of metrics, so that what compiling took is soon forgotten, and what another machine did before a stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

LATEST = 0.2  # the weight of one more row: a mean at first, of some five rows later

Kind = Literal["save", "probe", "resample"]


class Pace:
    def __init__(self, steps: int, every: Mapping[Kind, int], now: Callable[[], float] = time.perf_counter) -> None:
        """`every`: steps between two of a kind, which also ends the run; 0: it only ends it."""
        self.steps, self.every, self.now = steps, every, now
        self.step: float | None = None  # seconds; none: not known yet
        self.seconds: dict[Kind, float] = dict.fromkeys(every, 0.0)
        self.times: dict[Kind, int] = dict.fromkeys(every, 0)
        self._rows = 0
        self.begin(0)

    def begin(self, step: int) -> None:
        """From here on the next row is counted."""
        self._at, self._since = step, self.now()
        self._between = 0.0  # spent on saves and probes since then

    @contextmanager
    def on(self, kind: Kind) -> Iterator[None]:
        started = self.now()
        yield
        spent = self.now() - started
        self._between += spent
        self.seconds[kind] += spent
        self.times[kind] += 1

    def row(self, step: int) -> None:
        """A row of metrics is made, for which the device was waited for."""
        seconds = (self.now() - self._since - self._between) / max(1, step - self._at)
        weight = max(1 / max(1, self._rows), LATEST)  # the first row, with all that is compiled, gives way to the next
        self._rows += 1
        self.step = seconds if self.step is None else self.step + weight * (seconds - self.step)
        self.begin(step)

    def left(self, step: int) -> float | None:
        """Seconds; none before the first row."""
        if self.step is None:
            return None
        rare = sum(self.seconds[kind] / max(1, self.times[kind]) * self._ahead(kind, step) for kind in self.every)
        return self.step * (self.steps - step) + rare

    def _ahead(self, kind: Kind, step: int) -> int:
        """How many of a kind are still to come."""
        every = self.every[kind] or self.steps
        return -(-self.steps // every) - step // every if step < self.steps else 0

    def dump(self) -> dict[str, Any]:
        """For a checkpoint: until a run that goes on has rows and probes of its own, these are the best guess."""
        return {"step": self.step, "seconds": self.seconds, "times": self.times}

    def load(self, dumped: Mapping[str, Any]) -> None:
        self.step = dumped["step"]
        self.seconds |= {kind: dumped["seconds"].get(kind, 0.0) for kind in self.every}
        self.times |= {kind: dumped["times"].get(kind, 0) for kind in self.every}
