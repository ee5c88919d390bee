"""Whether one model is really better than another: a paired test on what both said of the same examples.

The outcomes of all languages of a task are compared at once. Where languages have the same examples, as translations of
one test set have, they are drawn together: their outcomes hang together.
"""
# N examples, L languages, S statistics

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from crossling.benchmarks.sets import SETS
from crossling.errors import BadInput
from crossling.evaluate import predictions
from crossling.evaluate.measured import VALUES
from crossling.metrics import METRICS
from crossling.metrics.bootstrap import Difference, Value, paired
from crossling.progress import Progress

Layers = Mapping[tuple[str, str], int]  # (task, metric with protocol) -> the layer to compare a model at


@dataclass(frozen=True)
class Outcomes:
    """Of one file of predictions: what each example adds to one metric."""

    ids: tuple[str, ...]
    statistics_NS: np.ndarray


@dataclass(frozen=True)
class Compared:
    task: str
    metric: str  # with its protocol, as in the predictions: "xtreme/accuracy"
    variant: str  # direction, method; nothing if there is one only
    split: str
    languages: int
    examples: int  # of all of them
    first: str
    second: str
    difference: Difference


@dataclass(frozen=True)
class Model:
    name: str
    folders: Sequence[Path]  # that may hold predictions
    layers: Layers


Key = tuple[str, str, str, str]  # task, split, variant, metric


def compare(models: Sequence[Model]) -> list[Compared]:
    """Every two models, on every metric of every task that both have predictions of."""
    measured = [_outcomes(model) for model in models]
    found = []
    pairs = [
        (one, other, key)
        for one, other in combinations(range(len(models)), 2)
        for key in measured[one]
        if key in measured[other]
    ]
    with Progress("comparing", len(pairs), shown=len(pairs) > 20) as progress:
        for done, (one, other, key) in enumerate(pairs, start=1):
            result = _compare(key, measured[one][key], measured[other][key])
            progress.update(done, key[0])
            if result is not None:
                languages, examples, difference = result
                task, split, variant, metric = key
                names = (models[one].name, models[other].name)
                found.append(Compared(task, metric, variant, split, languages, examples, *names, difference))
    return found


def _compare(
    key: Key, first: Mapping[str, Outcomes], second: Mapping[str, Outcomes]
) -> tuple[int, int, Difference] | None:
    value = _value(key[0], key[3])
    common = [code for code in first if code in second and first[code].ids == second[code].ids]
    if value is None or not common:
        return None
    blocks: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for code in common:
        blocks[first[code].ids].append(code)
    one, other = (
        [np.stack([side[code].statistics_NS for code in codes], axis=1) for codes in blocks.values()]
        for side in (first, second)
    )
    return len(common), sum(len(first[code].ids) for code in common), paired(value, one, other)


def _value(task: str, label: str) -> Value | None:
    """How a metric is computed from sums; none for one that is not known any more."""
    if task in SETS:
        return next((METRICS[name].value for name in SETS[task].metrics if METRICS[name].label == label), None)
    return VALUES.get(label.split("/")[-1])


def _outcomes(model: Model) -> dict[Key, dict[str, Outcomes]]:
    """By what was measured and by language; of several seeds the mean."""
    seeds: dict[Key, dict[str, list[Outcomes]]] = defaultdict(lambda: defaultdict(list))
    for path in _files(model.folders):
        split, _, rest = path.stem.partition("-")
        language, _, variant = rest.partition(".")
        task = path.parent.name
        for metric, outcomes in _read(path, task, model.layers).items():
            seeds[task, split, variant, metric][language].append(outcomes)
    return {
        key: {language: _mean(found) for language, found in by_language.items()} for key, by_language in seeds.items()
    }


def _files(folders: Iterable[Path]) -> list[Path]:
    """Those of the seeds of a folder, if it has some, or its own; not those of other models below it."""
    found = []
    for folder in folders:
        below = {path: path.relative_to(folder).parts[0] for path in predictions.paths(folder)}
        seeds = [path for path, part in below.items() if part.startswith("seed-")]
        found += seeds or [path for path, part in below.items() if part == predictions.FOLDER]
    return list(dict.fromkeys(path.resolve() for path in found))


def _read(path: Path, task: str, layers: Layers) -> dict[str, Outcomes]:
    rows = predictions.read(path)
    ids = tuple(row.id for row in rows)
    found = {}
    for label in rows[0].statistics if rows else ():
        layer = layers.get((task, label))
        try:
            statistics_NS = np.array([_at(row.statistics[label], layer) for row in rows], dtype=float)
        except (KeyError, IndexError, TypeError, ValueError):
            raise BadInput(f"{path}: the examples have not all the same statistics {label!r}; evaluate again") from None
        if statistics_NS.ndim == 2 and not np.isnan(statistics_NS).any():
            found[label] = Outcomes(ids, statistics_NS)
    return found


def _at(statistics: Any, layer: int | None) -> Any:
    """Those of one layer, where they are by layer; nothing of a layer that was not measured."""
    by_layer = isinstance(statistics, list) and any(isinstance(each, list) or each is None for each in statistics)
    if not by_layer:
        return statistics
    found = statistics[layer] if layer is not None else None
    return [np.nan] if found is None else found


def _mean(seeds: Sequence[Outcomes]) -> Outcomes:
    same = [each for each in seeds if each.ids == seeds[0].ids]
    return Outcomes(seeds[0].ids, np.mean([each.statistics_NS for each in same], axis=0))
