"""The backward pass of the attention kernels as a torch operator."""
# B sequences, H heads, L queries, T keys, K width of a head, W = 2L - 1 distances, Y diagonals of a tile

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from crossling.model.kernels import attention_backward_triton as kernels
from crossling.model.kernels.attention_launch import (
    BIAS_PADDING,
    STEP,
    TILE,
    Launch,
    common_arguments,
    fill_missing,
    split_qkv,
)

BATCH_SPLITS = 4  # parts of the batch, for the gradient of the bias
SCORE_BYTES = 1 << 29  # at most so many bytes of gradients of scores are stored: more rows are divided into chunks
# Without a bias, and with one: the fastest options measured on an H200.
QUERIES = (Launch(3, registers=128),) * 2
KEYS = (Launch(3, registers=168, step=32),) * 2
DISTANCES = Launch(3)


class _Rows(NamedTuple):
    """Tensors with a row for each sequence."""

    q: Tensor
    k: Tensor
    v: Tensor
    c: Tensor | None
    i_spans: Tensor | None
    j_spans: Tensor | None
    i_ranges: Tensor | None
    j_ranges: Tensor | None
    present: Tensor | None
    do: Tensor
    lse: Tensor
    delta: Tensor
    dq: Tensor
    dk: Tensor
    dv: Tensor
    dc: Tensor
    part: Tensor

    def select(self, rows: slice) -> _Rows:
        return _Rows._make(None if x is None else x[rows] for x in self)


