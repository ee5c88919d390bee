r"""Fused residual-add, LayerNorm and GELU in Triton, forward and backward.

Residual-add and LayerNorm after a branch:

    s = x + keep(branch) / (1 - p),    y = (s - mean) / deviation * weight + bias

The forward pass reads x and the branch once and writes y and s once.
The backward pass, with g = dy weight, n = (s - mean) / deviation:

    ds = (g - mean(g) - n mean(g n)) / deviation,    dx = ds,    dbranch = keep(ds) / (1 - p)

The dropout mask is a hash of the element's index.

GELU inside the feed-forward, with the bias of the linear layer before it:

    y = z P(z),    dz = dy (P(z) + z p(z)),    z = x + bias

P is the normal distribution by a polynomial (Abramowitz and Stegun 7.1.26, error below 1.5e-7). It needs the same
exponential as the density p. The library function would take longer than the memory accesses.

Each program sums the gradients of shared parameters over its rows, and one more sum runs over the programs. The order
is fixed.
"""
# N rows, D width

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

DROPOUT_STEPS = tl.constexpr(1 << 24)  # dropout probabilities are multiples of 1 / DROPOUT_STEPS
# Rows that a program reads at a time, forward and backward, and programs of the backward pass.
NORM_ROWS, NORM_BACKWARD_ROWS, NORM_PROGRAMS = 4, 2, 1056
GELU_TILE, GELU_BACKWARD_TILE, GELU_PROGRAMS = (4, 1024), (4, 512), 704  # tiles: rows, columns


@triton.jit
def _keep_mask(seed, n, x, D, DROPOUT: tl.constexpr):
    """Dropout mask: a hash of the element's index."""
    index = ((n.to(tl.uint32) * D + x.to(tl.uint32)) ^ seed) * 0x9E3779B1
    index = (index ^ (index >> 15)) * 0x2C1B3C6D
    index = (index ^ (index >> 12)) * 0x297A2D39
    return (index >> 8) >= DROPOUT


@triton.jit
def _norm_forward(
    X, BRANCH, WEIGHT, BIAS, SEED, Y, S, MEAN, SCALE, N, D, EPS,
    DROPOUT: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    x = tl.arange(0, WIDE)
    inside = (n < N)[:, None] & (x < D)[None, :]
    at = n[:, None].to(tl.int64) * D + x[None, :]
    branch = tl.load(BRANCH + at, mask=inside, other=0.0).to(tl.float32)
    if DROPOUT > 0:
        seed = tl.load(SEED).to(tl.uint32)
        branch = tl.where(
            _keep_mask(seed, n[:, None], x[None, :], D, DROPOUT), branch / (1 - DROPOUT / DROPOUT_STEPS), 0.0
        )
    s = tl.load(X + at, mask=inside, other=0.0).to(tl.float32) + branch
    s = s.to(S.dtype.element_ty)  # the backward pass reads the rounded value
    tl.store(S + at, s, mask=inside)
    s = s.to(tl.float32)
    mean = tl.sum(s, 1) / D
    centred = tl.where(inside, s - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 1) / D + EPS)
    weight, bias = tl.load(WEIGHT + x, mask=x < D, other=0.0), tl.load(BIAS + x, mask=x < D, other=0.0)
    y = centred * scale[:, None] * weight[None, :] + bias[None, :]
    tl.store(Y + at, y.to(Y.dtype.element_ty), mask=inside)
    tl.store(MEAN + n, mean, mask=n < N)
    tl.store(SCALE + n, scale, mask=n < N)


