"""Warnings about settings that do not suit the data of a run."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from crossling.data.shards import Shards
from crossling.demo import demo_recipes
from crossling.planning import plan
from crossling.recipes import get_recipe
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.recipes.run_warnings import run_warnings
from crossling.recipes.sampling_preview import preview_pairs, preview_text

from ..planning.fake_shards import shards_of

SMALL_LANGUAGE = shards_of({("en", "si"): 6_000}, {"si": 204_000, "en": 5_000_000})


def warnings_of(recipe: Recipe, shards: Shards = SMALL_LANGUAGE) -> list[str]:
    return list(run_warnings(recipe, preview_text(recipe, shards), preview_pairs(recipe, shards)))


def test_the_adaptation_of_a_base_model_to_a_small_language() -> None:
    settings = ["steps=20000", "sampling.focus=si", "sampling.replay=0.3"]
    warmup, text, pairs = warnings_of(get_recipe("infoxlm", "base").set(settings))
    assert "10,000 of 20,000 steps are warm-up" in warmup
    assert "Set optimizer.warmup=0.1" in warmup
    assert re.search(
        r"^si: its 204k tokens would be read [\d,]{6} times in 20,000 steps, 1 more over 200 times\.", text
    )
    assert "A higher sampling.replay (now 0.3)" in text
    assert pairs.startswith("en-si: its 6k pairs would be read ")


@pytest.mark.parametrize(
    ("name", "size", "settings"),
    [
        ("rosetta", "small", ["sampling.focus=si"]),
        ("infoxlm", "base", ["steps=20000"]),
        ("xlm_e", "base", ["mrtd.tokens=65536"]),
    ],
)
def test_the_advice_leads_to_about_forty_epochs(name: str, size: str, settings: list[str]) -> None:
    recipe = get_recipe(name, size).set([*settings, "optimizer.warmup=0.1"])
    first = warnings_of(recipe)[0]
    advised = re.findall(r"[\w.]+=\d+", first)
    assert advised[0].startswith("steps=")
    better = preview_text(recipe.set(advised), SMALL_LANGUAGE)
    assert better is not None
    assert 30 <= max(better.epochs.values()) <= 45


def test_languages_with_too_few_pairs_are_named() -> None:
    shards = shards_of({("de", "en"): 200_000, ("en", "si"): 6_000}, {"si": 204_000, "en": 5_000_000})
    recipe = get_recipe("xlm", "base").set(["sampling.min_pairs=50000", "steps=1000", "optimizer.warmup=0.1"])
    [line] = [line for line in warnings_of(recipe, shards) if "min_pairs" in line]
    assert line.startswith("sampling.min_pairs=50000: no pair of si is used (1 language), because")
    assert not [line for line in warnings_of(recipe.set(["sampling.min_pairs=6000"]), shards) if "min_pairs" in line]


def test_too_little_data_for_any_such_run() -> None:
    recipe = get_recipe("rosetta", "small").set(["tlm=off", "xlco=off"])
    [only] = warnings_of(recipe, shards_of({}, {"si": 500}))
    assert "Add data" in only
    assert "sampling" not in only  # there is only one language


def test_other_languages_are_read_too_often_only_by_replay() -> None:
    shards = shards_of({}, {"si": 50_000_000, "en": 1_000})
    recipe = get_recipe("xlm_r", "tiny").set(["sampling.focus=si"])
    [only] = warnings_of(recipe, shards)
    assert only.startswith("en: ")
    assert "A lower sampling.replay" in only


def test_small_runs_are_not_warned_about(shards: Shards) -> None:
    assert warnings_of(get_recipe("rosetta", "tiny")) == []
    assert warnings_of(get_recipe("xlm_e", "tiny").set(["steps=20"]), shards) == []
    demo_text = shards_of({("qaa", "qab"): 6_000}, {"qaa": 200_000, "qab": 60_000})
    for recipe in demo_recipes(shards).values():
        assert warnings_of(recipe, demo_text) == []


def test_plan_and_pretrain_issue_them(shards: Shards, tmp_path: Path) -> None:
    long = get_recipe("xlm_r", "tiny").set(["steps=500000", "model.layers=1", "model.width=16"])
    with pytest.warns(UserWarning, match=r"would be read [\d,]+ times in 500,000 steps"):
        plan(long, shards)

    def stop(_: object) -> dict[str, float]:
        raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="would be read"), pytest.raises(KeyboardInterrupt):
        pretrain(long, shards, tmp_path / "run", probe=stop)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan(get_recipe("xlm_r", "tiny").set(["steps=100"]), shards, device="h200")
