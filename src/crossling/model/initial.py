"""The weights a network begins with."""

from __future__ import annotations

import torch
from torch import nn

from crossling.model.position import Gate, RelativePositionTable


@torch.no_grad()
def initialise(module: nn.Module, deviation: float) -> None:
    """Normal weights, zero biases, unit norms; the position table by Xavier, as its authors' released code does."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=deviation)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.LayerNorm):
        nn.init.ones_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, RelativePositionTable):
        nn.init.xavier_normal_(module.weight_NH)
    elif isinstance(module, Gate):
        nn.init.ones_(module.scale_H)
