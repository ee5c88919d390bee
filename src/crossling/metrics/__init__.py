"""Numbers from gold and predictions, by the public scripts and corrected."""

from __future__ import annotations

from crossling.metrics.metric import Metric
from crossling.metrics.metrics import METRICS

__all__ = ["METRICS", "Metric"]
