"""Modules whose weights stay in 8 bits, as they are stored, and compute the same as with float32 weights. CPU only.

The integers are views of the mapped file of weights, which takes memory only where it is read. A weight in float32
exists while it is used: packed layers (`cpu_precision`) read it once, and a token table only the rows of a batch.
"""
# R rows, C columns, O outputs

from __future__ import annotations

from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class StoredWeight(nn.Module):
    """Mixin of a module with a weight in 8 bits. The weight is no parameter, and nothing changes it."""

    def __init__(self, values_RC: Tensor, scale_R1: Tensor) -> None:
        nn.Module.__init__(self)  # not that of the layer, which would create a weight
        self.values_RC, self.scale_R1 = values_RC, scale_R1

    @property
    def weight(self) -> Tensor:
        """The weight in float32."""
        return self.values_RC.float().mul_(self.scale_R1)

    def __deepcopy__(self, _: Any) -> Self:
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}weight"] = self.weight  # so that the fingerprint is that of float32 weights


class StoredLinear(StoredWeight, nn.Linear):  # type: ignore[override]
    """Linear layer with a weight in 8 bits."""

    def __init__(self, values_RC: Tensor, scale_R1: Tensor, bias_O: nn.Parameter | None) -> None:
        super().__init__(values_RC, scale_R1)
        self.out_features, self.in_features = values_RC.shape
        self.register_parameter("bias", bias_O)


class StoredEmbedding(StoredWeight, nn.Embedding):
    """Embedding with a table in 8 bits. Its rows have the precision `dtype`."""

    def __init__(self, values_RC: Tensor, scale_R1: Tensor, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(values_RC, scale_R1)
        self.dtype = dtype
        self.num_embeddings, self.embedding_dim = values_RC.shape

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The table."""
        return super().weight.to(self.dtype)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the rows of some ids."""
        rows = F.embedding(ids, self.values_RC).float().mul_(F.embedding(ids, self.scale_R1))
        return rows.to(self.dtype)


def keep_stored(module: nn.Module, values_RC: Tensor, scale_R1: Tensor) -> StoredWeight:
    """Return a linear layer or an embedding with its weight in 8 bits."""
    if isinstance(module, nn.Linear):
        return StoredLinear(values_RC, scale_R1, module.bias)
    return StoredEmbedding(values_RC, scale_R1)
