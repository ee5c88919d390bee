"""Sentence vectors of packed rows, which contrastive learning and distillation train."""
# N sentences, R rows of W tokens, P tokens, D width

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from crossling.data.packing import Batch
    from crossling.model.encoder_model import CrosslingModel
    from crossling.model.native_encoder import NativeEncoder

Pooling = Literal["cls", "mean"]


def pool_sentences(
    encoder: CrosslingModel | NativeEncoder, batch: Batch, name: str, *, layer: int, pooling: Pooling
) -> Tensor:
    """Return the vector of each sequence of a packed input, [N, D], in the order of the examples.

    Args:
        encoder: The encoder.
        batch: Packed rows.
        name: Name of the input.
        layer: Layer of the vectors; 0 is the embedding output.
        pooling: The first token (`cls`), or the mean of all (`mean`, not deterministic on CUDA).
    """
    import torch

    segments_RW, starts_N = batch[f"{name}_segments"], batch[f"{name}_starts"]
    first_N = starts_N if pooling == "cls" else None
    states = encoder(batch[name], segments=segments_RW, layers=layer, positions=first_N).last_hidden_state
    if pooling == "cls":
        first_ND: Tensor = states
        return first_ND
    segment_P = segments_RW.flatten()
    # Ones are added, because a count on the device would have to wait for it.
    ones_P = states.new_ones(len(segment_P), dtype=torch.float32)
    length_N = ones_P.new_zeros(len(starts_N) + 1).index_add(0, segment_P, ones_P)[1:]
    sum_ND = states.new_zeros(len(starts_N) + 1, states.shape[-1])
    mean_ND: Tensor = sum_ND.index_add(0, segment_P, states.flatten(0, 1))[1:] / length_N[:, None]
    return mean_ND


def resolve_layer(encoder: CrosslingModel | NativeEncoder, layer: int | None) -> int:
    """Return a layer, or the universal layer of the encoder."""
    universal: int = encoder.config.universal_layer
    return universal if layer is None else layer
