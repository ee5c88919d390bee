"""One vector for each sequence of packed rows, which contrastive learning and self-distillation compare."""
# N sequences, R rows of W tokens, P tokens, D width

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from crossling.data.packing import Batch
    from crossling.model.encoder_model import CrosslingModel
    from crossling.model.native_encoder import NativeEncoder


def pool_sequences(
    encoder: CrosslingModel | NativeEncoder, batch: Batch, name: str, layer: int, pooling: str
) -> Tensor:
    """Return the vector of every sequence of an input, [N, D].

    Args:
        encoder: Encoder of the sequences.
        batch: Packed rows.
        name: Name of the input in the batch.
        layer: Layer of the states.
        pooling: The first token (`cls`), or the mean of all (`mean`).
    """
    import torch

    segments_RW, starts_N = batch[f"{name}_segments"], batch[f"{name}_starts"]
    first_N = starts_N if pooling == "cls" else None
    hidden_RWD = encoder(batch[name], segments=segments_RW, layers=layer, positions=first_N).last_hidden_state
    if pooling == "cls":
        pooled_ND: Tensor = hidden_RWD
        return pooled_ND
    segment_P = segments_RW.flatten()
    # Ones are added, because a count on the device would have to wait for it.
    ones_P = hidden_RWD.new_ones(len(segment_P), dtype=torch.float32)
    length_N = ones_P.new_zeros(len(starts_N) + 1).index_add(0, segment_P, ones_P)[1:]
    sum_ND = hidden_RWD.new_zeros(len(starts_N) + 1, hidden_RWD.shape[-1])
    mean_ND: Tensor = sum_ND.index_add(0, segment_P, hidden_RWD.flatten(0, 1))[1:] / length_N[:, None]
    return mean_ND
