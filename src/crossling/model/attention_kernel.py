r"""Attention with the gated relative position bias, tile by tile, forwards and backwards, in Triton.

    s_ij = q_i . k_j / sqrt(K) + c_i d_(j-i),    p_i = softmax over the keys i sees,    o_i = sum over j of p_ij v_j

Scores are never stored. Keys at a distance of `far` or more share one bias on each side (T5's last buckets), so that a
tile far from the diagonal adds one number per query. A query sees a span of keys. Tiles that are seen as a whole come
first, those at the ends of a span after them in a loop of their own: the order does not matter, and a question asked in
every tile costs a tenth of the time. Backwards, with g_ij = p_ij (do_i . v_j - do_i . o_i):

    dq, dc    a program owns queries:  dc_i = sum over j of g_ij d_(j-i)
    dk, dv    a program owns keys
    dd        a program owns a tile of (i, j) near the diagonal and walks over the batch; its diagonals are added up
              once, at the end:  dd_x = sum over j - i = x of c_i g_ij.  What lies far from it comes with dq

Nothing is added by atomics, so the same input gives the same bits.
"""
# B sequences, H heads, L queries, T keys, K width of a head, W = 2L - 1 distances, Y diagonals of a tile;
# tiles of BM queries and BN keys

# Triton reads the source: its functions have no annotations but those of constants.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

HIDDEN = tl.constexpr(-1.0e30)  # the score of a key that is not seen: finite, so that no difference is nan
LOG2E = tl.constexpr(1.4426950408889634)  # exp2 is what the chip has
PAD = tl.constexpr(256)  # distances before the first and after the last: tiles reach over the ends of a sequence
# Triton would load a tile of the bias in its own order and carry it over to that of the products through shared memory:
# twice the time of the whole kernel. Its interpreter knows no other way.
GATHER = tl.constexpr(not triton.knobs.runtime.interpret)
DROPS = tl.constexpr(1 << 24)  # dropout rates are multiples of 1 / DROPS


