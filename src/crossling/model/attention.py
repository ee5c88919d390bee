"""Attention of a sequence to itself, with the gated relative position bias, and to a paired sequence (VECO §2.2)."""
# B sequences, H heads, L positions, T positions of the paired sequence, D width, K width of a head

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossling.model.config import CrosslingConfig
from crossling.model.position import Gate


class SelfAttention(nn.Module):
    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.out = nn.Linear(config.hidden_size, config.hidden_size)
        gated = config.relative_positions and config.gated
        self.gate = Gate(config.hidden_size // config.num_attention_heads, self.heads) if gated else None
        self.gate_by_query = config.gate_input == "query"
        self.dropout = config.dropout

    def forward(self, hidden_BLD: Tensor, bias_HLL: Tensor | None, unseen_B1LL: Tensor | None) -> Tensor:
        query, key, value = (_heads(part, self.heads) for part in self.qkv(hidden_BLD).chunk(3, dim=-1))
        mask = unseen_B1LL
        if bias_HLL is not None:
            bias = bias_HLL
            if self.gate is not None:
                seen = query if self.gate_by_query else _heads(hidden_BLD, self.heads)
                bias = self.gate(seen)[..., None] * bias_HLL
            mask = (bias if unseen_B1LL is None else bias + unseen_B1LL).to(query.dtype)
            mask = mask.expand(query.shape[0], -1, -1, -1)
        dropout = self.dropout if self.training else 0.0
        return self.out(_flat(F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)))


class CrossAttention(nn.Module):
    """Queries from this sequence, keys and values from the paired one. Distances between two sequences mean nothing,
    so no position bias."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key_value = nn.Linear(config.hidden_size, 2 * config.hidden_size)
        self.out = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = config.dropout

    def forward(self, hidden_BLD: Tensor, paired_BTD: Tensor, unseen_B1LT: Tensor | None) -> Tensor:
        query = _heads(self.query(hidden_BLD), self.heads)
        key, value = (_heads(part, self.heads) for part in self.key_value(paired_BTD).chunk(2, dim=-1))
        dropout = self.dropout if self.training else 0.0
        mask = None if unseen_B1LT is None else unseen_B1LT.to(query.dtype)
        return self.out(_flat(F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)))


def unseen(hidden_from: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to the scores of keys that a query must not see: large, and a number in every precision."""
    zeros = torch.zeros(hidden_from.shape, dtype=dtype, device=hidden_from.device)
    return zeros.masked_fill(hidden_from, torch.finfo(torch.float16).min / 2)


def _heads(values_BLD: Tensor, heads: int) -> Tensor:
    return values_BLD.unflatten(-1, (heads, -1)).transpose(1, 2)


def _flat(mixed_BHLK: Tensor) -> Tensor:
    return mixed_BHLK.transpose(1, 2).flatten(2)
