"""The area under the curve, against every pair of a positive and a negative."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.examples import area


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30))
def test_the_area_is_how_often_a_positive_outranks_a_negative(pairs: list[tuple[int, bool]]) -> None:
    positives, negatives = ([s for s, truth in pairs if truth is kind] for kind in (True, False))
    slow = [1.0 if p > n else 0.5 if p == n else 0.0 for p in positives for n in negatives]
    found = area(np.array([float(s) for s, _ in pairs]), np.array([truth for _, truth in pairs]))
    assert found == pytest.approx(np.mean(slow) if slow else 0.5)
