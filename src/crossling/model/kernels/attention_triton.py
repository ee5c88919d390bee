r"""Attention with the gated relative position bias, tile by tile, in Triton: shared parts and the forward pass.

    s_ij = q_i . k_j / sqrt(K) + c_i d_(j-i),    p_i = softmax over the keys of query i,    o_i = sum over j of p_ij v_j

Scores are never stored. Keys at a distance of `far` or more have one constant bias on each side (T5's last buckets), so
a tile far from the diagonal adds one number per query. A query attends to a span of keys. Tiles inside all spans come
first, and those at the ends of a span follow in a loop of their own. The order does not matter, and a mask in every
tile would cost a tenth of the time.

Nothing is added by atomics, so the same input gives the same bits.
"""
# B sequences, H heads, L queries, T keys, K width of a head, W = 2L - 1 distances, Y diagonals of a tile;
# tiles of BM queries and BN keys

# Triton compiles the source: only constants have annotations.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

MASKED = tl.constexpr(-1.0e30)  # score of a masked key: finite, so that no difference is nan
LOG2E = tl.constexpr(1.4426950408889634)  # the GPU has exp2 only
PAD = tl.constexpr(256)  # padding of the distances: tiles reach over the ends of a sequence

# Triton's load would convert the layout of a bias tile to that of the products through shared memory, at twice the time
# of the whole kernel. The interpreter supports only this load.
GATHER = tl.constexpr(not triton.knobs.runtime.interpret)
DROPOUT_STEPS = tl.constexpr(1 << 24)  # dropout probabilities are multiples of 1 / DROPOUT_STEPS


