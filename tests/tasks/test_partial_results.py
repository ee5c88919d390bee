"""Results of an unfinished evaluation are stored, resumed and published as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossling.tasks import predictions
from crossling.tasks.predictions import ExamplePrediction, PartialResults

ROWS = [{"task": "tatoeba", "value": 50.0}]


def start(folder: Path, model: str = "a") -> PartialResults:
    return PartialResults(folder, "tatoeba", {"model": model})


def store(partial: PartialResults, language: str) -> None:
    rows = [ExamplePrediction("1", "x", {})]
    predictions.write_predictions(partial.folder, task="tatoeba", split="test", language=language, rows=rows)
    partial.record(language, ROWS, "files")


def test_resume_after_finished_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store(start(tmp_path), "de")
    resumed = start(tmp_path)
    assert resumed.done("de", "files") == ROWS
    assert resumed.done("de", "other files") is None
    assert "tatoeba: resuming after 1 finished sets" in capsys.readouterr().err


def test_predictions_appear_when_the_task_is_finished(tmp_path: Path) -> None:
    partial = start(tmp_path)
    store(partial, "de")
    assert predictions.find_prediction_files(tmp_path) == []
    partial.finish()
    assert [file.name for file in predictions.find_prediction_files(tmp_path)] == ["test-de.jsonl"]
    assert [path.name for path in tmp_path.iterdir()] == ["predictions"]


def test_models_are_evaluated_into_one_folder_at_the_same_time(tmp_path: Path) -> None:
    store(start(tmp_path, "a"), "de")
    assert start(tmp_path, "b").done("de", "files") is None
    assert start(tmp_path, "a").done("de", "files") == ROWS
