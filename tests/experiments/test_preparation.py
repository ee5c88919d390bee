"""The script experiments/preparation.py: every stage of a small text has a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossling.core.files import read_json
from tests.load_script import load_script


def test_every_stage_has_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script("experiments/preparation.py")
    for name, value in {"WORDS": 200, "LINES_AT_ONCE": 100, "SIZE": 300}.items():
        monkeypatch.setattr(script, name, value)
    monkeypatch.setattr(script.tokenize_module, "run_jobs", script.tokenize_module.run_jobs)  # restored at the end
    arguments = [
        "preparation.py",
        "--gigabytes",
        "1e-4",
        "--work",
        str(tmp_path),
        "--results",
        str(tmp_path / "results"),
    ]
    monkeypatch.setattr("sys.argv", arguments)
    script.main()
    [file] = (tmp_path / "results").iterdir()
    result = read_json(file)
    stages = ["vocab: read", "tokenize: read", "tokenize: tokenize"]
    assert [row["stage"] for row in result["rows"]] == stages
    assert result["rows"][-1]["tokens"] > 0
    assert sum(result["slices"].values()) == len(result["slices"]) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
