"""What the engine asks of those who train with it: a feed of work, and objectives that tell a loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from torch import Tensor

from crossling.data.batches import Work
from crossling.data.packing import Batch


class Feed(Protocol):
    """The work of each step in this process, by the number of the step alone: so a run that goes on is the same run."""

    def __getitem__(self, step: int) -> Work: ...
    def of(self, name: str, step: int) -> Iterator[Batch]: ...  # the micro-batches of one objective


class Learned(Protocol):
    """An objective, as far as a step knows it."""

    @property
    def weights(self) -> dict[str, float]: ...  # of each term that is minimised
    def loss(self, net: Any, batch: Batch) -> dict[str, Tensor]: ...  # named sums
    def begin(self, net: Any, more: Iterator[list[Batch]]) -> None: ...  # before the first step
    def after_step(self, net: Any) -> None: ...
