from __future__ import annotations

from dataclasses import replace

import pytest

from crossling.benchmarks.hyper import Grid
from crossling.benchmarks.sets import SETS
from crossling.errors import BadInput
from crossling.finetune.plan import Plan, plans

XNLI = SETS["xnli"]


def test_the_usual_setting_with_differences() -> None:
    plan = Plan.of(XNLI.hyper, ["lr=1e-4", "steps=7", "seed=3", "checkpoint_every=2"])
    assert (plan.lr, plan.steps, plan.seed, plan.checkpoint_every) == (1e-4, 7, 3, 2)
    assert (plan.batch, plan.length) == (XNLI.hyper.batch, XNLI.hyper.length)
    assert plan.steps_of(1000) == 7
    assert replace(plan, steps=None, epochs=2.5, batch=10).steps_of(1000) == 250


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        ("learning_rate=1", "there is no 'learning_rate'"),
        ("stepz=1", "did you mean 'steps'"),
        ("lr=fast", "--set lr=fast: expected a number"),
        ("lr=0", "--set lr=0.0: expected more than 0"),
        ("batch=0", "--set batch=0: expected at least 1"),
    ],
)
def test_what_is_no_setting_is_refused(assignment: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        Plan.of(XNLI.hyper, [assignment])


def test_points_of_a_grid_are_named_by_what_differs() -> None:
    grid = Grid("a paper", lr=(1e-5, 2e-5), epochs=(3,), batch=(16, 32))
    found = plans(replace(XNLI, grids={"mine": grid}), "mine", ["steps=5"])
    assert list(found) == ["lr-1e-05_batch-16", "lr-1e-05_batch-32", "lr-2e-05_batch-16", "lr-2e-05_batch-32"]
    assert {plan.steps for plan in found.values()} == {5}
    assert len(plans(replace(XNLI, grids={"mine": grid}), "mine", ["lr=1e-3", "batch=8"])) == 1


def test_without_a_grid_there_is_one_point() -> None:
    assert plans(XNLI, None, []) == plans(XNLI, "default", []) == {"default": Plan.of(XNLI.hyper)}
    with pytest.raises(BadInput, match="no such grid for xnli; did you mean 'xlm-e'"):
        plans(XNLI, "xlme", [])
