"""Self-attention with gated relative position bias or rotary positions, and cross-attention (VECO, section 2.2).

A fused Triton kernel computes attention with a bias or a mask on GPUs in half precision. Elsewhere plain torch does,
with the bias and the mask as matrices.
"""
# B sequences, H heads, L positions, T positions of the paired sequence, D width, K width of a head, W distances

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import EncoderDecoderCache

from crossling.model.config import CrosslingConfig
from crossling.model.gather import gather_positions
from crossling.model.kernels.device import supports_kernels
from crossling.model.position import BiasGate, RotaryAngles, toeplitz_bias

kernel: Any = None
if torch.cuda.is_available() or "TRITON_INTERPRET" in os.environ:  # elsewhere Triton takes 80 MB for nothing
    with suppress(ImportError, AttributeError):  # Triton is missing or of another version
        from crossling.model.kernels import attention_op as kernel

HEAD_WIDTHS = (16, 32, 64, 128)  # that the kernel supports


class AttentionMask(NamedTuple):
    """Keys that each query attends to. Empty fields mean all keys."""

    additive_B1LT: Tensor | None  # values to add to the scores, for plain torch
    tiles: Any = None  # attention_op.AttentionTiles, for the kernel
    is_causal: bool = False  # keys up to the query's own position


class PositionBias(NamedTuple):
    """Relative position bias of a sequence."""

    values: Tensor  # for the kernel by distance, [H, W]; elsewhere by query and key, [H, L, T]
    saturation_distance: int  # from which on the bias is constant

    @classmethod
    def create(
        cls, by_distance_HW: Tensor, saturation_distance: int, for_kernel: bool, queries: int | None = None
    ) -> PositionBias:
        """Return the bias of all queries or of the last `queries`.

        Call it once, before the blocks. A compiled block that expanded the bias would be recompiled for every length.
        """
        return cls(by_distance_HW if for_kernel else toeplitz_bias(by_distance_HW, queries), saturation_distance)