@triton.jit
def _norm_backward(
    DY, S, MEAN, SCALE, WEIGHT, SEED, DX, DBRANCH, DWEIGHT, DBIAS, N, D,
    DROPOUT: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    x = tl.arange(0, WIDE)
    weight = tl.load(WEIGHT + x, mask=x < D, other=0.0)
    dweight, dbias = tl.zeros((WIDE,), tl.float32), tl.zeros((WIDE,), tl.float32)
    seed = tl.load(SEED).to(tl.uint32) if DROPOUT > 0 else 0
    for start in range(tl.program_id(0) * ROWS, N, tl.num_programs(0) * ROWS):
        n = start + tl.arange(0, ROWS)
        inside = (n < N)[:, None] & (x < D)[None, :]
        at = n[:, None].to(tl.int64) * D + x[None, :]
        dy = tl.load(DY + at, mask=inside, other=0.0).to(tl.float32)
        s = tl.load(S + at, mask=inside, other=0.0).to(tl.float32)
        mean, scale = tl.load(MEAN + n, mask=n < N, other=0.0), tl.load(SCALE + n, mask=n < N, other=0.0)
        normed = tl.where(inside, (s - mean[:, None]) * scale[:, None], 0.0)
        g = dy * weight[None, :]
        ds = (g - (tl.sum(g, 1) / D)[:, None] - normed * (tl.sum(g * normed, 1) / D)[:, None]) * scale[:, None]
        tl.store(DX + at, ds.to(DX.dtype.element_ty), mask=inside)
        if DROPOUT > 0:
            keep = _keep_mask(seed, n[:, None], x[None, :], D, DROPOUT)
            tl.store(
                DBRANCH + at,
                tl.where(keep, ds / (1 - DROPOUT / DROPOUT_STEPS), 0.0).to(DX.dtype.element_ty),
                mask=inside,
            )
        dweight += tl.sum(dy * normed, 0)
        dbias += tl.sum(dy, 0)
    row = tl.program_id(0) * D + x
    tl.store(DWEIGHT + row, dweight, mask=x < D)
    tl.store(DBIAS + row, dbias, mask=x < D)


@triton.jit
def _normal_cdf(z):
    """Cumulative normal distribution at z, and e^(-z^2 / 2)."""
    t = 1 / (1 + 0.2316418882 * tl.abs(z))
    density = tl.exp(-0.5 * z * z)
    tail = (
        t * (0.127414796 + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145)))) * density
    )
    return tl.where(z > 0, 1 - tail, tail), density


