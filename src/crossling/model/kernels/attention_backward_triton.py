r"""Backward pass of `attention_triton`, with g_ij = p_ij (do_i . v_j - do_i . o_i).

    dq, dc    one program per tile of queries:  dc_i = sum over j of g_ij d_(j-i)
    dk, dv    one program per tile of keys
    dd        one program per tile of (i, j) near the diagonal, over a part of the batch

The program of dd sums the diagonals of its tile once, at the end: dd_x = sum over j - i = x of c_i g_ij. Distances far
from the diagonal are summed with dq.
"""
# B sequences, H heads, L queries, T keys, K width of a head, W = 2L - 1 distances, Y diagonals of a tile;
# tiles of BM queries and BN keys

# Triton compiles the source: only constants have annotations.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from crossling.model.kernels.attention_triton import (
    DROPOUT_STEPS,
    LOG2E,
    MASKED,
    PAD,
    add_bias,
    compute_gates,
    full_tiles,
    keep_mask,
    load_bias,
    load_range,
    load_span,
    mask_span,
    near_keys,
)


@triton.jit
def _query_tiles(
    dq, dc, left, right, q, do, c, lse, delta, i, lo, hi, start, stop, skip_from, skip_to, k_ptr, v_ptr, present_ptr,
    row, T, D, near, beyond, d_left, d_right, SCALE, seed, bh, BIAS: tl.constexpr, MASK: tl.constexpr,
    GAPS: tl.constexpr, EVEN: tl.constexpr, DROPOUT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Add to dq and dc, and to the sums of g far to the left and to the right."""
    n, x = tl.arange(0, BN), tl.arange(0, K)
    for j0 in range(start, stop - (skip_to - skip_from), BN):
        if MASK:
            j0 = tl.where(j0 < skip_from, j0, j0 + skip_to - skip_from)
        j0 = tl.multiple_of(j0, BN)
        j = j0 + n
        at = j[:, None] * row + x[None, :]
        if EVEN:
            k, v = tl.load(k_ptr + at), tl.load(v_ptr + at)
        else:
            k = tl.load(k_ptr + at, mask=(j < T)[:, None], other=0.0)
            v = tl.load(v_ptr + at, mask=(j < T)[:, None], other=0.0)
        s = tl.dot(q, tl.trans(k))
        dp = tl.dot(do, tl.trans(v))
        s = s * SCALE
        if BIAS:
            if (j0 >= near) & (j0 < beyond):
                d = load_bias(D, i[:, None], j[None, :])
            else:
                d = tl.full((BM, BN), 0.0, tl.float32) + tl.where(j0 < near, d_left, d_right)
            s += c[:, None] * d
        if MASK:
            s = mask_span(s, j[None, :], lo[:, None], hi[:, None])
            if GAPS:
                s = tl.where(tl.load(present_ptr + j, mask=j < T, other=0)[None, :] != 0, s, MASKED)
        p = tl.math.exp2(s - lse[:, None])
        if DROPOUT > 0:
            dp = tl.where(keep_mask(seed, bh, i[:, None], j[None, :], DROPOUT), dp / (1 - DROPOUT / DROPOUT_STEPS), 0.0)
        g = p * (dp - delta[:, None])
        if BIAS:
            dc += tl.sum(g * d, 1)
            if (j0 < near) | (j0 >= beyond):
                side = tl.sum(g, 1)
                left += tl.where(j0 < near, side, 0.0)
                right += tl.where(j0 < near, 0.0, side)
        dq = tl.dot(g.to(k.dtype), k, dq)
    return dq, dc, left, right


@triton.jit
def backward_queries(
    Q, KEY, V, C, GW, GB, GS, D, I_SPAN, PRESENT, RANGES, SEED, OUT, DO, LSE, DELTA, DQ, DC, PART, q_b, q_h, q_l, k_b,
    k_h, k_l, out_l, H, L, T, far, SCALE, ROOT, BIAS: tl.constexpr, GATE: tl.constexpr, HAS_SPANS: tl.constexpr,
    GAPS: tl.constexpr, EVEN: tl.constexpr, DROPOUT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    NEAR: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(L, BM)
    tile, bh = tl.program_id(0) % tiles, tl.program_id(0) // tiles  # one axis: the others are limited to 65,535
    b, h = bh // H, bh % H
    i0 = tile * BM
    i, x = i0 + tl.arange(0, BM), tl.arange(0, K)
    seed = tl.load(SEED).to(tl.uint32) if DROPOUT > 0 else 0
    inside = i < L
    q = tl.load(Q + b.to(tl.int64) * q_b + h * q_h + i[:, None] * q_l + x[None, :], mask=inside[:, None], other=0.0)
    o_at = (b.to(tl.int64) * L + i[:, None]) * H * K + h * K + x[None, :]
    do = tl.load(DO + o_at, mask=inside[:, None], other=0.0)
    lse = tl.load(LSE + bh * L + i, mask=inside, other=0.0)
    delta = tl.sum(tl.load(OUT + o_at, mask=inside[:, None], other=0.0).to(tl.float32) * do.to(tl.float32), 1)
    tl.store(DELTA + bh * L + i, delta, mask=inside)  # for the other two kernels
    k_ptr, v_ptr = KEY + b.to(tl.int64) * k_b + h * k_h, V + b.to(tl.int64) * k_b + h * k_h
    lo, hi = i, i
    if HAS_SPANS:
        lo, hi = load_span(I_SPAN, b * L + i, inside)
    start, stop, inner, outer = load_range(RANGES, b, tile, tiles, T, HAS_SPANS)
    dq = tl.zeros((BM, K), tl.float32)
    none = tl.zeros((BM,), tl.float32)
    present_ptr = PRESENT + b * T
    c, d, near, beyond, d_left, d_right = none, D, 0, 0, 0.0, 0.0
    if BIAS:
        c = tl.load(C + bh * L + i, mask=inside, other=0.0) * LOG2E
        d = D + h * (2 * L - 1 + 2 * PAD) + L - 1 + PAD
        d_left, d_right = tl.load(d + 1 - L), tl.load(d + L - 1)
        near, beyond = near_keys(i0, far, T, BM, NEAR)  # the tiles that `backward_distances` does not cover
    first, last = full_tiles(start, stop, inner, outer, BN)
    dq, dc, left, right = _query_tiles(
        dq, none, none, none, q, do, c, lse, delta, i, lo, hi, first, last, last, last, k_ptr, v_ptr, present_ptr, k_l,
        T, d, near, beyond, d_left, d_right, SCALE, seed, bh, BIAS, False, GAPS, True, DROPOUT, BM, BN, K,
    )  # fmt: skip
    if HAS_SPANS:
        dq, dc, left, right = _query_tiles(
            dq, dc, left, right, q, do, c, lse, delta, i, lo, hi, start, stop, first, last, k_ptr, v_ptr, present_ptr,
            k_l, T, d, near, beyond, d_left, d_right, SCALE, seed, bh, BIAS, True, GAPS, EVEN, DROPOUT, BM, BN, K,
        )  # fmt: skip
    dq *= ROOT
    if BIAS:
        sums = PART + (bh * tiles + tile).to(tl.int64) * (2 * K + 5)
        tl.store(sums + 2 * K + 3, tl.sum(left * c, 0) / LOG2E)
        tl.store(sums + 2 * K + 4, tl.sum(right * c, 0) / LOG2E)
        if GATE:
            u, v, update, reset, scale = compute_gates(q, GW, GB, GS, h, K)
            dc = tl.where(inside, dc, 0.0)
            du = dc * (1 - scale * reset) * update * (1 - update)
            dr = dc * (1 - update) * scale * reset * (1 - reset)
            dq += du[:, None] * u[None, :] + dr[:, None] * v[None, :]
            query = q.to(tl.float32)
            tl.store(sums + x, tl.sum(du[:, None] * query, 0))
            tl.store(sums + K + x, tl.sum(dr[:, None] * query, 0))
            tl.store(sums + 2 * K, tl.sum(du, 0))
            tl.store(sums + 2 * K + 1, tl.sum(dr, 0))
            tl.store(sums + 2 * K + 2, tl.sum(dc * (1 - update) * reset, 0))
        else:
            tl.store(DC + bh * L + i, dc, mask=inside)
    out = DQ + (b.to(tl.int64) * L + i[:, None]) * out_l + h * K + x[None, :]
    tl.store(out, dq.to(DQ.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _key_tiles(
    dk, dv, k, v, j, lo, hi, start, stop, skip_from, skip_to, q_ptr, do_ptr, c_ptr, lse_ptr, delta_ptr, q_row, do_row,
    D, L, near, beyond, d_right, d_left, SCALE, seed, bh, BIAS: tl.constexpr, MASK: tl.constexpr, EVEN: tl.constexpr,
    DROPOUT: tl.constexpr, BM: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    m, x = tl.arange(0, BM), tl.arange(0, K)
    for i0 in range(start, stop - (skip_to - skip_from), BM):
        if MASK:
            i0 = tl.where(i0 < skip_from, i0, i0 + skip_to - skip_from)
        i0 = tl.multiple_of(i0, BM)
        i = i0 + m
        if EVEN:
            q = tl.load(q_ptr + i[:, None] * q_row + x[None, :])
            do = tl.load(do_ptr + i[:, None] * do_row + x[None, :])
            lse, delta = tl.load(lse_ptr + i), tl.load(delta_ptr + i)
        else:
            q = tl.load(q_ptr + i[:, None] * q_row + x[None, :], mask=(i < L)[:, None], other=0.0)
            do = tl.load(do_ptr + i[:, None] * do_row + x[None, :], mask=(i < L)[:, None], other=0.0)
            lse = tl.load(lse_ptr + i, mask=i < L, other=0.0)
            delta = tl.load(delta_ptr + i, mask=i < L, other=0.0)
        c = lse
        if BIAS:
            c = tl.load(c_ptr + i, mask=i < L, other=0.0) * LOG2E
        s = add_bias(
            tl.dot(k, tl.trans(q)), c[None, :], i[None, :], j[:, None], i0, near, beyond, D, d_right, d_left, SCALE,
            BIAS,
        )  # fmt: skip
        if MASK:
            s = mask_span(s, i[None, :], lo[:, None], hi[:, None])
        p = tl.math.exp2(s - lse[None, :])
        dp = tl.dot(v, tl.trans(do))
        if DROPOUT > 0:
            keep = keep_mask(seed, bh, i[None, :], j[:, None], DROPOUT)
            dv = tl.dot(tl.where(keep, p / (1 - DROPOUT / DROPOUT_STEPS), 0.0).to(do.dtype), do, dv)
            dp = tl.where(keep, dp / (1 - DROPOUT / DROPOUT_STEPS), 0.0)
        else:
            dv = tl.dot(p.to(do.dtype), do, dv)
        g = p * (dp - delta[None, :])
        dk = tl.dot(g.to(q.dtype), q, dk)
    return dk, dv


@triton.jit
def backward_keys(
    Q, KEY, V, C, D, J_SPAN, RANGES, SEED, DO, LSE, DELTA, DK, DV, q_b, q_h, q_l, k_b, k_h, k_l, out_l, H, L, T, far,
    SCALE, ROOT, BIAS: tl.constexpr, HAS_SPANS: tl.constexpr, EVEN: tl.constexpr, DROPOUT: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(T, BN)
    tile, bh = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    b, h = bh // H, bh % H
    j0 = tile * BN
    j, x = j0 + tl.arange(0, BN), tl.arange(0, K)
    seed = tl.load(SEED).to(tl.uint32) if DROPOUT > 0 else 0
    inside = (j < T)[:, None]
    k_at = b.to(tl.int64) * k_b + h * k_h + j[:, None] * k_l + x[None, :]
    k, v = tl.load(KEY + k_at, mask=inside, other=0.0), tl.load(V + k_at, mask=inside, other=0.0)
    q_ptr, do_ptr = Q + b.to(tl.int64) * q_b + h * q_h, DO + b.to(tl.int64) * L * H * K + h * K
    lo, hi = j, j
    if HAS_SPANS:
        lo, hi = load_span(J_SPAN, b * T + j, j < T)
    start, stop, inner, outer = load_range(RANGES, b, tile, tiles, L, HAS_SPANS)
    dk, dv = tl.zeros((BN, K), tl.float32), tl.zeros((BN, K), tl.float32)
    rows = bh * L
    d, near, beyond, d_left, d_right = D, 0, 0, 0.0, 0.0
    if BIAS:
        d = D + h * (2 * L - 1 + 2 * PAD) + L - 1 + PAD
        d_left, d_right = tl.load(d + 1 - L), tl.load(d + L - 1)
        near, beyond = near_keys(j0, far, L, BN, BM)  # from the key, with left and right swapped
    first, last = full_tiles(start, stop, inner, outer, BM)
    dk, dv = _key_tiles(
        dk, dv, k, v, j, lo, hi, first, last, last, last, q_ptr, do_ptr, C + rows, LSE + rows, DELTA + rows, q_l, H * K,
        d, L, near, beyond, d_right, d_left, SCALE, seed, bh, BIAS, False, True, DROPOUT, BM, K,
    )  # fmt: skip
    if HAS_SPANS:
        dk, dv = _key_tiles(
            dk, dv, k, v, j, lo, hi, start, stop, first, last, q_ptr, do_ptr, C + rows, LSE + rows, DELTA + rows, q_l, H
            * K, d, L, near, beyond, d_right, d_left, SCALE, seed, bh, BIAS, True, EVEN, DROPOUT, BM, K,
        )  # fmt: skip
    out = (b.to(tl.int64) * T + j[:, None]) * out_l + h * K + x[None, :]
    tl.store(DK + out, (dk * ROOT).to(DK.dtype.element_ty), mask=inside)
    tl.store(DV + out, dv.to(DV.dtype.element_ty), mask=inside)


@triton.jit
def backward_distances(
    Q, KEY, V, C, D, I_SPAN, PRESENT, SEED, DO, LSE, DELTA, TILE, DD, q_b, q_h, q_l, k_b, k_h, k_l, B, H, L, lowest,
    SCALE, HAS_SPANS: tl.constexpr, GAPS: tl.constexpr, DROPOUT: tl.constexpr, OFFSETS: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, K: tl.constexpr, Y: tl.constexpr,
):  # fmt: skip
    """One tile of queries and one of keys, at `lowest` plus a multiple of the tile, over a part of the batch."""
    tile_index, h, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    i0 = tile_index // OFFSETS * BM
    j0 = i0 + lowest + tile_index % OFFSETS * BN
    m, n, x = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, K)
    i, j = i0 + m, j0 + n
    i_in, j_in = i < L, (j >= 0) & (j < L)
    seed = tl.load(SEED).to(tl.uint32) if DROPOUT > 0 else 0
    d = load_bias(D + h * (2 * L - 1 + 2 * PAD) + L - 1 + PAD, i[:, None], j[None, :])
    total = tl.zeros((BM, BN), tl.float32)
    parts = tl.num_programs(2)
    start, stop = part * B // parts, (part + 1) * B // parts
    if (j0 < L) & (j0 + BN > 0):
        for b in range(start, stop):
            bh, row_b = b * H + h, tl.full((), 0, tl.int64) + b  # 64 bits: a batch may have more than 2^32 elements
            q_at = row_b * q_b + h * q_h + i[:, None] * q_l + x[None, :]
            do_at = (row_b * L + i[:, None]) * H * K + h * K + x[None, :]
            k_at = row_b * k_b + h * k_h + j[:, None] * k_l + x[None, :]
            q, do = tl.load(Q + q_at, mask=i_in[:, None], other=0.0), tl.load(DO + do_at, mask=i_in[:, None], other=0.0)
            k, v = tl.load(KEY + k_at, mask=j_in[:, None], other=0.0), tl.load(V + k_at, mask=j_in[:, None], other=0.0)
            c = tl.load(C + bh * L + i, mask=i_in, other=0.0)
            lse = tl.load(LSE + bh * L + i, mask=i_in, other=0.0)
            delta = tl.load(DELTA + bh * L + i, mask=i_in, other=0.0)
            s = tl.dot(q, tl.trans(k)) * SCALE + (c * LOG2E)[:, None] * d
            dp = tl.dot(do, tl.trans(v))
            if HAS_SPANS:
                lo, hi = load_span(I_SPAN, b * L + i, i_in)
                s = mask_span(s, j[None, :], lo[:, None], hi[:, None])
                if GAPS:
                    s = tl.where(tl.load(PRESENT + b * L + j, mask=j_in, other=0)[None, :] != 0, s, MASKED)
            p = tl.math.exp2(s - lse[:, None])
            if DROPOUT > 0:
                dp = tl.where(
                    keep_mask(seed, bh, i[:, None], j[None, :], DROPOUT), dp / (1 - DROPOUT / DROPOUT_STEPS), 0.0
                )
            total += (p * (dp - delta[:, None])) * c[:, None]
    # Sum the diagonals: the tile is stored by rows and loaded shifted, each row by one more than the one before.
    number = (tile_index * tl.num_programs(1) + h) * parts + part
    tile = TILE + number.to(tl.int64) * BM * BN
    tl.store(tile + m[:, None] * BN + n[None, :], total)
    tl.debug_barrier()
    y = tl.arange(0, Y)
    diagonal = tl.zeros((Y,), tl.float32)
    for row in range(BM):
        column = y + row - (BM - 1)
        diagonal += tl.load(tile + row * BN + column, mask=(column >= 0) & (column < BN), other=0.0)
    tl.store(DD + number.to(tl.int64) * Y + y, diagonal)
