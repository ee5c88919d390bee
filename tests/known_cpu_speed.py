"""A fixed CPU speed, so that plans of tests measure nothing. A conftest.py imports the fixture."""

import pytest

from crossling.planning.cpu_speed import CpuSpeed

SPEED = CpuSpeed(flops=1e10, parameters=1e9)


@pytest.fixture(autouse=True)
def _known_cpu_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every plan be for a CPU of this speed."""
    monkeypatch.setattr("crossling.planning.cpu_speed.cpu_speed", lambda *_: SPEED)
