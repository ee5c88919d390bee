"""The rows of a chunk of logits in Triton: read twice, and overwritten by their gradient."""
# M positions, V vocabulary

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _row(
    LOGITS, TARGETS, NOISE, LOSS, RIGHT, DRAWN, V, PADDED: tl.constexpr,
    LEARN: tl.constexpr, DRAW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Each program has one position."""
    m = tl.program_id(0)
    row = LOGITS + m.to(tl.int64) * PADDED
    v = tl.arange(0, BLOCK)
    # First: the largest logit, and where; the sum of exponentials, lane by lane.
    most = tl.full((BLOCK,), -1.0e30, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    where = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, V, BLOCK):
        inside = start + v < V
        logit = tl.load(row + start + v, mask=start + v < PADDED, other=0.0).to(tl.float32)
        logit = tl.where(inside, logit, -1.0e30)
        where = tl.where(logit > most, start + v, where)
        new = tl.maximum(most, logit)
        total = total * tl.exp(most - new) + tl.where(inside, tl.exp(logit - new), 0.0)
        most = new
    best = tl.max(most, 0)
    total_all = tl.sum(total * tl.exp(most - best), 0)
    first = tl.min(tl.where(most == best, where, V), 0)  # of equal ones
    target = tl.load(TARGETS + m)
    at_target = tl.load(row + target).to(tl.float32)
    tl.store(LOSS + m, tl.log(total_all) + best - at_target)
    tl.store(RIGHT + m, (first == target).to(tl.int64))
    # Second: the gradient takes the place of the logits. The sample is where the running sum passes the noise, lane
    # after lane: in which lane that is, is known by now, and no lane has to ask another on the way.
    passing = tl.full((BLOCK,), float("inf"), tl.float32)
    if DRAW:
        mass = total * tl.exp(most - best)
        before = tl.cumsum(mass, 0) - mass
        threshold = tl.load(NOISE + m) * total_all
        passing = tl.where((before <= threshold) & (before + mass > threshold), threshold - before, passing)
    if LEARN | DRAW:
        drawn = tl.full((BLOCK,), -1, tl.int32)
        share = 1 / total_all
        running = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, V, BLOCK):
            logit = tl.load(row + start + v, mask=start + v < PADDED, other=0.0).to(tl.float32)
            mass = tl.where(start + v < V, tl.exp(logit - best), 0.0)
            if DRAW:
                drawn = tl.where((running <= passing) & (running + mass > passing), start + v, drawn)
                running += mass
            if LEARN:
                gradient = mass * share - tl.where(start + v == target, 1.0, 0.0)
                tl.store(row + start + v, gradient.to(LOGITS.dtype.element_ty), mask=start + v < PADDED)
        if DRAW:
            piece = tl.max(drawn, 0)
            tl.store(DRAWN + m, tl.where(piece < 0, first, piece).to(tl.int64))  # rounding may leave the noise unpassed


def rows(
    logits_MV: Tensor, pieces: int, targets_M: Tensor, noise_M: Tensor | None, learn: bool, lanes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses, which are right, and samples; with `learn` the logits become their gradient. Those after the first
    `pieces` are padding, and their gradient is nothing."""
    M, padded = logits_MV.shape
    loss_M = torch.empty(M, dtype=torch.float32, device=logits_MV.device)
    right_M, drawn_M = torch.empty_like(targets_M), torch.empty_like(targets_M)
    _row[(M,)](
        logits_MV, targets_M, loss_M if noise_M is None else noise_M, loss_M, right_M, drawn_M, pieces, padded,
        LEARN=learn, DRAW=noise_M is not None, BLOCK=min(lanes, triton.next_power_of_2(padded)), num_warps=8,
    )  # fmt: skip
    return loss_M, right_M, drawn_M
