"""Values of summed statistics, in percent; what would be divided by nothing is 0."""
# S statistics; any shape of sums before it

from __future__ import annotations

import numpy as np


def share(sums_S: np.ndarray) -> np.ndarray:
    """Of [right, all]."""
    return _percent(sums_S[..., 0], sums_S[..., 1])


def f1(sums_S: np.ndarray) -> np.ndarray:
    """Of [right, predicted, gold]: the harmonic mean of precision and recall."""
    return _percent(2 * sums_S[..., 0], sums_S[..., 1] + sums_S[..., 2])


def matthews(sums_S: np.ndarray) -> np.ndarray:
    """Of [true positives, false positives, false negatives, true negatives]."""
    tp, fp, fn, tn = np.moveaxis(sums_S.astype(float), -1, 0)
    return _percent(tp * tn - fp * fn, np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)))


def correlation(sums_S: np.ndarray) -> np.ndarray:
    """Pearson's, of [1, x, y, xx, yy, xy]; nothing correlates with what does not vary."""
    n, x, y, xx, yy, xy = np.moveaxis(sums_S.astype(float), -1, 0)
    spread = (n * xx - x * x) * (n * yy - y * y)
    return _percent(n * xy - x * y, np.sqrt(np.maximum(spread, 0)))


def _percent(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    part, whole = np.asarray(part, dtype=float), np.asarray(whole, dtype=float)
    return 100 * np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
