"""The area under the ROC curve, against a loop over every positive and negative."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.report.showcase import area_under_roc


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30))
def test_area_under_roc_is_how_often_a_positive_outranks_a_negative(pairs: list[tuple[int, bool]]) -> None:
    positives, negatives = ([s for s, truth in pairs if truth is kind] for kind in (True, False))
    slow = [1.0 if p > n else 0.5 if p == n else 0.0 for p in positives for n in negatives]
    result = area_under_roc(np.array([float(s) for s, _ in pairs]), np.array([truth for _, truth in pairs]))
    assert result == pytest.approx(np.mean(slow) if slow else 0.5)
