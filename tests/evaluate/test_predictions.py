"""What was predicted comes back as it was, and its statistics give the score."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crossling.errors import BadInput
from crossling.evaluate import predictions
from crossling.evaluate.predictions import Predicted

ROWS = [
    Predicted("0", "neutral", {"xtreme/accuracy": [1, 1]}),
    Predicted("ä 1", ["B-LOC", "O"], {"xtreme/accuracy": [0, 1]}),
    Predicted("2", 0.25, {"xtreme/accuracy": [0.5, 1]}),
]


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = predictions.write(tmp_path, "xnli", "test", "de", ROWS)
    assert path == tmp_path / "predictions" / "xnli" / "test-de.jsonl"
    assert predictions.read(path) == ROWS
    other = predictions.write(tmp_path / "seed-1", "tatoeba", "test", "de", ROWS[:1], direction="xx-en")
    assert other.name == "test-de.xx-en.jsonl"
    assert predictions.paths(tmp_path) == [path, other]


def test_counts_are_written_as_whole_numbers() -> None:
    assert predictions.plain(np.array([1.0, 0.5])) == [1, 0.5]


def test_a_damaged_line_is_told(tmp_path: Path) -> None:
    path = predictions.write(tmp_path, "xnli", "test", "de", ROWS)
    path.write_text(path.read_text() + '{"id": 3\n')
    with pytest.raises(BadInput, match=r"test-de\.jsonl: line 4 is no prediction"):
        predictions.read(path)
