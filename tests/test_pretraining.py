"""`crossling.pretrain` and `crossling.plan` with names, folders and settings."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

import crossling
from crossling.core.errors import BadInput
from crossling.data.shards import Shards
from crossling.objectives import Network
from crossling.recipes import get_recipe
from crossling.recipes.pretrain import pretrain as train_recipe


def rows(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_name_and_folders_train_as_a_recipe_and_shards(
    shards: Shards, small_model: list[str], tmp_path: Path
) -> None:
    settings = [*small_model, "steps=2", "mlm.tokens=256", "mlm.length=32"]
    one = crossling.pretrain("XLM-R", str(shards.path), tmp_path / "one", size="tiny", set=settings)
    other = train_recipe(get_recipe("xlm_r", "tiny").set(settings), shards, tmp_path / "other")
    for (name, a), (_, b) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        assert torch.equal(a, b), name


def test_probe_and_validation_are_logged(shards: Shards, small_model: list[str], tmp_path: Path) -> None:
    def probe(_: Network) -> dict[str, float]:
        return {"mine": 1.0}

    recipe = get_recipe("xlm_r", "tiny").set([*small_model, "steps=2", "mlm.tokens=256", "mlm.length=32"])
    crossling.pretrain(recipe, shards, tmp_path / "run", probe=probe, validate=shards.path, probe_every=2)
    probed = [row for row in rows(tmp_path / "run") if "probe/mine" in row]
    assert [row["step"] for row in probed] == [0, 2]
    assert any(key.startswith("probe/loss/") for key in probed[0])


def test_a_run_that_is_older_than_a_setting_resumes_with_the_same_batches(
    shards: Shards, small_model: list[str], tmp_path: Path
) -> None:
    settings = [*small_model, "steps=4", "log_every=1", "checkpoint_every=2", "mrtd.length=32", "mrtd.tokens=256"]
    settings += ["trtd=off", "optimizer.warmup=1"]
    run, before = tmp_path / "run", [*settings, "sampling.full_blocks=none"]
    crossling.pretrain("xlm_e", shards, run, size="tiny", set=before)
    losses = [row["loss"] for row in rows(run)]
    stored = json.loads((run / "recipe.json").read_text())
    del stored["recipe"]["sampling"]["full_blocks"]
    (run / "recipe.json").write_text(json.dumps(stored))
    shutil.rmtree(run / "checkpoints" / "0000004")
    crossling.pretrain("xlm_e", shards, run, size="tiny", set=settings)
    assert [row["loss"] for row in rows(run)] == losses
    with pytest.raises(BadInput, match=r"another recipe \(different: sampling\.full_blocks\)"):
        crossling.pretrain("xlm_e", shards, run, size="tiny", set=[*settings, "sampling.full_blocks=true"])
    crossling.pretrain("xlm_e", shards, tmp_path / "new", size="tiny", set=settings)
    assert [row["loss"] for row in rows(tmp_path / "new")] != losses


def test_values_of_the_user_are_not_reset_to_resume_an_older_run(
    shards: Shards, small_model: list[str], tmp_path: Path
) -> None:
    settings = [*small_model, "steps=4", "checkpoint_every=1", "mrtd.length=32", "mrtd.tokens=256", "trtd=off"]
    recipe = get_recipe("xlm_e", "tiny").set([*settings, "optimizer.warmup=1", "sampling.full_blocks=none"])
    crossling.pretrain(recipe.replace(keep_every=2), shards, tmp_path / "run")
    stored = json.loads((tmp_path / "run" / "recipe.json").read_text())
    del stored["recipe"]["sampling"]["full_blocks"], stored["recipe"]["sampling"]["languages"]
    (tmp_path / "run" / "recipe.json").write_text(json.dumps(stored))
    older = get_recipe("xlm_e", "tiny").set([*settings, "optimizer.warmup=1"]).as_started(tmp_path / "run")
    assert older == recipe  # a default of the recipe
    assert older.replace(keep_best="loss").as_started(tmp_path / "run").keep_best == "loss"
    with pytest.raises(BadInput, match=r"different: sampling\.languages"):
        crossling.pretrain(recipe.set(["sampling.languages=qaa,qab"]), shards, tmp_path / "run")
    # Checkpoints of `keep_every` stay if the setting is omitted later.
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "0000004")
    crossling.pretrain(recipe, shards, tmp_path / "run")
    kept = [path.name for path in sorted((tmp_path / "run" / "checkpoints").iterdir())]
    assert kept == ["0000002", "0000003", "0000004"]


def test_contradictory_keywords_are_refused(shards: Shards, tmp_path: Path) -> None:
    recipe = get_recipe("xlm_r", "tiny")
    with pytest.raises(BadInput, match=r"^probe_every=3: nothing to measure\. Give probe or validate too"):
        crossling.pretrain(recipe, shards, tmp_path / "run", probe_every=3)
    with pytest.raises(BadInput, match=r"^init_generator=g: no model to add it to"):
        crossling.pretrain(recipe, shards, tmp_path / "run", init_generator="g")
    with pytest.raises(BadInput, match=r"^xlm_r: size base given, but this recipe has its size already"):
        crossling.pretrain(recipe, shards, tmp_path / "run", size="base")
    assert not (tmp_path / "run").exists()


def test_a_metric_that_no_probe_measures_is_refused_before_anything_is_written(
    shards: Shards, synth_folder: Path, tmp_path: Path
) -> None:
    recipe = get_recipe("xlm_r", "tiny").replace(keep_best="probe/retrieval/qaa-qax")
    with pytest.raises(BadInput, match=r"^keep_best=probe/retrieval/qaa-qax: .*; did you mean 'probe/retrieval/qaa-qa"):
        crossling.pretrain(recipe, shards, tmp_path / "run", probe=synth_folder / "data")
    recipe = recipe.replace(keep_best="probe/loss/qaa/tlm")
    with pytest.raises(BadInput, match=r"did you mean 'probe/loss/qa./mlm'"):
        crossling.pretrain(recipe, shards, tmp_path / "run", validate=shards)
    assert not (tmp_path / "run").exists()


def test_plan_takes_names_and_folders(shards: Shards) -> None:
    planned = crossling.plan("xlm_r", str(shards.path), size="tiny", set=["steps=7"], device="h200")
    assert planned.recipe == get_recipe("xlm_r", "tiny").replace(steps=7)
    assert planned.budget is None
    with pytest.raises(BadInput, match=r"^hours=2: a budget needs the name"):
        crossling.plan(planned.recipe, shards, hours=2, device="h200")
