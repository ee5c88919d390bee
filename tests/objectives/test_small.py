"""An objective on a small batch of its own."""

from __future__ import annotations

import pytest

from crossling.objectives import CATLM, MRTD, TLM, TRTD, Objective, XLCo


@pytest.mark.parametrize("objective", [TLM(rate=0.3, sequences=9), MRTD(), TRTD(lambda_=7.0), CATLM(sequences=9)])
def test_it_is_the_same_but_for_its_batch(objective: Objective) -> None:
    small = objective.small(512)
    assert small.examples(32.0) == 16
    assert small.weights == objective.weights
    assert (small.length, getattr(small, "rate", 0)) == (objective.length, getattr(objective, "rate", 0))


def test_of_contrast_it_takes_the_negatives_from_its_batch_and_leaves_the_queue_alone() -> None:
    objective = XLCo(pairs=2048, queue=64, mixup=True, momentum=0.9, temperature=0.1, weight=3.0)
    small = objective.small(512)
    assert (small.pairs, small.queue, small.mixup) == (16, 0, False)
    assert (small.momentum, small.temperature, small.weight) == (0.9, 0.1, 3.0)
    assert small.examples(40.0) == small.examples(7.0) == 16
    assert objective.small(1).pairs == 2  # a lone pair has no negatives