@triton.jit
def _near(i0, far, T, BM: tl.constexpr, BN: tl.constexpr):
    """From and to which keys the tiles reach that hold a distance below `far` to one of the queries from i0 on."""
    first = (tl.maximum(i0 - far - BN + 2, 0) + BN - 1) // BN * BN
    last = tl.minimum((T + BN - 1) // BN, (i0 + BM - 1 + far + BN - 1) // BN) * BN
    return first, last


@triton.jit
def _kept(seed, bh, i, j, RATE: tl.constexpr):
    """Which scores dropout leaves: a hash of their place. `i` and `j` have the shape of the tile's sides."""
    x = (i.to(tl.uint32) * 0x9E3779B1 + seed) ^ (j.to(tl.uint32) * 0x85EBCA77 + bh.to(tl.uint32) * 0xC2B2AE3D)
    x = (x ^ (x >> 15)) * 0x2C1B3C6D
    x = (x ^ (x >> 12)) * 0x297A2D39
    return (x >> 8) >= RATE


@triton.jit
def _distances(D, i, j):
    """The bias of each distance of a tile."""
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
def _scores(s, c, i, j, at, near, beyond, D, d_before, d_after, SCALE, BIAS: tl.constexpr):
    """Products to scores, in units of log 2. `c`, `i` and `j` have the shape of the tile's sides. Where the tile lies
    decides: between `near` and `beyond` every distance has a bias of its own, before and after all have the same."""
    s = s * SCALE
    if BIAS:
        if (at >= near) & (at < beyond):
            s += c * _distances(D, i, j)
        else:
            s += c * tl.where(at < near, d_before, d_after)
    return s


@triton.jit
def _seen(s, at, lo, hi):
    """Scores of what lies between `lo` and `hi`. Nothing is loaded for it: a load would wait in every tile."""
    return tl.where((at >= lo) & (at < hi), s, HIDDEN)


@triton.jit
def _full(start, stop, inner, outer, STEP: tl.constexpr):
    """Between which tiles of those from `start` to `stop` everything is seen."""
    first = tl.minimum(tl.maximum((inner + STEP - 1) // STEP * STEP, start), tl.maximum(start, stop))
    return first, tl.maximum(first, tl.minimum(outer, stop) // STEP * STEP)


@triton.jit
def _span(SPANS, row, inside):
    """Between which of the others something is that each of a tile sees."""
    return tl.load(SPANS + row * 2, mask=inside, other=0), tl.load(SPANS + row * 2 + 1, mask=inside, other=0)


@triton.jit
def _forward_tiles(
    acc, total, most, q, c, i, lo, hi, start, stop, skip_from, skip_to, k_ptr, v_ptr, here_ptr, row, T, D, near, beyond,
    d_left, d_right, SCALE, seed, bh, BIAS: tl.constexpr, MASK: tl.constexpr, HOLES: tl.constexpr, EVEN: tl.constexpr,
    RATE: tl.constexpr, BN: tl.constexpr, K: tl.constexpr,
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
        s = _scores(
            tl.dot(q, tl.trans(k)), c[:, None], i[:, None], j[None, :], j0, near, beyond, D, d_left, d_right, SCALE,
            BIAS,
        )  # fmt: skip
        if MASK:
            s = _seen(s, j[None, :], lo[:, None], hi[:, None])
            if HOLES:
                s = tl.where(tl.load(here_ptr + j, mask=j < T, other=0)[None, :] != 0, s, HIDDEN)
        new = tl.maximum(most, tl.max(s, 1))
        p = tl.math.exp2(s - new[:, None])
        shrink = tl.math.exp2(most - new)
        total = total * shrink + tl.sum(p, 1)
        if RATE > 0:
            p = tl.where(_kept(seed, bh, i[:, None], j[None, :], RATE), p, 0.0)
        if EVEN:
            v = tl.load(v_ptr + at)
        else:
            v = tl.load(v_ptr + at, mask=(j < T)[:, None], other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        most = new
    return acc, total, most


@triton.jit
def _range(RANGES, b, tile, tiles, T, SEG: tl.constexpr):
    """From and to which of the others a tile looks, and between which of them it sees everything."""
    start, stop, inner, outer = 0, T, 0, T
    if SEG:
        at = RANGES + (b * tiles + tile) * 4
        start, stop, inner, outer = tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)
    return start, stop, inner, outer


@triton.jit
def _gates(q, GW, GB, GS, h, K: tl.constexpr):
    """u, v, g_u, g_r and w of the queries of a tile."""
    x = tl.arange(0, K)
    u, v = tl.load(GW + x), tl.load(GW + K + x)
    query = q.to(tl.float32)
    update = tl.sigmoid(tl.sum(query * u[None, :], 1) + tl.load(GB))
    reset = tl.sigmoid(tl.sum(query * v[None, :], 1) + tl.load(GB + 1))
    return u, v, update, reset, tl.load(GS + h)


@triton.jit
def forward(
    Q, KEY, V, C, GW, GB, GS, D, I_SPAN, HERE, RANGES, SEED, OUT, LSE, q_b, q_h, q_l, k_b, k_h, k_l, H, L, T, far,
    SCALE, BIAS: tl.constexpr, GATE: tl.constexpr, SEG: tl.constexpr, HOLES: tl.constexpr, EVEN: tl.constexpr,
    RATE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(L, BM)
    tile, bh = tl.program_id(0) % tiles, tl.program_id(0) // tiles  # one axis: the others end at 65,535
    b, h = bh // H, bh % H
    i0 = tile * BM
    i, x = i0 + tl.arange(0, BM), tl.arange(0, K)
    seed = tl.load(SEED).to(tl.uint32) if RATE > 0 else 0
    k_ptr, v_ptr = KEY + b.to(tl.int64) * k_b + h * k_h, V + b.to(tl.int64) * k_b + h * k_h
    q = tl.load(Q + b.to(tl.int64) * q_b + h * q_h + i[:, None] * q_l + x[None, :], mask=(i < L)[:, None], other=0.0)
    lo, hi = i, i
    if SEG:
        lo, hi = _span(I_SPAN, b * L + i, i < L)
    start, stop, inner, outer = _range(RANGES, b, tile, tiles, T, SEG)
    acc = tl.zeros((BM, K), tl.float32)
    total, most = tl.zeros((BM,), tl.float32), tl.full((BM,), HIDDEN, tl.float32)
    here_ptr = HERE + b * T
    c, d, near, beyond, d_left, d_right = total, D, 0, 0, 0.0, 0.0
    if BIAS:
        if GATE:
            _, _, update, reset, scale = _gates(q, GW, GB, GS, h, K)
            c = 1 + update + (1 - update) * scale * reset
            tl.store(C + bh * L + i, c, mask=i < L)
        else:
            c = tl.load(C + bh * L + i, mask=i < L, other=0.0)
        c = c * LOG2E
        d = D + h * (2 * L - 1 + 2 * PAD) + L - 1 + PAD
        near, beyond = _near(i0, far, T, BM, BN)
        d_left, d_right = tl.load(d + 1 - L), tl.load(d + L - 1)
    first, last = _full(start, stop, inner, outer, BN)
    acc, total, most = _forward_tiles(
        acc, total, most, q, c, i, lo, hi, first, last, last, last, k_ptr, v_ptr, here_ptr, k_l, T, d, near, beyond,
        d_left, d_right, SCALE, seed, bh, BIAS, False, HOLES, True, RATE, BN, K,
    )  # fmt: skip
    if SEG:
        acc, total, most = _forward_tiles(
            acc, total, most, q, c, i, lo, hi, start, stop, first, last, k_ptr, v_ptr, here_ptr, k_l, T, d, near,
            beyond, d_left, d_right, SCALE, seed, bh, BIAS, True, HOLES, EVEN, RATE, BN, K,
        )  # fmt: skip
    nothing = most == HIDDEN  # a query that sees nothing says nothing, and no key hears of it on the way back
    total = tl.where(nothing, 1.0, total)
    acc = tl.where(nothing[:, None], 0.0, acc / (total[:, None] * (1 - RATE / DROPS)))
    o_at = OUT + (b.to(tl.int64) * L + i[:, None]) * H * K + h * K + x[None, :]
    tl.store(o_at, acc.to(OUT.dtype.element_ty), mask=(i < L)[:, None])
    tl.store(LSE + bh * L + i, tl.where(nothing, -HIDDEN, most + tl.math.log2(total)), mask=i < L)


@triton.jit
def _query_tiles(
    dq, dc, left, right, q, do, c, lse, delta, i, lo, hi, start, stop, skip_from, skip_to, k_ptr, v_ptr, here_ptr, row,
    T, D, near, beyond, d_left, d_right, SCALE, seed, bh, BIAS: tl.constexpr, MASK: tl.constexpr, HOLES: tl.constexpr,
    EVEN: tl.constexpr, RATE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Adds to dq and dc, and to the sums of g that lie far to the left and to the right."""
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
                d = _distances(D, i[:, None], j[None, :])
            else:
                d = tl.full((BM, BN), 0.0, tl.float32) + tl.where(j0 < near, d_left, d_right)
            s += c[:, None] * d
        if MASK:
            s = _seen(s, j[None, :], lo[:, None], hi[:, None])
            if HOLES:
                s = tl.where(tl.load(here_ptr + j, mask=j < T, other=0)[None, :] != 0, s, HIDDEN)
        p = tl.math.exp2(s - lse[:, None])
        if RATE > 0:
            dp = tl.where(_kept(seed, bh, i[:, None], j[None, :], RATE), dp / (1 - RATE / DROPS), 0.0)
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
    Q, KEY, V, C, GW, GB, GS, D, I_SPAN, HERE, RANGES, SEED, OUT, DO, LSE, DELTA, DQ, DC, PART, q_b, q_h, q_l, k_b, k_h,
    k_l, out_l, H, L, T, far, SCALE, ROOT, BIAS: tl.constexpr, GATE: tl.constexpr, SEG: tl.constexpr,
    HOLES: tl.constexpr, EVEN: tl.constexpr, RATE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, NEAR: tl.constexpr,
    K: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(L, BM)
    tile, bh = tl.program_id(0) % tiles, tl.program_id(0) // tiles  # one axis: the others end at 65,535
    b, h = bh // H, bh % H
    i0 = tile * BM
    i, x = i0 + tl.arange(0, BM), tl.arange(0, K)
    seed = tl.load(SEED).to(tl.uint32) if RATE > 0 else 0
    inside = i < L
    q = tl.load(Q + b.to(tl.int64) * q_b + h * q_h + i[:, None] * q_l + x[None, :], mask=inside[:, None], other=0.0)
    o_at = (b.to(tl.int64) * L + i[:, None]) * H * K + h * K + x[None, :]
    do = tl.load(DO + o_at, mask=inside[:, None], other=0.0)
    lse = tl.load(LSE + bh * L + i, mask=inside, other=0.0)
    delta = tl.sum(tl.load(OUT + o_at, mask=inside[:, None], other=0.0).to(tl.float32) * do.to(tl.float32), 1)
    tl.store(DELTA + bh * L + i, delta, mask=inside)  # for the other kernels
    k_ptr, v_ptr = KEY + b.to(tl.int64) * k_b + h * k_h, V + b.to(tl.int64) * k_b + h * k_h
    lo, hi = i, i
    if SEG:
        lo, hi = _span(I_SPAN, b * L + i, inside)
    start, stop, inner, outer = _range(RANGES, b, tile, tiles, T, SEG)
    dq = tl.zeros((BM, K), tl.float32)
    none = tl.zeros((BM,), tl.float32)
    here_ptr = HERE + b * T
    c, d, near, beyond, d_left, d_right = none, D, 0, 0, 0.0, 0.0
    if BIAS:
        c = tl.load(C + bh * L + i, mask=inside, other=0.0) * LOG2E
        d = D + h * (2 * L - 1 + 2 * PAD) + L - 1 + PAD
        d_left, d_right = tl.load(d + 1 - L), tl.load(d + L - 1)
        near, beyond = _near(i0, far, T, BM, NEAR)  # what `backward_distances` does not count is counted here
    first, last = _full(start, stop, inner, outer, BN)
    dq, dc, left, right = _query_tiles(
        dq, none, none, none, q, do, c, lse, delta, i, lo, hi, first, last, last, last, k_ptr, v_ptr, here_ptr, k_l,
        T, d, near, beyond, d_left, d_right, SCALE, seed, bh, BIAS, False, HOLES, True, RATE, BM, BN, K,
    )  # fmt: skip
    if SEG:
        dq, dc, left, right = _query_tiles(
            dq, dc, left, right, q, do, c, lse, delta, i, lo, hi, start, stop, first, last, k_ptr, v_ptr, here_ptr, k_l,
            T, d, near, beyond, d_left, d_right, SCALE, seed, bh, BIAS, True, HOLES, EVEN, RATE, BM, BN, K,
        )  # fmt: skip
    dq *= ROOT
    if BIAS:
        here = PART + (bh * tiles + tile).to(tl.int64) * (2 * K + 5)
        tl.store(here + 2 * K + 3, tl.sum(left * c, 0) / LOG2E)
        tl.store(here + 2 * K + 4, tl.sum(right * c, 0) / LOG2E)
        if GATE:
            u, v, update, reset, scale = _gates(q, GW, GB, GS, h, K)
            dc = tl.where(inside, dc, 0.0)
            du = dc * (1 - scale * reset) * update * (1 - update)
            dr = dc * (1 - update) * scale * reset * (1 - reset)
            dq += du[:, None] * u[None, :] + dr[:, None] * v[None, :]
            query = q.to(tl.float32)
            tl.store(here + x, tl.sum(du[:, None] * query, 0))
            tl.store(here + K + x, tl.sum(dr[:, None] * query, 0))
            tl.store(here + 2 * K, tl.sum(du, 0))
            tl.store(here + 2 * K + 1, tl.sum(dr, 0))
            tl.store(here + 2 * K + 2, tl.sum(dc * (1 - update) * reset, 0))
        else:
            tl.store(DC + bh * L + i, dc, mask=inside)
    out = DQ + (b.to(tl.int64) * L + i[:, None]) * out_l + h * K + x[None, :]
    tl.store(out, dq.to(DQ.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _key_tiles(
    dk, dv, k, v, j, lo, hi, start, stop, skip_from, skip_to, q_ptr, do_ptr, c_ptr, lse_ptr, delta_ptr, q_row, do_row,
    D, L, near, beyond, d_right, d_left, SCALE, seed, bh,
    BIAS: tl.constexpr, MASK: tl.constexpr, EVEN: tl.constexpr, RATE: tl.constexpr, BM: tl.constexpr, K: tl.constexpr,
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
        s = _scores(
            tl.dot(k, tl.trans(q)), c[None, :], i[None, :], j[:, None], i0, near, beyond, D, d_right, d_left, SCALE,
            BIAS,
        )  # fmt: skip
        if MASK:
            s = _seen(s, i[None, :], lo[:, None], hi[:, None])
        p = tl.math.exp2(s - lse[None, :])
        dp = tl.dot(v, tl.trans(do))
        if RATE > 0:
            kept = _kept(seed, bh, i[None, :], j[:, None], RATE)
            dv = tl.dot(tl.where(kept, p / (1 - RATE / DROPS), 0.0).to(do.dtype), do, dv)
            dp = tl.where(kept, dp / (1 - RATE / DROPS), 0.0)
        else:
            dv = tl.dot(p.to(do.dtype), do, dv)
        g = p * (dp - delta[None, :])
        dk = tl.dot(g.to(q.dtype), q, dk)
    return dk, dv


@triton.jit
def backward_keys(
    Q, KEY, V, C, D, J_SPAN, RANGES, SEED, DO, LSE, DELTA, DK, DV,
    q_b, q_h, q_l, k_b, k_h, k_l, out_l, H, L, T, far, SCALE, ROOT,
    BIAS: tl.constexpr, SEG: tl.constexpr, EVEN: tl.constexpr, RATE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(T, BN)
    tile, bh = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    b, h = bh // H, bh % H
    j0 = tile * BN
    j, x = j0 + tl.arange(0, BN), tl.arange(0, K)
    seed = tl.load(SEED).to(tl.uint32) if RATE > 0 else 0
    inside = (j < T)[:, None]
    k_at = b.to(tl.int64) * k_b + h * k_h + j[:, None] * k_l + x[None, :]
    k, v = tl.load(KEY + k_at, mask=inside, other=0.0), tl.load(V + k_at, mask=inside, other=0.0)
    q_ptr, do_ptr = Q + b.to(tl.int64) * q_b + h * q_h, DO + b.to(tl.int64) * L * H * K + h * K
    lo, hi = j, j
    if SEG:
        lo, hi = _span(J_SPAN, b * T + j, j < T)
    start, stop, inner, outer = _range(RANGES, b, tile, tiles, L, SEG)
    dk, dv = tl.zeros((BN, K), tl.float32), tl.zeros((BN, K), tl.float32)
    rows = bh * L
    d, near, beyond, d_left, d_right = D, 0, 0, 0.0, 0.0
    if BIAS:
        d = D + h * (2 * L - 1 + 2 * PAD) + L - 1 + PAD
        d_left, d_right = tl.load(d + 1 - L), tl.load(d + L - 1)
        near, beyond = _near(j0, far, L, BN, BM)  # seen from the key, the queries left of it look to the right
    first, last = _full(start, stop, inner, outer, BM)
    dk, dv = _key_tiles(
        dk, dv, k, v, j, lo, hi, first, last, last, last, q_ptr, do_ptr, C + rows, LSE + rows, DELTA + rows, q_l,
        H * K, d, L, near, beyond, d_right, d_left, SCALE, seed, bh, BIAS, False, True, RATE, BM, K,
    )  # fmt: skip
    if SEG:
        dk, dv = _key_tiles(
            dk, dv, k, v, j, lo, hi, start, stop, first, last, q_ptr, do_ptr, C + rows, LSE + rows, DELTA + rows, q_l,
            H * K, d, L, near, beyond, d_right, d_left, SCALE, seed, bh, BIAS, True, EVEN, RATE, BM, K,
        )  # fmt: skip
    out = (b.to(tl.int64) * T + j[:, None]) * out_l + h * K + x[None, :]
    tl.store(DK + out, (dk * ROOT).to(DK.dtype.element_ty), mask=inside)
    tl.store(DV + out, dv.to(DV.dtype.element_ty), mask=inside)


@triton.jit
def backward_distances(
    Q, KEY, V, C, D, I_SPAN, HERE, SEED, DO, LSE, DELTA, TILE, DD, q_b, q_h, q_l, k_b, k_h, k_l, B, H, L, lowest, SCALE,
    SEG: tl.constexpr, HOLES: tl.constexpr, RATE: tl.constexpr, OFFSETS: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, K: tl.constexpr, Y: tl.constexpr,
):  # fmt: skip
    """One tile of queries and one of keys, at the offset `lowest` and so many tiles more, over a share of the batch."""
    place, h, share = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    i0 = place // OFFSETS * BM
    j0 = i0 + lowest + place % OFFSETS * BN
    m, n, x = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, K)
    i, j = i0 + m, j0 + n
    i_in, j_in = i < L, (j >= 0) & (j < L)
    seed = tl.load(SEED).to(tl.uint32) if RATE > 0 else 0
    d = _distances(D + h * (2 * L - 1 + 2 * PAD) + L - 1 + PAD, i[:, None], j[None, :])
    added = tl.zeros((BM, BN), tl.float32)
    shares = tl.num_programs(2)
    start, stop = share * B // shares, (share + 1) * B // shares
    if (j0 < L) & (j0 + BN > 0):
        for b in range(start, stop):
            bh, here = b * H + h, tl.full((), 0, tl.int64) + b  # 64 bits: a batch may have more elements than 32 count
            q_at = here * q_b + h * q_h + i[:, None] * q_l + x[None, :]
            do_at = (here * L + i[:, None]) * H * K + h * K + x[None, :]
            k_at = here * k_b + h * k_h + j[:, None] * k_l + x[None, :]
            q, do = tl.load(Q + q_at, mask=i_in[:, None], other=0.0), tl.load(DO + do_at, mask=i_in[:, None], other=0.0)
            k, v = tl.load(KEY + k_at, mask=j_in[:, None], other=0.0), tl.load(V + k_at, mask=j_in[:, None], other=0.0)
            c = tl.load(C + bh * L + i, mask=i_in, other=0.0)
            lse = tl.load(LSE + bh * L + i, mask=i_in, other=0.0)
            delta = tl.load(DELTA + bh * L + i, mask=i_in, other=0.0)
            s = tl.dot(q, tl.trans(k)) * SCALE + (c * LOG2E)[:, None] * d
            dp = tl.dot(do, tl.trans(v))
            if SEG:
                lo, hi = _span(I_SPAN, b * L + i, i_in)
                s = _seen(s, j[None, :], lo[:, None], hi[:, None])
                if HOLES:
                    s = tl.where(tl.load(HERE + b * L + j, mask=j_in, other=0)[None, :] != 0, s, HIDDEN)
            p = tl.math.exp2(s - lse[:, None])
            if RATE > 0:
                dp = tl.where(_kept(seed, bh, i[:, None], j[None, :], RATE), dp / (1 - RATE / DROPS), 0.0)
            added += (p * (dp - delta[:, None])) * c[:, None]
    # The diagonals: the tile goes out by rows and comes back shifted, each row by one more than the one before.
    number = (place * tl.num_programs(1) + h) * shares + share
    tile = TILE + number.to(tl.int64) * BM * BN
    tl.store(tile + m[:, None] * BN + n[None, :], added)
    tl.debug_barrier()
    y = tl.arange(0, Y)
    diagonal = tl.zeros((Y,), tl.float32)
    for row in range(BM):
        column = y + row - (BM - 1)
        diagonal += tl.load(tile + row * BN + column, mask=(column >= 0) & (column < BN), other=0.0)
    tl.store(DD + number.to(tl.int64) * Y + y, diagonal)