@dataclass(frozen=True)
class _Band:
    """Tiles near the diagonal, from the leftmost one with a distance below `far`, over the parts of the batch."""

    lowest: int  # first key of the leftmost tile, from the first query
    offsets: int  # tiles of keys for each tile of queries
    splits: int  # parts of a chunk
    space: Tensor  # of the kernel
    diagonal_sums: Tensor  # [tiles of queries, offsets, H, parts, Y]
    dc: Tensor  # [B, H, tiles of queries, offsets, TILE]

    @classmethod
    def create(cls, far: int, q: Tensor, chunk: int) -> _Band:
        (B, L, H, _), splits = q.shape, min(BATCH_SPLITS, chunk)
        tiles, parts = -(-L // TILE), -(-B // chunk) * splits
        lowest = -((far + STEP - 2) // STEP) * STEP
        offsets = (TILE - 1 + far - lowest + STEP - 1) // STEP
        sums = q.new_empty((tiles, offsets, H, parts, triton.next_power_of_2(TILE + STEP)), dtype=torch.float32)
        space = sums.new_empty((tiles * offsets * H * parts, TILE * STEP))
        return cls(lowest, offsets, splits, space, sums, dc=sums.new_empty((chunk, H, tiles, offsets, TILE)))


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
    q, k, v = split_qkv(q, k, v)
    (B, L, H, K), T, far = q.shape, k.shape[1], min(far, q.shape[1])
    do, delta, tiles = do.contiguous(), torch.empty_like(lse), -(-L // TILE)
    dc = lse.new_empty((0,) if c is None else lse.shape)
    part = lse.new_zeros((0,) if d is None else (B, H, tiles, 2 * K + 5))
    gates = computed if gw is not None else c
    table = None if d is None else F.pad(d, BIAS_PADDING)
    all_rows = _Rows._make(
        [q, k, v, gates, i_spans, j_spans, i_ranges, j_ranges, present, do, lse, delta, dq, dk, dv, dc, part]
    )
    chunk = min(B, max(1, SCORE_BYTES // (H * T * L * q.element_size())))
    scores, band = q.new_empty((chunk, H, L, T)), None if d is None else _Band.create(far, q, chunk)
    common = common_arguments(q, k, d, i_spans, far, dropout)
    with torch.cuda.device_of(q):  # Triton launches on the current device
        kernels.output_products[(tiles * B * H,)](o, do, delta, H, L, BM=TILE, K=K)
        for first in range(0, B, chunk):
            rows = all_rows.select(slice(first, first + chunk))
            _launch_keys(rows, table, seed, scores, common, first)
            if band is not None:
                _launch_distances(rows, table, scores, band, common, first // chunk * band.splits)
            _launch_queries(rows, (gw, gb, gs), table, scores, band, common)
    empty = [lse.new_empty(0) for _ in range(4)]
    inputs = (packed, dk, dv) if dq is packed else (packed, empty[0], empty[1])
    if d is None or band is None:
        return *inputs, dc, empty[2], empty[3]
    by_head = part.sum((0, 2))
    dd = _sum_diagonals(band.diagonal_sums, band.lowest, by_head[:, 2 * K + 3], by_head[:, 2 * K + 4], L)
    return *inputs, dc, by_head, dd


def _launch_keys(
    rows: _Rows, table: Tensor | None, seed: Tensor | None, scores: Tensor, common: dict[str, Any], first: int
) -> None:
    """Compute dk, dv and the gradients of the scores."""
    (B, _, H, K), T, how = rows.q.shape, rows.k.shape[1], KEYS[table is not None]
    c, d, spans, ranges, seed = fill_missing(rows.q, rows.c, table, rows.j_spans, rows.j_ranges, seed)
    kernels.backward_keys[(-(-T // TILE) * B * H,)](
        rows.q, rows.k, rows.v, c, d, spans, ranges, seed, rows.do, rows.lse, rows.delta, scores, rows.dk, rows.dv,
        **common, out_l=rows.dk.stride(1), first_row=first, ROOT=K**-0.5, BM=how.step, BN=TILE, **how.options(K),
    )  # fmt: skip


def _launch_distances(
    rows: _Rows, table: Tensor | None, scores: Tensor, band: _Band, common: dict[str, Any], first_part: int
) -> None:
    """Sum the gradients of the scores near the diagonal by distance and by query."""
    c, d, spans, present = fill_missing(rows.q, rows.c, table, rows.i_spans, rows.present)
    (B, L, H, K), (tiles, *_, parts, diagonals) = rows.q.shape, band.diagonal_sums.shape
    kernels.backward_distances[(tiles * band.offsets, H, band.splits)](
        c, d, spans, present, scores, band.space, band.diagonal_sums, band.dc, B, H, L, band.lowest, first_part, parts,
        HAS_SPANS=common["HAS_SPANS"], GAPS=rows.present is not None, EVEN=common["EVEN"], OFFSETS=band.offsets,
        BM=TILE, BN=STEP, Y=diagonals, STAGES=DISTANCES.stages, **DISTANCES.options(K),
    )  # fmt: skip


def _launch_queries(
    rows: _Rows, gate: tuple[Tensor | None, ...], table: Tensor | None, scores: Tensor, band: _Band | None,
    common: dict[str, Any],
) -> None:  # fmt: skip
    """Compute dq, dc and the gradients of the gate's weights."""
    c, *weights, d, spans, present, ranges = fill_missing(
        rows.q, rows.c, *gate, table, rows.i_spans, rows.present, rows.i_ranges
    )
    (B, L, H, K), how = rows.q.shape, QUERIES[table is not None]
    shared = {name: value for name, value in common.items() if name not in ("SCALE", "DROPOUT")}
    kernels.backward_queries[(-(-L // TILE) * B * H,)](
        rows.q, rows.k, c, *weights, d, spans, present, ranges, scores, scores if band is None else band.dc, rows.dq,
        rows.dc, rows.part, **shared, out_l=rows.dq.stride(1), lowest=band.lowest if band else 0, ROOT=K**-0.5,
        GATE=gate[0] is not None, GAPS=rows.present is not None, OFFSETS=band.offsets if band else 0, BM=TILE,
        BN=how.step, NEAR=STEP, **how.options(K),
    )  # fmt: skip


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
