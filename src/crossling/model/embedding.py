"""Token tables of generator and discriminator.

shared    one table for both (ELECTRA)
gdes      gradient-disentangled embedding sharing (DeBERTa-v3): the discriminator's table is stop-gradient(generator's)
          plus a delta that starts at zero. It follows the generator, and its gradient does not reach the generator
untied    one table each
"""
# B sequences, L positions, V vocabulary, D width

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossling.model.position import BiasGate, RelativePositionTable


class DisentangledEmbedding(nn.Module):
    """Token table stop-gradient(base) + delta (GDES)."""

    def __init__(self, base: nn.Embedding) -> None:
        super().__init__()
        self.base = base
        self.delta_VD = nn.Parameter(torch.zeros_like(base.weight))

    @property
    def weight(self) -> Tensor:
        """Sum of base and delta. Only delta gets a gradient."""
        return self.base.weight.detach() + self.delta_VD

    def forward(self, ids_BL: Tensor) -> Tensor:
        return F.embedding(ids_BL, self.base.weight.detach()) + F.embedding(ids_BL, self.delta_VD)

    def to_embedding(self) -> nn.Embedding:
        """Return an ordinary table with the same values."""
        return nn.Embedding.from_pretrained(self.weight.detach(), freeze=False)

    @torch.no_grad()
    def set_weight(self, weight_VD: Tensor) -> None:
        """Change delta so that the sum equals `weight_VD`."""
        self.delta_VD.copy_(weight_VD - self.base.weight)


def couple_token_tables(discriminator: Any, generator: Any, mode: Literal["shared", "gdes", "untied"]) -> None:
    """Connect the token tables of two `Embeddings` modules."""
    if mode == "shared":
        generator.tokens = discriminator.tokens
    elif mode == "gdes":
        discriminator.tokens = DisentangledEmbedding(generator.tokens)


@torch.no_grad()
def init_weights(module: nn.Module, deviation: float) -> None:
    """Initialize one module: normal weights, zero biases, unit norms.

    The relative position table is initialized by Xavier, as in its authors' released code.
    """
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=deviation)
    elif isinstance(module, nn.LayerNorm):
        nn.init.ones_(module.weight)
    elif isinstance(module, RelativePositionTable):
        nn.init.xavier_normal_(module.weight_NH)
    elif isinstance(module, BiasGate):
        nn.init.ones_(module.scale_H)
    if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:
        nn.init.zeros_(module.bias)


@torch.no_grad()
def remap_rows(table: Tensor, origins: Sequence[Sequence[int]], generator: torch.Generator) -> Tensor:
    """Return the table for a new vocabulary: each row is the mean of the old rows listed in `origins`.

    `table` holds embeddings or an output bias. A row without origins is sampled from a normal distribution with the
    mean and standard deviation of each column. Trained rows are close to each other and far from the scale of initial
    weights. As an output, a row near zero would take too much of the probability.
    """
    old_VD = table.unsqueeze(1) if table.dim() == 1 else table
    counts_V = torch.tensor([len(ids) for ids in origins], device=table.device)
    ids_N = torch.tensor(list(chain.from_iterable(origins)), dtype=torch.long, device=table.device)
    new_VD = F.embedding_bag(ids_N, old_VD, counts_V.cumsum(0) - counts_V, mode="mean")
    is_new_V = counts_V == 0
    sampled_MD = torch.randn(int(is_new_V.sum()), old_VD.shape[1], generator=generator, device=generator.device)
    new_VD[is_new_V] = old_VD.mean(0) + old_VD.std(0) * sampled_MD.to(table)
    return new_VD.view(-1, *table.shape[1:])
