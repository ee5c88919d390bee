"""What a size costs where no paper says: our own `tiny` and `small` are made for a CPU and for one GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from crossling.errors import BadInput, nearest
from crossling.train.optimizer import Adam


@dataclass(frozen=True)
class Budget:
    tokens: int  # of one task in one step
    length: int
    steps: int
    warmup: float  # steps, or a share of them
    lr: float
    clip: float = 1.0
    matrices: Literal["adam", "muon"] = "adam"

    def training(self, beta2: float = 0.98) -> dict[str, Any]:
        """The parts of a recipe that say how it is optimised: Adam with what all four papers have in common."""
        adam = Adam(
            warmup=self.warmup,
            beta1=0.9,
            beta2=beta2,
            epsilon=1e-6,
            decay=0.01,
            clip=self.clip,
            matrices=self.matrices,
        )
        every = min(1000, self.steps // 20)
        return {"optimizer": adam, "lr": self.lr, "steps": self.steps, "checkpoint_every": every}


OURS = {
    "tiny": Budget(tokens=4096, length=128, steps=2000, warmup=0.1, lr=2e-3),
    "small": Budget(tokens=65_536, length=256, steps=20_000, warmup=0.05, lr=3e-3, matrices="muon"),
}


def budget(size: str, paper: Mapping[str, Budget]) -> Budget:
    """The paper's plan for a size it trained, ours otherwise."""
    plans = {**OURS, **paper}
    if size not in plans:
        raise BadInput(f"--size {size}: there is no such size{nearest(size, plans)}")
    return plans[size]
