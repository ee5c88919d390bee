from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from crossling.evaluate.encode import Encoder

from .tiny import make_model, make_tokenizer


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Tiny tensors on many threads spend their time waiting, the more so beside other test processes."""
    torch.set_num_threads(1)


@pytest.fixture
def encoder() -> Encoder:
    return Encoder(make_model(), make_tokenizer(), "runs/tiny")


@pytest.fixture
def write() -> Callable[[Path, str], Path]:
    def write(path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def real_data() -> Path:
    """The folder of real benchmarks, where there is one."""
    root = os.environ.get("CROSSLING_DATA")
    if not root or not (Path(root) / "eval" / "tatoeba").is_dir():
        pytest.skip("CROSSLING_DATA names no folder with the real benchmarks")
    return Path(root) / "eval"
