"""Stored predictions of a model, one JSON line per example, so that scores can be recomputed.

FOLDER/predictions/TASK/SPLIT-LANGUAGE[.DIRECTION].jsonl
    {"id": "7", "prediction": "neutral", "statistics": {"xtreme/accuracy": [1, 1]}}

The statistics are those of the metrics (metrics.py): their sums give scores, confidence intervals and significance
tests without the data. Tasks that score every layer store a list by layer for each prediction and statistic.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crossling.core.errors import BadInput
from crossling.core.files import atomic_file
from crossling.core.progress import print_status
from crossling.core.resumable import PartialOutput, fingerprint

PREDICTIONS_FOLDER = "predictions"


@dataclass(frozen=True)
class ExamplePrediction:
    """Prediction of one example and its statistics by metric."""

    id: str
    prediction: Any
    statistics: dict[str, Any]


def write_predictions(
    folder: Path,
    *,
    task: str,
    split: str,
    language: str,
    rows: Iterable[ExamplePrediction],
    direction: str | None = None,
) -> Path:
    """Write the predictions of one test set and return the path."""
    name = f"{split}-{language}.{direction}.jsonl" if direction else f"{split}-{language}.jsonl"
    path = folder / PREDICTIONS_FOLDER / task / name
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(vars(row), ensure_ascii=False) + "\n")
    return path


def read_predictions(path: Path) -> list[ExamplePrediction]:
    """Return the predictions of a file."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line:
            continue
        try:
            rows.append(ExamplePrediction(**json.loads(line)))
        except (ValueError, TypeError):
            raise BadInput(f"{path}: line {number}: not a prediction. Run the evaluation again.") from None
    return rows


def find_prediction_files(folder: Path) -> list[Path]:
    """Return all prediction files below a folder, including its seeds. Skip hidden folders of unfinished work."""
    files = folder.glob(f"**/{PREDICTIONS_FOLDER}/*/*.jsonl")
    return sorted(path for path in files if not any(part[0] == "." for part in path.relative_to(folder).parts))


def compact_numbers(statistics_S: np.ndarray) -> list[float | int]:
    """Return whole numbers as integers. Most statistics are counts."""
    return [int(value) if value == int(value) else float(value) for value in statistics_S.tolist()]


# Finished sets of one task that one model is still evaluated on.
#
# FOLDER/.TASK-FINGERPRINT.partial/    see crossling.core.resumable
#     done.jsonl                       the scores of each finished set
#     predictions/
#
# Scores and predictions appear in FOLDER when the task is complete, so that models are never compared on a part of it.
# The name has the fingerprint of model and settings, so several models may be evaluated into one folder at a time.


class PartialResults(PartialOutput):
    """Journal of the score rows of finished sets. Predictions are written to its `folder` until `finish`."""

    def __init__(self, results: Path, task: str, description: Mapping[str, Any]) -> None:
        super().__init__(results / f"{task}-{fingerprint(description)[:16]}", description)
        self.results, self.task = results, task
        if self.count:
            print_status(f"{task}: resuming after {self.count} finished sets")

    def finish(self) -> None:
        """Move the predictions to the folder of the results and remove the journal."""
        for file in find_prediction_files(self.folder):
            target = self.results / file.relative_to(self.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.replace(target)
        self.discard()
