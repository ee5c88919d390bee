"""The script experiments/scale.py: its shards can be read, and a step of training finds its examples in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.load_script import load_script


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_step_is_read_from_sparse_shards(tmp_path: Path) -> None:
    script = load_script("experiments/scale.py")
    script.write_shards(tmp_path, tokens=10**9, languages=3, pairs=2)
    assert sum(file.stat().st_blocks for file in (tmp_path / "text").rglob("*.npy")) < 1000
    found = script.measure(tmp_path)
    assert {*found} == {"plan_seconds", "first_step_seconds", "later_step_seconds", "own_mib", "mapped_mib"}
    assert found["plan_seconds"] > 0
