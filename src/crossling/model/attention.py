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
from crossling.model.past import Past
from crossling.model.position import Gate, windows

kernel: Any
try:
    from crossling.model import attention_op as kernel
except (ImportError, AttributeError):  # no Triton, or one of another time
    kernel = None

WIDTHS = (16, 32, 64, 128)  # of a head, that the kernel is for


class Seen(NamedTuple):
    """Which keys a query sees: what is added to the scores of the others, or what the kernel needs to know, or only
    that they are those up to its own place."""

    unseen_B1LT: Tensor | None
    tiles: Any = None  # attention_op.Tiles
    causal: bool = False


class Bias(NamedTuple):
    values: Tensor  # of every distance, [H, W], for the kernel; elsewhere of every query and key, [H, L, T]
    far: int  # the distance from which on it stays the same

    @classmethod
    def of(cls, by_distance_HW: Tensor, far: int, by_kernel: bool, queries: int | None = None) -> Bias:
        """For all queries, or the last so many. To be made before the blocks: if they wrote it out themselves, each
        length would have to be compiled by itself."""
        return cls(by_distance_HW if by_kernel else windows(by_distance_HW, queries), far)


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

    def forward(self, hidden_BLD: Tensor, bias: Bias | None, seen: Seen | None, past: Past | None = None) -> Tensor:
        packed_BL3HK = self.qkv(hidden_BLD).unflatten(-1, (3, self.heads, -1))
        gate: Gate | Tensor | None = self.gate if bias is not None else None
        if isinstance(gate, Gate) and not self.gate_by_query:
            gate = gate(hidden_BLD.unflatten(-1, (self.heads, -1)))
        query, key, value = packed_BL3HK, None, None
        if past is not None:
            query, *new = packed_BL3HK.unbind(2)
            key, value = past.own(*new)
        mixed = attend(query, key, value, bias, gate, seen, self.dropout if self.training else 0.0)
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

    def forward(self, hidden_BLD: Tensor, paired_BTD: Tensor, seen: Seen | None, past: Past | None = None) -> Tensor:
        query = self.query(hidden_BLD).unflatten(-1, (self.heads, -1))
        key, value = self.read(paired_BTD) if past is None else past.paired(self.read, paired_BTD)
        mixed = attend(query, key, value, None, None, seen, self.dropout if self.training else 0.0)
        return self.out(mixed.flatten(2))

    def read(self, paired_BTD: Tensor) -> tuple[Tensor, ...]:
        """Its keys and values."""
        return self.key_value(paired_BTD).unflatten(-1, (2, self.heads, -1)).unbind(2)


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
    tiles = None if seen is None else seen.tiles
    # Nothing to add: torch is as fast. A decoder's mask has no tiles.
    suited = bias is not None if seen is None else tiles is not None
    if suited and fused(query_BLHK.device, query_BLHK.dtype, query_BLHK.shape[-1]):
        distances, far = (None, 0) if bias is None else bias
        assert distances is None or distances.dim() == 2, "written out for plain torch"
        gates = gate.weights() if isinstance(gate, Gate) else gate
        return kernel.attend(query_BLHK, key_BTHK, value_BTHK, gates, distances, far, tiles, dropout)
    if key_BTHK is None or value_BTHK is None:
        query_BLHK, key_BTHK, value_BTHK = query_BLHK.unbind(2)
    assert tiles is None
    mask = None if seen is None else seen.unseen_B1LT
    causal = seen is not None and seen.causal
    if bias is not None:
        bias_HLT = bias.values
        assert bias_HLT.dim() == 3, "by distance, for the kernel"
        gate_BHL = gate(query_BLHK) if isinstance(gate, Gate) else gate
        gated = bias_HLT if gate_BHL is None else gate_BHL[..., None] * bias_HLT
        if causal:  # which torch does by itself only where nothing else is added
            causal, mask = False, unseen(torch.ones(bias_HLT.shape[1:], device=gated.device).triu(1) > 0, gated.dtype)
        mask = (gated if mask is None else gated + mask).expand(len(query_BLHK), -1, -1, -1)
    query, key, value = (each.transpose(1, 2) for each in (query_BLHK, key_BTHK, value_BTHK))
    mask = None if mask is None else mask.to(query.dtype)
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal)
    return mixed.transpose(1, 2)


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
    return Seen(unseen(queries_BL[:, None, :, None] != keys_BT[:, None, None, :], dtype))


def see_left(
    queries: int,
    past: int,  # keys before the first query
    present_BT: Tensor | None,  # which keys are no padding; padding after the last query needs no mask
    dtype: torch.dtype,
    device: torch.device,
) -> Seen:
    """The keys up to its own place, of those that are no padding."""
    if present_BT is None and queries == 1:
        return Seen(None)
    if present_BT is None and past == 0:
        return Seen(None, causal=True)
    place_T = torch.arange(past + queries, device=device)
    hidden_from = (place_T > place_T[past:, None])[None, None]
    if present_BT is not None:
        hidden_from = hidden_from | (present_BT == 0)[:, None, None]
    return Seen(unseen(hidden_from, dtype))


def unseen(hidden_from: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to the scores: nothing, or what is large and a number in every precision."""
    zeros = torch.zeros(hidden_from.shape, dtype=dtype, device=hidden_from.device)
    return zeros.masked_fill(hidden_from, torch.finfo(torch.float16).min / 2)
