"""A recipe that goes on from a model: its shape, its size, its rate."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crossling.errors import BadInput
from crossling.model.config import CrosslingConfig
from crossling.model.convert import Imported
from crossling.model.transformer import CrosslingModel
from crossling.recipe import Start
from crossling.recipe.start import LOWERED
from crossling.recipes import RECIPES, continued, named
from crossling.vocabulary.vocabulary import Vocabulary

from .conftest import Folder
from .made import small


def like(start: Start, **changes: Any) -> Start:
    """A start from a model of another shape, whose weights nobody will ask for."""
    config = start.encoder.config.but(**changes)
    return replace(start, encoder=replace(start.encoder, config=config))


@pytest.fixture(scope="module")
def start(folder: Folder) -> Start:
    return Start.load(folder("xlm-roberta"))


@pytest.fixture(scope="module")
def tiny(start: Start) -> Start:
    """Of the shape that `tiny` has."""
    return like(
        start, num_hidden_layers=4, hidden_size=128, num_attention_heads=4, intermediate_size=512,
        max_position_embeddings=512,
    )  # fmt: skip


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_size_is_that_of_the_model(recipe: str, tiny: Start) -> None:
    chosen = continued(recipe, tiny)
    expected = named(recipe, "tiny")
    assert (chosen.steps, chosen.optimizer, chosen.objectives) == (
        expected.steps,
        expected.optimizer,
        expected.objectives,
    )
    assert (chosen.model.layers, chosen.model.width, chosen.model.norm_epsilon) == (4, 128, 1e-4)
    assert continued(recipe, tiny, "tiny") == chosen
    chosen.check()
    assert tiny.shape(chosen) == chosen


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_lower_rate_for_replaced_token_detection_alone(recipe: str, tiny: Start) -> None:
    rate = named(recipe, "tiny").lr
    lower = recipe in ("xlm_e", "xy_lent")
    assert continued(recipe, tiny).lr == pytest.approx(LOWERED * rate if lower else rate)
    assert continued(recipe, tiny, differences=["steps=3000"]).lr == pytest.approx(LOWERED * rate if lower else rate)
    assert continued(recipe, tiny, differences=["lr=0.004"]).lr == 0.004
    assert continued(recipe, tiny, differences=[f"lr={rate}"]).lr == rate


def test_the_rate_goes_by_what_is_on_in_the_end(tiny: Start) -> None:
    masked = ["mrtd=off", "trtd=off", "mlm=on", "tlm=on"]
    assert continued("xlm_e", tiny, differences=masked).lr == named("xlm_e", "tiny").lr
    replaced = ["mlm=off", "mrtd=on"]
    assert continued("xlm_r", tiny, differences=replaced).lr == pytest.approx(LOWERED * named("xlm_r", "tiny").lr)


def test_the_recipe_of_a_run_keeps_its_rate_and_has_no_size(tiny: Start, tmp_path: Path) -> None:
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps({"recipe": small("xlm_e").dump()}))
    chosen = continued(str(file), tiny)
    assert (chosen.lr, chosen.model.layers, chosen.name) == (0.05, 4, "xlm_e")
    with pytest.raises(BadInput, match="an earlier run has its size already; leave --size out"):
        continued(str(file), tiny, "tiny")


@pytest.mark.parametrize(
    ("size", "differences", "sentence"),
    [
        ("base", [], "--size base: {name} has 4 layers of 128; leave --size out"),
        ("huge", [], "--size huge: there is no such size; valid: base, large, small, tiny, xl"),
        (None, ["model.layers=6"], "--set model.layers=6: {name} has 4, and a model keeps its shape"),
        (None, ["model.width=64"], "--set model.width=64: {name} has 128, and a model keeps its shape"),
        (None, ["model.norm=pre"], "--set model.norm=pre: {name} has post, and a model keeps its shape"),
        (None, ["model.max_length=64"], "--set model.max_length=64: {name} has 512, and a model keeps its shape"),
        (
            None,
            ["model.generator_layers=9"],
            "--set model.generator_layers=9: {name} has 4, and a model keeps its shape",
        ),
        (None, ["model.layerz=6"], "--set model.layerz: there is no 'layerz'; did you mean 'layers'?"),
    ],
)
def test_what_contradicts_the_model_is_refused(
    size: str | None, differences: list[str], sentence: str, tiny: Start
) -> None:
    with pytest.raises(BadInput) as caught:
        continued("xlm_e", tiny, size, differences)
    assert str(caught.value) == sentence.format(name=tiny.name)


def test_what_the_model_leaves_open_can_be_set(tiny: Start) -> None:
    differences = [
        *("model.layers=4", "model.relative=false", "model.generator_layers=1", "model.universal_layer=1"),
        *("model.dropout=0.3", "model.token_table=untied", "model.cross_attention=true"),
    ]
    model = continued("xlm_e", tiny, differences=differences).model
    assert (model.relative, model.generator_layers, model.universal_layer) == (False, 1, 1)
    assert (model.dropout, model.token_table, model.cross_attention) == (0.3, "untied", True)


def test_a_shape_that_is_no_size_takes_the_steps_of_base(start: Start) -> None:
    chosen = continued("xlm_r", start, differences=["mlm.length=64"])
    assert (chosen.steps, chosen.model.layers) == (named("xlm_r", "base").steps, 3)
    assert continued("veco", start, "ablation", ["ca_mlm.length=64"]).optimizer == named("veco", "ablation").optimizer


def test_the_universal_layer_is_the_recipes_or_the_models(start: Start) -> None:
    own = like(start, universal_layer=1)
    assert own.shape(small("xlm_r")).model.universal_layer == 1
    assert own.shape(small("xlm_r", "model.universal_layer=2")).model.universal_layer == 2
    assert own.shape(named("infoxlm", "base")).model.universal_layer == 1  # it has no eighth
    assert start.shape(small("xlm_r")).model.universal_layer == 2


def test_a_bias_of_the_model_stays(vocabulary: Vocabulary) -> None:
    config = CrosslingConfig(vocabulary.size, 16, 2, 2, 32, 64, gated=False, absolute_positions=False, norm="pre")
    start = Start("model", Imported(config, CrosslingModel(config)), None, vocabulary)
    for recipe in ("xlm_r", "xlm_e"):
        model = start.shape(small(recipe)).model
        assert (model.relative, model.gate, model.absolute, model.norm) == (True, False, False, "pre")
    with pytest.raises(BadInput, match=r"--set model\.relative=False: model has True"):
        continued("xlm_e", start, differences=["model.relative=false"])
