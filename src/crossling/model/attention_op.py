"""The attention kernels as operators that torch can differentiate and compile."""
# B sequences, H heads, L queries, T keys, K width of a head, t tiles

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from crossling.model import attention_kernel as kernels

OWN, STEP = 64, 64  # a program owns so many queries or keys and walks over the others in such steps
SHARES = 4  # of the batch, for the gradient of the distances
MARGIN = (kernels.PAD.value, kernels.PAD.value)
PADDING = 1 << 30  # as the number of a sequence: after all others, as padding is in its row


class Launch(NamedTuple):
    """How a kernel runs. With fewer registers than the compiler would take, more programs share a processor."""

    stages: int
    registers: int | None = None
    step: int = STEP  # of the walk
    warps: int = 4

    def options(self, width: int) -> dict[str, int | None]:
        """Wide heads need all registers, and fill the shared memory of smaller cards sooner."""
        if width > 64:
            return {"num_warps": self.warps, "num_stages": min(2, self.stages)}
        return {"num_warps": self.warps, "num_stages": self.stages, "maxnreg": self.registers}


# Without a bias, and with one: the fastest that were measured on an H200.
FORWARD = Launch(3), Launch(2, registers=128)
QUERIES = Launch(3, step=32), Launch(3, registers=128, step=32)
KEYS = (Launch(3, registers=168, step=32),) * 2
DISTANCES = Launch(3)


class Tiles(NamedTuple):
    """What the kernels know of which keys a query sees."""

    query_spans: Tensor  # [B, L, 2]: from and to which keys
    key_spans: Tensor  # [B, T, 2]: from and to which queries
    query_ranges: Tensor  # [B, t, 4], of tiles: see `ranges`
    key_ranges: Tensor
    here: Tensor | None  # [B, T]: which keys of a span are seen, if not all


def attend(
    query_BLHK: Tensor,
    key_BTHK: Tensor | None,
    value_BTHK: Tensor | None,
    gate: Tensor | tuple[Tensor, Tensor, Tensor] | None,
    by_distance_HW: Tensor | None,
    far: int,
    seen: Tiles | None,
    dropout: float,
) -> Tensor:
    """[B, L, H, K]. The gate is a number for each query, [B, H, L], or the u and v [2, K], their biases [2] and the w
    [H] by which queries make their own. `seen` as `tiles` gives it, none if everything is. Without keys the queries
    come with their keys and values, [B, L, 3, H, K], and so do their gradients: in one piece."""
    B, L = query_BLHK.shape[:2]
    T = L if key_BTHK is None else key_BTHK.shape[1]
    device = query_BLHK.device
    if seen is None and (L % OWN or T % STEP):  # then the ends of a sequence have to be looked for
        whole_BL = torch.ones(B, L, dtype=torch.int32, device=device)
        seen = tiles(whole_BL, whole_BL if T == L else whole_BL.new_ones(B, T))
    gate = gate if by_distance_HW is not None else None  # there is nothing to gate
    if by_distance_HW is not None and gate is None:
        gate = torch.ones(B, query_BLHK.shape[-2], L, device=device)
    gates = (None, *gate) if isinstance(gate, tuple) else (gate, None, None, None)
    seed = torch.randint(1 << 31, (1,), device=device) if dropout else None
    return attention(
        query_BLHK, key_BTHK, value_BTHK, *gates, by_distance_HW, far, *(seen or [None] * 5), seed, dropout
    )[0]


def tiles(queries_BL: Tensor, keys_BT: Tensor, holes: bool = False) -> Tiles:
    """A query sees the keys of its own sequence (0 is padding), which lies in its row in one piece; or in several, with
    `holes`."""
    keys = _numbered(keys_BT)
    queries = keys if queries_BL is keys_BT else _numbered(queries_BL)
    query_spans = spans(queries, keys)
    key_spans = query_spans if queries is keys else spans(keys, queries)
    query_ranges = ranges(queries, keys)
    key_ranges = query_ranges if queries is keys else ranges(keys, queries)
    return Tiles(query_spans, key_spans, query_ranges, key_ranges, (keys_BT != 0).int() if holes else None)