@triton.jit
def _gelu_forward(X, BIAS, Y, N, D, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    x = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (n < N)[:, None] & (x < D)[None, :]
    at = n[:, None].to(tl.int64) * D + x[None, :]
    bias = tl.load(BIAS + x, mask=x < D, other=0.0).to(tl.float32)
    z = tl.load(X + at, mask=inside, other=0.0).to(tl.float32) + bias[None, :]
    below, _ = _normal_cdf(z)
    tl.store(Y + at, (z * below).to(Y.dtype.element_ty), mask=inside)


@triton.jit
def _gelu_backward(DY, X, BIAS, DX, DBIAS, N, D, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    x = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    bias = tl.load(BIAS + x, mask=x < D, other=0.0).to(tl.float32)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(tl.program_id(0) * ROWS, N, tl.num_programs(0) * ROWS):
        n = start + tl.arange(0, ROWS)
        inside = (n < N)[:, None] & (x < D)[None, :]
        at = n[:, None].to(tl.int64) * D + x[None, :]
        z = tl.load(X + at, mask=inside, other=0.0).to(tl.float32) + bias[None, :]
        dy = tl.load(DY + at, mask=inside, other=0.0).to(tl.float32)
        below, density = _normal_cdf(z)
        dx = dy * (below + z * density * 0.3989422804)
        tl.store(DX + at, dx.to(DX.dtype.element_ty), mask=inside)
        total += dx
    tl.store(DBIAS + tl.program_id(0) * D + x, tl.sum(total, 0), mask=x < D)


def add_and_norm(x: Tensor, branch: Tensor, weight: Tensor, bias: Tensor, *, epsilon: float, dropout: float) -> Tensor:
    """Return LayerNorm(x + dropout(branch))."""
    dropout = dropout if round(dropout * DROPOUT_STEPS.value) else 0.0
    seed = torch.randint(1 << 31, (1,), device=x.device) if dropout else None
    return residual_norm(x, branch, weight, bias, epsilon, seed, dropout)[0]


@torch.library.custom_op("crossling::residual_norm", mutates_args=())
def residual_norm(
    x: Tensor, branch: Tensor, weight: Tensor, bias: Tensor, epsilon: float, seed: Tensor | None, dropout: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return y, and for the backward pass: s, its mean and one over its deviation."""
    N, D = _matrix_shape(x)
    y, s, mean, scale = _empty_norm_outputs(x)
    with torch.cuda.device_of(x):  # Triton launches on the current device
        _norm_forward[(-(-N // NORM_ROWS),)](
            x.contiguous(), branch.contiguous(), weight, bias, x if seed is None else seed, y, s, mean, scale, N, D,
            epsilon, DROPOUT=round(dropout * DROPOUT_STEPS.value), ROWS=NORM_ROWS, WIDE=triton.next_power_of_2(D),
            num_warps=4,
        )  # fmt: skip
    return y, s, mean, scale


def _matrix_shape(x: Tensor) -> tuple[int, int]:
    """Return the number of rows N and the width D."""
    return x.numel() // x.shape[-1], x.shape[-1]


@residual_norm.register_fake
def _empty_norm_outputs(x: Tensor, *_: Any) -> tuple[Tensor, ...]:
    mean, scale = (x.new_empty(x.shape[:-1], dtype=torch.float32) for _ in range(2))
    return x.new_empty(x.shape), x.new_empty(x.shape), mean, scale


@torch.library.custom_op("crossling::residual_norm_backward", mutates_args=())
def residual_norm_backward(
    dy: Tensor, s: Tensor, mean: Tensor, scale: Tensor, weight: Tensor, seed: Tensor | None, dropout: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of x, of the branch (empty without dropout: the same as x), of weight and bias."""
    N, D = _matrix_shape(s)
    programs = max(1, min(NORM_PROGRAMS, -(-N // NORM_BACKWARD_ROWS)))
    dx, dbranch = s.new_empty(s.shape), s.new_empty(s.shape if dropout else (0,))
    sums = mean.new_empty((2, programs, D))
    with torch.cuda.device_of(s):  # Triton launches on the current device
        _norm_backward[(programs,)](
            dy.contiguous(), s, mean, scale, weight, s if seed is None else seed, dx, dbranch, sums[0], sums[1], N, D,
            DROPOUT=round(dropout * DROPOUT_STEPS.value), ROWS=NORM_BACKWARD_ROWS, WIDE=triton.next_power_of_2(D),
            num_warps=4,
        )  # fmt: skip
    dweight, dbias = sums.sum(1).unbind()
    return dx, dbranch, dweight.clone(), dbias.clone()


@residual_norm_backward.register_fake
def _(_dy: Tensor, s: Tensor, mean: Tensor, _scale: Tensor, weight: Tensor, _seed: Any, dropout: float) -> Any:
    dweight, dbias = (mean.new_empty(weight.shape) for _ in range(2))
    return s.new_empty(s.shape), s.new_empty(s.shape if dropout else (0,)), dweight, dbias


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, _, weight, _, _, seed, ctx.dropout = inputs
    _, s, mean, scale = output
    ctx.save_for_backward(s, mean, scale, weight, seed)


def _residual_gradients(ctx: Any, dy: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors  # read once: with activation checkpointing a second access fails
    dx, dbranch, dweight, dbias = residual_norm_backward(dy, *saved, ctx.dropout)
    dtype = saved[3].dtype
    return dx, dbranch if ctx.dropout else dx, dweight.to(dtype), dbias.to(dtype), None, None, None


residual_norm.register_autograd(_residual_gradients, setup_context=_save_for_backward)


@torch.library.custom_op("crossling::gelu", mutates_args=())
def gelu(x: Tensor, bias: Tensor) -> Tensor:
    """Return GELU(x + bias)."""
    N, D = _matrix_shape(x)
    y = x.new_empty(x.shape)
    rows, columns = GELU_TILE
    grid = (-(-N // rows), -(-D // columns))
    with torch.cuda.device_of(x):  # Triton launches on the current device
        _gelu_forward[grid](x.contiguous(), bias, y, N, D, ROWS=rows, COLUMNS=columns, num_warps=4)
    return y


@gelu.register_fake
def _(x: Tensor, bias: Tensor) -> Tensor:  # noqa: ARG001
    return x.new_empty(x.shape)


@torch.library.custom_op("crossling::gelu_backward", mutates_args=())
def gelu_backward(dy: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of x and bias."""
    N, D = _matrix_shape(x)
    dx = x.new_empty(x.shape)
    rows, columns = GELU_BACKWARD_TILE
    programs = max(1, min(GELU_PROGRAMS, -(-N // rows)))
    sums = x.new_empty((programs, D), dtype=torch.float32)
    with torch.cuda.device_of(x):  # Triton launches on the current device
        _gelu_backward[(programs, -(-D // columns))](
            dy.contiguous(), x.contiguous(), bias, dx, sums, N, D, ROWS=rows, COLUMNS=columns, num_warps=4
        )
    return dx, sums.sum(0)


@gelu_backward.register_fake
def _(dy: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    return x.new_empty(x.shape), x.new_empty(bias.shape, dtype=torch.float32)


def _save_gelu_inputs(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs)


def _gelu_gradients(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
    x, bias = ctx.saved_tensors
    dx, dbias = gelu_backward(dy, x, bias)
    return dx, dbias.to(bias.dtype)


gelu.register_autograd(_gelu_gradients, setup_context=_save_gelu_inputs)
