"""The rows of a chunk of logits in Triton: read once for the loss and the sample, once more for the gradient, which
takes their place."""
# M positions, V vocabulary, G groups of positions

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS, GROUPS = 1024, 8  # of a program of the gradient; of positions, in which the columns are added up


@triton.jit
def _row(
    LOGITS, TARGETS, NOISE, LOSS, SUM, RIGHT, DRAWN, V, PADDED,
    DRAW: tl.constexpr, BLOCK: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Each program has one position."""
    m = tl.program_id(0)
    row = LOGITS + m.to(tl.int64) * PADDED
    v = tl.arange(0, BLOCK)
    # The largest logit, and where; the sum of exponentials, lane by lane.
    most = tl.full((BLOCK,), -1.0e30, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    where = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, V, BLOCK):
        logit = tl.load(row + start + v, mask=start + v < V, other=-float("inf")).to(tl.float32)
        more = logit - most
        shrunk = tl.exp(-tl.abs(more))  # one exponential, whichever of the two is to shrink
        total = tl.where(more > 0, total * shrunk + 1, total + shrunk)
        where = tl.where(more > 0, start + v, where)
        most = tl.maximum(most, logit)
    best = tl.max(most, 0)
    mass = total * tl.exp(most - best)
    total_all = tl.sum(mass, 0)
    first = tl.min(tl.where(most == best, where, V), 0)  # of equal ones
    target = tl.load(TARGETS + m)
    sum_of_all = tl.log(total_all) + best
    tl.store(LOSS + m, sum_of_all - tl.load(row + target).to(tl.float32))
    tl.store(SUM + m, sum_of_all)
    tl.store(RIGHT + m, (first == target).to(tl.int64))
    # The sample is where the running sum passes the noise, lane after lane: only one lane has to be read again.
    if DRAW:
        before = tl.cumsum(mass, 0) - mass
        threshold = tl.load(NOISE + m) * total_all
        lane = tl.max(tl.where((before <= threshold) & (before + mass > threshold), v, -1), 0)
        if lane < 0:
            tl.store(DRAWN + m, first.to(tl.int64))  # rounding may leave the noise unpassed
        else:
            rest = threshold - tl.sum(tl.where(v == lane, before, 0.0), 0)
            piece = lane + BLOCK * tl.arange(0, STEPS)
            logit = tl.load(row + piece, mask=piece < V, other=-float("inf")).to(tl.float32)
            passed = tl.cumsum(tl.exp(logit - best), 0) > rest
            drawn = tl.min(tl.where(passed & (piece < V), piece, V), 0)
            tl.store(DRAWN + m, tl.where(drawn == V, first, drawn).to(tl.int64))


@triton.jit
def _gradient(LOGITS, TARGETS, SUM, DBIAS, M, V, PADDED, COLUMNS: tl.constexpr):
    """Each program has some columns of a group of positions, and adds them up."""
    v = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    group, groups = tl.program_id(1), tl.num_programs(1)
    added = tl.zeros((COLUMNS,), tl.float32)
    for m in range(group * M // groups, (group + 1) * M // groups):
        at = LOGITS + (tl.full((), 0, tl.int64) + m) * PADDED + v
        logit = tl.load(at, mask=v < V, other=-float("inf")).to(tl.float32)
        gradient = tl.exp(logit - tl.load(SUM + m))
        gradient = tl.where(v == tl.load(TARGETS + m), gradient - 1, gradient)
        tl.store(at, gradient.to(LOGITS.dtype.element_ty), mask=v < PADDED)
        added += gradient
    tl.store(DBIAS + group * PADDED + v, added, mask=v < PADDED)


def rows(
    logits_MV: Tensor, pieces: int, targets_M: Tensor, noise_M: Tensor | None, learn: bool, lanes: int
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Losses, which are right, and samples; with `learn` the logits become their gradient, and its sum over the
    positions comes with it. Logits after the first `pieces` are padding, and their gradient is nothing."""
    M, padded = logits_MV.shape
    loss_M, sum_M = torch.empty(2, M, dtype=torch.float32, device=logits_MV.device)
    right_M, drawn_M = torch.empty_like(targets_M), torch.empty_like(targets_M)
    block = min(lanes, triton.next_power_of_2(padded))
    with torch.cuda.device_of(logits_MV):  # Triton launches on the current one
        _row[(M,)](
            logits_MV, targets_M, loss_M if noise_M is None else noise_M, loss_M, sum_M, right_M, drawn_M, pieces,
            padded, DRAW=noise_M is not None, BLOCK=block, STEPS=triton.next_power_of_2(-(-padded // block)),
            num_warps=8,
        )  # fmt: skip
    if not learn:
        return loss_M, right_M, drawn_M, None
    dbias_GV = torch.empty(GROUPS, padded, dtype=torch.float32, device=logits_MV.device)
    with torch.cuda.device_of(logits_MV):  # Triton launches on the current one
        _gradient[(-(-padded // COLUMNS), GROUPS)](
            logits_MV, targets_M, sum_M, dbias_GV, M, pieces, padded, COLUMNS=COLUMNS, num_warps=8
        )
    return loss_M, right_M, drawn_M, dbias_GV.sum(0)
