"""From hidden states to sentence vectors: pooling and normalization. Importing this module does not import torch."""
# K layers, B batch, L length, D width

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from crossling.core.errors import BadInput, suggestion

if TYPE_CHECKING:
    from torch import Tensor

    Vectors = np.ndarray | Tensor | Sequence[np.ndarray] | Sequence[Tensor]

POOLINGS = ("auto", "mean", "cls")
DECLARED = "declared"  # by the folder of a Sentence Transformers model


def check_pooling(pooling: str) -> None:
    """Raise BadInput if there is no such pooling."""
    if pooling not in POOLINGS:
        raise BadInput(f"pooling={pooling}: no such pooling{suggestion(pooling, POOLINGS)}")


def pool(hidden: Sequence[Tensor], valid_BL: Tensor, pooling: str) -> Tensor:
    """Return the sentence vectors of each layer, [K, B, D] in float32.

    Args:
        hidden: Hidden states of each layer, [B, L, D].
        valid_BL: 1 for tokens, 0 for padding.
        pooling: "mean" over all tokens, special tokens included as in XTREME, or "cls" for the first token.
    """
    import torch

    if pooling == "cls":
        return torch.stack([hidden_BLD[:, 0].float() for hidden_BLD in hidden])
    # A matrix product reads each state once and needs no masked copies.
    weight_B1L = (valid_BL / valid_BL.sum(dim=1, keepdim=True)).unsqueeze(1)
    return torch.stack([torch.bmm(weight_B1L, hidden_BLD.float()).squeeze(1) for hidden_BLD in hidden])


def truncate_vectors(vectors: np.ndarray, dimensions: int | None) -> np.ndarray:
    """Return the first `dimensions` of each vector, or all if it is None."""
    width = vectors.shape[-1]
    if dimensions is not None and not 1 <= dimensions <= width:
        raise BadInput(
            f"truncate_dim={dimensions}: the vectors have {width} dimensions. Give a number from 1 to {width}."
        )
    return vectors[..., :dimensions]


def normalize_vectors(vectors: np.ndarray) -> np.ndarray:
    """Scale each vector (last axis) to length one. A zero vector stays zero."""
    normalized: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return normalized


def to_normalized_tensor(vectors: Vectors) -> Tensor:
    """Return an array, a tensor or a list of vectors as a tensor [N, D] with rows of length one."""
    import torch

    if isinstance(vectors, str) or (isinstance(vectors, list | tuple) and vectors and isinstance(vectors[0], str)):
        raise BadInput("similarity: found sentences, expected vectors. Use encode first.")
    if isinstance(vectors, list | tuple) and vectors and isinstance(vectors[0], torch.Tensor):
        vectors = torch.stack(list(vectors))
    tensor = vectors if isinstance(vectors, torch.Tensor) else torch.from_numpy(np.asarray(vectors))
    return torch.nn.functional.normalize(tensor[None] if tensor.ndim == 1 else tensor, dim=-1)
