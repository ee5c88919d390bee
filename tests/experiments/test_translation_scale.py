"""The script experiments/translation_scale.py: its shards can be read, and memory is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.load_script import load_script


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_steps_are_read_from_sparse_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script("experiments/translation_scale.py")
    script.write_shards(tmp_path, pairs=60_000)
    tokens = [*tmp_path.rglob("*.tokens.npy")]
    assert len(tokens) == 2
    assert sum(file.stat().st_blocks for file in tokens) < 100
    monkeypatch.setattr(script, "LATER_STEP", 7)
    found = script.measure(tmp_path)
    assert found["first_step_seconds"] > 0
    assert found["steps_per_megabatch"] > 1
    assert found["mapped_mib"] >= 0
