"""Values at some positions of packed rows."""
# B rows, L positions, P = B x L positions of all rows, M selected positions

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def gather_positions(values_BL: Tensor, position_M: Tensor) -> Tensor:
    """Return the values at some positions of the flattened rows, [M, ...].

    Positions are distinct, except that padding is one past the end. There the value is the last one, and its gradient
    is ignored.
    """
    return _Gather.apply(values_BL.flatten(0, 1), position_M)


class _Gather(torch.autograd.Function):
    """Selection of distinct rows. Their gradients are stored and not added, which is deterministic and fast."""

    @staticmethod
    def forward(ctx: Any, values_P: Tensor, position_M: Tensor) -> Tensor:
        ctx.save_for_backward(position_M)
        ctx.positions = len(values_P)
        return values_P.index_select(0, position_M.clamp(max=len(values_P) - 1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_M: Tensor) -> tuple[Tensor, None]:
        [position_M] = ctx.saved_tensors
        gradient_P = gradient_M.new_zeros(ctx.positions + 1, *gradient_M.shape[1:])
        return gradient_P.index_copy(0, position_M, gradient_M)[:-1], None
