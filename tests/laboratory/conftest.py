from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crossling.data.shards import Shards
from crossling.laboratory.lab import lab

from .made import Lab, written


@pytest.fixture
def work(shards: Shards, babel_folder: Path, tmp_path: Path) -> Lab:
    """`lab` of a small plan with some changes, in tmp_path/lab."""

    def run(*, only: list[str] | None = None, minutes: float | None = None, **changes: Any) -> dict[str, Any]:
        file = written(tmp_path, **changes)
        return lab(file, tmp_path / "lab", shards.path, babel_folder / "data", only=only, minutes=minutes)

    return run
