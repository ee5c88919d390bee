r"""Gated relative position bias (XLM-E, section 3.3), and rotary positions (RoPE).

For a query at position i and a key at position j, with d the learned bias of their distance and q_i the query,

    g_u, g_r = sigmoid(q_i . u), sigmoid(q_i . v)
    r_ij     = d + g_u d + (1 - g_u) w g_r d

This is one number per query times an ordinary bucketed bias: r_ij = m_i d_(j-i), m_i = 1 + g_u + (1 - g_u) w g_r.
All layers share the table of d. Every layer has its own gate.

Rotary positions (Su et al., 2021) rotate queries and keys instead. Elements k and k + K/2 of a head are a point in a
plane, which is rotated by the angle i theta^(-2k/K) at position i. Scores then depend on the distance j - i.
"""
# B sequences, H heads, L positions, K width of a head, F = K / 2, N buckets, W = 2L - 1 distances

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def relative_position_bucket(distance: Tensor, buckets: int, max_distance: int) -> Tensor:
    """Return the bucket of each `distance` = key - query, as bidirectional T5.

    Keys to the right take the upper half. On each side, half of the buckets hold one distance each. The other half
    grows logarithmically up to `max_distance`.
    """
    side = buckets // 2
    exact = side // 2
    size = distance.abs().clamp(min=1).double()
    # The small constant keeps exact powers (16, 64, ...) from falling below their own boundary by rounding.
    steps = torch.log(size / exact) / math.log(max_distance / exact) * (side - exact) + 1e-9
    logarithmic = (exact + steps.floor().long()).clamp(max=side - 1)
    return torch.where(distance > 0, side, 0) + torch.where(distance.abs() < exact, distance.abs(), logarithmic)


@cache  # CUDA graphs read the values at this address
def _one_hot(length: int, buckets: int, max_distance: int, device: torch.device) -> Tensor:
    """Return the bucket of each distance of a sequence, [2L - 1, N].

    It is computed on the CPU, because not every device has float64, and copied once.
    """
    with torch.inference_mode(False):  # a tensor of inference cannot be used in training
        distance = torch.arange(1 - length, length, device="cpu")
        return F.one_hot(relative_position_bucket(distance, buckets, max_distance), buckets).float().to(device)


@lru_cache(maxsize=256)
def saturation_distance(buckets: int, max_distance: int) -> int:
    """Return the smallest distance of the last bucket. From there on the bias is constant on each side."""
    numbers = relative_position_bucket(torch.arange(max_distance + 1, device="cpu"), buckets, max_distance)
    return int((numbers == numbers[-1]).nonzero()[0])


def toeplitz_bias(by_distance_HW: Tensor, queries: int | None = None) -> Tensor:
    """Expand the bias of every distance to that of every query and key, [H, L, L], or of the last `queries`.

    Row i is the slice of the distances with distance 0 at key i. It is a sliding view and never a gather, so that its
    gradient is summed in float32 and in a fixed order.
    """
    return by_distance_HW.unfold(1, (by_distance_HW.shape[1] + 1) // 2, 1)[:, :queries].flip(1)


class RelativePositionTable(nn.Module):
    """Table of d: one learned number per distance bucket and head, shared by all layers."""

    def __init__(self, buckets: int, max_distance: int, heads: int) -> None:
        super().__init__()
        self.buckets, self.max_distance = buckets, max_distance
        self.weight_NH = nn.Parameter(torch.empty(buckets, heads))

    @property
    def saturation_distance(self) -> int:
        """Smallest distance of the last bucket."""
        return saturation_distance(self.buckets, self.max_distance)

    def forward(self, length: int) -> Tensor:
        """Return d of every distance in a sequence, [H, 2L - 1], from the leftmost key to the rightmost, in float32.

        It is a product with one-hot rows and never a gather: a bfloat16 gather's gradient was measured 20% wrong.
        """
        with torch.autocast(self.weight_NH.device.type, enabled=False):
            one_hot = _one_hot(length, self.buckets, self.max_distance, self.weight_NH.device)
            return (one_hot @ self.weight_NH.float()).T


class BiasGate(nn.Module):
    """Gate m_i = 1 + g_u + (1 - g_u) w g_r on the position bias: one number per query and head.

    One linear layer projects the query to 8 numbers, and four are summed for each of g_u and g_r. The heads of a layer
    share it. w is one number per head. The authors' released speech models parametrise u, v and w in this way. A plain
    gate has one vector each for u and v and no biases, as the equations.
    """

    def __init__(self, head_width: int, heads: int, is_plain: bool = False) -> None:
        super().__init__()
        self.map = nn.Linear(head_width, 2 if is_plain else 8, bias=not is_plain)
        self.scale_H = nn.Parameter(torch.ones(heads))

    def weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return u and v [2, K], their biases [2], and w [H], in float32."""
        weight_2K = self.map.weight.float().unflatten(0, (2, -1)).sum(1)
        if self.map.bias is None:
            bias_2 = weight_2K.new_zeros(2)
        else:
            bias_2 = self.map.bias.float().unflatten(0, (2, -1)).sum(1)
        return weight_2K, bias_2, self.scale_H.float()

    def forward(self, query_BLHK: Tensor) -> Tensor:
        """Return the gates, [B, H, L], in float32."""
        weight_2K, bias_2, scale_H = self.weights()
        scores = (query_BLHK[..., None, :].float() * weight_2K).sum(-1) + bias_2
        update, reset = torch.sigmoid(scores).unbind(-1)
        return (1 + update + (1 - update) * scale_H * reset).transpose(1, 2)


def compute_position_ids(segments_BL: Tensor) -> Tensor:
    """Return the position of each token in its own sequence, in packed rows."""
    position_L = torch.arange(segments_BL.shape[1], device=segments_BL.device)
    is_first_BL = F.pad(segments_BL[:, 1:] != segments_BL[:, :-1], (1, 0), value=True)
    return position_L - torch.where(is_first_BL, position_L, 0).cummax(1).values


class RotaryAngles(NamedTuple):
    """Cosine and sine of the angles by which queries and keys are rotated, in float32. All layers have the same."""

    cos_BLF: Tensor  # B is 1 if the positions of all rows are the same
    sin_BLF: Tensor

    @classmethod
    def create(cls, position_BL: Tensor, head_width: int, theta: float) -> RotaryAngles:
        """Return the angles of some positions."""
        exponent_F = torch.arange(0, head_width, 2, device=position_BL.device).float() / head_width
        angle_BLF = position_BL[..., None].float() * theta**-exponent_F
        return cls(angle_BLF.cos(), angle_BLF.sin())

    def rotate(self, packed_BL3HK: Tensor) -> Tensor:
        """Rotate queries and keys that are packed with the values, which stay."""
        x, y = packed_BL3HK[:, :, :2].float().chunk(2, dim=-1)
        cos, sin = self.cos_BLF[:, :, None, None], self.sin_BLF[:, :, None, None]
        rotated_BL2HK = torch.cat([x * cos - y * sin, y * cos + x * sin], -1)
        return torch.cat([rotated_BL2HK.to(packed_BL3HK.dtype), packed_BL3HK[:, :, 2:]], 2)
