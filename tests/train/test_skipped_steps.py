"""Steps with non-finite or exploding gradients are skipped."""

from __future__ import annotations

import math
import signal
from pathlib import Path

import pytest
import torch
from torch import Tensor

from crossling.core.errors import Failed, Interrupted
from crossling.data.batches import Batch
from crossling.data.shards import Shards
from crossling.objectives import MRTD, Network
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.train import health

from .run_helpers import TIMES, before_step, rows, saved, tensors


def poison(monkeypatch: pytest.MonkeyPatch, factor: float, *steps: int) -> None:
    """Multiply the loss of MRTD by `factor` in some steps, counted from 1."""
    original, calls = MRTD.loss, 0

    def poisoned(self: MRTD, net: Network, batch: Batch) -> dict[str, Tensor]:
        nonlocal calls
        sums = original(self, net, batch)
        if self.term == "mrtd":
            calls += 1
            if calls in steps:
                return sums | {"mrtd": sums["mrtd"] * factor}
        return sums

    monkeypatch.setattr(MRTD, "loss", poisoned)


@pytest.mark.parametrize("factor", [math.nan, math.inf])
def test_a_step_with_a_non_finite_gradient_is_skipped(
    factor: float, full_recipe: Recipe, shards: Shards, tmp_path: Path
) -> None:
    """Weights and optimizer state do not change, and the metrics are those of the other steps."""
    out, recipe = tmp_path / "run", full_recipe.set(["xlco=off", "checkpoint_every=1"])
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, factor, 4)
        before_step(patch, 4, lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(Interrupted):
            pretrain(recipe, shards, out)
    before, after = tensors(out, 3), tensors(out, 4)
    assert [name for name in before if not torch.equal(before[name], after[name])] == []
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, factor, 2)  # step 6
        pretrain(recipe, shards, out)
    assert {float(value) for name, value in tensors(out, 7).items() if name.endswith("/step")} == {5.0}
    each = tmp_path / "each"
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, factor, 4, 6)
        pretrain(recipe.replace(log_every=1), shards, each)
    assert [row["skipped"] for row in rows(out)] == [0, 1, 2, 2]
    assert [row["skipped"] for row in rows(each)] == [0, 0, 0, 1, 1, 2, 2]
    alone = {row["step"]: row for row in rows(each)}
    assert "loss" not in alone[4]  # the step was skipped
    for row, step in zip(rows(out)[1:], (3, 5, 7), strict=True):
        same = row.keys() - {*TIMES, "step", "lr", "tokens", "flops", "skipped"}
        assert {"loss", "mlm", "gradient_norm"} <= same
        assert {name: row[name] for name in same} == {name: alone[step][name] for name in same}


def test_no_checkpoint_is_saved_while_steps_are_skipped(
    full_recipe: Recipe, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights may be damaged."""
    poison(monkeypatch, math.nan, 3, 4, 6)
    pretrain(full_recipe.replace(checkpoint_every=1, keep_last=100), shards, tmp_path / "run")
    assert saved(tmp_path / "run") == [1, 2, 5, 7]


@pytest.mark.parametrize(("log_every", "checkpoint_every"), [(1, 1), (100, 1), (3, 2), (2, 100)])
def test_consecutive_skipped_steps_end_the_run(
    log_every: int, checkpoint_every: int, full_recipe: Recipe, shards: Shards, tmp_path: Path
) -> None:
    recipe = full_recipe.replace(steps=12, log_every=log_every, checkpoint_every=checkpoint_every)
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, math.nan, *range(3, 13))
        with pytest.raises(
            Failed,
            match=r"^step (7|8|9|12): 5 consecutive steps were skipped, .* Set a lower lr, a longer optimizer",
        ) as caught:
            pretrain(recipe, shards, out)
    assert "\n" not in str(caught.value)
    assert (f"last good checkpoint is {out}" in str(caught.value)) == bool(saved(out))
    assert all(step < 7 for step in saved(out))
    for step in saved(out):
        assert all(bool(value.isfinite().all()) for value in tensors(out, step).values())


def test_skipped_steps_before_a_stop_are_counted(full_recipe: Recipe, shards: Shards, tmp_path: Path) -> None:
    out, recipe = tmp_path / "run", full_recipe.replace(steps=12)
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, math.nan, 3, 4, 5)
        before_step(patch, 5, lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(Interrupted):
            pretrain(recipe, shards, out)
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, math.nan, 1, 2)  # steps 6 and 7
        with pytest.raises(Failed, match="5 consecutive steps"):
            pretrain(recipe, shards, out)


@pytest.mark.parametrize(("step", "skipped"), [(3, [0] * 7), (6, [0, 0, 0, 0, 0, 1, 1])], ids=["early", "later"])
def test_an_exploding_gradient_is_skipped_after_the_warmup(
    step: int, skipped: list[int], full_recipe: Recipe, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "WARMUP_STEPS", 4)
    poison(monkeypatch, 1e4, step)
    pretrain(full_recipe.replace(log_every=1), shards, tmp_path / "run")
    assert [row["skipped"] for row in rows(tmp_path / "run")] == skipped
