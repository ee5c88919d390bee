"""An objective on a small batch of its own."""

from __future__ import annotations

import pytest

from crossling.objectives import CATLM, MRTD, TLM, TRTD, PretrainingObjective, XLCo


@pytest.mark.parametrize("objective", [TLM(rate=0.3, sequences=9), MRTD(), TRTD(lambda_=7.0), CATLM(sequences=9)])
def test_stateless_copy_changes_only_the_batch_size(objective: PretrainingObjective) -> None:
    small = objective.stateless_copy(512)
    assert small.examples_per_step(32.0) == 16
    assert small.loss_weights == objective.loss_weights
    assert (small.length, getattr(small, "rate", 0)) == (objective.length, getattr(objective, "rate", 0))


def test_stateless_xlco_has_in_batch_negatives_and_no_queue() -> None:
    objective = XLCo(pairs=2048, queue=64, mixup=True, momentum=0.9, temperature=0.1, weight=3.0)
    small = objective.stateless_copy(512)
    assert (small.pairs, small.queue, small.mixup) == (16, 0, False)
    assert (small.momentum, small.temperature, small.weight) == (0.9, 0.1, 3.0)
    assert small.examples_per_step(40.0) == small.examples_per_step(7.0) == 16
    assert objective.stateless_copy(1).pairs == 2  # a lone pair has no negatives
