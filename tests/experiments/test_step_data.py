"""The script experiments/step_data.py: what it reports of small corpora."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.load_script import load_script

script = load_script("experiments/step_data.py")


def test_balanced_processes_are_nearer_to_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "TOKENS", 1 << 15)
    monkeypatch.setattr(script, "PAIRS", 300)
    monkeypatch.setattr(script, "WORLD_SIZES", (8,))
    [row] = script.measure_balance("pairs", script.example_groups(3)["pairs of 3 corpora"], steps=2)
    assert row["world_size"] == 8
    assert row["balanced_percent"] <= 1 < row["consecutive_percent"]


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs /proc")
def test_examples_of_shuffle_windows_are_near_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "TOKENS", 1 << 13)
    file = script.write_text(tmp_path, 1 << 20)
    plain, windowed = (script.measure_reads(file, window) for window in (None, 1 << 12))
    assert plain["page_faults"] > 0
    assert windowed["1_corpora"]["near_percent"] > plain["1_corpora"]["near_percent"]