@triton.jit
def near_keys(i0, far, T, BM: tl.constexpr, BN: tl.constexpr):
    """First and last key of the tiles that have a distance below `far` to a query of the tile at i0."""
    first = (tl.maximum(i0 - far - BN + 2, 0) + BN - 1) // BN * BN
    last = tl.minimum((T + BN - 1) // BN, (i0 + BM - 1 + far + BN - 1) // BN) * BN
    return first, last


@triton.jit
def keep_mask(seed, bh, i, j, DROPOUT: tl.constexpr):
    """Dropout mask: a hash of the indices. `i` and `j` have the shape of the tile's sides."""
    x = (i.to(tl.uint32) * 0x9E3779B1 + seed) ^ (j.to(tl.uint32) * 0x85EBCA77 + bh.to(tl.uint32) * 0xC2B2AE3D)
    x = (x ^ (x >> 15)) * 0x2C1B3C6D
    x = (x ^ (x >> 12)) * 0x297A2D39
    return (x >> 8) >= DROPOUT


@triton.jit
def load_bias(D, i, j):
    """Bias of each distance of a tile."""
    if GATHER:
        return tl.inline_asm_elementwise(
            "ld.global.nc.f32 $0, [$1];",
            "=f,l",
            [(D + (j - i)).to(tl.int64, bitcast=True)],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    else:
        return tl.load(D + (j - i))


@triton.jit
def add_bias(s, c, i, j, at, near, beyond, D, d_before, d_after, SCALE, BIAS: tl.constexpr):
    """Scores of products, in units of log 2. `c`, `i` and `j` have the shape of the tile's sides.

    Tiles between `near` and `beyond` have a bias per distance. Tiles before and after have a constant one.
    """
    s = s * SCALE
    if BIAS:
        if (at >= near) & (at < beyond):
            s += c * load_bias(D, i, j)
        else:
            s += c * tl.where(at < near, d_before, d_after)
    return s


@triton.jit
def mask_span(s, at, lo, hi):
    """Mask scores outside of `lo` to `hi`. The bounds are in registers: a load would stall every tile."""
    return tl.where((at >= lo) & (at < hi), s, MASKED)


@triton.jit
def full_tiles(start, stop, inner, outer, STEP: tl.constexpr):
    """First and last of the tiles from `start` to `stop` that need no mask."""
    first = tl.minimum(tl.maximum((inner + STEP - 1) // STEP * STEP, start), tl.maximum(start, stop))
    return first, tl.maximum(first, tl.minimum(outer, stop) // STEP * STEP)


@triton.jit
def load_span(SPANS, row, inside):
    """Span of each row of a tile."""
    return tl.load(SPANS + row * 2, mask=inside, other=0), tl.load(SPANS + row * 2 + 1, mask=inside, other=0)


@triton.jit
def _forward_tiles(
    acc, total, row_max, q, c, i, lo, hi, start, stop, skip_from, skip_to, k_ptr, v_ptr, present_ptr, row, T, D, near,
    beyond, d_left, d_right, SCALE, seed, bh, BIAS: tl.constexpr, MASK: tl.constexpr, GAPS: tl.constexpr,
    EVEN: tl.constexpr, DROPOUT: tl.constexpr, BN: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    n, x = tl.arange(0, BN), tl.arange(0, K)
    for j0 in range(start, stop - (skip_to - skip_from), BN):
        if MASK:
            j0 = tl.where(j0 < skip_from, j0, j0 + skip_to - skip_from)
        j0 = tl.multiple_of(j0, BN)
        j = j0 + n
        at = j[:, None] * row + x[None, :]
        if EVEN:
            k = tl.load(k_ptr + at)
        else:
            k = tl.load(k_ptr + at, mask=(j < T)[:, None], other=0.0)
        s = add_bias(
            tl.dot(q, tl.trans(k)), c[:, None], i[:, None], j[None, :], j0, near, beyond, D, d_left, d_right, SCALE,
            BIAS,
        )  # fmt: skip
        if MASK:
            s = mask_span(s, j[None, :], lo[:, None], hi[:, None])
            if GAPS:
                s = tl.where(tl.load(present_ptr + j, mask=j < T, other=0)[None, :] != 0, s, MASKED)
        new_max = tl.maximum(row_max, tl.max(s, 1))
        p = tl.math.exp2(s - new_max[:, None])
        rescale = tl.math.exp2(row_max - new_max)
        total = total * rescale + tl.sum(p, 1)
        if DROPOUT > 0:
            p = tl.where(keep_mask(seed, bh, i[:, None], j[None, :], DROPOUT), p, 0.0)
        if EVEN:
            v = tl.load(v_ptr + at)
        else:
            v = tl.load(v_ptr + at, mask=(j < T)[:, None], other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None])
        row_max = new_max
    return acc, total, row_max


@triton.jit
def load_range(RANGES, b, tile, tiles, T, HAS_SPANS: tl.constexpr):
    """Range that a tile attends to, and the part of it that needs no mask."""
    start, stop, inner, outer = 0, T, 0, T
    if HAS_SPANS:
        at = RANGES + (b * tiles + tile) * 4
        start, stop, inner, outer = tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)
    return start, stop, inner, outer


@triton.jit
def compute_gates(q, GW, GB, GS, h, K: tl.constexpr):
    """Compute u, v, g_u, g_r and w of the queries of a tile."""
    x = tl.arange(0, K)
    u, v = tl.load(GW + x), tl.load(GW + K + x)
    query = q.to(tl.float32)
    update = tl.sigmoid(tl.sum(query * u[None, :], 1) + tl.load(GB))
    reset = tl.sigmoid(tl.sum(query * v[None, :], 1) + tl.load(GB + 1))
    return u, v, update, reset, tl.load(GS + h)


@triton.jit
def forward(
    Q, KEY, V, C, GW, GB, GS, D, I_SPAN, PRESENT, RANGES, SEED, OUT, LSE, q_b, q_h, q_l, k_b, k_h, k_l, H, L, T, far,
    SCALE, BIAS: tl.constexpr, GATE: tl.constexpr, HAS_SPANS: tl.constexpr, GAPS: tl.constexpr, EVEN: tl.constexpr,
    DROPOUT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(L, BM)
    tile, bh = tl.program_id(0) % tiles, tl.program_id(0) // tiles  # one axis: the others are limited to 65,535
    b, h = bh // H, bh % H
    i0 = tile * BM
    i, x = i0 + tl.arange(0, BM), tl.arange(0, K)
    seed = tl.load(SEED).to(tl.uint32) if DROPOUT > 0 else 0
    k_ptr, v_ptr = KEY + b.to(tl.int64) * k_b + h * k_h, V + b.to(tl.int64) * k_b + h * k_h
    q = tl.load(Q + b.to(tl.int64) * q_b + h * q_h + i[:, None] * q_l + x[None, :], mask=(i < L)[:, None], other=0.0)
    lo, hi = i, i
    if HAS_SPANS:
        lo, hi = load_span(I_SPAN, b * L + i, i < L)
    start, stop, inner, outer = load_range(RANGES, b, tile, tiles, T, HAS_SPANS)
    acc = tl.zeros((BM, K), tl.float32)
    total, row_max = tl.zeros((BM,), tl.float32), tl.full((BM,), MASKED, tl.float32)
    present_ptr = PRESENT + b * T
    c, d, near, beyond, d_left, d_right = total, D, 0, 0, 0.0, 0.0
    if BIAS:
        if GATE:
            _, _, update, reset, scale = compute_gates(q, GW, GB, GS, h, K)
            c = 1 + update + (1 - update) * scale * reset
            tl.store(C + bh * L + i, c, mask=i < L)
        else:
            c = tl.load(C + bh * L + i, mask=i < L, other=0.0)
        c = c * LOG2E
        d = D + h * (2 * L - 1 + 2 * PAD) + L - 1 + PAD
        near, beyond = near_keys(i0, far, T, BM, BN)
        d_left, d_right = tl.load(d + 1 - L), tl.load(d + L - 1)
    first, last = full_tiles(start, stop, inner, outer, BN)
    acc, total, row_max = _forward_tiles(
        acc, total, row_max, q, c, i, lo, hi, first, last, last, last, k_ptr, v_ptr, present_ptr, k_l, T, d, near,
        beyond, d_left, d_right, SCALE, seed, bh, BIAS, False, GAPS, True, DROPOUT, BN, K,
    )  # fmt: skip
    if HAS_SPANS:
        acc, total, row_max = _forward_tiles(
            acc, total, row_max, q, c, i, lo, hi, start, stop, first, last, k_ptr, v_ptr, present_ptr, k_l, T, d, near,
            beyond, d_left, d_right, SCALE, seed, bh, BIAS, True, GAPS, EVEN, DROPOUT, BN, K,
        )  # fmt: skip
    is_empty = row_max == MASKED  # no key is visible: zero output, and no gradient in the backward pass
    total = tl.where(is_empty, 1.0, total)
    acc = tl.where(is_empty[:, None], 0.0, acc / (total[:, None] * (1 - DROPOUT / DROPOUT_STEPS)))
    o_at = OUT + (b.to(tl.int64) * L + i[:, None]) * H * K + h * K + x[None, :]
    tl.store(o_at, acc.to(OUT.dtype.element_ty), mask=(i < L)[:, None])
    tl.store(LSE + bh * L + i, tl.where(is_empty, -MASKED, row_max + tl.math.log2(total)), mask=i < L)
