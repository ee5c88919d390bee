"""Triton kernels for a chunk of logits: one pass for loss and sample, one more to replace them by their gradient."""
# M positions, V vocabulary, G groups of positions

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS = 1024  # vocabulary entries per program of the gradient kernel
GROUPS = 8  # groups of positions whose gradients are summed separately


@triton.jit
def _row_kernel(
    LOGITS, TARGETS, NOISE, LOSS, LOG_SUM, CORRECT, SAMPLED, V, PADDED,
    SAMPLE: tl.constexpr, BLOCK: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Loss, prediction and sample of one position per program."""
    m = tl.program_id(0)
    row = LOGITS + m.to(tl.int64) * PADDED
    v = tl.arange(0, BLOCK)
    # Running maximum with its index, and sum of exponentials, of each lane.
    largest = tl.full((BLOCK,), -1.0e30, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    index = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, V, BLOCK):
        logit = tl.load(row + start + v, mask=start + v < V, other=-float("inf")).to(tl.float32)
        difference = logit - largest
        scale = tl.exp(-tl.abs(difference))  # one exponential serves both cases
        total = tl.where(difference > 0, total * scale + 1, total + scale)
        index = tl.where(difference > 0, start + v, index)
        largest = tl.maximum(largest, logit)
    best = tl.max(largest, 0)
    mass = total * tl.exp(largest - best)
    total_mass = tl.sum(mass, 0)
    prediction = tl.min(tl.where(largest == best, index, V), 0)  # the first of equal ones
    target = tl.load(TARGETS + m)
    log_sum = tl.log(total_mass) + best
    loss = log_sum - tl.load(row + tl.maximum(target, 0)).to(tl.float32)
    tl.store(LOSS + m, tl.where(target < 0, 0.0, loss))  # a negative target is ignored
    tl.store(LOG_SUM + m, log_sum)
    tl.store(CORRECT + m, (prediction == target).to(tl.int64))
    # The sample is where the cumulative sum, lane after lane, passes the noise: only one lane is read again.
    if SAMPLE:
        before = tl.cumsum(mass, 0) - mass
        threshold = tl.load(NOISE + m) * total_mass
        lane = tl.max(tl.where((before <= threshold) & (before + mass > threshold), v, -1), 0)
        if lane < 0:
            tl.store(SAMPLED + m, prediction.to(tl.int64))  # by rounding, no lane may pass the noise
        else:
            rest = threshold - tl.sum(tl.where(v == lane, before, 0.0), 0)
            token = lane + BLOCK * tl.arange(0, STEPS)
            logit = tl.load(row + token, mask=token < V, other=-float("inf")).to(tl.float32)
            passed = tl.cumsum(tl.exp(logit - best), 0) > rest
            sampled = tl.min(tl.where(passed & (token < V), token, V), 0)
            tl.store(SAMPLED + m, tl.where(sampled == V, prediction, sampled).to(tl.int64))


@triton.jit
def _gradient_kernel(LOGITS, TARGETS, LOG_SUM, DBIAS, M, V, PADDED, COLUMNS: tl.constexpr):
    """Gradient of some columns of a group of positions per program, with its sum over the group."""
    v = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    group, groups = tl.program_id(1), tl.num_programs(1)
    total = tl.zeros((COLUMNS,), tl.float32)
    for m in range(group * M // groups, (group + 1) * M // groups):
        at = LOGITS + (tl.full((), 0, tl.int64) + m) * PADDED + v
        target = tl.load(TARGETS + m)
        logit = tl.load(at, mask=v < V, other=-float("inf")).to(tl.float32)
        gradient = tl.exp(logit - tl.load(LOG_SUM + m))
        gradient = tl.where(v == target, gradient - 1, gradient)
        gradient = tl.where(target < 0, 0.0, gradient)
        tl.store(at, gradient.to(LOGITS.dtype.element_ty), mask=v < PADDED)
        total += gradient
    tl.store(DBIAS + group * PADDED + v, total, mask=v < PADDED)


def process_rows(
    logits_MV: Tensor, vocab_size: int, targets_M: Tensor, noise_M: Tensor | None, needs_gradient: bool, lanes: int
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return losses, correct predictions, samples, and the gradient's sum over positions.

    With `needs_gradient` the gradient overwrites the logits. Logits after the first `vocab_size` are padding, and
    their gradient is zero.
    """
    M, padded = logits_MV.shape
    loss_M, log_sum_M = torch.empty(2, M, dtype=torch.float32, device=logits_MV.device)
    correct_M, sampled_M = torch.empty_like(targets_M), torch.empty_like(targets_M)
    block = min(lanes, triton.next_power_of_2(padded))
    with torch.cuda.device_of(logits_MV):  # Triton launches on the current device
        _row_kernel[(M,)](
            logits_MV, targets_M, loss_M if noise_M is None else noise_M, loss_M, log_sum_M, correct_M, sampled_M,
            vocab_size, padded, SAMPLE=noise_M is not None, BLOCK=block,
            STEPS=triton.next_power_of_2(-(-padded // block)), num_warps=8,
        )  # fmt: skip
    if not needs_gradient:
        return loss_M, correct_M, sampled_M, None
    dbias_GV = torch.empty(GROUPS, padded, dtype=torch.float32, device=logits_MV.device)
    with torch.cuda.device_of(logits_MV):  # Triton launches on the current device
        _gradient_kernel[(-(-padded // COLUMNS), GROUPS)](
            logits_MV, targets_M, log_sum_M, dbias_GV, M, vocab_size, padded, COLUMNS=COLUMNS, num_warps=8
        )
    return loss_M, correct_M, sampled_M, dbias_GV.sum(0)
