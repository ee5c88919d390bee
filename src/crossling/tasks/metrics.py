"""Metrics by name. A metric adds up statistics of examples and is a function of their sums.

Scores, confidence intervals and significance tests use the same table of statistics, so a bootstrap is one matrix
product. Metrics that differ from the public scripts have a protocol of their own.
"""
# N examples, S statistics; sums may have any shape before S

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from crossling.tasks import label_metrics
from crossling.tasks.label_metrics import answer_statistics, exact_match, squad2_statistics, squad_words, word_f1


@dataclass(frozen=True)
class Metric:
    """A metric of one protocol, in percent."""

    name: str  # "accuracy", "f1", "exact_match", "matthews", ...
    protocol: str  # "xtreme": as the public scripts, quirks included; other names for other definitions
    statistics: Callable[[Sequence[Any], Sequence[Any], str], np.ndarray]  # gold, predicted, language -> statistics_NS
    value: Callable[[np.ndarray], np.ndarray]  # sums [..., S] -> percent [...]

    @property
    def label(self) -> str:
        """Protocol and name, such as `xtreme/f1`: unique among the metrics of one data set."""
        return f"{self.protocol}/{self.name}"

    def score(self, gold: Sequence[Any], predicted: Sequence[Any], language: str = "en") -> float:
        """Return the value for a test set, in percent. NaN if it is undefined: the correlation with a constant."""
        return float(self.value(self.statistics(gold, predicted, language).sum(axis=0)))


# Functions of summed statistics, in percent. A division by zero gives 0, except for correlations.


def proportion(sums_S: np.ndarray) -> np.ndarray:
    """Return the proportion of [correct, total]."""
    return _percent(sums_S[..., 0], sums_S[..., 1])


def f1(sums_S: np.ndarray) -> np.ndarray:
    """Return the F1 of [correct, predicted, gold]."""
    return _percent(2 * sums_S[..., 0], sums_S[..., 1] + sums_S[..., 2])


def matthews(sums_S: np.ndarray) -> np.ndarray:
    """Return the Matthews correlation of [true positives, false positives, false negatives, true negatives]."""
    tp, fp, fn, tn = np.moveaxis(sums_S.astype(float), -1, 0)
    return _percent(tp * tn - fp * fn, np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)))


def correlation(sums_S: np.ndarray) -> np.ndarray:
    """Return the Pearson correlation of [1, x, y, xx, yy, xy]. NaN if x or y is constant, as in scipy."""
    n, x, y, xx, yy, xy = np.moveaxis(sums_S.astype(float), -1, 0)
    variance = np.maximum((n * xx - x * x) * (n * yy - y * y), 0)
    return np.where(variance > 0, _percent(n * xy - x * y, np.sqrt(variance)), np.nan)


def _percent(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    part, whole = np.asarray(part, dtype=float), np.asarray(whole, dtype=float)
    return np.asarray(100 * np.divide(part, whole, out=np.zeros_like(part), where=whole > 0))


XTREME, GLUE, SQUAD2, CMRC, STRICT = "xtreme", "glue", "squad-2.0", "cmrc2018", "seqeval-strict"
MASSIVE = "massive"

METRICS: dict[str, Metric] = {
    "accuracy": Metric("accuracy", XTREME, label_metrics.accuracy_statistics, proportion),
    "chunk-f1": Metric("f1", XTREME, partial(label_metrics.chunk_statistics, label_metrics.find_chunks), f1),
    "strict-chunk-f1": Metric(
        "f1", STRICT, partial(label_metrics.chunk_statistics, label_metrics.find_strict_chunks), f1
    ),
    "slot-f1": Metric("f1", MASSIVE, partial(label_metrics.chunk_statistics, label_metrics.find_chunks), f1),
    "squad-f1": Metric("f1", XTREME, partial(answer_statistics, squad_words, word_f1), proportion),
    "squad-exact-match": Metric(
        "exact_match", XTREME, partial(answer_statistics, squad_words, exact_match), proportion
    ),
    "mlqa-f1": Metric("f1", XTREME, partial(answer_statistics, label_metrics.mlqa_words, word_f1), proportion),
    "mlqa-exact-match": Metric(
        "exact_match", XTREME, partial(answer_statistics, label_metrics.mlqa_words, exact_match), proportion
    ),
    "squad2-f1": Metric("f1", SQUAD2, partial(squad2_statistics, label_metrics.squad2_f1), proportion),
    "squad2-exact-match": Metric("exact_match", SQUAD2, partial(squad2_statistics, exact_match), proportion),
    "cmrc-f1": Metric(
        "f1", CMRC, partial(answer_statistics, label_metrics.cmrc_words, label_metrics.longest_run_f1), proportion
    ),
    "cmrc-exact-match": Metric(
        "exact_match", CMRC, partial(answer_statistics, label_metrics.cmrc_text, exact_match), proportion
    ),
    "glue-accuracy": Metric("accuracy", GLUE, label_metrics.accuracy_statistics, proportion),
    "glue-f1": Metric("f1", GLUE, label_metrics.f1_statistics, f1),
    "matthews": Metric("matthews", GLUE, label_metrics.confusion_statistics, matthews),
    "pearson": Metric("pearson", GLUE, label_metrics.pearson_statistics, correlation),
    "spearman": Metric("spearman", GLUE, label_metrics.spearman_statistics, correlation),
    # Definitions of our own.
    "slot-exact-match": Metric("exact_match", "slots", label_metrics.sentence_statistics, proportion),
    "token-accuracy": Metric("accuracy", "tokens", label_metrics.token_statistics, proportion),
    "characters-f1": Metric(
        "f1", "characters", partial(answer_statistics, label_metrics.character_words, word_f1), proportion
    ),
}
