"""Hash of the weights of a model, in memory or in a folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
import xxhash
from safetensors import safe_open
from torch import Tensor, nn


def model_fingerprint(module: nn.Module) -> str:
    """Return a hash of the names, shapes, types and values of all weights. The device does not matter."""
    return _hash_weights(sorted(module.state_dict().items()))


def stored_fingerprint(folder: Path) -> str:
    """Return the same hash of the weights that a model folder stores, without building the model."""
    return _hash_weights(_iter_stored_weights(folder))


def _iter_stored_weights(folder: Path) -> Iterator[tuple[str, Tensor]]:
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as weights:
            for name in sorted(weights.keys()):
                yield name, weights.get_tensor(name)


def _hash_weights(weights: Iterable[tuple[str, Tensor]]) -> str:
    digest = xxhash.xxh3_128()
    for name, values in weights:
        digest.update(f"{name} {tuple(values.shape)} {values.dtype}\n".encode())
        digest.update(values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
