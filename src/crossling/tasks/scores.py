"""Score rows: every score is one row of `scores.jsonl`, in the same form for every task. Averages are not stored."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from crossling.core.errors import BadInput
from crossling.core.files import atomic_file, check_format
from crossling.core.locks import lock_file
from crossling.core.resumable import check_output_folder

ScoreRow = dict[str, Any]

SCORES_FORMAT = 1  # version of a row

LOWER_IS_BETTER = {"aer"}
ZERO_SHOT, SUPERVISED = "zero-shot", "supervised"  # settings of languages without and with training examples
_TEXT_KEYS = ("model", "task", "metric")
_RESULT_KEYS = ("examples", "value", "low", "high")  # may change if a score is measured again
_NO_IDENTITY = {"version", "step", "flops", *_RESULT_KEYS}  # the other keys identify a score


@dataclass(frozen=True, kw_only=True)
class Score:
    """One score with everything needed to compare it. Fields that do not apply are None, and absent from the row.

    A `value` of None is in the row as null: the metric is undefined, such as the correlation with a constant.

    For question answering, `language` is "C-Q" if contexts are in C and questions in another language Q.
    """

    model: str
    task: str
    protocol: str
    metric: str
    language: str
    examples: int
    value: float | None  # percent, 0 to 100; None if undefined
    direction: str | None = None
    layer: int | None = None
    pooling: str | None = None
    dimension: int | None = None  # to which the vectors were truncated
    prompt: str | None = None  # text before each sentence
    setting: str = "training-free"  # or how the model was fine-tuned for this language
    seed: int | None = None
    split: str = "test"
    trained_on: str | None = None  # training set
    selection: str | None = None  # how the checkpoint was selected: english-dev, all-dev, each-dev
    selected_on_test: bool | None = None  # True if these examples also selected the checkpoint
    tuned: str | None = None  # short form of the fine-tuning settings
    questions: str | None = None  # language of the questions if it is not that of the contexts
    plug: str | None = None  # "in" if examples attended to their translations (VECO's cross-attention)
    paired: str | None = None  # language of these translations
    signature: str | None = None  # of sacreBLEU: scores with different signatures are not comparable
    step: int | None = None  # of the pre-training checkpoint `model`
    flops: dict[str, float] | None = None  # of pre-training up to that step, `full` and `paper`
    low: float | None = None  # 95% bootstrap interval over the examples
    high: float | None = None

    def row(self) -> ScoreRow:
        """Return the row of scores.jsonl."""
        values = asdict(self)
        order = [name for name in values if name not in _RESULT_KEYS] + list(_RESULT_KEYS)
        return {
            "version": SCORES_FORMAT,
            **{name: values[name] for name in order if name == "value" or values[name] is not None},
        }


def describe_setting(setting: str, languages: Collection[str], supervised: Collection[str]) -> str:
    """Return the setting of several languages in words: `zero-shot except en`, or `supervised`.

    Args:
        setting: Setting of the languages without training examples.
        languages: Languages of a table.
        supervised: Languages with training examples.
    """
    trained = sorted({*languages} & {*supervised})
    if not trained:
        return setting
    return SUPERVISED if len(trained) == len({*languages}) else f"{setting} except {', '.join(trained)}"


def read_scores(path: Path) -> list[ScoreRow]:
    """Return the rows of a scores.jsonl."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            raise BadInput(f"{path}: line {number}: not JSON, expected a score row. Remove the line.") from None
        if isinstance(row, dict):
            fix = "Score the model again with crossling evaluate."
            check_format(f"{path}: line {number}", row.get("version", 1), SCORES_FORMAT, fix)
        problem = _find_problem(row)
        if problem:
            raise BadInput(f"{path}: line {number}: not a score row, {problem}. Remove the line.")
        rows.append(row)
    return rows


def check_scores_folder(folder: Path) -> None:
    """Raise BadInput if rows cannot be added to `folder`/scores.jsonl."""
    check_output_folder(folder, holds=["*"], command="crossling evaluate")
    if (folder / "scores.jsonl").exists():
        read_scores(folder / "scores.jsonl")


def add_scores(path: Path, rows: Iterable[ScoreRow]) -> None:
    """Add rows to a scores.jsonl atomically. A row replaces an older one of the same measurement."""
    with lock_file(path.with_name(f".{path.name}.lock"), remove=True):  # several models may be scored at a time
        kept = deduplicate_scores([*(read_scores(path) if path.exists() else []), *rows])
        rows = ({"version": SCORES_FORMAT, **row} for row in kept)
        lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows]
        with atomic_file(path) as temporary:
            temporary.write_text("".join(lines), encoding="utf-8")


def deduplicate_scores(rows: Iterable[ScoreRow]) -> list[ScoreRow]:
    """Return the rows without repetitions: the last row of each measurement."""
    return list({_identity(row): row for row in rows}.values())


@dataclass(frozen=True)
class SeedStatistics:
    """Statistics over several seeds. Papers report the mean or, as XY-LENT, the median."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean."""
        return fmean(self.values)

    @property
    def median(self) -> float:
        """Median."""
        return median(self.values)

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation. None for a single value."""
        return stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True, kw_only=True)
class LayerSummary:
    """One metric of one model: the mean over languages, directions and seeds at each layer."""

    model: str
    task: str
    protocol: str
    metric: str
    split: str
    pooling: str | None
    by_layer: dict[int, float]

    @property
    def best_layer(self) -> int:
        """The layer with the best value, the lowest if there are several."""
        sign = 1 if self.metric in LOWER_IS_BETTER else -1
        return min(self.by_layer, key=lambda layer: (sign * self.by_layer[layer], layer))

    @property
    def best(self) -> float:
        """Value at the best layer."""
        return self.by_layer[self.best_layer]


def summarize_layers(rows: Sequence[ScoreRow]) -> list[LayerSummary]:
    """Return the means by layer in the order of the rows, separately for each protocol, metric, split and pooling."""
    defaults = {"protocol": "", "split": "test", "pooling": None}
    names = [field.name for field in fields(LayerSummary) if field.name != "by_layer"]
    groups: dict[tuple[Any, ...], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if "layer" in row and row["value"] is not None:
            groups[tuple((defaults | row)[name] for name in names)][row["layer"]].append(row["value"])
    return [
        LayerSummary(
            **dict(zip(names, key, strict=True)),
            by_layer={layer: fmean(values) for layer, values in sorted(by_layer.items())},
        )
        for key, by_layer in groups.items()
    ]


def _identity(row: ScoreRow) -> str:
    if row.get("setting") == SUPERVISED:  # rows of earlier versions have `zero-shot` for the training language too
        row = {**row, "setting": ZERO_SHOT}
    return json.dumps({name: value for name, value in row.items() if name not in _NO_IDENTITY}, sort_keys=True)


def _find_problem(row: Any) -> str | None:
    if not isinstance(row, dict):
        return "expected an object"
    for name in _TEXT_KEYS:
        if not isinstance(row.get(name), str):
            return f"expected text under {name!r}"
    for name in ("value", *(name for name in ("low", "high") if name in row)):
        number = row.get(name)
        if name == "value" and name in row and number is None:  # undefined
            continue
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            return f"expected a finite number under {name!r}"
    if "layer" in row and type(row["layer"]) is not int:
        return "expected a whole number under 'layer'"
    return None
