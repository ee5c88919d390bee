"""The parts of a network that are computed most, compiled: each block by itself, so that all blocks share one compiled
program and a network of 48 layers is compiled as fast as one of 2."""

from __future__ import annotations

import torch._dynamo
from torch import nn

from crossling.model.heads import RTDHead
from crossling.model.transformer import Block, Embeddings

PARTS = (Embeddings, Block, RTDHead)
# Programs of one part: with and without dropout, gradient, pair, packing, and a number of rows that changes.
PROGRAMS = 64


def compile_parts(net: nn.Module) -> None:
    torch._dynamo.config.recompile_limit = max(PROGRAMS, torch._dynamo.config.recompile_limit)
    for module in net.modules():
        if isinstance(module, PARTS):
            module.compile()
