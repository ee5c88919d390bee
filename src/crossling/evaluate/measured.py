"""What a training-free task yields for one set of examples: score rows, and what every example adds to them.

Statistics of examples add up, and a value is a function of their sums: scores, confidence intervals and paired tests
come from the same numbers.
"""
# N examples, K layers, S statistics

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from crossling.evaluate.predictions import Predicted
from crossling.evaluate.scores import Row
from crossling.metrics.bootstrap import intervals
from crossling.metrics.translation import MEASURES
from crossling.metrics.values import f1, share


@dataclass(frozen=True)
class Measured:
    set: str  # of which files this is
    rows: list[Row]
    task: str
    split: str
    language: str
    variant: str | None  # direction, method, pooling: what tells this set from others of its language
    examples: Iterable[Predicted]  # prediction and statistics by layer, nothing where one was not measured
    parts: int = 1  # how many such there are of its set


# From the sums [..., S] of the statistics to percent [...].
VALUES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "accuracy": share,  # right, asked
    "aer": lambda sums: share(np.stack([sums[..., 1] - sums[..., 0], sums[..., 1]], axis=-1)),  # hits, all links
    "precision": lambda sums: share(sums[..., [0, 1]]),  # right, found, to be found
    "recall": lambda sums: share(sums[..., [0, 2]]),
    "f1": f1,
    **{metric.name: metric.value for metric in MEASURES},
}


def numbers(metric: str, statistics_NKS: np.ndarray) -> list[tuple[float, float, float]]:
    """For each layer the value and its 95% interval, by bootstrap over the examples."""
    value_K = VALUES[metric](statistics_NKS.sum(axis=0))
    low_K, high_K = intervals(VALUES[metric], statistics_NKS)
    return list(zip(value_K.tolist(), low_K.tolist(), high_K.tolist(), strict=True))


def pair_name(first: str, second: str) -> str:
    """Of a row: as the papers do with English the other language alone, else the codes of both."""
    others = [language for language in (first, second) if language != "en"]
    return others[0] if len(others) == 1 else f"{first}-{second}"
