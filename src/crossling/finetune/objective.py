"""The loss of a task, as the engine asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from crossling.data.packing import Batch
from crossling.finetune.feed import sums
from crossling.transfer.family import Family


class Tuning:
    def __init__(self, family: Family) -> None:
        self.family = family

    @property
    def weights(self) -> dict[str, float]:
        return {self.family.term: 1.0}

    def loss(self, net: Any, batch: Batch) -> dict[str, Tensor]:
        found = self.family.loss(self.family.output(net.encoder, batch), batch)
        return dict(zip(sums(self.family.term), found, strict=True))

    def begin(self, net: Any, more: Iterator[list[Batch]]) -> None:
        """Nothing has to be made ready."""

    def after_step(self, net: Any) -> None:
        """Nothing moves without a gradient."""
