"""Plans of these tests are for a CPU of known speed."""

from __future__ import annotations

import pytest

from tests.known_cpu_speed import SPEED


@pytest.fixture(autouse=True)
def _known_cpu_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossling.planning.cpu_speed.cpu_speed", lambda *_: SPEED)
