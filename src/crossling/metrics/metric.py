"""What a metric is: statistics of every example that add up, and a value of their sums.

Scores, confidence intervals and significance all come from the same table, so a bootstrap is one matrix product.
"""
# N examples, S statistics

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Metric:
    name: str  # "accuracy", "f1", "exact_match", "matthews", ...
    protocol: str  # "xtreme": as the public scripts, quirks included; otherwise the name of what is done differently
    each: Callable[[Sequence[Any], Sequence[Any], str], np.ndarray]  # gold, predicted, language -> statistics_NS
    value: Callable[[np.ndarray], np.ndarray]  # sums [..., S] -> percent [...]

    @property
    def label(self) -> str:
        """`xtreme/f1`: unique among the metrics of one data set."""
        return f"{self.protocol}/{self.name}"

    def score(self, gold: Sequence[Any], predicted: Sequence[Any], language: str = "en") -> float:
        """Percent."""
        return float(self.value(self.each(gold, predicted, language).sum(axis=0)))
