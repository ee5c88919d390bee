"""Attention kernels as torch operators, for autograd and torch.compile."""
# B sequences, H heads, L queries, T keys, K width of a head, t tiles

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from crossling.model.kernels import attention_triton as kernels
from crossling.model.kernels.attention_backward_op import attention_backward
from crossling.model.kernels.attention_launch import (
    BIAS_PADDING,
    STEP,
    TILE,
    Launch,
    common_arguments,
    fill_missing,
    split_qkv,
)

PADDING_SEGMENT = 1 << 30  # number of padding as a sequence: after all others, as padding is in its row


# Without a bias, and with one: the fastest options measured on an H200.
FORWARD = Launch(3), Launch(2, registers=128)


class AttentionTiles(NamedTuple):
    """Attention mask in the form that the kernels read."""

    query_spans: Tensor  # [B, L, 2]: first and last key of each query
    key_spans: Tensor  # [B, T, 2]: first and last query of each key
    query_ranges: Tensor  # [B, t, 4], of tiles: see `tile_ranges`
    key_ranges: Tensor
    present: Tensor | None  # [B, T]: 1 for the keys of a span that are visible, if not all are


def fused_attention(
    query_BLHK: Tensor,
    key_BTHK: Tensor | None,
    value_BTHK: Tensor | None,
    *,
    gate: Tensor | tuple[Tensor, Tensor, Tensor] | None = None,
    by_distance_HW: Tensor | None = None,
    far: int = 0,
    tiles: AttentionTiles | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Return the attention output, [B, L, H, K].

    Args:
        query_BLHK: Queries. Without keys and values, all three packed as [B, L, 3, H, K]. So is their gradient.
        key_BTHK: Keys.
        value_BTHK: Values.
        gate: Gates [B, H, L], or the u and v [2, K], their biases [2] and the w [H] to compute them from the queries.
        by_distance_HW: Position bias of every distance.
        far: Distance from which on the bias is constant.
        tiles: Mask [default: every query attends to all keys].
        dropout: Dropout of the attention weights.
    """
    B, L = query_BLHK.shape[:2]
    T = L if key_BTHK is None else key_BTHK.shape[1]
    device = query_BLHK.device
    if tiles is None and (L % TILE or T % STEP):  # the ends of the sequences have to be masked
        whole_BL = torch.ones(B, L, dtype=torch.int32, device=device)
        tiles = make_tiles(whole_BL, whole_BL if T == L else whole_BL.new_ones(B, T))
    gate = gate if by_distance_HW is not None else None  # nothing to gate
    if by_distance_HW is not None and gate is None:
        gate = torch.ones(B, query_BLHK.shape[-2], L, device=device)
    gates = (None, *gate) if isinstance(gate, tuple) else (gate, None, None, None)
    seed = torch.randint(1 << 31, (1,), device=device) if dropout else None
    return attention(
        query_BLHK, key_BTHK, value_BTHK, *gates, by_distance_HW, far, *(tiles or [None] * 5), seed, dropout
    )[0]


def make_tiles(queries_BL: Tensor, keys_BT: Tensor, has_gaps: bool = False) -> AttentionTiles:
    """Let each query attend to the keys with its own sequence number. 0 is padding.

    A sequence is contiguous in its row, unless `has_gaps`.
    """
    keys = _number_padding_last(keys_BT)
    queries = keys if queries_BL is keys_BT else _number_padding_last(queries_BL)
    query_spans = sequence_spans(queries, keys)
    key_spans = query_spans if queries is keys else sequence_spans(keys, queries)
    query_ranges = tile_ranges(queries, keys)
    key_ranges = query_ranges if queries is keys else tile_ranges(keys, queries)
    present = (keys_BT != 0).int() if has_gaps else None
    return AttentionTiles(query_spans, key_spans, query_ranges, key_ranges, present=present)


def _number_padding_last(segments_BL: Tensor) -> Tensor:
    return torch.where(segments_BL == 0, PADDING_SEGMENT, segments_BL).int()


def sequence_spans(owner_BL: Tensor, other_BT: Tensor) -> Tensor:
    """Return, for each element of `owner_BL`, the start and stop of its sequence in `other_BT`, [B, L, 2]."""
    T = other_BT.shape[1]
    index_T = torch.arange(T, dtype=torch.int32, device=other_BT.device)
    if owner_BL is other_BT:
        change = owner_BL[:, 1:] != owner_BL[:, :-1]
        first, last = F.pad(change, (1, 0), value=True), F.pad(change, (0, 1), value=True)
        start = torch.where(first, index_T, 0).cummax(1).values
        stop = torch.where(last, index_T + 1, T).flip(1).cummin(1).values.flip(1)
    else:
        same_BLT = owner_BL[:, :, None] == other_BT[:, None, :]
        start, stop = torch.where(same_BLT, index_T, T).amin(2), torch.where(same_BLT, index_T + 1, 0).amax(2)
    return torch.stack([start, stop], 2).int()


def tile_ranges(owner_BL: Tensor, other_BT: Tensor) -> Tensor:
    """Return, for each tile of `owner_BL`, the ranges of `other_BT` visible to some and to all of it, [B, t, 4].

    Sequences follow each other in their rows, so few tiles of a packed row are visible to each other.
    """
    T = other_BT.shape[1]
    missing = -owner_BL.shape[1] % TILE
    padded = torch.cat([owner_BL, owner_BL[:, -1:].expand(-1, missing)], 1) if missing else owner_BL
    low_Bt1, high_Bt1 = (f(padded.unflatten(1, (-1, TILE)), 2, keepdim=True) for f in (torch.amin, torch.amax))
    visible_BtT = (other_BT[:, None, :] >= low_Bt1) & (other_BT[:, None, :] <= high_Bt1)
    index_T = torch.arange(T, device=other_BT.device)
    first, last = torch.where(visible_BtT, index_T, T).amin(2), torch.where(visible_BtT, index_T + 1, 0).amax(2)
    is_one = (low_Bt1 == high_Bt1).squeeze(2) & (visible_BtT.sum(2) == last - first)  # a mask may have gaps
    inner, outer = torch.where(is_one, first, T), torch.where(is_one, last, 0)
    return torch.stack([first // STEP * STEP, last, inner, outer], 2).int()


@torch.library.custom_op("crossling::attention", mutates_args=())
def attention(
    q: Tensor, k: Tensor | None, v: Tensor | None, c: Tensor | None, gw: Tensor | None, gb: Tensor | None,
    gs: Tensor | None, d: Tensor | None, far: int, i_spans: Tensor | None,
    j_spans: Tensor | None,  # noqa: ARG001 - for the backward pass, as j_ranges
    i_ranges: Tensor | None, j_ranges: Tensor | None, present: Tensor | None, seed: Tensor | None, dropout: float,  # noqa: ARG001
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the output [B, L, H, K], each query's log-sum-exp [B, H, L] in units of log 2, and the computed gates.

    q is [B, L, H, K], or [B, L, 3, H, K] with keys and values. k and v are [B, T, H, K]. The gates c are [B, H, L].
    Without c they are computed from gw [2, K], gb [2] and gs [H]. The bias d is [H, 2L - 1].
    """
    q, k, v = split_qkv(q, k, v)
    B, L, H, K = q.shape
    o = q.new_empty((B, L, H, K))
    lse = q.new_empty((B, H, L), dtype=torch.float32)
    computed = torch.empty_like(lse) if gw is not None else lse.new_empty(0)
    table = None if d is None else F.pad(d, BIAS_PADDING)
    inputs = fill_missing(q, computed if c is None else c, gw, gb, gs, table, i_spans, present, i_ranges, seed)
    how = FORWARD[d is not None]
    with torch.cuda.device_of(q):  # Triton launches on the current device
        kernels.forward[(-(-L // TILE) * B * H,)](
            q, k, v, *inputs, o, lse, **common_arguments(q, k, d, i_spans, far, dropout), GATE=gw is not None,
            GAPS=present is not None, BM=TILE, BN=how.step, **how.options(K),
        )  # fmt: skip
    return o, lse, computed


@attention.register_fake
def _(q: Tensor, k: Any, v: Any, c: Any, gw: Tensor | None, *_: Any) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ARG001
    (B, L), (H, K) = q.shape[:2], q.shape[-2:]
    lse = q.new_empty((B, H, L), dtype=torch.float32)
    return q.new_empty((B, L, H, K)), lse, torch.empty_like(lse) if gw is not None else lse.new_empty(0)


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.far, i_spans, j_spans, i_ranges, j_ranges, present, seed, ctx.dropout = inputs
    ctx.save_for_backward(*tensors, i_spans, j_spans, i_ranges, j_ranges, present, seed, *output)


def _attention_gradients(ctx: Any, do: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors  # read once: with activation checkpointing a second access fails
    tensors, tiles, output = saved[:8], saved[8:14], saved[14:]
    dq, dk, dv, dc, dgate, dd = attention_backward(do, *tensors, ctx.far, *tiles, ctx.dropout, *output)
    (_, k, _, c, gw, _, _, d), K = tensors, dq.shape[-1]
    gates: tuple[Tensor | None, ...] = (None, None, None)
    if gw is not None:
        gates = dgate[:, : 2 * K].sum(0).view(2, K), dgate[:, 2 * K : 2 * K + 2].sum(0), dgate[:, 2 * K + 2]
    others = (None, None) if k is None else (dk, dv)
    return dq, *others, None if c is None else dc, *gates, None if d is None else dd, *([None] * 8)


attention.register_autograd(_attention_gradients, setup_context=_save_for_backward)
