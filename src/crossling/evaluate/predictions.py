"""What a model predicted, kept so that scores can be computed again: a line of JSON for each example.

FOLDER/predictions/TASK/SPLIT-LANGUAGE[.DIRECTION].jsonl
    {"id": "7", "prediction": "neutral", "statistics": {"xtreme/accuracy": [1, 1]}}

The statistics are those of the metrics (metrics/metric.py): their sums give scores, intervals and tests without the
data. Measures of every layer keep a list by layer in the place of each prediction and statistic.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crossling.disk import new_file
from crossling.errors import BadInput

FOLDER = "predictions"


@dataclass(frozen=True)
class Predicted:
    id: str
    prediction: Any
    statistics: dict[str, Any]


def write(
    folder: Path, task: str, split: str, language: str, rows: Iterable[Predicted], direction: str | None = None
) -> Path:
    name = f"{split}-{language}.{direction}.jsonl" if direction else f"{split}-{language}.jsonl"
    path = folder / FOLDER / task / name
    with new_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(vars(row), ensure_ascii=False) + "\n")
    return path


def read(path: Path) -> list[Predicted]:
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line:
            continue
        try:
            rows.append(Predicted(**json.loads(line)))
        except (ValueError, TypeError):
            raise BadInput(f"{path}: line {number} is no prediction; measure again") from None
    return rows


def paths(folder: Path) -> list[Path]:
    """All files of predictions below a folder, those of its seeds too, in the order of their names; not those of an
    evaluation that is under way there."""
    found = folder.glob(f"**/{FOLDER}/*/*.jsonl")
    return sorted(path for path in found if not any(part[0] == "." for part in path.relative_to(folder).parts))


def plain(statistics_S: np.ndarray) -> list[float | int]:
    """Whole numbers as such: most are counts."""
    return [int(value) if value == int(value) else float(value) for value in statistics_S.tolist()]
