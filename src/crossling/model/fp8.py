"""Linear layers that train with products in fp8.

Each row x of an operand has its own scale, computed at every call, by which its largest value becomes 448:

    s = max |x| / 448,    q = round(x / s) in e4m3,    y[m, n] = s[m] t[n] sum_k q[m, k] p[n, k]

The forward pass multiplies rows of the input by rows of the weights, and the backward pass rows of the gradient by
columns of the weights. Gradients are in e4m3 too: with a scale for each row they need the precision of e4m3 more than
the range of e5m2. The gradient of the weights is computed in bfloat16. Parameters and their gradients stay in float32.
"""
# M tokens, K inputs, N outputs

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossling.model.kernels.device import supports_kernels

kernel: Any = None
if torch.cuda.is_available():  # kernels run on GPUs only, and the import of Triton takes long
    with suppress(ImportError, AttributeError):  # Triton is missing or of another version
        from crossling.model.kernels import quantize_rows as kernel

FP8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FP8).max
SMALLEST_SCALE = torch.finfo(torch.float32).tiny  # of a row of zeros


class Fp8Rows(NamedTuple):
    """Matrix in fp8 with a scale for each row."""

    values_MK: Tensor
    scale_M1: Tensor

    @classmethod
    def quantize(cls, values_MK: Tensor) -> Fp8Rows:
        """Round a matrix to fp8."""
        if kernel is not None and supports_kernels(values_MK.device):
            return cls(*kernel.quantize_rows(values_MK))
        exact_MK = values_MK.float()
        scale_M1 = (exact_MK.abs().amax(1, keepdim=True) / LARGEST).clamp(min=SMALLEST_SCALE)
        # Values beyond the largest one would become NaN.
        return cls((exact_MK / scale_M1).clamp(-LARGEST, LARGEST).to(FP8).contiguous(), scale_M1)

    def dequantize(self) -> Tensor:
        """Return the matrix in float32."""
        return self.values_MK.float() * self.scale_M1


def multiply_rows(left: Fp8Rows, right: Fp8Rows, dtype: torch.dtype, bias_N: Tensor | None = None) -> Tensor:
    """Return the products of the rows of two matrices, [M, K] x [N, K] -> [M, N].

    On a GPU, sums over K are accumulated in the tensor cores, and the result is rounded to bfloat16. On other devices
    plain torch multiplies the rounded operands in float32.
    """
    if not left.values_MK.is_cuda:
        product_MN = left.dequantize() @ right.dequantize().t()
        return (product_MN if bias_N is None else product_MN + bias_N).to(dtype)
    # The fast accumulation has about 14 bits, far more than the operands, and K is a few thousand at most.
    return torch._scaled_mm(
        left.values_MK,
        right.values_MK.t(),
        left.scale_M1,
        right.scale_M1.t(),
        bias=None if bias_N is None else bias_N.to(torch.bfloat16),
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
    ).to(dtype)


# The products are operators of their own: torch.compile returned zeros as the gradients of an autograd.Function with
# these operators inside (torch 2.11).
@torch.library.custom_op("crossling::fp8_product", mutates_args=())
def fp8_product(x_MK: Tensor, weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:
    """Return x @ weight.T + bias, with both operands rounded to fp8."""
    return multiply_rows(Fp8Rows.quantize(x_MK), Fp8Rows.quantize(weight_NK), x_MK.dtype, bias_N)


@fp8_product.register_fake
def _(x_MK: Tensor, weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:  # noqa: ARG001
    return x_MK.new_empty((len(x_MK), len(weight_NK)))


@torch.library.custom_op("crossling::fp8_input_gradient", mutates_args=())
def fp8_input_gradient(dy_MN: Tensor, weight_NK: Tensor) -> Tensor:
    """Return dy @ weight, with both operands rounded to fp8."""
    return multiply_rows(Fp8Rows.quantize(dy_MN), Fp8Rows.quantize(weight_NK.t()), dy_MN.dtype)


@fp8_input_gradient.register_fake
def _(dy_MN: Tensor, weight_NK: Tensor) -> Tensor:
    return dy_MN.new_empty((len(dy_MN), weight_NK.shape[1]))


def _save_operands(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:  # noqa: ARG001
    x_MK, weight_NK, bias_N = inputs  # the input is stored unrounded, for the gradient of the weights
    ctx.save_for_backward(x_MK, weight_NK)
    ctx.bias_dtype = None if bias_N is None else bias_N.dtype


def _gradients(ctx: Any, dy_MN: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    x_MK, weight_NK = ctx.saved_tensors
    # The sums of the weights' gradient run over tokens, so fp8 would need both operands a second time: transposed,
    # with scales for each column.
    dweight_NK = (dy_MN.t() @ x_MK).to(weight_NK.dtype)
    dbias_N = None if ctx.bias_dtype is None else dy_MN.sum(0, dtype=torch.float32).to(ctx.bias_dtype)
    return fp8_input_gradient(dy_MN, weight_NK), dweight_NK, dbias_N


fp8_product.register_autograd(_gradients, setup_context=_save_operands)


class Fp8Linear(nn.Linear):
    """Linear layer that multiplies in fp8 while it is trained, and as `nn.Linear` in evaluation.

    Both sides of its matrix must be multiples of 16.
    """

    @classmethod
    def from_linear(cls, linear: nn.Linear) -> Self:
        """Return a layer with the parameters of another one."""
        has_bias = linear.bias is not None
        layer = cls(linear.in_features, linear.out_features, bias=has_bias, device="meta")
        layer.weight = linear.weight
        if has_bias:
            layer.bias = linear.bias
        return layer.train(linear.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output, [..., N]."""
        return self.multiply(x, self.bias)

    def multiply(self, x: Tensor, bias_N: Tensor | None = None) -> Tensor:
        """Return the output with another bias or with none, [..., N]."""
        if not self.training:
            return F.linear(x, self.weight, bias_N)
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        y_MN: Tensor = fp8_product(x.flatten(0, -2), self.weight, bias_N)
        return y_MN.view(*x.shape[:-1], self.out_features)
