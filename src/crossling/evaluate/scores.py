"""Scores: every number is one row of `scores.jsonl`, the same for every task. Averages are computed, never stored."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from crossling.disk import new_file
from crossling.errors import BadInput

Row = dict[str, Any]

LOWER_IS_BETTER = {"aer"}
_TEXT = ("model", "task", "metric")
_NUMBERS = (
    "examples",
    "value",
    "low",
    "high",
)  # what a repeated measurement may change; the rest says what was measured


@dataclass(frozen=True)
class Score:
    """One number and all one must know to compare it. Fields that do not apply are None, and absent from the row.

    `language` is "C-Q" where the context is in C and the question in another language, Q.
    """

    model: str
    task: str
    protocol: str
    metric: str
    language: str
    examples: int
    value: float  # percent, 0 to 100
    direction: str | None = None
    layer: int | None = None
    pooling: str | None = None
    setting: str = "training-free"
    seed: int | None = None
    split: str = "test"
    trained_on: str | None = None  # the training set
    selection: str | None = None  # by which scores the model was chosen: english-dev, all-dev, each-dev
    selected_on_test: bool | None = None  # true where these very examples are what it was chosen by
    tuned: str | None = None  # the settings it was fine-tuned with, in short
    questions: str | None = None  # their language, where it is not that of the text
    plug: str | None = None  # "in" where every example was read with its translation (VECO's cross-attention)
    paired: str | None = None  # the language of these translations
    signature: str | None = None  # of a score that is only comparable with others of the same (sacreBLEU)
    low: float | None = None  # of the value, 95% by bootstrap over the examples
    high: float | None = None

    def row(self) -> Row:
        fields = asdict(self)
        order = [name for name in fields if name not in _NUMBERS] + list(_NUMBERS)
        return {name: fields[name] for name in order if fields[name] is not None}


def read(path: Path) -> list[Row]:
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            raise BadInput(f"{path}: line {number} is not JSON, expected one score; remove the line") from None
        fault = _fault(row)
        if fault:
            raise BadInput(f"{path}: line {number} is no score, {fault}; measure again or remove the line")
        rows.append(row)
    return rows


def check_place(folder: Path) -> None:
    """Whether rows can be added there: a folder, or nothing yet, and every row that is there already is one."""
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder}: this is a file; give a folder for scores.jsonl")
    if (folder / "scores.jsonl").exists():
        read(folder / "scores.jsonl")


def add(path: Path, rows: Iterable[Row]) -> None:
    """Adds rows to the file at once; a number measured again takes the place of the old one."""
    kept = {_identity(row): row for row in (read(path) if path.exists() else [])}
    kept.update((_identity(row), row) for row in rows)
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in kept.values()]
    with new_file(path) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")


def unique(rows: Iterable[Row]) -> list[Row]:
    """The rows without repetition: of equal measurements the last."""
    return list({_identity(row): row for row in rows}.values())


@dataclass(frozen=True)
class Spread:
    """The values of several seeds. Which of the three to report, papers disagree on: XY-LENT takes the median."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def deviation(self) -> float | None:
        """Of a sample; one value has none."""
        return stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Summary:
    """One measure of one model: the mean over languages, directions and seeds at each layer."""

    model: str
    task: str
    protocol: str
    metric: str
    split: str
    pooling: str | None
    by_layer: dict[int, float]

    @property
    def best_layer(self) -> int:
        """The lowest of the best layers."""
        sign = 1 if self.metric in LOWER_IS_BETTER else -1
        return min(self.by_layer, key=lambda layer: (sign * self.by_layer[layer], layer))

    @property
    def best(self) -> float:
        return self.by_layer[self.best_layer]


def summary(rows: Sequence[Row]) -> list[Summary]:
    """Means by layer, in the order of the rows; other protocols, metrics, splits and ways of pooling are never averaged
    together."""
    values: dict[tuple[str, str, str, str, str, str | None], dict[int, list[float]]] = {}
    for row in rows:
        if "layer" in row:
            measure = (row["task"], row.get("protocol", ""), row["metric"], row.get("split", "test"))
            by_layer = values.setdefault((row["model"], *measure, row.get("pooling")), defaultdict(list))
            by_layer[row["layer"]].append(row["value"])
    return [
        Summary(*key, {layer: fmean(found) for layer, found in sorted(by_layer.items())})
        for key, by_layer in values.items()
    ]


def _identity(row: Row) -> str:
    return json.dumps({name: value for name, value in row.items() if name not in _NUMBERS}, sort_keys=True)


def _fault(row: Any) -> str | None:
    if not isinstance(row, dict):
        return "expected an object"
    for name in _TEXT:
        if not isinstance(row.get(name), str):
            return f"expected text under {name!r}"
    for name in ("value", *(name for name in ("low", "high") if name in row)):
        number = row.get(name)
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            return f"expected a finite number under {name!r}"
    if "layer" in row and type(row["layer"]) is not int:
        return "expected a whole number under 'layer'"
    return None
