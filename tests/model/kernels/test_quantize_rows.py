"""Rows in fp8 by the kernel equal those of plain torch."""

from __future__ import annotations

import pytest
import torch

from .kernel_comparison import DEVICE, IS_INTERPRETED, needs_kernels, random

kernel = pytest.importorskip("crossling.model.kernels.quantize_rows")
LARGEST = torch.finfo(torch.float8_e4m3fn).max


@needs_kernels
@pytest.mark.parametrize("shape", [(7, 40), (3, 300), (1, 16)])
def test_rows_and_scales(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x_MK = random(*shape) * torch.logspace(-6, 2, shape[0], device=DEVICE)[:, None]
    x_MK[-1] = 0
    q_MK, scale_M1 = kernel.quantize_rows(x_MK)
    expected_M1 = (x_MK.abs().amax(1, keepdim=True) / LARGEST).clamp(min=torch.finfo(torch.float32).tiny)
    torch.testing.assert_close(scale_M1, expected_M1)
    assert not q_MK[-1].float().any()
    if not IS_INTERPRETED:  # the interpreter of Triton rounds 127 to 64 and not to 128
        exact_MK = (x_MK / expected_M1).clamp(-LARGEST, LARGEST)
        error = (q_MK.float() - exact_MK).abs()
        assert (error <= exact_MK.abs() * 2.0**-4 + 2.0**-10).all()


@needs_kernels
@pytest.mark.skipif(IS_INTERPRETED, reason="the interpreter of Triton has no NaN in fp8")
def test_values_that_are_not_finite_become_nan() -> None:
    x_MK = random(4, 32)
    x_MK[1, 3], x_MK[2, 0] = float("nan"), float("inf")
    q_MK, scale_M1 = kernel.quantize_rows(x_MK)
    is_finite_M = (q_MK.float() * scale_M1).isfinite().all(1)
    assert is_finite_M.tolist() == [True, False, False, True]
