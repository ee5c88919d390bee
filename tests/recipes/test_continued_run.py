"""A run that continues a checkpoint of another one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from crossling.core.errors import BadInput
from crossling.data.shards import Shards
from crossling.pretraining import pretrain as pretrain_by_name
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from tests.train.run_helpers import assert_same_run, rows, saved

WSD = ["optimizer.schedule=wsd", "optimizer.cooldown=2", "keep_every=2", "log_every=1"]


@pytest.fixture(scope="module")
def recipe(full_recipe: Recipe) -> Recipe:
    return full_recipe.set(["trtd=off", "steps=6", *WSD])


@pytest.fixture(scope="module")
def trunk(recipe: Recipe, shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("trunk") / "run"
    pretrain(recipe, shards, run)
    assert saved(run) == [2, 4, 6]
    return run


def test_continuing_with_the_same_recipe_is_the_same_run(
    trunk: Path, recipe: Recipe, shards: Shards, tmp_path: Path
) -> None:
    pretrain(recipe, shards, tmp_path / "again", resume_from=trunk / "checkpoints" / "0000002")
    again = tmp_path / "whole"
    shutil.copytree(trunk, again)  # without the rows before the checkpoint, which the new run does not have
    later = [json.dumps(row) + "\n" for row in rows(trunk) if row["step"] > 2]
    (again / "metrics.jsonl").write_text("".join(later))
    assert_same_run(tmp_path / "again", again, 6)


def test_the_cooldown_starts_from_an_earlier_checkpoint(
    trunk: Path, recipe: Recipe, shards: Shards, tmp_path: Path
) -> None:
    checkpoint = trunk / "checkpoints" / "0000002"
    settings = ["steps=4", "mrtd.rate=0.3@2"]
    pretrain_by_name(trunk / "recipe.json", shards, tmp_path / "run", set=settings, resume_from=checkpoint)
    found = {row["step"]: row["lr"] for row in rows(tmp_path / "run")}
    assert found == pytest.approx({3: recipe.lr, 4: recipe.lr * (1 - 0.5**0.5)})
    cost = json.loads((tmp_path / "run" / "cost.json").read_text())
    assert cost["tokens"] > 1.5 * json.loads((checkpoint / "state.json").read_text())["tokens"]  # of both runs
    stored = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert stored["init"] == {"checkpoint": str(checkpoint)}


def test_a_continued_run_resumes_without_the_other_one(
    trunk: Path, recipe: Recipe, shards: Shards, tmp_path: Path
) -> None:
    other = shutil.copytree(trunk, tmp_path / "other")
    checkpoint = other / "checkpoints" / "0000004"
    pretrain(recipe, shards, tmp_path / "run", resume_from=checkpoint)
    shutil.rmtree(other)
    pretrain(recipe, shards, tmp_path / "run", resume_from=checkpoint)  # complete
    with pytest.raises(BadInput, match="this run was initialized from"):
        pretrain(recipe, shards, tmp_path / "run")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["steps=5", "optimizer.warmup=1", "optimizer.cooldown=1"], "it has 6 steps and the new run only 5. Set steps"),
        (["steps=9", "model.layers=1", "xlco.layer=0"], "it has another model. Start from the recipe"),
        (["steps=9", "xlco=off"], "it has other objectives"),
        (["steps=9", "optimizer.matrices=muon"], "it has another optimizer.matrices"),
    ],
)
def test_another_network_is_refused_before_anything_is_written(
    trunk: Path, recipe: Recipe, shards: Shards, tmp_path: Path, settings: list[str], expected: str
) -> None:
    with pytest.raises(BadInput, match=expected):
        pretrain(recipe.set(settings), shards, tmp_path / "run", resume_from=trunk)
    assert not (tmp_path / "run" / "recipe.json").exists()


def test_only_checkpoints_of_runs_are_continued(recipe: Recipe, shards: Shards, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no run or checkpoint.*Give RUN/checkpoints/STEP"):
        pretrain(recipe, shards, tmp_path / "run", resume_from=shards.path)
    with pytest.raises(BadInput, match="Omit init"):
        pretrain(recipe, shards, tmp_path / "run", resume_from="run", init="bundled")
