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
    generator_rate: float = 1.0  # of the generator's own weights, times the rate of all others; clipped with them

    def build(self, net: nn.Module) -> torch.optim.AdamW:
        # Only maps and embeddings are decayed; biases, norms, gates and the position table are no weights of a map.
        spared = {p for m in net.modules() if isinstance(m, SPARED) for p in m.parameters()}
        parts = dict(net.named_children()).get("parts", nn.ModuleDict())
        generator = {p for name, part in parts.named_children() if "generator" in name for p in part.parameters()}
        shared = {p for name, p in net.named_parameters() if name == "encoder.embeddings.tokens.weight"}
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for parameter in net.parameters():
            if parameter.requires_grad:
                decay = self.decay if parameter.ndim > 1 and parameter not in spared else 0.0
                times = self.generator_rate if parameter in generator - shared else 1.0
                groups.setdefault((decay, times), []).append(parameter)
        return torch.optim.AdamW(
            [{"params": own, "weight_decay": decay, "times": times} for (decay, times), own in groups.items()],
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
