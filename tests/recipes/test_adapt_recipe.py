"""A recipe adapted to the model it is initialized from: architecture, size and learning rate."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crossling.core.errors import BadInput
from crossling.model.config import CrosslingConfig
from crossling.model.convert import ConvertedModel
from crossling.model.encoder_model import CrosslingModel
from crossling.recipes import RECIPES, RTD_LR_FACTOR, adapt_recipe, get_recipe
from crossling.recipes.initial_model import InitialModel
from crossling.vocabulary.vocabulary import Vocabulary

from .conftest import Folder
from .toy_models import small_recipe


def like(initial: InitialModel, **changes: Any) -> InitialModel:
    """Return a model of another architecture, whose weights are not used."""
    config = initial.encoder.config.replace(**changes)
    return replace(initial, encoder=replace(initial.encoder, config=config))


@pytest.fixture(scope="module")
def initial(folder: Folder) -> InitialModel:
    return InitialModel.load(folder("xlm-roberta"))


@pytest.fixture(scope="module")
def tiny(initial: InitialModel) -> InitialModel:
    """Return a model with the architecture of `tiny`."""
    return like(
        initial, num_hidden_layers=4, hidden_size=128, num_attention_heads=4, intermediate_size=512,
        max_position_embeddings=512,
    )  # fmt: skip


@pytest.mark.parametrize("recipe", RECIPES)
def test_size_is_that_of_the_model(recipe: str, tiny: InitialModel) -> None:
    chosen = adapt_recipe(recipe, tiny)
    expected = get_recipe(recipe, "tiny")
    assert (chosen.steps, chosen.optimizer, chosen.objectives) == (
        expected.steps,
        expected.optimizer,
        expected.objectives,
    )
    assert (chosen.model.layers, chosen.model.width, chosen.model.norm_epsilon) == (4, 128, 1e-4)
    assert adapt_recipe(recipe, tiny, "tiny") == chosen
    chosen.check()
    assert tiny.adapt(chosen) == chosen


@pytest.mark.parametrize("recipe", RECIPES)
def test_learning_rate_is_lowered_for_replaced_token_detection_only(recipe: str, tiny: InitialModel) -> None:
    lr = get_recipe(recipe, "tiny").lr
    lower = recipe in ("xlm_e", "xy_lent")
    assert adapt_recipe(recipe, tiny).lr == pytest.approx(RTD_LR_FACTOR * lr if lower else lr)
    assert adapt_recipe(recipe, tiny, assignments=["steps=3000"]).lr == pytest.approx(
        RTD_LR_FACTOR * lr if lower else lr
    )
    assert adapt_recipe(recipe, tiny, assignments=["lr=0.004"]).lr == 0.004
    assert adapt_recipe(recipe, tiny, assignments=[f"lr={lr}"]).lr == lr


def test_learning_rate_depends_on_the_objectives_after_all_settings(tiny: InitialModel) -> None:
    masked = ["mrtd=off", "trtd=off", "mlm=on", "tlm=on"]
    assert adapt_recipe("xlm_e", tiny, assignments=masked).lr == get_recipe("xlm_e", "tiny").lr
    replaced = ["mlm=off", "mrtd=on"]
    assert adapt_recipe("xlm_r", tiny, assignments=replaced).lr == pytest.approx(
        RTD_LR_FACTOR * get_recipe("xlm_r", "tiny").lr
    )


def test_recipe_of_a_run_keeps_its_learning_rate_and_takes_no_size(tiny: InitialModel, tmp_path: Path) -> None:
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps({"format": 2, "recipe": small_recipe("xlm_e").dump()}))
    chosen = adapt_recipe(str(file), tiny)
    assert (chosen.lr, chosen.model.layers, chosen.name) == (0.05, 4, "xlm_e")
    with pytest.raises(BadInput, match=r"this recipe has its size already\. Omit the size"):
        adapt_recipe(str(file), tiny, "tiny")


@pytest.mark.parametrize(
    ("size", "assignments", "message"),
    [
        ("base", [], "size base: {name} has 4 layers and hidden size 128, which is tiny. Omit the size."),
        ("huge", [], "size huge: there is no such size; valid: base, large, small, tiny, xl"),
        (None, ["model.layers=6"], "model.layers=6: {name} has 4, which cannot change. Omit this setting."),
        (None, ["model.width=64"], "model.width=64: {name} has 128, which cannot change. Omit this setting."),
        (None, ["model.norm=pre"], "model.norm=pre: {name} has post, which cannot change. Omit this setting."),
        (None, ["model.max_length=64"], "model.max_length=64: {name} has 512, which cannot change. Omit this setting."),
        (
            None,
            ["model.generator_layers=9"],
            "model.generator_layers=9: {name} has 4, which cannot change. Omit this setting.",
        ),
        (None, ["model.layerz=6"], "model.layerz: there is no 'layerz'; did you mean 'layers'?"),
    ],
)
def test_settings_that_contradict_the_model_are_refused(
    size: str | None, assignments: list[str], message: str, tiny: InitialModel
) -> None:
    with pytest.raises(BadInput) as caught:
        adapt_recipe("xlm_e", tiny, size, assignments)
    assert str(caught.value) == message.format(name=tiny.name)


def test_settings_that_the_model_leaves_open_can_be_set(tiny: InitialModel) -> None:
    assignments = [
        *("model.layers=4", "model.relative=false", "model.generator_layers=1", "model.universal_layer=1"),
        *("model.dropout=0.3", "model.token_table=untied", "model.cross_attention=true"),
    ]
    model = adapt_recipe("xlm_e", tiny, assignments=assignments).model
    assert (model.relative, model.generator_layers, model.universal_layer) == (False, 1, 1)
    assert (model.dropout, model.token_table, model.cross_attention) == (0.3, "untied", True)


@pytest.mark.parametrize(("width", "size"), [(32, "tiny"), (240, "small"), (384, "small"), (768, "base")])
def test_other_architectures_take_the_settings_of_the_closest_size(
    width: int, size: str, initial: InitialModel
) -> None:
    with pytest.warns(UserWarning, match=rf"3 layers and hidden size {width}, which is no named size.* of {size};"):
        chosen = adapt_recipe("xlm_r", like(initial, hidden_size=width), assignments=["mlm.length=64"])
    assert (chosen.steps, chosen.model.layers) == (get_recipe("xlm_r", size).steps, 3)
    assert (
        adapt_recipe("veco", initial, "ablation", ["ca_mlm.length=64"]).optimizer
        == get_recipe("veco", "ablation").optimizer
    )


def test_universal_layer_is_that_of_the_recipe_or_the_model(initial: InitialModel) -> None:
    own = like(initial, universal_layer=1)
    assert own.adapt(small_recipe("xlm_r")).model.universal_layer == 1
    assert own.adapt(small_recipe("xlm_r", "model.universal_layer=2")).model.universal_layer == 2
    assert own.adapt(get_recipe("infoxlm", "base")).model.universal_layer == 1  # the model has no eighth layer
    assert initial.adapt(small_recipe("xlm_r")).model.universal_layer == 2


def test_relative_bias_of_the_model_is_kept(vocabulary: Vocabulary) -> None:
    config = CrosslingConfig(vocabulary.size, 16, 2, 2, 32, 64, gated=False, absolute_positions=False, norm="pre")
    initial = InitialModel(
        name="model", encoder=ConvertedModel(config, CrosslingModel(config)), generator=None, vocabulary=vocabulary
    )
    for recipe in ("xlm_r", "xlm_e"):
        model = initial.adapt(small_recipe(recipe)).model
        assert (model.relative, model.gate, model.absolute, model.norm) == (True, False, False, "pre")
    with pytest.raises(BadInput, match=r"model\.relative=False: model has True"):
        adapt_recipe("xlm_e", initial, assignments=["model.relative=false"])


@pytest.mark.parametrize("query", ["hidden", None])
def test_queries_of_cross_attention_of_the_model_are_kept(query: Any, vocabulary: Vocabulary) -> None:
    config = CrosslingConfig(vocabulary.size, 16, 2, 2, 32, 64, cross_attention=True, cross_query=query)
    encoder = ConvertedModel(config, CrosslingModel(config))
    initial = InitialModel(name="model", encoder=encoder, generator=None, vocabulary=vocabulary)
    assert initial.adapt(small_recipe("veco")).model.cross_query == query
