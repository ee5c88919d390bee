"""experiments/trim.py: sizes and scores of trimmed encoders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.export.conftest import train  # noqa: F401 - a fixture
from tests.load_script import load_script

script: Any = load_script("experiments/trim.py")


def test_sizes_of_a_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "SHAPES", {"tiny": (1, 24)})
    whole, single, half = script.measure_shapes(tmp_path, rows=2000, kept=100)
    assert [row["entries"] for row in (whole, single, half)] == [2000, 100, 100]
    assert whole["weights MB"] - single["weights MB"] == pytest.approx(1900 * 24 * 4 / 1e6, abs=0.02)
    assert half["weights MB"] < 0.6 * single["weights MB"]


def test_an_encoder_is_scored_before_and_after(synth_folder: Path, train: Any, tmp_path: Path) -> None:  # noqa: F811
    from crossling.export import export

    model = export(train("xlm_r"), tmp_path / "model")
    tests = script.find_pairs(synth_folder / "data" / "tatoeba" / "v1", "qaa", "qab")
    text = {code: script.read_lines(synth_folder / "corpora" / "text" / f"{code}.txt") for code in ("qaa", "qab")}
    before, *after = script.measure(model, "tiny", {len(text["qaa"]): text}, tests, tmp_path / "work")
    assert [row["precision"] for row in after] == ["as stored", "half", "int8"]
    for row in after:
        assert row["entries"] < before["entries"]
        assert row["folder MB"] < before["folder MB"]
        assert 0 <= row["retrieval"] <= 100
