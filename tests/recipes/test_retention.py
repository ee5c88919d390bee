"""The settings keep_last, keep_every and keep_best of a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from crossling.core.errors import BadInput
from crossling.data.shards import Shards
from crossling.objectives import Network
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.recipes.run_checkpoints import pretraining_cost
from crossling.train.checkpoint import Retention
from tests.train.run_helpers import before_step, crash, rows, saved

Probe = Callable[[Network], dict[str, float]]


@pytest.fixture
def recipe(full_recipe: Recipe) -> Recipe:
    return full_recipe.set(["trtd=off", "xlco=off", "checkpoint_every=2", "log_every=50", "keep_last=1"])


def scripted_probe(*values: float) -> Probe:
    """Return these values of `score`, the first before the first step."""
    remaining = iter(values)
    return lambda _: {"score": next(remaining)}


def test_two_checkpoints_are_kept_by_default(recipe: Recipe, shards: Shards, tmp_path: Path) -> None:
    default = Recipe.__dataclass_fields__
    assert [default[name].default for name in ("keep_last", "keep_every", "keep_best")] == [2, None, None]
    pretrain(recipe.replace(keep_last=2), shards, tmp_path / "run")
    assert saved(tmp_path / "run") == [6, 7]


def test_keep_every_saves_and_keeps_its_multiples(
    recipe: Recipe, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe.replace(keep_every=3)
    with monkeypatch.context() as patch:
        before_step(patch, 6, crash)
        with pytest.raises(RuntimeError, match="the machine went down"):
            pretrain(recipe, shards, tmp_path / "run")
    assert saved(tmp_path / "run") == [3, 4]
    pretrain(recipe, shards, tmp_path / "run")
    assert saved(tmp_path / "run") == [3, 6, 7]
    costs = [pretraining_cost(tmp_path / "run" / "checkpoints" / f"000000{step}") for step in (3, 7)]
    assert costs[1] == {"step": 7, "flops": json.loads((tmp_path / "run" / "cost.json").read_text())["flops"]}
    assert 0 < costs[0]["flops"]["paper"] < costs[1]["flops"]["paper"]


def test_keep_best_keeps_the_checkpoint_of_the_lowest_loss(recipe: Recipe, shards: Shards, tmp_path: Path) -> None:
    pretrain(recipe.replace(keep_best="mrtd_accuracy"), shards, tmp_path / "run")
    found = {row["step"]: row["mrtd_accuracy"] for row in rows(tmp_path / "run")}
    assert [*found] == [2, 4, 6, 7]  # every checkpoint has a score
    assert saved(tmp_path / "run") == sorted({7, max(found, key=lambda step: found[step])})


def test_keep_best_by_a_probe(recipe: Recipe, shards: Shards, tmp_path: Path) -> None:
    recipe = recipe.replace(keep_best="probe/score")
    pretrain(recipe, shards, tmp_path / "run", probe=scripted_probe(9, 1, 5, 4), probe_every=3)  # steps 0, 3, 6, 7
    assert saved(tmp_path / "run") == [6, 7]
    pretrain(recipe, shards, tmp_path / "other", probe=scripted_probe(9, 5, 1, 4), probe_every=3)
    assert saved(tmp_path / "other") == [3, 7]


@pytest.mark.parametrize("metric", ["lr", "mlmm", "tlm"])
def test_keep_best_is_a_metric_of_the_run(metric: str, recipe: Recipe) -> None:
    with pytest.raises(BadInput, match=rf"keep_best is {metric}, not a metric of this run; "):
        recipe.replace(keep_best=metric).check()


def test_keep_best_by_a_probe_needs_that_probe(recipe: Recipe, shards: Shards, tmp_path: Path) -> None:
    recipe = recipe.replace(keep_best="probe/scores")
    with pytest.raises(BadInput, match=r"keep_best is probe/scores, but nothing is probed\. Give a probe"):
        pretrain(recipe, shards, tmp_path / "run")
    with pytest.raises(BadInput, match="keep_best=probe/scores: no probe measures it; did you mean 'probe/score'"):
        pretrain(recipe, shards, tmp_path / "run", probe=scripted_probe(1))


def test_retention_may_change_when_a_run_is_resumed(
    recipe: Recipe, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        before_step(patch, 6, crash)
        with pytest.raises(RuntimeError, match="the machine went down"):
            pretrain(recipe, shards, out)
    stored = json.loads((out / "recipe.json").read_text())
    for name in ("keep_last", "keep_every", "keep_best"):  # as in a run of an earlier version
        del stored["recipe"][name]
    (out / "recipe.json").write_text(json.dumps(stored))
    assert Recipe.load(out / "recipe.json").keep_last == 2
    pretrain(recipe.replace(keep_every=2, keep_best="loss"), shards, out)
    assert saved(out) == [4, 6, 7]


@pytest.mark.parametrize(("name", "ours"), [("save_total_limit", "keep_last"), ("metric_for_best_model", "keep_best")])
def test_conventional_names_point_to_ours(name: str, ours: str, recipe: Recipe) -> None:
    with pytest.raises(BadInput, match=f"{name} is called {ours} here"):
        recipe.set([f"{name}=5"])


def test_the_newest_checkpoint_is_never_removed(tmp_path: Path) -> None:
    """It may be the only complete one: none of those here was scheduled."""
    for step in ("0000001", "0000002"):
        (tmp_path / step).mkdir()
        (tmp_path / step / "state.json").write_text('{"is_scheduled": false}')
    assert Retention(1, 5).select(sorted(tmp_path.iterdir())) == {tmp_path / "0000002"}
