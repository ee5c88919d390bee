r"""The gated relative position bias of XLM-E (§3.3), plain and by equation.

For a query at position i and a key at position j, with d the learned bias of their distance and q_i the query,

    g_u, g_r = sigmoid(q_i . u), sigmoid(q_i . v)
    r_ij     = d + g_u d + (1 - g_u) w g_r d

which is one number per query times an ordinary bucketed bias: r_ij = m_i d_(j-i), m_i = 1 + g_u + (1 - g_u) w g_r.
The table of d is shared by all layers; every layer owns its gate.
"""
# B sequences, H heads, L positions, K width of a head, N buckets, W = 2L - 1 distances

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def bucket(distance: Tensor, buckets: int, max_distance: int) -> Tensor:
    """The bucket of `distance` = key - query: keys to the right take the upper half; half of each side is exact,
    the rest grows logarithmically up to `max_distance` (T5, bidirectional)."""
    side = buckets // 2
    exact = side // 2
    far = distance.abs().clamp(min=1).double()
    # The small constant keeps exact powers (16, 64, ...) from falling below their own boundary by rounding.
    steps = torch.log(far / exact) / math.log(max_distance / exact) * (side - exact) + 1e-9
    logarithmic = (exact + steps.floor().long()).clamp(max=side - 1)
    return torch.where(distance > 0, side, 0) + torch.where(distance.abs() < exact, distance.abs(), logarithmic)


@lru_cache(maxsize=256)
def _one_hot(length: int, buckets: int, max_distance: int) -> Tensor:
    """The bucket of each distance of a sequence, [2L - 1, N]; on the host, as not every device has float64."""
    distance = torch.arange(1 - length, length, device="cpu")
    return F.one_hot(bucket(distance, buckets, max_distance), buckets).float()


@lru_cache(maxsize=256)
def far(buckets: int, max_distance: int) -> int:
    """The distance from which on all share one bucket, on each side."""
    kinds = bucket(torch.arange(max_distance + 1, device="cpu"), buckets, max_distance)
    return int((kinds == kinds[-1]).nonzero()[0])


def windows(by_distance_HW: Tensor, queries: int | None = None) -> Tensor:
    """d for every query and key, [H, L, L], from that of every distance: row i is the window that has distance 0 at i.
    Of the last so many queries only, if that is said. A sliding view and never a gather: its gradient is summed in
    float32 and in a fixed order."""
    return by_distance_HW.unfold(1, (by_distance_HW.shape[1] + 1) // 2, 1)[:, :queries].flip(1)


class RelativePositionTable(nn.Module):
    """d: one learned number per bucket of distance and head, shared by all layers."""

    def __init__(self, buckets: int, max_distance: int, heads: int) -> None:
        super().__init__()
        self.buckets, self.max_distance = buckets, max_distance
        self.weight_NH = nn.Parameter(torch.empty(buckets, heads))

    @property
    def far(self) -> int:
        return far(self.buckets, self.max_distance)

    def forward(self, length: int) -> Tensor:
        """d of every distance in a sequence, [H, 2L - 1], from a key far left to a key far right; float32. A product
        with one-hot rows and never a gather: a bfloat16 gather's gradient was measured 20% wrong."""
        with torch.autocast(self.weight_NH.device.type, enabled=False):
            one_hot = _one_hot(length, self.buckets, self.max_distance).to(self.weight_NH.device, non_blocking=True)
            return (one_hot @ self.weight_NH.float()).T


class Gate(nn.Module):
    """m_i = 1 + g_u + (1 - g_u) w g_r, one number per query and head.

    Both gates come from one map of the query to 8 numbers, four summed for each, shared by the heads of a layer;
    w is one number per head. That is how the authors' released speech models parametrise u, v and w.
    """

    def __init__(self, head_width: int, heads: int) -> None:
        super().__init__()
        self.map = nn.Linear(head_width, 8)
        self.scale_H = nn.Parameter(torch.ones(heads))

    def weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """u and v [2, K], their biases [2], and w [H]; float32."""
        weight_2K, bias_2 = (each.float().unflatten(0, (2, 4)).sum(1) for each in (self.map.weight, self.map.bias))
        return weight_2K, bias_2, self.scale_H.float()

    def forward(self, query_BLHK: Tensor) -> Tensor:
        """[B, H, L], float32."""
        weight_2K, bias_2, scale_H = self.weights()
        scores = (query_BLHK[..., None, :].float() * weight_2K).sum(-1) + bias_2
        update, reset = torch.sigmoid(scores).unbind(-1)
        return (1 + update + (1 - update) * scale_H * reset).transpose(1, 2)