class KVCache(NamedTuple):
    """Cached keys and values of one decoder layer. Hugging Face's cache has heads before positions."""

    cache: EncoderDecoderCache
    layer: int

    def update(self, key_BLHK: Tensor, value_BLHK: Tensor) -> tuple[Tensor, Tensor]:
        """Append the keys and values of new tokens and return those of all tokens, [B, T, H, K]."""
        new = key_BLHK.transpose(1, 2), value_BLHK.transpose(1, 2)
        key, value = self.cache.self_attention_cache.update(*new, self.layer)
        return key.transpose(1, 2), value.transpose(1, 2)

    def paired(self, project: Callable[[Tensor], tuple[Tensor, ...]], paired_BTD: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of the paired sequence. They are projected once."""
        if not self.cache.is_updated.get(self.layer):
            key_BTHK, value_BTHK = project(paired_BTD)
            self.cache.cross_attention_cache.update(key_BTHK.transpose(1, 2), value_BTHK.transpose(1, 2), self.layer)
            self.cache.is_updated[self.layer] = True
        entry: Any = self.cache.cross_attention_cache.layers[self.layer]
        return entry.keys.transpose(1, 2), entry.values.transpose(1, 2)


class SelfAttention(nn.Module):
    """Multi-head self-attention with an optional gated position bias, or with rotary positions."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=config.biases)
        self.out = nn.Linear(config.hidden_size, config.hidden_size, bias=config.biases)
        has_gate = config.relative_positions and config.gated
        self.gate = BiasGate(config.head_width, self.heads, is_plain=bool(config.plain_gate)) if has_gate else None
        self.gate_by_query = config.gate_input == "query"
        self.dropout = config.attention_dropout

    def forward(
        self,
        hidden_BLD: Tensor,
        position: PositionBias | RotaryAngles | None,
        mask: AttentionMask | None,
        cache: KVCache | None = None,
        position_M: Tensor | None = None,
        recorded: list[Tensor] | None = None,
    ) -> Tensor:
        """Return the output at all positions, or at some positions of the flattened rows, [M, D].

        `position` is what positions add to the scores, or the angles of rotary positions. The attention weights of all
        positions are appended to `recorded` if it is given.
        """
        packed_BL3HK = self.qkv(hidden_BLD).unflatten(-1, (3, self.heads, -1))
        if isinstance(position, RotaryAngles):
            packed_BL3HK, bias = position.rotate(packed_BL3HK), None
        else:
            bias = position
        gate: BiasGate | Tensor | None = self.gate if bias is not None else None
        if isinstance(gate, BiasGate) and not self.gate_by_query:
            gate = gate(hidden_BLD.unflatten(-1, (self.heads, -1)))
        query, key, value = packed_BL3HK, None, None
        if cache is not None:
            query, *new = packed_BL3HK.unbind(2)
            key, value = cache.update(*new)
        dropout = self.dropout if self.training else 0.0
        context = _attend(recorded, query, key, value, bias=bias, gate=gate, mask=mask, dropout=dropout)
        return self.out(_merge_heads(context, position_M))


class CrossAttention(nn.Module):
    """Attention with queries from this sequence and keys and values from the paired one.

    It has no position bias: distances between positions of two sequences have no meaning.
    """

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.query = nn.Linear(config.hidden_size, config.hidden_size, bias=config.biases)
        self.key_value = nn.Linear(config.hidden_size, 2 * config.hidden_size, bias=config.biases)
        self.out = nn.Linear(config.hidden_size, config.hidden_size, bias=config.biases)
        self.dropout = config.attention_dropout

    def forward(
        self,
        hidden_BLD: Tensor,
        paired_BTD: Tensor,
        mask: AttentionMask | None,
        cache: KVCache | None = None,
        position_M: Tensor | None = None,
        recorded: list[Tensor] | None = None,
    ) -> Tensor:
        """Return the output as `SelfAttention` does."""
        query = self.query(hidden_BLD).unflatten(-1, (self.heads, -1))
        key, value = self.project(paired_BTD) if cache is None else cache.paired(self.project, paired_BTD)
        dropout = self.dropout if self.training else 0.0
        context = _attend(recorded, query, key, value, mask=mask, dropout=dropout)
        return self.out(_merge_heads(context, position_M))

    def project(self, paired_BTD: Tensor) -> tuple[Tensor, ...]:
        """Return the keys and values of the paired sequence."""
        return self.key_value(paired_BTD).unflatten(-1, (2, self.heads, -1)).unbind(2)


class AttentionRecord(NamedTuple):
    """Attention weights of every layer that was computed, [B, H, L, T] each."""

    own: list[Any]  # of self-attention
    cross: list[Any]


def _attend(
    recorded: list[Tensor] | None, query: Tensor, key: Tensor | None, value: Tensor | None, **options: Any
) -> Tensor:
    """Compute attention, and append its weights to `recorded` if it is given."""
    if recorded is None:
        return compute_attention(query, key, value, **options)
    context_BLHK, weights_BHLT = attention_with_weights(query, key, value, **options)
    recorded.append(weights_BHLT)
    return context_BLHK


def _merge_heads(context_BLHK: Tensor, position_M: Tensor | None) -> Tensor:
    """Return the context of all positions [B, L, D], or of some positions of the flattened rows [M, D]."""
    context_BLD = context_BLHK.flatten(2)
    return context_BLD if position_M is None else gather_positions(context_BLD, position_M)


def uses_attention_kernel(device: torch.device, dtype: torch.dtype, head_width: int) -> bool:
    """Return True if the fused kernel computes attention on this device in this precision."""
    is_supported = head_width in HEAD_WIDTHS and dtype in (torch.bfloat16, torch.float16)
    return kernel is not None and is_supported and supports_kernels(device)


def compute_attention(
    query_BLHK: Tensor,
    key_BTHK: Tensor | None,
    value_BTHK: Tensor | None,
    *,
    bias: PositionBias | None = None,
    gate: BiasGate | Tensor | None = None,
    mask: AttentionMask | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Return softmax(q k / sqrt(K) + gate x bias) v over the keys in the mask, [B, L, H, K].

    Args:
        query_BLHK: Queries. Without keys and values, all three packed as [B, L, 3, H, K].
        key_BTHK: Keys.
        value_BTHK: Values.
        bias: Relative position bias.
        gate: Module that computes the gates from the queries, or the gates [B, H, L].
        mask: Keys that each query attends to [default: all].
        dropout: Dropout of the attention weights.
    """
    tiles = None if mask is None else mask.tiles
    # Without bias and mask torch is as fast. A causal mask has no tiles.
    needs_kernel = bias is not None if mask is None else tiles is not None
    if needs_kernel and uses_attention_kernel(query_BLHK.device, query_BLHK.dtype, query_BLHK.shape[-1]):
        by_distance_HW, far = (None, 0) if bias is None else bias
        assert by_distance_HW is None or by_distance_HW.dim() == 2, "bias was expanded for plain torch"
        gates = gate.weights() if isinstance(gate, BiasGate) else gate
        return kernel.fused_attention(
            query_BLHK, key_BTHK, value_BTHK, gate=gates, by_distance_HW=by_distance_HW, far=far, tiles=tiles,
            dropout=dropout,
        )  # fmt: skip
    assert tiles is None
    if key_BTHK is None or value_BTHK is None:
        query_BLHK, key_BTHK, value_BTHK = query_BLHK.unbind(2)
    added, is_causal = _added_scores(query_BLHK, bias, gate, mask)
    query, key, value = (tensor.transpose(1, 2) for tensor in (query_BLHK, key_BTHK, value_BTHK))
    context = F.scaled_dot_product_attention(query, key, value, attn_mask=added, dropout_p=dropout, is_causal=is_causal)
    return context.transpose(1, 2)


def attention_with_weights(
    query_BLHK: Tensor,
    key_BTHK: Tensor | None,
    value_BTHK: Tensor | None,
    *,
    bias: PositionBias | None = None,
    gate: BiasGate | Tensor | None = None,
    mask: AttentionMask | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Return what `compute_attention` does, and the attention weights before dropout, [B, H, L, T].

    It is computed in plain torch. Bias and mask must be in the form for it.
    """
    assert mask is None or mask.tiles is None, "the mask is for the kernel"
    if key_BTHK is None or value_BTHK is None:
        query_BLHK, key_BTHK, value_BTHK = query_BLHK.unbind(2)
    added, is_causal = _added_scores(query_BLHK, bias, gate, mask)
    query, key, value = (tensor.transpose(1, 2) for tensor in (query_BLHK, key_BTHK, value_BTHK))
    scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
    if is_causal:
        added = _causal_scores(scores)
    weights = (scores if added is None else scores + added).float().softmax(-1).to(query.dtype)
    return (F.dropout(weights, dropout) @ value).transpose(1, 2), weights


def _added_scores(
    query_BLHK: Tensor, bias: PositionBias | None, gate: BiasGate | Tensor | None, mask: AttentionMask | None
) -> tuple[Tensor | None, bool]:
    """Return what bias and mask add to the scores, and if keys after the query are to be hidden besides."""
    added = None if mask is None else mask.additive_B1LT
    is_causal = mask is not None and mask.is_causal
    if bias is not None:
        bias_HLT = bias.values
        assert bias_HLT.dim() == 3, "bias is by distance, for the kernel"
        gate_BHL = gate(query_BLHK) if isinstance(gate, BiasGate) else gate
        gated = bias_HLT if gate_BHL is None else gate_BHL[..., None] * bias_HLT
        if is_causal:  # torch applies a causal mask only if nothing else is added
            is_causal, added = False, _causal_scores(gated)
        added = (gated if added is None else gated + added).expand(len(query_BLHK), -1, -1, -1)
    return None if added is None else added.to(query_BLHK.dtype), is_causal


def _causal_scores(scores: Tensor) -> Tensor:
    hidden_LT = torch.ones(scores.shape[-2:], device=scores.device).triu(1) > 0
    return additive_mask(hidden_LT, scores.dtype)


def make_attention_mask(
    shape: Sequence[int],
    query_segments_BL: Tensor | None,
    key_segments_BT: Tensor | None,
    padding_mask_BT: Tensor | None,
    *,
    dtype: torch.dtype,
    for_kernel: bool,
    is_causal: bool = False,
) -> AttentionMask | None:
    """Let each query attend to the keys of its own sequence in packed rows, or to all that are not padding.

    Args:
        shape: Shape of the queries, (B, L).
        query_segments_BL: Number of the sequence each query belongs to, in packed rows.
        key_segments_BT: Number of the sequence each key belongs to, in packed rows.
        padding_mask_BT: 1 for each key that is a token and 0 for padding, in rows with one sequence.
        dtype: Precision of the mask.
        for_kernel: Return the form that the fused kernel reads.
        is_causal: Hide the keys after each query too. The kernel has no such form.
    """
    if query_segments_BL is None or key_segments_BT is None:
        if padding_mask_BT is None:
            return AttentionMask(None, is_causal=True) if is_causal else None
        key_segments_BT = (padding_mask_BT != 0).long()
        query_segments_BL = key_segments_BT.new_ones(1, 1)
    if for_kernel:
        # Only a padding mask may have gaps. Packed rows have none.
        is_same = query_segments_BL is key_segments_BT
        queries_BL = query_segments_BL if is_same else query_segments_BL.expand(*shape)
        return AttentionMask(None, kernel.make_tiles(queries_BL, key_segments_BT, has_gaps=padding_mask_BT is not None))
    hidden_B1LT = query_segments_BL[:, None, :, None] != key_segments_BT[:, None, None, :]
    if is_causal:
        hidden_B1LT = hidden_B1LT | (torch.ones(shape[1], shape[1], device=hidden_B1LT.device).triu(1) > 0)
    return AttentionMask(additive_mask(hidden_B1LT, dtype))


def make_causal_mask(
    queries: int, past: int, padding_mask_BT: Tensor | None, dtype: torch.dtype, device: torch.device
) -> AttentionMask:
    """Let each query attend to the keys up to its own position that are not padding.

    Args:
        queries: Number of queries.
        past: Number of keys before the first query.
        padding_mask_BT: 1 for each key that is a token. Padding after the last query needs no mask.
        dtype: Precision of the mask.
        device: Device of the mask.
    """
    if padding_mask_BT is None and queries == 1:
        return AttentionMask(None)
    if padding_mask_BT is None and past == 0:
        return AttentionMask(None, is_causal=True)
    position_T = torch.arange(past + queries, device=device)
    hidden = (position_T > position_T[past:, None])[None, None]
    if padding_mask_BT is not None:
        hidden = hidden | (padding_mask_BT == 0)[:, None, None]
    return AttentionMask(additive_mask(hidden, dtype))


def additive_mask(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 0 where a key is visible and a large negative number, finite in every precision, where it is `hidden`."""
    zeros = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
    return zeros.masked_fill(hidden, torch.finfo(torch.float16).min / 2)