def _numbered(segments_BL: Tensor) -> Tensor:
    return torch.where(segments_BL == 0, PADDING, segments_BL).int()


def spans(owner_BL: Tensor, other_BT: Tensor) -> Tensor:
    """For each owner, from and to which of the others its sequence reaches, [B, L, 2]."""
    T = other_BT.shape[1]
    place_T = torch.arange(T, dtype=torch.int32, device=other_BT.device)
    if owner_BL is other_BT:
        change = owner_BL[:, 1:] != owner_BL[:, :-1]
        first, last = F.pad(change, (1, 0), value=True), F.pad(change, (0, 1), value=True)
        start = torch.where(first, place_T, 0).cummax(1).values
        stop = torch.where(last, place_T + 1, T).flip(1).cummin(1).values.flip(1)
    else:
        same_BLT = owner_BL[:, :, None] == other_BT[:, None, :]
        start, stop = torch.where(same_BLT, place_T, T).amin(2), torch.where(same_BLT, place_T + 1, 0).amax(2)
    return torch.stack([start, stop], 2).int()


def ranges(owner_BL: Tensor, other_BT: Tensor) -> Tensor:
    """For each tile of owners, from and to which of the others it may see something, and between which of them all of
    it sees all, [B, t, 4]. Sequences lie in their rows one after the other, so that few tiles of a packed row see each
    other."""
    T = other_BT.shape[1]
    missing = -owner_BL.shape[1] % OWN
    padded = torch.cat([owner_BL, owner_BL[:, -1:].expand(-1, missing)], 1) if missing else owner_BL
    low_Bt1, high_Bt1 = (f(padded.unflatten(1, (-1, OWN)), 2, keepdim=True) for f in (torch.amin, torch.amax))
    seen_BtT = (other_BT[:, None, :] >= low_Bt1) & (other_BT[:, None, :] <= high_Bt1)
    place_T = torch.arange(T, device=other_BT.device)
    first, last = torch.where(seen_BtT, place_T, T).amin(2), torch.where(seen_BtT, place_T + 1, 0).amax(2)
    one = (low_Bt1 == high_Bt1).squeeze(2) & (seen_BtT.sum(2) == last - first)  # a mask may have holes
    inner, outer = torch.where(one, first, T), torch.where(one, last, 0)
    return torch.stack([first // STEP * STEP, last, inner, outer], 2).int()


def _common(q: Tensor, k: Tensor, d: Tensor | None, spans: Tensor | None, far: int, rate: float) -> dict[str, Any]:
    (_, L, H, K), T = q.shape, k.shape[1]
    return {
        **{f"q_{a}": q.stride(x) for a, x in (("b", 0), ("l", 1), ("h", 2))},
        **{f"k_{a}": k.stride(x) for a, x in (("b", 0), ("l", 1), ("h", 2))},
        **{
            "H": H,
            "L": L,
            "T": T,
            "K": K,
            "SCALE": kernels.LOG2E.value * K**-0.5,
            "far": far,
            "RATE": round(rate * kernels.DROPS.value),
        },
        **{"BIAS": d is not None, "SEG": spans is not None, "EVEN": not (L % OWN or T % STEP)},
    }


def _apart(q: Tensor, k: Tensor | None, v: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    if k is None or v is None:
        q, k, v = q.unbind(2)
    if v.stride() != k.stride():  # both are read by the same
        k, v = k.contiguous(), v.contiguous()
    assert q.stride(-1) == k.stride(-1) == 1
    return q, k, v


def _ready(q: Tensor, *others: Tensor | None) -> list[Tensor]:
    """What is none is not read, but Triton wants something."""
    return [q if x is None else x.contiguous() for x in others]


@torch.library.custom_op("crossling::attention", mutates_args=())
def attention(
    q: Tensor,  # [B, L, H, K], or [B, L, 3, H, K] with keys and values
    k: Tensor | None,  # [B, T, H, K]
    v: Tensor | None,
    c: Tensor | None,  # [B, H, L]
    gw: Tensor | None,  # [2, K]
    gb: Tensor | None,  # [2]
    gs: Tensor | None,  # [H]
    d: Tensor | None,  # [H, 2L - 1]
    far: int,
    i_spans: Tensor | None,
    j_spans: Tensor | None,  # noqa: ARG001 - for the way back
    i_ranges: Tensor | None,
    j_ranges: Tensor | None,  # noqa: ARG001
    here: Tensor | None,
    seed: Tensor | None,
    rate: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """[B, L, H, K]; the logarithm of each query's sum, [B, H, L] in units of log 2; and the gates it made, if any."""
    q, k, v = _apart(q, k, v)
    B, L, H, K = q.shape
    o = q.new_empty((B, L, H, K))
    lse = q.new_empty((B, H, L), dtype=torch.float32)
    made = torch.empty_like(lse) if gw is not None else lse.new_empty(0)
    table = None if d is None else F.pad(d, MARGIN)
    inputs = _ready(q, made if c is None else c, gw, gb, gs, table, i_spans, here, i_ranges, seed)
    how = FORWARD[d is not None]
    with torch.cuda.device_of(q):  # Triton launches on the current one
        kernels.forward[(-(-L // OWN) * B * H,)](
            q, k, v, *inputs, o, lse, **_common(q, k, d, i_spans, far, rate), GATE=gw is not None,
            HOLES=here is not None, BM=OWN, BN=how.step, **how.options(K),
        )  # fmt: skip
    return o, lse, made


@attention.register_fake
def _(q: Tensor, k: Any, v: Any, c: Any, gw: Tensor | None, *_: Any) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ARG001
    (B, L), (H, K) = q.shape[:2], q.shape[-2:]
    lse = q.new_empty((B, H, L), dtype=torch.float32)
    return q.new_empty((B, L, H, K)), lse, torch.empty_like(lse) if gw is not None else lse.new_empty(0)


@torch.library.custom_op("crossling::attention_backward", mutates_args=())
def attention_backward(
    do: Tensor,
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    c: Tensor | None,
    gw: Tensor | None,
    gb: Tensor | None,
    gs: Tensor | None,
    d: Tensor | None,
    far: int,
    i_spans: Tensor | None,
    j_spans: Tensor | None,
    i_ranges: Tensor | None,
    j_ranges: Tensor | None,
    here: Tensor | None,
    seed: Tensor | None,
    rate: float,
    o: Tensor,
    lse: Tensor,
    made: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, in one piece if they came so; of c; of (u, v, their biases, w) in one row for each
    head; of d. Those of what there is not are empty."""
    together = q.new_empty(q.shape)
    dq, dk, dv = together.unbind(2) if k is None else (together, k.new_empty(k.shape), k.new_empty(k.shape))
    q, k, v = _apart(q, k, v)
    B, L, H, K = q.shape
    T, rows = k.shape[1], -(-L // OWN)
    do = do.contiguous()
    delta = torch.empty_like(lse)
    dc = lse.new_empty((0,) if c is None else lse.shape)
    part = lse.new_zeros((0,) if d is None else (B, H, rows, 2 * K + 5))
    common = _common(q, k, d, i_spans, far, rate)
    table = None if d is None else F.pad(d, MARGIN)
    gates = made if c is None else c
    c_, gw_, gb_, gs_, d_, i_, j_, ir_, jr_, here_, seed_ = _ready(
        q, gates, gw, gb, gs, table, i_spans, j_spans, i_ranges, j_ranges, here, seed
    )
    by_query, by_key = QUERIES[d is not None], KEYS[d is not None]
    with torch.cuda.device_of(q):  # Triton launches on the current one
        kernels.backward_queries[(rows * B * H,)](
            q, k, v, c_, gw_, gb_, gs_, d_, i_, here_, ir_, seed_, o, do, lse, delta, dq, dc, part, **common,
            out_l=dq.stride(1), ROOT=K**-0.5, GATE=gw is not None, HOLES=here is not None, BM=OWN,
            BN=by_query.step, NEAR=STEP, **by_query.options(K),
        )  # fmt: skip
        kernels.backward_keys[(-(-T // OWN) * B * H,)](
            q, k, v, c_, d_, j_, jr_, seed_, do, lse, delta, dk, dv, **common, out_l=dk.stride(1),
            ROOT=K**-0.5, BM=by_key.step, BN=OWN, **by_key.options(K),
        )  # fmt: skip
    none = [lse.new_empty(0) for _ in range(4)]
    pieces = (together, dk, dv) if dq is together else (together, none[0], none[1])
    if d is None:
        return *pieces, dc, none[2], none[3]
    # The gradient of the distances: tiles near the diagonal, from the first that is not far to the left on.
    far = min(far, L)
    lowest = -((far + STEP - 2) // STEP) * STEP
    offsets = (OWN - 1 + far - lowest + STEP - 1) // STEP
    shares, diagonals = min(SHARES, B), triton.next_power_of_2(OWN + STEP)
    space = lse.new_empty((rows * offsets * H * shares, OWN * STEP))
    found = lse.new_empty((rows, offsets, H, shares, diagonals))
    near = {name: value for name, value in common.items() if name not in ("T", "far", "BIAS", "EVEN")}
    with torch.cuda.device_of(q):  # Triton launches on the current one
        kernels.backward_distances[(rows * offsets, H, shares)](
            q, k, v, c_, d_, i_, here_, seed_, do, lse, delta, space, found, **near, HOLES=here is not None, B=B,
            lowest=lowest, OFFSETS=offsets, BM=OWN, BN=STEP, Y=diagonals, **DISTANCES.options(K),
        )  # fmt: skip
    by_head = part.sum((0, 2))
    dd = _by_distance(found, lowest, by_head[:, 2 * K + 3], by_head[:, 2 * K + 4], L)
    return *pieces, dc, by_head, dd


def _by_distance(found: Tensor, lowest: int, left_H: Tensor, right_H: Tensor, L: int) -> Tensor:
    """The diagonals of the tiles as one vector: those of tiles that are neighbours overlap."""
    by_offset_RHY = found.sum((0, 3))
    offsets, H, Y = by_offset_RHY.shape
    parts = Y // STEP
    chunks = by_offset_RHY.new_zeros(H, offsets + parts - 1, STEP)
    for part in range(parts):
        chunks[:, part : part + offsets] += by_offset_RHY.unflatten(2, (parts, STEP))[:, :, part].transpose(0, 1)
    band = chunks.flatten(1)  # from the distance `lowest - OWN + 1` on
    first = lowest - OWN + 1 + L - 1  # where that is among 2L - 1
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


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.far, i_spans, j_spans, i_ranges, j_ranges, here, seed, ctx.rate = inputs
    ctx.save_for_backward(*tensors, i_spans, j_spans, i_ranges, j_ranges, here, seed, *output)


def _gradients(ctx: Any, do: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors  # once: activations that are computed again can be read only once
    tensors, seen, output = saved[:8], saved[8:14], saved[14:]
    dq, dk, dv, dc, dgate, dd = attention_backward(do, *tensors, ctx.far, *seen, ctx.rate, *output)
    (_, k, _, c, gw, _, _, d), K = tensors, dq.shape[-1]
    gates: tuple[Tensor | None, ...] = (None, None, None)
    if gw is not None:
        gates = dgate[:, : 2 * K].sum(0).view(2, K), dgate[:, 2 * K : 2 * K + 2].sum(0), dgate[:, 2 * K + 2]
    others = (None, None) if k is None else (dk, dv)
    return dq, *others, None if c is None else dc, *gates, None if d is None else dd, *([None] * 8)


attention.register_autograd(_gradients, setup_context=_remember)
