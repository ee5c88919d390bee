"""The benchmark of start-up runs commands and reads the time to their first result. Values are not tested."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from crossling.bench import bench, bench_start
from crossling.bench.bench_start import CommandStart, start_command


def test_time_to_a_line_of_a_command() -> None:
    start = start_command(["evaluate", "--help"], "Usage: ", {"COLUMNS": "80"})
    assert start.seconds > 0
    assert start.cpu_seconds > 0
    assert start.peak_gib > 0
    assert "crossling evaluate" in start.line


def test_a_command_without_the_line_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"crossling absent printed no 'links', but: .*absent"):
        start_command(["absent"], "links", {})


def test_rows_of_start_up(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(2, timeout=60)
    caches = []

    def start(arguments: Sequence[str | Path], pattern: str, environment: dict[str, str]) -> CommandStart:
        line, seconds = "0-0", 1.0
        if pattern == "first step after":
            line = (
                "crossling: note: first step after 9.0 s (4.0 s before training, 2.0 s loading data, 3.0 s in the step)"
            )
            seconds = 9.0
            caches.append(environment["TORCHINDUCTOR_CACHE_DIR"])
            out = str(arguments[-1])
            if "-2-" in out:
                seconds += together.wait()
        return CommandStart(seconds, line, cpu_seconds=5.0, peak_gib=0.5)

    monkeypatch.setattr(bench_start, "start_command", start)
    found: dict[str, Any] = {row.name: row.ours for row in bench(["start-up"])}
    parts = {"before training": 4.0, "loading data": 2.0, "in the step": 3.0}
    one = {"first step": 9.0, "CPU time": 5.0, **parts}
    assert found == {
        "align: first output": 1.0,
        "align: CPU time": 5.0,
        "align: memory of the host": 512.0,
        "pretrain: refusal of a misspelt setting": 1.0,
        **{f"{part}, one process, {cache} cache": one[part] for cache in ("cold", "warm") for part in one},
        "first step, two at once, cold cache": 10.0,  # the slower one
        "CPU time, two at once, cold cache": 10.0,
    }
    assert caches[0] == caches[1] != caches[2]
    assert len({*caches[2:]}) == 1
