from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crossling.core.errors import BadInput
from crossling.tasks import predictions
from crossling.tasks.predictions import ExamplePrediction

ROWS = [
    ExamplePrediction("0", "neutral", {"xtreme/accuracy": [1, 1]}),
    ExamplePrediction("ä 1", ["B-LOC", "O"], {"xtreme/accuracy": [0, 1]}),
    ExamplePrediction("2", 0.25, {"xtreme/accuracy": [0.5, 1]}),
]


def test_predictions_round_trip(tmp_path: Path) -> None:
    path = predictions.write_predictions(tmp_path, task="xnli", split="test", language="de", rows=ROWS)
    assert path == tmp_path / "predictions" / "xnli" / "test-de.jsonl"
    assert predictions.read_predictions(path) == ROWS
    other = predictions.write_predictions(
        tmp_path / "seed-1", task="tatoeba", split="test", language="de", rows=ROWS[:1], direction="xx-en"
    )
    assert other.name == "test-de.xx-en.jsonl"
    assert predictions.find_prediction_files(tmp_path) == [path, other]


def test_counts_are_written_as_whole_numbers() -> None:
    assert predictions.compact_numbers(np.array([1.0, 0.5])) == [1, 0.5]


def test_damaged_lines_are_refused(tmp_path: Path) -> None:
    path = predictions.write_predictions(tmp_path, task="xnli", split="test", language="de", rows=ROWS)
    path.write_text(path.read_text() + '{"id": 3\n')
    with pytest.raises(BadInput, match=r"test-de\.jsonl: line 4: not a prediction"):
        predictions.read_predictions(path)
