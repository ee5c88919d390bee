from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from crossling.data.shards import Shards
from crossling.lab import comparison
from crossling.lab.lab import lab

from .tiny_plan import RunLab, write_plan


@pytest.fixture
def real_pages() -> None:
    """Let a lab draw its charts and its report."""


@pytest.fixture(autouse=True)
def _empty_pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write empty charts and reports, which take most of the time of a tiny lab, unless a test needs `real_pages`."""
    if "real_pages" not in request.fixturenames:
        monkeypatch.setattr(comparison, "line_chart", lambda *_, **__: "<svg></svg>")
        monkeypatch.setattr(sys.modules["crossling.lab.lab"], "report", lambda _, out: out.write_text("<html></html>"))


@pytest.fixture
def run_lab(shards: Shards, synth_folder: Path, tmp_path: Path) -> RunLab:
    """Run a tiny plan with some changes in tmp_path/lab."""

    def run(*, only: list[str] | None = None, minutes: float | None = None, **changes: Any) -> dict[str, Any]:
        file = write_plan(tmp_path, **changes)
        return lab(file, tmp_path / "lab", shards.path, synth_folder / "data", only=only, minutes=minutes)

    return run
