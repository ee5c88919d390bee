"""Fused residual-add, LayerNorm and GELU against plain torch, in value and gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from crossling.model import encoder
from crossling.model.config import CrosslingConfig

from .kernel_comparison import DEVICE, DTYPE, assert_near, needs_kernels, random, random_states, soak

block_kernel = pytest.importorskip("crossling.model.kernels.residual_gelu")


def keep_states(seed: int, rows: int, width: int, dropout: float) -> Tensor:
    """Return the kernel's dropout mask, computed with Python integers."""
    index = torch.arange(rows * width, dtype=torch.int64) ^ seed
    index = index * 0x9E3779B1 & 0xFFFFFFFF
    index = (index ^ (index >> 15)) * 0x2C1B3C6D & 0xFFFFFFFF
    index = (index ^ (index >> 12)) * 0x297A2D39 & 0xFFFFFFFF
    return ((index >> 8) >= round(dropout * (1 << 24))).float().view(rows, width).to(DEVICE)


@needs_kernels
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("shape", [(2, 7, 40), (3, 10, 64), (1, 1, 8), pytest.param((3, 50, 64), marks=soak)])
def test_residual_add_and_norm(shape: tuple[int, int, int], dropout: float) -> None:
    torch.manual_seed(7)
    width = shape[-1]
    given = [random_states(*shape), random_states(*shape), random(width), random(width)]
    upstream, seed = random_states(*shape), torch.tensor([12345], device=DEVICE)
    keep = keep_states(12345, shape[0] * shape[1], width, dropout).view(shape) / (1 - dropout)

    def run(uses_kernel: bool) -> list[Tensor]:
        x, branch, weight, bias = learned = [values.clone().requires_grad_() for values in given]
        if uses_kernel:
            args = (x.to(DTYPE), branch.to(DTYPE), weight, bias, 1e-5, seed if dropout else None, dropout)
            normed = block_kernel.residual_norm(*args)[0]
        else:
            normed = torch.nn.functional.layer_norm(x + branch * keep, (width,), weight, bias, 1e-5)
        return [normed, *torch.autograd.grad((normed.float() * upstream).sum(), learned)]

    found, expected = run(uses_kernel=True), run(uses_kernel=False)
    for value, reference in zip(found, expected, strict=True):
        assert_near(value, reference)
    assert all(torch.equal(value, again) for value, again in zip(found, run(uses_kernel=True), strict=True))


@needs_kernels
@pytest.mark.parametrize("shape", [(2, 7, 40), (3, 10, 1100), (1, 1, 8), pytest.param((3, 50, 1100), marks=soak)])
def test_gelu_with_a_bias(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(8)
    given, upstream = [3 * random_states(*shape), random(shape[-1])], random_states(*shape)

    def run(uses_kernel: bool) -> list[Tensor]:
        x, bias = learned = [values.clone().requires_grad_() for values in given]
        y = block_kernel.gelu(x.to(DTYPE), bias) if uses_kernel else torch.nn.functional.gelu(x + bias)
        return [y, *torch.autograd.grad((y.float() * upstream).sum(), learned)]

    found, expected = run(uses_kernel=True), run(uses_kernel=False)
    for value, reference in zip(found, expected, strict=True):
        assert_near(value, reference)
    assert all(torch.equal(value, again) for value, again in zip(found, run(uses_kernel=True), strict=True))


@needs_kernels
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_block_with_kernels_equals_a_plain_block(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(9)
    config = CrosslingConfig(
        hidden_size=32, intermediate_size=64, num_attention_heads=2, num_hidden_layers=1, vocab_size=20, norm=norm
    )
    block = encoder.Block(config).to(DEVICE, DTYPE).eval()
    hidden, upstream = random_states(2, 9, 32), random_states(2, 9, 32)

    def run(uses_kernel: bool) -> list[Tensor]:
        monkeypatch.setattr(encoder, "uses_block_kernels", lambda _: uses_kernel)
        x = hidden.to(DTYPE).requires_grad_()
        y = block(x, None, None)
        return [y, *torch.autograd.grad((y.float() * upstream).sum(), [x, *block.parameters()], allow_unused=True)]

    pairs = zip(run(uses_kernel=True), run(uses_kernel=False), strict=True)
    for value, reference in pairs:
        if reference is not None:
            assert_near(value, reference)
