"""Comparison of the Triton kernels with plain torch, in value and gradient.

On a GPU run `pytest --noconftest tests/model/kernels`. Elsewhere test_triton_interpreter.py runs them in Triton's
interpreter, which needs seconds for each case. There the larger cases run in `make soak` only.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

triton = pytest.importorskip("triton")

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
IS_INTERPRETED = bool(triton.knobs.runtime.interpret)
needs_kernels = pytest.mark.skipif(not (ON_GPU or IS_INTERPRETED), reason="needs a GPU or Triton's interpreter")
soak = pytest.mark.soak
# Products are bfloat16 on the GPU and float32 in the interpreter.
DTYPE, TOLERANCE = (torch.bfloat16, 2e-2) if ON_GPU else (torch.float32, 1e-5)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE)


def random_states(*shape: int) -> Tensor:
    """Return random numbers that are exact in the kernel's precision."""
    return random(*shape).to(DTYPE).float()


def assert_near(found: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> None:
    assert found.shape == expected.shape
    difference, size = (found.float() - expected.float()).norm(), expected.float().norm()
    assert difference <= tolerance * size, f"{difference / size:.2e}"
