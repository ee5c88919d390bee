"""Run the kernel tests in Triton's interpreter, which must be enabled before Triton is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .kernel_comparison import IS_INTERPRETED, ON_GPU

FILES = ["attention_op", "model_kernels", "residual_gelu", "prediction", "quantize_rows"]


@pytest.mark.skipif(ON_GPU or IS_INTERPRETED, reason="the kernel tests run in this process")
@pytest.mark.parametrize("cases", ["not soak", pytest.param("soak", marks=pytest.mark.soak)])
def test_kernels_in_the_interpreter(cases: str) -> None:
    files = [str(Path(__file__).parent / f"test_{name}.py") for name in FILES]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", cases, *files]
    ended = subprocess.run(
        command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=600, check=False
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-1000:]
    assert "passed" in ended.stdout
