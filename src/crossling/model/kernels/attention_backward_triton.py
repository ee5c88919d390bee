r"""Backward pass of `attention_triton`, with g_ij = p_ij (do_i . v_j - do_i . o_i), the gradient of the scores.

    dk, dv    one program per tile of keys, which also stores g in the precision of the queries
    dd        one program per tile of (i, j) near the diagonal, over a part of the batch; also its part of dc
    dq, dc    one program per tile of queries:  dc_i = sum over j of g_ij d_(j-i)

Only the first kernel recomputes scores. The other two read g, which costs less than three more matrix products. The
program of dd sums the diagonals of its tile once, at the end: dd_x = sum over j - i = x of c_i g_ij. Distances far from
the diagonal are summed with dq.
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
def output_products(OUT, DO, DELTA, H, L, BM: tl.constexpr, K: tl.constexpr):
    """do_i . o_i of each query."""
    tiles = tl.cdiv(L, BM)
    tile, bh = tl.program_id(0) % tiles, tl.program_id(0) // tiles  # one axis: the others are limited to 65,535
    b, h = bh // H, bh % H
    i, x = tile * BM + tl.arange(0, BM), tl.arange(0, K)
    at = (b.to(tl.int64) * L + i[:, None]) * H * K + h * K + x[None, :]
    o = tl.load(OUT + at, mask=(i < L)[:, None], other=0.0).to(tl.float32)
    do = tl.load(DO + at, mask=(i < L)[:, None], other=0.0).to(tl.float32)
    tl.store(DELTA + bh * L + i, tl.sum(o * do, 1), mask=i < L)


@triton.jit
def _visible_only(g, j, lo, hi, present_ptr, T, GAPS: tl.constexpr):
    """Gradients of visible pairs. The others were not written."""
    visible = (j[None, :] >= lo[:, None]) & (j[None, :] < hi[:, None])
    if GAPS:
        visible &= tl.load(present_ptr + j, mask=(j >= 0) & (j < T), other=0)[None, :] != 0
    return tl.where(visible, g, 0.0)


@triton.jit
def _full_query_tiles(
    dq, i, start, near, beyond, stop, g_ptr, k_ptr, row, L, BIAS: tl.constexpr, WHOLE: tl.constexpr, BN: tl.constexpr,
    K: tl.constexpr,
):  # fmt: skip
    """Add to dq from tiles that are visible as a whole. Return also the sums of g up to `near` and from `beyond`.

    The sums are products with ones, in 16 equal columns: another reader than a product would keep g from being loaded
    ahead. So would a loop over keys instead of tiles, because the compiler would not see that loads are aligned. Three
    loops would each wait for their first tile. WHOLE: all queries exist.
    """
    n, x = tl.arange(0, BN), tl.arange(0, K)
    ones = tl.full((BN, 16), 1.0, g_ptr.dtype.element_ty)
    sums = tl.zeros((dq.shape[0], 16), tl.float32)
    left, inner = sums, sums
    for tile in range(start // BN, stop // BN):
        j = tile * BN + n
        k = tl.load(k_ptr + j[:, None] * row + x[None, :])
        if WHOLE:
            g = tl.load(g_ptr + j[None, :])
        else:
            g = tl.load(g_ptr + j[None, :], mask=(i < L)[:, None], other=0.0)
        if BIAS:
            left = tl.where(tile * BN <= near, sums, left)
            inner = tl.where(tile * BN <= beyond, sums, inner)
            sums = tl.dot(g, ones, sums)
        dq = tl.dot(g, k, dq)
    left = tl.where(near >= stop, sums, left)
    inner = tl.where(beyond >= stop, sums, inner)
    return dq, tl.sum(left, 1) / 16, tl.sum(sums - inner, 1) / 16


@triton.jit
def _masked_query_tiles(
    dq, left, right, i, lo, hi, start, stop, skip_from, skip_to, g_ptr, k_ptr, present_ptr, row, L, T, near, beyond,
    BIAS: tl.constexpr, GAPS: tl.constexpr, EVEN: tl.constexpr, BN: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Add to dq, and to the sums of g far to the left and to the right."""
    n, x = tl.arange(0, BN), tl.arange(0, K)
    for j0 in range(start, stop - (skip_to - skip_from), BN):
        j0 = tl.where(j0 < skip_from, j0, j0 + skip_to - skip_from)
        j0 = tl.multiple_of(j0, BN)
        j = j0 + n
        if EVEN:
            g, k = tl.load(g_ptr + j[None, :]), tl.load(k_ptr + j[:, None] * row + x[None, :])
        else:
            g = tl.load(g_ptr + j[None, :], mask=(i < L)[:, None] & (j < T)[None, :], other=0.0)
            k = tl.load(k_ptr + j[:, None] * row + x[None, :], mask=(j < T)[:, None], other=0.0)
        g = _visible_only(g, j, lo, hi, present_ptr, T, GAPS)
        if BIAS:
            if (j0 < near) | (j0 >= beyond):
                side = tl.sum(g.to(tl.float32), 1)
                left += tl.where(j0 < near, side, 0.0)
                right += tl.where(j0 < near, 0.0, side)
        dq = tl.dot(g, k, dq)
    return dq, left, right


