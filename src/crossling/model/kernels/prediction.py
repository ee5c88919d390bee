r"""Prediction of masked tokens: loss, gradient and samples in one pass over chunks of positions.

    l_m = h_m W^T + b,    loss = sum over m of log sum_v exp l_mv - l_m,target,    dloss/dl_m = softmax(l_m) - onehot

The logits of all positions would take gigabytes with a vocabulary of 250,000. Only those of one chunk exist at a time.
Their gradient overwrites them and is added to the gradients of h, W and b at once.
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

from crossling.model.kernels.device import supports_kernels

kernel: Any
try:
    from crossling.model.kernels import prediction_triton as kernel
except (ImportError, AttributeError):  # Triton is missing or of another version
    kernel = None

IGNORE_INDEX = -100  # target of a position without a prediction, as in Hugging Face
CHUNK_BYTES = 1 << 31  # of the logits that exist at a time
LANES = 4096  # logits that the kernel reads at once


@dataclass(frozen=True)
class TokenPrediction:
    """Loss, accuracy and samples of masked positions."""

    loss: Tensor  # sum over positions
    correct: Tensor  # number of positions at which the most likely token is the target
    sampled_M: Tensor  # tokens sampled at temperature 1; empty without noise


def predict(
    hidden_MD: Tensor, table_VD: Tensor, bias_V: Tensor, targets_M: Tensor, noise_M: Tensor | None = None
) -> TokenPrediction:
    """Predict the target of each position and sample a token.

    A position whose target is -100 adds nothing to the loss and to the gradients. `noise_M` holds one number from
    [0, 1) for each position: the quantile of the distribution to sample.
    """
    needs_gradient = torch.is_grad_enabled() and any(x.requires_grad for x in (hidden_MD, table_VD, bias_V))
    return TokenPrediction(*_Prediction.apply(hidden_MD, table_VD, bias_V, targets_M, noise_M, needs_gradient))


class _Prediction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_MD: Tensor,
        table_VD: Tensor,
        bias_V: Tensor,
        targets_M: Tensor,
        noise_M: Tensor | None,
        needs_gradient: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        device = hidden_MD.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden_MD.dtype
        hidden, vocab_size = hidden_MD.to(dtype), len(table_VD)
        uses_kernel = kernel is not None and supports_kernels(hidden.device)
        process_rows = partial(kernel.process_rows, lanes=LANES) if uses_kernel else _process_rows
        # GPUs multiply matrices whose sides are multiples of 64 several times faster than others.
        padding = -vocab_size % 64 if uses_kernel else 0
        table, bias = (_pad_rows(values, padding, dtype) for values in (table_VD, bias_V))
        loss, correct = hidden.new_zeros((), dtype=torch.float32), targets_M.new_zeros(())
        sampled = [targets_M[:0]]
        # Sums over chunks are in float32, whatever the precision of the products.
        dhidden, dtable, dbias = [hidden[:0]], None, torch.zeros_like(bias, dtype=torch.float32)
        chunks = -(-hidden.shape[0] * table.shape[0] * hidden.element_size() // CHUNK_BYTES)
        with torch.autocast(device, enabled=False):
            for x, target, noise in _split_chunks(chunks, hidden, targets_M, noise_M):
                logits = torch.addmm(bias, x, table.T)
                losses, hits, samples, gradients = process_rows(logits, vocab_size, target, noise, needs_gradient)
                loss, correct = loss + losses.sum(), correct + hits.sum()
                sampled += [samples] if noise is not None else []
                if gradients is not None:
                    dhidden.append(logits @ table)
                    dtable = _add_product(dtable, logits.T, x)
                    dbias += gradients
        if needs_gradient:
            dtable = torch.zeros_like(table, dtype=torch.float32) if dtable is None else dtable
            ctx.save_for_backward(torch.cat(dhidden).to(hidden_MD.dtype), dtable[:vocab_size], dbias[:vocab_size])
            ctx.dtypes = table_VD.dtype, bias_V.dtype
        sampled_M = torch.cat(sampled)
        ctx.mark_non_differentiable(correct, sampled_M)
        return loss, correct, sampled_M

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dloss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        dhidden, dtable, dbias = ctx.saved_tensors
        dtypes = dhidden.dtype, *ctx.dtypes
        # In place: nothing else uses them, and a table is large.
        gradients = zip((dhidden, dtable, dbias), dtypes, strict=True)
        return *(x.mul_(dloss).to(dtype) for x, dtype in gradients), None, None, None


def _pad_rows(rows: Tensor, padding: int, dtype: torch.dtype) -> Tensor:
    """Cast a table and append rows of zeros in one copy: a table is large."""
    if not padding:
        return rows.to(dtype)
    padded = rows.new_empty((len(rows) + padding, *rows.shape[1:]), dtype=dtype)
    padded[: len(rows)] = rows
    padded[len(rows) :] = 0
    return padded


def _split_chunks(number: int, *columns: Tensor | None) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Yield chunks of nearly equal length, or none if there are no positions."""
    if number:
        parts = [[None] * number if column is None else column.tensor_split(number) for column in columns]
        yield from zip(*parts, strict=True)


def _add_product(total: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    """Return total + a b in float32, in place, or a b if there is no total yet."""
    if a.is_cuda and a.dtype != torch.float32:
        if total is None:
            return torch.mm(a, b, out_dtype=torch.float32)
        return torch.addmm(total, a, b, out_dtype=torch.float32, out=total)
    product = a.float() @ b.float()
    return product if total is None else total.add_(product)


def _process_rows(
    logits_MV: Tensor,
    vocab_size: int,  # noqa: ARG001 - the kernel's logits have padding after it
    targets_M: Tensor,
    noise_M: Tensor | None,
    needs_gradient: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return losses, correct predictions, samples, and the gradient's sum over positions.

    With `needs_gradient` the gradient overwrites the logits.
    """
    full_MV = logits_MV.float()
    loss_M = F.cross_entropy(full_MV, targets_M, reduction="none", ignore_index=IGNORE_INDEX)
    correct_M = full_MV.argmax(-1) == targets_M
    sampled_M = targets_M if noise_M is None else sample_tokens(full_MV, noise_M)
    if not needs_gradient:
        return loss_M, correct_M, sampled_M, None
    is_ignored_M = targets_M == IGNORE_INDEX
    gradient_MV = full_MV.softmax(-1)
    gradient_MV[torch.arange(len(targets_M), device=targets_M.device), targets_M.where(~is_ignored_M, 0)] -= 1
    gradient_MV = gradient_MV.masked_fill(is_ignored_M[:, None], 0.0)
    logits_MV.copy_(gradient_MV)
    return loss_M, correct_M, sampled_M, gradient_MV.sum(0)


def sample_tokens(logits_MV: Tensor, noise_M: Tensor) -> Tensor:
    """Sample one token per row from softmax(logits) at temperature 1, by inverse transform sampling at `noise_M`.

    The cumulative sum runs over tokens 0, LANES, 2 LANES, ..., then 1, LANES + 1, ..., the order of the kernel. Any
    fixed order gives the same distribution.
    """
    token_V = torch.arange(logits_MV.shape[-1], device=logits_MV.device)
    order_V = torch.argsort(token_V % LANES, stable=True)
    cumulative_MV = torch.softmax(logits_MV.float(), -1)[:, order_V].cumsum(-1)
    # The last entry is 1 up to rounding. Scaling by it keeps every sample inside the vocabulary.
    index_M = torch.searchsorted(cumulative_MV, noise_M[:, None] * cumulative_MV[:, -1:], right=True).squeeze(-1)
    return order_V[index_M.clamp(max=len(order_V) - 1)]
