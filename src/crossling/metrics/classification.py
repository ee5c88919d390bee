"""Scores of labels: accuracy, and GLUE's."""
# N examples, S statistics

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from crossling.errors import BadInput

POSITIVE = "1"


def right(gold: Sequence[str], predicted: Sequence[str], language: str) -> np.ndarray:  # noqa: ARG001
    """[right, 1]"""
    pairs = zip(gold, predicted, strict=True)
    return np.array([(said == told, 1) for told, said in pairs], dtype=float).reshape(-1, 2)


def binary(gold: Sequence[str], predicted: Sequence[str], language: str) -> np.ndarray:  # noqa: ARG001
    """[true positives, false positives, false negatives, true negatives] of the label 1"""
    told_N = np.array([label == POSITIVE for label in gold], dtype=bool)
    said_N = np.array([label == POSITIVE for label in predicted], dtype=bool)
    return np.stack([told_N & said_N, ~told_N & said_N, told_N & ~said_N, ~told_N & ~said_N], axis=1).astype(float)


def positives(gold: Sequence[str], predicted: Sequence[str], language: str) -> np.ndarray:
    """[right, predicted, gold] of the label 1"""
    tp_N, fp_N, fn_N, _ = binary(gold, predicted, language).T
    return np.stack([tp_N, tp_N + fp_N, tp_N + fn_N], axis=1)


def moments(gold: Sequence[float], predicted: Sequence[float], language: str) -> np.ndarray:  # noqa: ARG001
    """[1, x, y, xx, yy, xy], both in units of their spread around their mean, which changes no correlation but keeps
    the digits"""
    return _moments(_numbers(gold), _numbers(predicted))


def ranks(gold: Sequence[float], predicted: Sequence[float], language: str) -> np.ndarray:  # noqa: ARG001
    """The moments of the ranks within the whole set. Where a set is drawn anew, as in a bootstrap, each example keeps
    the rank it had."""
    return _moments(rankdata(_numbers(gold)), rankdata(_numbers(predicted)))


def _numbers(values: Sequence[float]) -> np.ndarray:
    numbers_N = np.array([float(value) for value in values], dtype=float)
    if not np.isfinite(numbers_N).all():
        raise BadInput("a score to be correlated is no finite number; look at the predictions")
    return numbers_N


def _moments(x_N: np.ndarray, y_N: np.ndarray) -> np.ndarray:
    x_N, y_N = _standard(x_N), _standard(y_N)
    return np.stack([np.ones_like(x_N), x_N, y_N, x_N * x_N, y_N * y_N, x_N * y_N], axis=1)


def _standard(values_N: np.ndarray) -> np.ndarray:
    spread = values_N.std() if len(values_N) else 0.0
    centred_N = values_N - values_N.mean() if len(values_N) else values_N
    # A constant may leave a rounding error behind, which is no spread.
    return centred_N / spread if spread > 1e-12 * max(1.0, float(np.abs(values_N).max(initial=0))) else 0 * centred_N