@triton.jit
def backward_queries(
    Q, KEY, C, GW, GB, GS, D, I_SPAN, PRESENT, RANGES, G, DC_NEAR, DQ, DC, PART, q_b, q_h, q_l, k_b, k_h, k_l, out_l, H,
    L, T, far, lowest, ROOT, BIAS: tl.constexpr, GATE: tl.constexpr, HAS_SPANS: tl.constexpr, GAPS: tl.constexpr,
    EVEN: tl.constexpr, OFFSETS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, NEAR: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(L, BM)
    tile, bh = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    b, h = bh // H, bh % H
    i0 = tile * BM
    i, x = i0 + tl.arange(0, BM), tl.arange(0, K)
    inside = i < L
    g_ptr, k_ptr = G + (bh.to(tl.int64) * L + i[:, None]) * T, KEY + b.to(tl.int64) * k_b + h * k_h
    lo, hi = i, i
    if HAS_SPANS:
        lo, hi = load_span(I_SPAN, b * L + i, inside)
    start, stop, inner, outer = load_range(RANGES, b, tile, tiles, T, HAS_SPANS)
    first, last = full_tiles(start, stop, inner, outer, BN)
    near, beyond = 0, 0
    if BIAS:
        near, beyond = near_keys(i0, far, T, BM, NEAR)  # the tiles that `backward_distances` does not cover
    dq, left, right = _full_query_tiles(
        tl.zeros((BM, K), tl.float32), i, first, near, beyond, last, g_ptr, k_ptr, k_l, L, BIAS, EVEN, BN, K
    )  # fmt: skip
    if HAS_SPANS:
        dq, left, right = _masked_query_tiles(
            dq, left, right, i, lo, hi, start, stop, first, last, g_ptr, k_ptr, PRESENT + b * T, k_l, L, T, near,
            beyond, BIAS, GAPS, EVEN, BN, K,
        )  # fmt: skip
    dq *= ROOT
    if BIAS:
        d = D + h * (2 * L - 1 + 2 * PAD) + L - 1 + PAD
        c = tl.load(C + bh * L + i, mask=inside, other=0.0)
        part = PART + (bh * tiles + tile).to(tl.int64) * (2 * K + 5)
        tl.store(part + 2 * K + 3, tl.sum(left * c, 0))
        tl.store(part + 2 * K + 4, tl.sum(right * c, 0))
        dc = left * tl.load(d + 1 - L) + right * tl.load(d + L - 1)
        for offset in range(OFFSETS):
            j0 = i0 + lowest + offset * NEAR
            near_dc = tl.load(DC_NEAR + ((bh * tiles + tile).to(tl.int64) * OFFSETS + offset) * BM + tl.arange(0, BM))
            dc += tl.where((j0 < T) & (j0 + NEAR > 0), near_dc, 0.0)  # other tiles were not written
        if GATE:
            q_at = Q + b.to(tl.int64) * q_b + h * q_h + i[:, None] * q_l + x[None, :]
            q = tl.load(q_at, mask=inside[:, None], other=0.0)
            u, v, update, reset, scale = compute_gates(q, GW, GB, GS, h, K)
            dc = tl.where(inside, dc, 0.0)
            du = dc * (1 - scale * reset) * update * (1 - update)
            dr = dc * (1 - update) * scale * reset * (1 - reset)
            dq += du[:, None] * u[None, :] + dr[:, None] * v[None, :]
            query = q.to(tl.float32)
            tl.store(part + x, tl.sum(du[:, None] * query, 0))
            tl.store(part + K + x, tl.sum(dr[:, None] * query, 0))
            tl.store(part + 2 * K, tl.sum(du, 0))
            tl.store(part + 2 * K + 1, tl.sum(dr, 0))
            tl.store(part + 2 * K + 2, tl.sum(dc * (1 - update) * reset, 0))
        else:
            tl.store(DC + bh * L + i, dc, mask=inside)
    out = DQ + (b.to(tl.int64) * L + i[:, None]) * out_l + h * K + x[None, :]
    tl.store(out, dq.to(DQ.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _key_tiles(
    dk, dv, k, v, j, lo, hi, start, stop, skip_from, skip_to, q_ptr, do_ptr, c_ptr, lse_ptr, delta_ptr, g_ptr, q_row,
    do_row, D, L, T, near, beyond, d_right, d_left, SCALE, seed, bh, BIAS: tl.constexpr, MASK: tl.constexpr,
    EVEN: tl.constexpr, WHOLE: tl.constexpr, DROPOUT: tl.constexpr, BM: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Add to dk and dv, and store the gradients of the scores. EVEN: all queries exist. WHOLE: all keys exist."""
    m, x = tl.arange(0, BM), tl.arange(0, K)
    first, last = start // BM, stop // BM
    if MASK:
        last = tl.cdiv(stop - (skip_to - skip_from), BM)
    for tile in range(first, last):  # see `_full_query_tiles`
        i0 = tile * BM
        if MASK:
            i0 = tl.where(i0 < skip_from, i0, i0 + skip_to - skip_from)
        i = tl.multiple_of(i0, BM) + m
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
        g = (p * (dp - delta[None, :])).to(q.dtype)
        dk = tl.dot(g, q, dk)
        if WHOLE:
            tl.store(g_ptr + i[None, :].to(tl.int64) * T, g)
        else:
            tl.store(g_ptr + i[None, :].to(tl.int64) * T, g, mask=(j < T)[:, None] & (i < L)[None, :])
    return dk, dv


@triton.jit
def backward_keys(
    Q, KEY, V, C, D, J_SPAN, RANGES, SEED, DO, LSE, DELTA, G, DK, DV, q_b, q_h, q_l, k_b, k_h, k_l, out_l, first_row,
    H, L, T, far, SCALE, ROOT, BIAS: tl.constexpr, HAS_SPANS: tl.constexpr, EVEN: tl.constexpr, DROPOUT: tl.constexpr,
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
    g_ptr = G + bh.to(tl.int64) * L * T + j[:, None]
    lo, hi = j, j
    if HAS_SPANS:
        lo, hi = load_span(J_SPAN, b * T + j, j < T)
    start, stop, inner, outer = load_range(RANGES, b, tile, tiles, L, HAS_SPANS)
    dk, dv = tl.zeros((BN, K), tl.float32), tl.zeros((BN, K), tl.float32)
    rows, in_batch = bh * L, bh + first_row * H  # dropout depends on the position in the whole batch
    d, near, beyond, d_left, d_right = D, 0, 0, 0.0, 0.0
    if BIAS:
        d = D + h * (2 * L - 1 + 2 * PAD) + L - 1 + PAD
        d_left, d_right = tl.load(d + 1 - L), tl.load(d + L - 1)
        near, beyond = near_keys(j0, far, L, BN, BM)  # from the key, with left and right swapped
    first, last = full_tiles(start, stop, inner, outer, BM)
    dk, dv = _key_tiles(
        dk, dv, k, v, j, lo, hi, first, last, last, last, q_ptr, do_ptr, C + rows, LSE + rows, DELTA + rows, g_ptr, q_l,
        H * K, d, L, T, near, beyond, d_right, d_left, SCALE, seed, in_batch, BIAS, False, True, EVEN, DROPOUT,
        BM, K,
    )  # fmt: skip
    if HAS_SPANS:
        dk, dv = _key_tiles(
            dk, dv, k, v, j, lo, hi, start, stop, first, last, q_ptr, do_ptr, C + rows, LSE + rows, DELTA + rows, g_ptr,
            q_l, H * K, d, L, T, near, beyond, d_right, d_left, SCALE, seed, in_batch, BIAS, True, EVEN, EVEN,
            DROPOUT, BM, K,
        )  # fmt: skip
    out = (b.to(tl.int64) * T + j[:, None]) * out_l + h * K + x[None, :]
    tl.store(DK + out, (dk * ROOT).to(DK.dtype.element_ty), mask=inside)
    tl.store(DV + out, dv.to(DV.dtype.element_ty), mask=inside)


@triton.jit
def backward_distances(
    C, D, I_SPAN, PRESENT, G, TILE, DD, DC_NEAR, B, H, L, lowest, first_part, all_parts, HAS_SPANS: tl.constexpr,
    GAPS: tl.constexpr, EVEN: tl.constexpr, OFFSETS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, Y: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """One tile of queries and one of keys, at `lowest` plus a multiple of the tile, over a part of the batch."""
    tile_index, h, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    i_tile, offset = tile_index // OFFSETS, tile_index % OFFSETS
    i0 = i_tile * BM
    j0 = i0 + lowest + offset * BN
    m, n = tl.arange(0, BM), tl.arange(0, BN)
    i, j = i0 + m, j0 + n
    i_in, j_in = i < L, (j >= 0) & (j < L)
    d = load_bias(D + h * (2 * L - 1 + 2 * PAD) + L - 1 + PAD, i[:, None], j[None, :])
    total = tl.zeros((BM, BN), tl.float32)
    parts = tl.num_programs(2)
    start, stop = part * B // parts, (part + 1) * B // parts
    if (j0 < L) & (j0 + BN > 0):
        for b in tl.range(start, stop, num_stages=STAGES):
            bh = tl.full((), 0, tl.int64) + b * H + h  # 64 bits: a batch may have more than 2^32 pairs
            g_at = (bh * L + i[:, None]) * L + j[None, :]
            if EVEN:
                g = tl.load(G + g_at)
            else:
                g = tl.load(G + g_at, mask=i_in[:, None] & j_in[None, :], other=0.0)
            if HAS_SPANS:
                lo, hi = load_span(I_SPAN, b * L + i, i_in)
                g = _visible_only(g, j, lo, hi, PRESENT + b * L, L, GAPS)
            g = g.to(tl.float32)
            to_tile = DC_NEAR + ((bh * tl.cdiv(L, BM) + i_tile) * OFFSETS + offset) * BM + m
            tl.store(to_tile, tl.sum(g * d, 1))
            total += g * tl.load(C + bh * L + i, mask=i_in, other=0.0)[:, None]
    # Sum the diagonals: the tile is stored by rows and loaded shifted, each row by one more than the one before.
    number = (tile_index * tl.num_programs(1) + h) * all_parts + first_part + part
    tile = TILE + number.to(tl.int64) * BM * BN
    tl.store(tile + m[:, None] * BN + n[None, :], total)
    tl.debug_barrier()
    y = tl.arange(0, Y)
    diagonal = tl.zeros((Y,), tl.float32)
    for row in range(BM):
        column = y + row - (BM - 1)
        diagonal += tl.load(tile + row * BN + column, mask=(column >= 0) & (column < BN), other=0.0)
    tl.store(DD + number.to(tl.int64) * Y + y, diagonal)
