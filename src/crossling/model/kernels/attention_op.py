"""Attention kernels as torch operators, for autograd and torch.compile."""
# B sequences, H heads, L queries, T keys, K width of a head, t tiles

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from crossling.model.kernels import attention_backward_triton as backward_kernels
from crossling.model.kernels import attention_triton as kernels

TILE = 64  # queries or keys that a program holds
STEP = 64  # keys or queries that it loads at a time
BATCH_SPLITS = 4  # parts of the batch, for the gradient of the bias
BIAS_PADDING = (kernels.PAD.value, kernels.PAD.value)
PADDING_SEGMENT = 1 << 30  # number of padding as a sequence: after all others, as padding is in its row


class Launch(NamedTuple):
    """Launch options of a kernel. With fewer registers, more programs run on one multiprocessor."""

    stages: int
    registers: int | None = None
    step: int = STEP
    warps: int = 4

    def options(self, width: int) -> dict[str, int | None]:
        """Return the options for a head width. Wide heads need all registers and more shared memory."""
        if width > 64:
            return {"num_warps": self.warps, "num_stages": min(2, self.stages)}
        return {"num_warps": self.warps, "num_stages": self.stages, "maxnreg": self.registers}


# Without a bias, and with one: the fastest options measured on an H200.
FORWARD = Launch(3), Launch(2, registers=128)
QUERIES = Launch(3, step=32), Launch(3, registers=128, step=32)
KEYS = (Launch(3, registers=168, step=32),) * 2
DISTANCES = Launch(3)


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


def _common_arguments(
    q: Tensor, k: Tensor, d: Tensor | None, spans: Tensor | None, far: int, dropout: float
) -> dict[str, Any]:
    (_, L, H, K), T = q.shape, k.shape[1]
    strides = {f"{name}_{axis}": x.stride(i) for name, x in (("q", q), ("k", k)) for i, axis in enumerate("blh")}
    sizes = {"H": H, "L": L, "T": T, "K": K, "far": far, "SCALE": kernels.LOG2E.value * K**-0.5}
    options = {"BIAS": d is not None, "HAS_SPANS": spans is not None, "EVEN": not (L % TILE or T % STEP)}
    return {**strides, **sizes, **options, "DROPOUT": round(dropout * kernels.DROPOUT_STEPS.value)}


