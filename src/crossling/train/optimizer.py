"""AdamW or Muon, its parameter groups, and the learning rate of every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from crossling.errors import BadInput
from crossling.model.attention import CrossAttention, SelfAttention
from crossling.model.position import Gate, RelativePositionTable
from crossling.model.transformer import FeedForward
from crossling.train.muon import Muon

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
    matrices: Literal["adam", "muon"] = "adam"  # how the maps of the blocks learn; all else learns by Adam

    def build(self, net: nn.Module) -> torch.optim.AdamW:
        # Only maps and embeddings are decayed; biases, norms, gates and the position table are no weights of a map.
        spared = {p for m in net.modules() if isinstance(m, SPARED) for p in m.parameters()}
        parts = dict(net.named_children()).get("parts", nn.ModuleDict())
        generator = {p for name, part in parts.named_children() if "generator" in name for p in part.parameters()}
        shared = {p for name, p in net.named_parameters() if name == "encoder.embeddings.tokens.weight"}
        maps = _maps(net) if self.matrices == "muon" else {}
        if any(isinstance(parameter, DTensor) for parameter in maps):
            raise BadInput("optimizer.matrices=muon needs whole matrices, and these are in shards: set parallel=ddp")
        groups: dict[tuple[float, float, int], list[nn.Parameter]] = {}
        for parameter in net.parameters():
            if parameter.requires_grad:
                decay = self.decay if parameter.ndim > 1 and parameter not in spared else 0.0
                times = self.generator_rate if parameter in generator - shared else 1.0
                groups.setdefault((decay, times, maps.get(parameter, 0)), []).append(parameter)
        return (Muon if maps else torch.optim.AdamW)(
            [
                {"params": own, "weight_decay": decay, "times": times, "parts": parts}
                for (decay, times, parts), own in groups.items()
            ],
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


def _maps(net: nn.Module) -> dict[nn.Parameter, int]:
    """The matrices of all blocks, and of how many maps each consists."""
    parts: dict[nn.Module, int] = {}
    for module in net.modules():
        if isinstance(module, SelfAttention):
            parts |= {module.qkv: 3, module.out: 1}
        elif isinstance(module, CrossAttention):
            parts |= {module.query: 1, module.key_value: 2, module.out: 1}
        elif isinstance(module, FeedForward):
            parts |= {module[0]: 1, module[2]: 1}
    return {weight: number for each, number in parts.items() for weight in each.parameters() if weight.ndim == 2}
