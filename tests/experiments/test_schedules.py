"""experiments/schedules.py: every schedule is trained and scored alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.load_script import load_script

script: Any = load_script("experiments/schedules.py")


def test_every_schedule_has_its_rows(synth_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "VOCABULARY", 300)
    monkeypatch.setattr(script, "BATCH", ("mlm.tokens=128", "mlm.length=32", "tlm.tokens=128", "tlm.length=64"))
    chosen = {name: script.SCHEDULES[name] for name in ("30-15-5%, linear", "15%, WSD")}
    monkeypatch.setattr(script, "SCHEDULES", chosen)
    rows = script.compare(synth_folder, tmp_path, steps=6, seeds=1)
    ends = ["the last", "mean of 3, the last"]
    stable = ["before the cooldown", "mean of 3, before the cooldown"]
    expected = [("30-15-5%, linear", end) for end in ends] + [("15%, WSD", end) for end in ends + stable]
    assert [(row["schedule"], row["model"]) for row in rows] == expected
    assert len({row["loss"] for row in rows}) == len(rows)


def test_held_out_lines_are_not_trained_on(synth_folder: Path, tmp_path: Path) -> None:
    train, held_out = script.split_text(synth_folder / "corpora", tmp_path)
    for file in (held_out / "text").iterdir():
        parts = [folder / "text" / file.name for folder in (train, held_out)]
        whole = (synth_folder / "corpora" / "text" / file.name).read_text()
        assert "".join(part.read_text() for part in parts) == whole
        assert len(parts[1].read_text().splitlines()) == pytest.approx(0.1 * len(whole.splitlines()), abs=1)
