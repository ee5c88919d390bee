"""The minimal XLM-E has exactly the losses of the engine."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from crossling.data.shards import Shards
from crossling.model.model_shape import SIZES
from crossling.recipes import get_recipe
from crossling.recipes.pretrain import pretrain
from tests.load_script import ROOT, load_script

SCRIPT = ROOT / "examples" / "xlm_e_minimal.py"
STEPS = 6


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("examples/xlm_e_minimal.py")


def test_losses_equal_those_of_the_engine(script: ModuleType, shards: Shards, tmp_path: Path) -> None:
    shape = replace(SIZES["tiny"], layers=2, width=16, heads=2, feed_forward=32, generator_layers=1, max_length=64)
    recipe = get_recipe("xlm_e", "tiny").replace(model=shape, steps=STEPS, log_every=1, checkpoint_every=STEPS)
    small = [f"{name}.{key}" for name in ("mrtd", "trtd") for key in ("tokens=300", "length=32")]
    pretrain(recipe.set(small), shards, tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [*script.train(shards, STEPS, shape=shape, tokens=300, length=32)]
    assert len(losses) == len(rows) == STEPS
    for step, row in zip(losses, rows, strict=True):
        assert step == {name: row[name] for name in step}
    assert {*losses[0]} == {"loss", "mlm", "mrtd", "tlm", "trtd"}
    assert len({step["loss"] for step in losses}) == STEPS


def test_the_script_has_the_settings_of_the_recipe(script: ModuleType) -> None:
    recipe = get_recipe("xlm_e", "tiny")
    assert recipe.model == SIZES["tiny"]
    assert (recipe.lr, recipe.optimizer.warmup, recipe.optimizer.clip, recipe.seed) == (
        script.PEAK_LR,
        script.WARMUP,
        script.MAX_GRADIENT_NORM,
        script.SEED,
    )


def test_the_script_prints_losses(shards: Shards) -> None:
    command = [sys.executable, str(SCRIPT), "--shards", str(shards.path), "--steps", "1"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.startswith("step 1  loss ")
    assert all(f"  {name} " in printed for name in ("mlm", "mrtd", "tlm", "trtd"))
