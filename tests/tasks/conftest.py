from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def put(tmp_path: Path) -> Callable[[str, str], Path]:
    """Write a file below the data folder, compressed if its name ends with .gz. Return the path without .gz."""

    def put(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = text.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path.with_name(path.name.removesuffix(".gz"))

    return put


@pytest.fixture
def real_data() -> Path:
    """The folder of the real benchmarks. Skip the test if there is none."""
    root = os.environ.get("CROSSLING_DATA")
    if not root or not (Path(root) / "eval" / "xnli").is_dir():
        pytest.skip("CROSSLING_DATA is not a folder with the real benchmarks")
    return Path(root) / "eval"
