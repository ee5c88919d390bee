"""Attention of a sequence to itself, with the gated relative position bias, and to a paired sequence (VECO §2.2).

Where there is a GPU with Triton, half precision and something to add to the scores, one kernel does it all; elsewhere
plain torch does, with the bias and what is not seen written out as a matrix.
"""
# B sequences, H heads, L positions, T positions of the paired sequence, D width, K width of a head, W distances

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossling.model.config import CrosslingConfig
from crossling.model.device import runs_kernels
from crossling.model.position import Gate, windows

kernel: Any
try:
    from crossling.model import attention_op as kernel
except (ImportError, AttributeError):  # no Triton, or one of another time
    kernel = None

WIDTHS = (16, 32, 64, 128)  # of a head, that the kernel is for


class Seen(NamedTuple):
    """Which keys a query sees: what is added to the scores of the others, or what the kernel needs to know."""

    unseen_B1LT: Tensor | None
    tiles: Any = None  # attention_op.Tiles


class Bias(NamedTuple):
    by_distance_HW: Tensor
    far: int  # the distance from which on it stays the same


class SelfAttention(nn.Module):
    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.out = nn.Linear(config.hidden_size, config.hidden_size)
        gated = config.relative_positions and config.gated
        self.gate = Gate(config.hidden_size // config.num_attention_heads, self.heads) if gated else None
        self.gate_by_query = config.gate_input == "query"
        self.dropout = config.attention_dropout

    def forward(self, hidden_BLD: Tensor, bias: Bias | None, seen: Seen | None) -> Tensor:
        packed_BL3HK = self.qkv(hidden_BLD).unflatten(-1, (3, self.heads, -1))
        gate: Gate | Tensor | None = self.gate if bias is not None else None
        if isinstance(gate, Gate) and not self.gate_by_query:
            gate = gate(hidden_BLD.unflatten(-1, (self.heads, -1)))
        mixed = attend(packed_BL3HK, None, None, bias, gate, seen, self.dropout if self.training else 0.0)
        return self.out(mixed.flatten(2))


class CrossAttention(nn.Module):
    """Queries from this sequence, keys and values from the paired one. Distances between two sequences mean nothing,
    so no position bias."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key_value = nn.Linear(config.hidden_size, 2 * config.hidden_size)
        self.out = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = config.attention_dropout

    def forward(self, hidden_BLD: Tensor, paired_BTD: Tensor, seen: Seen | None) -> Tensor:
        query = self.query(hidden_BLD).unflatten(-1, (self.heads, -1))
        key, value = self.key_value(paired_BTD).unflatten(-1, (2, self.heads, -1)).unbind(2)
        mixed = attend(query, key, value, None, None, seen, self.dropout if self.training else 0.0)
        return self.out(mixed.flatten(2))


def fused(device: torch.device, dtype: torch.dtype, head_width: int) -> bool:
    """Whether the kernel will be used for products in this precision."""
    if kernel is None or head_width not in WIDTHS or dtype not in (torch.bfloat16, torch.float16):
        return False
    return runs_kernels(device)


def attend(
    query_BLHK: Tensor,  # or, without keys and values, all three [B, L, 3, H, K]
    key_BTHK: Tensor | None,
    value_BTHK: Tensor | None,
    bias: Bias | None,
    gate: Gate | Tensor | None,  # for the queries to make, or made [B, H, L]
    seen: Seen | None,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(q k / sqrt(K) + gate x bias) v over what is seen, [B, L, H, K]."""
    added = bias is not None or seen is not None
    if added and fused(query_BLHK.device, query_BLHK.dtype, query_BLHK.shape[-1]):
        distances, far = (None, 0) if bias is None else bias
        tiles = None if seen is None else seen.tiles
        assert seen is None or tiles is not None
        gates = gate.weights() if isinstance(gate, Gate) else gate
        return kernel.attend(query_BLHK, key_BTHK, value_BTHK, gates, distances, far, tiles, dropout)
    if key_BTHK is None or value_BTHK is None:
        query_BLHK, key_BTHK, value_BTHK = query_BLHK.unbind(2)
    assert seen is None or seen.unseen_B1LT is not None
    mask = None if seen is None else seen.unseen_B1LT
    if bias is not None:
        bias_HLL = windows(bias.by_distance_HW)
        gate_BHL = gate(query_BLHK) if isinstance(gate, Gate) else gate
        gated = bias_HLL if gate_BHL is None else gate_BHL[..., None] * bias_HLL
        mask = (gated if mask is None else gated + mask).expand(len(query_BLHK), -1, -1, -1)
    query, key, value = (each.transpose(1, 2) for each in (query_BLHK, key_BTHK, value_BTHK))
    mask = None if mask is None else mask.to(query.dtype)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout).transpose(1, 2)


def see(
    shape: Sequence[int],  # of the queries
    queries_BL: Tensor | None,  # the sequence each belongs to, in packed rows
    keys_BT: Tensor | None,
    present_BT: Tensor | None,  # which keys are no padding, in other rows
    dtype: torch.dtype,
    by_kernel: bool,
) -> Seen | None:
    """The keys of its own sequence, or all that are no padding."""
    if queries_BL is None or keys_BT is None:
        if present_BT is None:
            return None
        keys_BT = (present_BT != 0).long()
        queries_BL = keys_BT.new_ones(1, 1)
    if by_kernel:
        # A mask may have holes. Packed rows have none.
        queries_BL = queries_BL if queries_BL is keys_BT else queries_BL.expand(*shape)
        return Seen(None, kernel.tiles(queries_BL, keys_BT, holes=present_BT is not None))
    hidden_from = queries_BL[:, None, :, None] != keys_BT[:, None, None, :]
    zeros = torch.zeros(hidden_from.shape, dtype=dtype, device=hidden_from.device)
    # Large, and a number in every precision.
    return Seen(zeros.masked_fill(hidden_from, torch.finfo(torch.float16).min / 2))
