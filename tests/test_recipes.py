"""Every recipe in every size: as published, written down and read back, and two steps of each."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from crossling import settings
from crossling.data.shards import Shards
from crossling.errors import BadInput
from crossling.objectives import MLM, TLM
from crossling.recipe import Recipe, pretrain
from crossling.recipes import RECIPES, named, xlm, xlm_e, xlm_r

SIZES = {"xlm_e": ["tiny", "small", "base", "large", "xl"]}
ALL = [(name, size) for name in RECIPES for size in SIZES.get(name, ["tiny", "small", "base", "large"])]


@pytest.mark.parametrize(("name", "size"), ALL)
def test_a_recipe_is_sound_and_survives_being_written(name: str, size: str) -> None:
    recipe = named(name, size)
    recipe.check()
    assert recipe.name == name
    assert settings.read(Recipe, json.loads(json.dumps(recipe.dump())), "file") == recipe


def test_xlm_e_base_is_as_published() -> None:
    """XLM-E, Tables 8, 9 and 10; §4.1 for the sampling exponent; ELECTRA's lambda."""
    recipe = xlm_e("base")
    assert (recipe.steps, recipe.lr) == (125_000, 5e-4)
    adam = recipe.optimizer
    assert (adam.warmup, adam.beta1, adam.beta2, adam.epsilon) == (10_000, 0.9, 0.98, 1e-6)
    assert (adam.decay, adam.clip) == (0.01, 2.0)
    model = recipe.model
    assert (model.layers, model.width, model.feed_forward, model.heads) == (12, 768, 3072, 12)
    assert model.generator_layers == 4
    assert (model.relative, model.gate) == (True, True)
    assert list(recipe.objectives) == ["mrtd", "trtd"]
    for objective in recipe.objectives.values():
        assert objective.length == 512
    assert recipe.mrtd is not None
    assert recipe.trtd is not None
    assert recipe.mrtd.tokens == recipe.trtd.tokens == 2048 * 512  # for each task
    assert (recipe.mrtd.lambda_, recipe.trtd.lambda_) == (50.0, 50.0)
    assert (recipe.sampling.text_alpha, recipe.sampling.pair_alpha) == (0.7, 0.7)


@pytest.mark.parametrize(
    ("size", "layers", "width", "inner", "heads", "generator"),
    [("large", 24, 1024, 4096, 16, 6), ("xl", 48, 1536, 6144, 24, 8)],
)
def test_larger_xlm_e_have_the_published_shapes(
    size: str, layers: int, width: int, inner: int, heads: int, generator: int
) -> None:
    model = xlm_e(size).model
    assert (model.layers, model.width, model.feed_forward, model.heads) == (layers, width, inner, heads)
    assert model.generator_layers == generator


def test_xlm_r_masks_text_only_and_knows_absolute_positions_only() -> None:
    recipe = xlm_r("base")
    assert list(recipe.objectives) == ["mlm"]
    assert isinstance(recipe.mlm, MLM)
    assert (recipe.mlm.rate, recipe.mlm.keep, recipe.mlm.random) == (0.15, 0.1, 0.1)
    assert recipe.mlm.tokens == 8192 * 512
    assert (recipe.steps, recipe.sampling.text_alpha) == (1_500_000, 0.3)
    assert (recipe.model.absolute, recipe.model.relative, recipe.model.gate) == (True, False, False)


def test_xlm_is_xlm_r_with_translation_pairs() -> None:
    recipe = xlm("base")
    assert list(recipe.objectives) == ["mlm", "tlm"]
    assert isinstance(recipe.tlm, TLM)
    assert recipe.mlm is not None
    assert (recipe.tlm.tokens, recipe.tlm.length) == (recipe.mlm.tokens, recipe.mlm.length)
    assert recipe.model == xlm_r("base").model
    assert recipe.sampling.text_alpha == 0.7


@pytest.mark.parametrize(
    ("name", "size", "sentence"),
    [
        ("xlm-e", "base", "xlm-e: there is no such recipe; did you mean 'xlm_e'?"),
        ("bert", "base", "bert: there is no such recipe"),
        ("xlm_e", "bas", "--size bas: there is no such size; did you mean 'base'?"),
        ("xlm_r", "huge", "--size huge: there is no such size; valid: base, large, small, tiny"),
        ("absent.json", None, "absent.json: not a readable recipe.json"),
    ],
)
def test_unknown_names_are_one_sentence(name: str, size: str, sentence: str) -> None:
    with pytest.raises(BadInput) as caught:
        named(name, size)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_takes_two_steps(name: str, shards: Shards, small_model: list[str], tmp_path: Path) -> None:
    recipe = named(name, "tiny")
    scaled = [f"{name}.length=32" for name in recipe.objectives]
    scaled += [f"{name}.tokens=128" for name, objective in recipe.objectives.items() if hasattr(objective, "tokens")]
    scaled += ["xlco.pairs=4", "xlco.queue=8"] if recipe.xlco else []
    recipe = recipe.set([*small_model, *scaled, "steps=2", "log_every=2"])
    pretrain(recipe, shards, tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [2]
    terms = {term for objective in recipe.objectives.values() for term in objective.weights}
    assert all(math.isfinite(row[term]) for row in rows for term in terms)
    assert named(str(tmp_path / "run" / "recipe.json")) == recipe
    # From its own recipe.json a run is the same run.
    pretrain(named(str(tmp_path / "run" / "recipe.json")), shards, tmp_path / "run")
