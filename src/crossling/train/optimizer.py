"""AdamW, its parameter groups, and the learning rate of every step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Adam:
    """The optimizer part of a recipe; the peak rate and the number of steps are the recipe's own."""

    warmup: int = 10_000
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-6
    decay: float = 0.01
    clip: float = 2.0

    def build(self, net: nn.Module) -> torch.optim.AdamW:
        # Biases, norms and gates are not decayed: they are no weights of a map.
        decayed = [p for p in net.parameters() if p.ndim > 1]
        free = [p for p in net.parameters() if p.ndim <= 1]
        return torch.optim.AdamW(
            [{"params": decayed, "weight_decay": self.decay}, {"params": free, "weight_decay": 0.0}],
            lr=0.0,  # set at every step
            betas=(self.beta1, self.beta2),
            eps=self.epsilon,
            fused=True,
        )

    def rate(self, step: int, steps: int, peak: float) -> float:
        """Linear from 0 to the peak over the warm-up, then linear to 0 at the end. Steps count from 0."""
        if step < self.warmup:
            return peak * (step + 1) / self.warmup
        return peak * (steps - step) / max(1, steps - self.warmup)