def _split_qkv(q: Tensor, k: Tensor | None, v: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    if k is None or v is None:
        q, k, v = q.unbind(2)
    if v.stride() != k.stride():  # the kernels read both with the same strides
        k, v = k.contiguous(), v.contiguous()
    assert q.stride(-1) == k.stride(-1) == 1
    return q, k, v


def _fill_missing(q: Tensor, *others: Tensor | None) -> list[Tensor]:
    """Replace missing inputs, which the kernels do not read, by some tensor for Triton."""
    return [q if x is None else x.contiguous() for x in others]


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
    q, k, v = _split_qkv(q, k, v)
    B, L, H, K = q.shape
    o = q.new_empty((B, L, H, K))
    lse = q.new_empty((B, H, L), dtype=torch.float32)
    computed = torch.empty_like(lse) if gw is not None else lse.new_empty(0)
    table = None if d is None else F.pad(d, BIAS_PADDING)
    inputs = _fill_missing(q, computed if c is None else c, gw, gb, gs, table, i_spans, present, i_ranges, seed)
    how = FORWARD[d is not None]
    with torch.cuda.device_of(q):  # Triton launches on the current device
        kernels.forward[(-(-L // TILE) * B * H,)](
            q, k, v, *inputs, o, lse, **_common_arguments(q, k, d, i_spans, far, dropout), GATE=gw is not None,
            GAPS=present is not None, BM=TILE, BN=how.step, **how.options(K),
        )  # fmt: skip
    return o, lse, computed


@attention.register_fake
def _(q: Tensor, k: Any, v: Any, c: Any, gw: Tensor | None, *_: Any) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ARG001
    (B, L), (H, K) = q.shape[:2], q.shape[-2:]
    lse = q.new_empty((B, H, L), dtype=torch.float32)
    return q.new_empty((B, L, H, K)), lse, torch.empty_like(lse) if gw is not None else lse.new_empty(0)


@torch.library.custom_op("crossling::attention_backward", mutates_args=())
def attention_backward(
    do: Tensor, q: Tensor, k: Tensor | None, v: Tensor | None, c: Tensor | None, gw: Tensor | None, gb: Tensor | None,
    gs: Tensor | None, d: Tensor | None, far: int, i_spans: Tensor | None, j_spans: Tensor | None,
    i_ranges: Tensor | None, j_ranges: Tensor | None, present: Tensor | None, seed: Tensor | None, dropout: float,
    o: Tensor, lse: Tensor, computed: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of q, k and v (packed if they were), of c, of (u, v, their biases, w) per head, and of d.

    Gradients of missing inputs are empty.
    """
    packed = q.new_empty(q.shape)
    dq, dk, dv = packed.unbind(2) if k is None else (packed, k.new_empty(k.shape), k.new_empty(k.shape))
    q, k, v = _split_qkv(q, k, v)
    B, L, H, K = q.shape
    T, rows = k.shape[1], -(-L // TILE)
    do = do.contiguous()
    delta = torch.empty_like(lse)
    dc = lse.new_empty((0,) if c is None else lse.shape)
    part = lse.new_zeros((0,) if d is None else (B, H, rows, 2 * K + 5))
    common = _common_arguments(q, k, d, i_spans, far, dropout)
    table = None if d is None else F.pad(d, BIAS_PADDING)
    gates = computed if c is None else c
    c_, gw_, gb_, gs_, d_, i_, j_, ir_, jr_, present_, seed_ = _fill_missing(
        q, gates, gw, gb, gs, table, i_spans, j_spans, i_ranges, j_ranges, present, seed
    )
    by_query, by_key = QUERIES[d is not None], KEYS[d is not None]
    with torch.cuda.device_of(q):  # Triton launches on the current device
        backward_kernels.backward_queries[(rows * B * H,)](
            q, k, v, c_, gw_, gb_, gs_, d_, i_, present_, ir_, seed_, o, do, lse, delta, dq, dc, part, **common,
            out_l=dq.stride(1), ROOT=K**-0.5, GATE=gw is not None, GAPS=present is not None, BM=TILE,
            BN=by_query.step, NEAR=STEP, **by_query.options(K),
        )  # fmt: skip
        backward_kernels.backward_keys[(-(-T // TILE) * B * H,)](
            q, k, v, c_, d_, j_, jr_, seed_, do, lse, delta, dk, dv, **common, out_l=dk.stride(1),
            ROOT=K**-0.5, BM=by_key.step, BN=TILE, **by_key.options(K),
        )  # fmt: skip
    empty = [lse.new_empty(0) for _ in range(4)]
    inputs = (packed, dk, dv) if dq is packed else (packed, empty[0], empty[1])
    if d is None:
        return *inputs, dc, empty[2], empty[3]
    # Gradient of the bias: tiles near the diagonal, from the leftmost one with a distance below `far`.
    far = min(far, L)
    lowest = -((far + STEP - 2) // STEP) * STEP
    offsets = (TILE - 1 + far - lowest + STEP - 1) // STEP
    splits, diagonals = min(BATCH_SPLITS, B), triton.next_power_of_2(TILE + STEP)
    space = lse.new_empty((rows * offsets * H * splits, TILE * STEP))
    diagonal_sums = lse.new_empty((rows, offsets, H, splits, diagonals))
    near = {name: value for name, value in common.items() if name not in ("T", "far", "BIAS", "EVEN")}
    with torch.cuda.device_of(q):  # Triton launches on the current device
        backward_kernels.backward_distances[(rows * offsets, H, splits)](
            q, k, v, c_, d_, i_, present_, seed_, do, lse, delta, space, diagonal_sums, **near,
            GAPS=present is not None, B=B, lowest=lowest, OFFSETS=offsets, BM=TILE, BN=STEP, Y=diagonals,
            **DISTANCES.options(K),
        )  # fmt: skip
    by_head = part.sum((0, 2))
    dd = _sum_diagonals(diagonal_sums, lowest, by_head[:, 2 * K + 3], by_head[:, 2 * K + 4], L)
    return *inputs, dc, by_head, dd


def _sum_diagonals(diagonal_sums: Tensor, lowest: int, left_H: Tensor, right_H: Tensor, L: int) -> Tensor:
    """Add up the diagonals of all tiles to the gradient of every distance. Those of neighbouring tiles overlap."""
    by_offset_RHY = diagonal_sums.sum((0, 3))
    offsets, H, Y = by_offset_RHY.shape
    parts = Y // STEP
    chunks = by_offset_RHY.new_zeros(H, offsets + parts - 1, STEP)
    for part in range(parts):
        chunks[:, part : part + offsets] += by_offset_RHY.unflatten(2, (parts, STEP))[:, :, part].transpose(0, 1)
    band = chunks.flatten(1)  # starts at the distance `lowest - TILE + 1`
    first = lowest - TILE + 1 + L - 1  # its index among the 2L - 1 distances
    dd = band.new_zeros(H, 2 * L - 1)
    start, stop = max(0, first), min(2 * L - 1, first + band.shape[1])
    dd[:, start:stop] = band[:, start - first : stop - first]
    dd[:, 0] += left_H
    dd[:, -1] += right_H
    return dd


@attention_backward.register_fake
def _(do: Tensor, q: Tensor, k: Tensor | None, v: Any, c: Tensor | None, *rest: Any) -> tuple[Tensor, ...]:  # noqa: ARG001
    L, (H, K), d = q.shape[1], q.shape[-2:], rest[3]
    pair = [(0,), (0,)] if k is None else [k.shape, k.shape]
    numbers = [(0,) if c is None else c.shape, *([(0,), (0,)] if d is None else [(H, 2 * K + 5), (H, 2 * L - 1)])]
    states = [q.new_empty(shape) for shape in (q.shape, *pair)]
    return *states, *(q.new_empty(shape, dtype=torch.float32) for shape in numbers)


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
