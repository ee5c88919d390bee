from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crossling.data.shards import Shards
from crossling.lab.lab import lab

from .tiny_plan import RunLab, write_plan


@pytest.fixture
def run_lab(shards: Shards, synth_folder: Path, tmp_path: Path) -> RunLab:
    """Run a tiny plan with some changes in tmp_path/lab."""

    def run(*, only: list[str] | None = None, minutes: float | None = None, **changes: Any) -> dict[str, Any]:
        file = write_plan(tmp_path, **changes)
        return lab(file, tmp_path / "lab", shards.path, synth_folder / "data", only=only, minutes=minutes)

    return run
