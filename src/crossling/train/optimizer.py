"""AdamW, its parameter groups, and the learning rate of every step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from crossling.model.position import Gate, RelativePositionTable

SPARED = (nn.LayerNorm, Gate, RelativePositionTable)


@dataclass(frozen=True)
class Adam:
    """The optimizer part of a recipe; the peak rate and the number of steps are the recipe's own."""

    warmup: float = 10_000  # steps; below 1: that share of all steps
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-6
    decay: float = 0.01
    clip: float = 2.0

    def build(self, net: nn.Module) -> torch.optim.AdamW:
        # Only maps and embeddings are decayed; biases, norms, gates and the position table are no weights of a map.
        spared = {p for m in net.modules() if isinstance(m, SPARED) for p in m.parameters()}
        learned = [p for p in net.parameters() if p.requires_grad]
        decayed = [p for p in learned if p.ndim > 1 and p not in spared]
        free = [p for p in learned if p.ndim <= 1 or p in spared]
        return torch.optim.AdamW(
            [{"params": decayed, "weight_decay": self.decay}, {"params": free, "weight_decay": 0.0}],
            lr=0.0,  # set at every step
            betas=(self.beta1, self.beta2),
            eps=self.epsilon,
            fused=True,
        )

    def rate(self, step: int, steps: int, peak: float) -> float:
        """Linear from 0 to the peak over the warm-up, then linear to 0 at the end. Steps count from 0."""
        warmup = self.warmup_steps(steps)
        if step < warmup:
            return peak * (step + 1) / warmup
        return peak * (steps - step) / max(1, steps - warmup)

    def warmup_steps(self, steps: int) -> int:
        return round(self.warmup * steps) if self.warmup < 1 else round(self.warmup)
