"""How generator and discriminator hold their token tables.

shared    one table for both (ELECTRA)
gdes      the discriminator's is stop-gradient(generator's) + a delta that starts at zero (DeBERTa-v3): it has what the
          generator learns, and its gradient does not pull on the generator
untied    one each
"""
# B sequences, L positions, V vocabulary, D width

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TokenTable = Literal["shared", "gdes", "untied"]


class DisentangledEmbedding(nn.Module):
    """stop-gradient(base) + delta."""

    def __init__(self, base: nn.Embedding) -> None:
        super().__init__()
        self.base = base
        self.delta_VD = nn.Parameter(torch.zeros_like(base.weight))

    @property
    def weight(self) -> Tensor:
        return self.base.weight.detach() + self.delta_VD

    def forward(self, ids_BL: Tensor) -> Tensor:
        return F.embedding(ids_BL, self.base.weight.detach()) + F.embedding(ids_BL, self.delta_VD)

    def plain(self) -> nn.Embedding:
        """The same as an ordinary table of its own."""
        return nn.Embedding.from_pretrained(self.weight.detach(), freeze=False)

    @torch.no_grad()
    def assign(self, weight_VD: Tensor) -> None:
        """Makes the sum equal to `weight`; the base stays."""
        self.delta_VD.copy_(weight_VD - self.base.weight)


def couple(discriminator: nn.Module, generator: nn.Module, how: TokenTable) -> None:
    """Joins the token tables of the embeddings of two networks."""
    if how == "shared":
        generator.tokens = discriminator.tokens
    elif how == "gdes":
        assert isinstance(generator.tokens, nn.Embedding)
        discriminator.tokens = DisentangledEmbedding(generator.tokens)
