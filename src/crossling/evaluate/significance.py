"""Paired significance tests: is one model better than another on the same examples?

All languages of a task are compared in one test. Languages with the same example ids, such as the translations of one
test set, are resampled together, since their results are correlated.
"""
# N examples, K layers, S statistics

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from crossling.core.errors import BadInput
from crossling.core.progress import Progress
from crossling.tasks import predictions
from crossling.tasks.bootstrap import PairedDifference, ValueFunction, bootstrap_intervals, paired_tests
from crossling.tasks.metrics import METRICS, f1, proportion
from crossling.tasks.predictions import ExamplePrediction
from crossling.tasks.registry import DATASETS
from crossling.tasks.scores import Score, ScoreRow
from crossling.tasks.translation_metrics import TRANSLATION_METRICS


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """Scores and predictions of one test set in one direction or with one method."""

    name: str  # language pair of the files, such as `de-en`
    rows: list[ScoreRow]  # all of the same task, split and language
    variant: str | None  # direction, method or pooling, if the language has several results
    examples: Iterable[ExamplePrediction]  # predictions and statistics by layer, None for layers that were not scored
    parts: int = 1  # number of results with this name


def _harmonic_mean(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.asarray(2 * one * other / np.maximum(one + other, np.finfo(float).tiny))


# Metrics as functions of summed statistics [..., S], in percent [...].
METRIC_VALUES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "accuracy": proportion,  # [correct, total]
    # Word alignment: [|A and S| + |A and P|, |A| + |S|], and [|A and S|, |A and P|, |A|, |S|].
    "aer": lambda sums: proportion(np.stack([sums[..., 1] - sums[..., 0], sums[..., 1]], axis=-1)),
    "f_measure": lambda sums: _harmonic_mean(proportion(sums[..., [1, 2]]), proportion(sums[..., [0, 3]])),
    "precision": lambda sums: proportion(sums[..., [0, 1]]),  # [correct, predicted, gold]
    "recall": lambda sums: proportion(sums[..., [0, 2]]),
    "f1": f1,
    **{metric.name: metric.value for metric in TRANSLATION_METRICS},
}


def values_with_intervals(metric: str, statistics_NKS: np.ndarray) -> list[tuple[float, float, float]]:
    """Return the value of each layer with its 95% bootstrap interval over the examples."""
    value_K = METRIC_VALUES[metric](statistics_NKS.sum(axis=0))
    low_K, high_K = bootstrap_intervals(METRIC_VALUES[metric], statistics_NKS)
    return list(zip(value_K.tolist(), low_K.tolist(), high_K.tolist(), strict=True))


def rows_by_layer(score: Score, statistics_NKS: np.ndarray, layers: Iterable[int]) -> list[ScoreRow]:
    """Return a row of scores.jsonl for each layer, with value and interval."""
    values = zip(layers, values_with_intervals(score.metric, statistics_NKS), strict=True)
    return [replace(score, layer=layer, value=value, low=low, high=high).row() for layer, (value, low, high) in values]


def pair_name(first: str, second: str) -> str:
    """Return the language of a score row: the other language of a pair with English, else both codes."""
    others = [language for language in (first, second) if language != "en"]
    return others[0] if len(others) == 1 else f"{first}-{second}"


Layers = Mapping[tuple[str, str], int]  # (task, metric with protocol) -> layer at which the model is compared


@dataclass(frozen=True)
class ExampleStatistics:
    """Statistics of one metric for every example of a prediction file."""

    ids: tuple[str, ...]
    statistics_NS: np.ndarray


@dataclass(frozen=True, kw_only=True)
class ModelComparison:
    """Difference of two models on one metric of one task."""

    task: str
    metric: str  # with its protocol, as in the predictions: "xtreme/accuracy"
    variant: str  # direction or method; empty if there is one only
    split: str
    languages: int
    examples: int  # of all languages
    first: str
    second: str
    difference: PairedDifference
    by_language: dict[str, PairedDifference] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelPredictions:
    """A model and the folders of its predictions."""

    name: str
    folders: Sequence[Path]
    layers: Layers


Key = tuple[str, str, str, str]  # task, split, variant, metric
Statistics = dict[Key, dict[str, ExampleStatistics]]  # by language


def compare_models(models: Sequence[ModelPredictions]) -> list[ModelComparison]:
    """Compare every two models on every metric for which both have predictions."""
    named = [(model.name, _read_statistics(model)) for model in models]
    pairs = [(one, other, key) for one, other in combinations(named, 2) for key in one[1] if key in other[1]]
    comparisons = []
    with Progress("compare", len(pairs), enabled=len(pairs) > 20) as progress:
        for done, (one, other, key) in enumerate(pairs, start=1):
            comparisons.append(_compare(key, *one, *other))
            progress.update(done, key[0])
    return [comparison for comparison in comparisons if comparison is not None]


