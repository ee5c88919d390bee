r"""What a masked position was: the loss, its gradient and a sample, in one pass over chunks of the positions.

    l_m = h_m W^T + b,    loss = sum over m of log sum_v exp l_mv - l_m,target,    dloss/dl_m = softmax(l_m) - onehot

The logits of all positions, gigabytes with 250,000 pieces, never exist: those of a chunk are made, used for everything
at once, and overwritten by their gradient, which goes straight into those of h, W and b.
"""
# M masked positions, D width, V vocabulary

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from crossling.model.device import runs_kernels

kernel: Any
try:
    from crossling.model import prediction_kernel as kernel
except (ImportError, AttributeError):  # no Triton, or one of another time
    kernel = None

CHUNK = 1 << 31  # bytes of the logits that exist at a time
LANES = 4096  # pieces that the kernel reads at once


@dataclass(frozen=True)
class Predicted:
    loss: Tensor  # a sum
    right: Tensor  # at how many positions the likeliest piece is the target
    drawn_M: Tensor  # a sample at temperature 1; nothing without noise


def predict(
    hidden_MD: Tensor, table_VD: Tensor, bias_V: Tensor, targets_M: Tensor, noise_M: Tensor | None = None
) -> Predicted:
    """`noise` is one number from [0, 1) for each position: where to read the cumulative distribution."""
    learn = torch.is_grad_enabled() and any(each.requires_grad for each in (hidden_MD, table_VD, bias_V))
    return Predicted(*_Prediction.apply(hidden_MD, table_VD, bias_V, targets_M, noise_M, learn))


class _Prediction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_MD: Tensor,
        table_VD: Tensor,
        bias_V: Tensor,
        targets_M: Tensor,
        noise_M: Tensor | None,
        learn: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        device = hidden_MD.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden_MD.dtype
        hidden, pieces = hidden_MD.to(dtype), len(table_VD)
        fused = kernel is not None and runs_kernels(hidden.device)
        rows = partial(kernel.rows, lanes=LANES) if fused else _rows
        # The chip multiplies matrices whose sides are multiples of 64 several times faster than others.
        more = -pieces % 64 if fused else 0
        table, bias = (_padded(each, more, dtype) for each in (table_VD, bias_V))
        loss, right = hidden.new_zeros((), dtype=torch.float32), targets_M.new_zeros(())
        drawn = [targets_M[:0]]
        # Sums over chunks are kept in float32, whatever the products are computed in.
        dhidden, dtable, dbias = [hidden[:0]], None, torch.zeros_like(bias, dtype=torch.float32)
        chunks = -(-hidden.shape[0] * table.shape[0] * hidden.element_size() // CHUNK)
        with torch.autocast(device, enabled=False):
            for x, target, noise in _chunks(chunks, hidden, targets_M, noise_M):
                logits = torch.addmm(bias, x, table.T)
                losses, hits, samples, gradients = rows(logits, pieces, target, noise, learn)
                loss, right = loss + losses.sum(), right + hits.sum()
                drawn += [samples] if noise is not None else []
                if gradients is not None:
                    dhidden.append(logits @ table)
                    dtable = _added(dtable, logits.T, x)
                    dbias += gradients
        if learn:
            dtable = torch.zeros_like(table, dtype=torch.float32) if dtable is None else dtable
            ctx.save_for_backward(torch.cat(dhidden).to(hidden_MD.dtype), dtable[:pieces], dbias[:pieces])
            ctx.dtypes = table_VD.dtype, bias_V.dtype
        drawn_M = torch.cat(drawn)
        ctx.mark_non_differentiable(right, drawn_M)
        return loss, right, drawn_M

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dloss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        dhidden, dtable, dbias = ctx.saved_tensors
        dtypes = dhidden.dtype, *ctx.dtypes
        # In place: nobody else has them, and a table is large.
        return (
            *(x.mul_(dloss).to(dtype) for x, dtype in zip((dhidden, dtable, dbias), dtypes, strict=True)),
            None,
            None,
            None,
        )


def _padded(rows: Tensor, more: int, dtype: torch.dtype) -> Tensor:
    """Cast, and with some rows of nothing after them, in one go: a table is large."""
    if not more:
        return rows.to(dtype)
    padded = rows.new_empty((len(rows) + more, *rows.shape[1:]), dtype=dtype)
    padded[: len(rows)] = rows
    padded[len(rows) :] = 0
    return padded


def _chunks(number: int, *columns: Tensor | None) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Of equal lengths, nearly; none of nothing."""
    if number:
        parts = [[None] * number if column is None else column.tensor_split(number) for column in columns]
        yield from zip(*parts, strict=True)


def _added(total: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    """total + a b in float32, in place; a b alone if there is no total yet."""
    if a.is_cuda and a.dtype != torch.float32:
        if total is None:
            return torch.mm(a, b, out_dtype=torch.float32)
        return torch.addmm(total, a, b, out_dtype=torch.float32, out=total)
    product = a.float() @ b.float()
    return product if total is None else total.add_(product)


def _rows(
    logits_MV: Tensor,
    pieces: int,  # noqa: ARG001 - of the logits that are any, in the kernel's
    targets_M: Tensor,
    noise_M: Tensor | None,
    learn: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Losses, which are right, and samples; with `learn` the logits become their gradient, whose sum over the positions
    comes with it."""
    full_MV = logits_MV.float()
    loss_M = F.cross_entropy(full_MV, targets_M, reduction="none")
    right_M = full_MV.argmax(-1) == targets_M
    drawn_M = targets_M if noise_M is None else sample(full_MV, noise_M)
    if not learn:
        return loss_M, right_M, drawn_M, None
    gradient_MV = full_MV.softmax(-1)
    gradient_MV[torch.arange(len(targets_M), device=targets_M.device), targets_M] -= 1
    logits_MV.copy_(gradient_MV)
    return loss_M, right_M, drawn_M, gradient_MV.sum(0)


def sample(logits_MV: Tensor, noise_M: Tensor) -> Tensor:
    """One draw per row from softmax(logits) at temperature 1, by inverting the cumulative distribution at `noise`.

    In what order the pieces are added up does not matter, as long as it is always the same: piece 0, LANES, 2 LANES and
    so on first, then 1, LANES + 1, ..., as the kernel finds it easy.
    """
    place_V = torch.arange(logits_MV.shape[-1], device=logits_MV.device)
    order_V = torch.argsort(place_V % LANES, stable=True)
    cumulative_MV = torch.softmax(logits_MV.float(), -1)[:, order_V].cumsum(-1)
    # The last entry is 1 up to rounding; scaling by it keeps every draw inside the vocabulary.
    drawn_M = torch.searchsorted(cumulative_MV, noise_M[:, None] * cumulative_MV[:, -1:], right=True).squeeze(-1)
    return order_V[drawn_M.clamp(max=len(order_V) - 1)]
