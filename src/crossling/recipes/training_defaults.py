"""Training settings of each size: those of a paper, and ours for `tiny` (a CPU) and `small` (one GPU)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from crossling.core.errors import BadInput, suggestion
from crossling.train.optimizer import OptimizerSettings


@dataclass(frozen=True, kw_only=True)
class TrainingDefaults:
    """Batch size, length of training and optimizer settings for one size."""

    tokens: int  # per step of one objective
    length: int  # tokens per sequence
    steps: int
    warmup: float  # steps, or a fraction of them if below 1
    lr: float
    clip: float = 1.0
    matrices: Literal["adam", "muon"] = "adam"

    def recipe_fields(self, beta2: float = 0.98) -> dict[str, Any]:
        """Return the fields of a recipe for optimizer and steps, with the Adam settings that all papers share."""
        adam = OptimizerSettings(beta1=0.9, beta2=beta2, epsilon=1e-6, decay=0.01)
        optimizer = replace(adam, warmup=self.warmup, clip=self.clip, matrices=self.matrices)
        checkpoint_every = min(1000, self.steps // 20)
        return {"optimizer": optimizer, "lr": self.lr, "steps": self.steps, "checkpoint_every": checkpoint_every}


OWN_SIZES = {
    "tiny": TrainingDefaults(tokens=4096, length=128, steps=2000, warmup=0.1, lr=2e-3),
    "small": TrainingDefaults(tokens=65_536, length=256, steps=20_000, warmup=0.05, lr=3e-3, matrices="muon"),
}


def defaults_for_size(size: str, paper: Mapping[str, TrainingDefaults]) -> TrainingDefaults:
    """Return the settings of the paper for a size it trained, ours otherwise."""
    known = {**OWN_SIZES, **paper}
    if size not in known:
        raise BadInput(f"size {size}: there is no such size{suggestion(size, known)}")
    return known[size]