def _compare(
    key: Key, first_name: str, first_model: Statistics, second_name: str, second_model: Statistics
) -> ModelComparison | None:
    (task, split, variant, metric), first, second = key, first_model[key], second_model[key]
    value = _value(task, metric)
    if value is None:
        return None
    common = [code for code in first if code in second and first[code].ids == second[code].ids]
    common = [code for code in common if all(_is_defined(value, side[code]) for side in (first, second))]
    if not common:
        return None
    blocks: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for code in common:
        blocks[first[code].ids].append(code)
    one, other = (
        [np.stack([side[code].statistics_NS for code in codes], axis=1) for codes in blocks.values()]
        for side in (first, second)
    )
    difference, by_language = paired_tests(value, one, other)
    order = [code for codes in blocks.values() for code in codes]
    return ModelComparison(
        task=task,
        metric=metric,
        variant=variant,
        split=split,
        languages=len(common),
        examples=sum(len(first[code].ids) for code in common),
        first=first_name,
        second=second_name,
        difference=difference,
        by_language=dict(zip(order, by_language, strict=True)),
    )


def _is_defined(value: ValueFunction, examples: ExampleStatistics) -> bool:
    return bool(np.isfinite(value(examples.statistics_NS.sum(axis=0))))


def _value(task: str, label: str) -> ValueFunction | None:
    """Return the function of a metric. None for a metric that does not exist any more."""
    if task in DATASETS:
        return next((METRICS[name].value for name in DATASETS[task].metrics if METRICS[name].label == label), None)
    return METRIC_VALUES.get(label.split("/")[-1])


def _read_statistics(model: ModelPredictions) -> Statistics:
    """Return the statistics of a model. Those of several seeds are averaged."""
    seeds: dict[Key, dict[str, list[ExampleStatistics]]] = defaultdict(lambda: defaultdict(list))
    for path in _prediction_files(model.folders):
        split, _, rest = path.stem.partition("-")
        language, _, variant = rest.partition(".")
        task = path.parent.name
        for metric, statistics in _read_file(path, task, model.layers).items():
            seeds[task, split, variant, metric][language].append(statistics)
    return {
        key: {language: _average_seeds(runs) for language, runs in by_language.items()}
        for key, by_language in seeds.items()
    }


def _prediction_files(folders: Iterable[Path]) -> list[Path]:
    """Return the files of the seeds of each folder, or its own. Skip those of other models below it."""
    files = []
    for folder in folders:
        first_part = {path: path.relative_to(folder).parts[0] for path in predictions.find_prediction_files(folder)}
        seeds = [path for path, part in first_part.items() if part.startswith("seed-")]
        files += seeds or [path for path, part in first_part.items() if part == predictions.PREDICTIONS_FOLDER]
    return list(dict.fromkeys(path.resolve() for path in files))


def _read_file(path: Path, task: str, layers: Layers) -> dict[str, ExampleStatistics]:
    rows = predictions.read_predictions(path)
    ids = tuple(row.id for row in rows)
    by_metric = {}
    for label in rows[0].statistics if rows else ():
        layer = layers.get((task, label))
        try:
            statistics_NS = np.array([_at_layer(row.statistics[label], layer) for row in rows], dtype=float)
        except (KeyError, IndexError, TypeError, ValueError):
            raise BadInput(
                f"{path}: not all examples have the statistics {label!r}. Run the evaluation again."
            ) from None
        if statistics_NS.ndim == 2 and not np.isnan(statistics_NS).any():
            by_metric[label] = ExampleStatistics(ids, statistics_NS)
    return by_metric


def _at_layer(statistics: Any, layer: int | None) -> Any:
    """Return the statistics of one layer if there is a list by layer. NaN for a layer that was not scored."""
    is_by_layer = isinstance(statistics, list) and any(isinstance(item, list) or item is None for item in statistics)
    if not is_by_layer:
        return statistics
    selected = statistics[layer] if layer is not None else None
    return [np.nan] if selected is None else selected


def _average_seeds(seeds: Sequence[ExampleStatistics]) -> ExampleStatistics:
    same = [run for run in seeds if run.ids == seeds[0].ids]
    return ExampleStatistics(seeds[0].ids, np.mean([run.statistics_NS for run in same], axis=0))
