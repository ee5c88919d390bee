"""Every recipe in every size: published hyperparameters, round trip through JSON, and two steps of training."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from crossling.core import settings
from crossling.core.errors import BadInput
from crossling.data.shards import Shards
from crossling.objectives import MLM, TLM
from crossling.recipes import RECIPES, get_recipe, has_size, xlm, xlm_r
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import OBJECTIVES, Recipe
from crossling.recipes.setting_aliases import SETTING_ALIASES

EVERY = ("tiny", "small", "base", "large", "xl", "ablation")
ALL = [(name, size) for name in RECIPES for size in EVERY if has_size(name, size)]
# Rows of InfoXLM's Table 10, XLM-E's 8 to 10, XY-LENT's 8 and 9, VECO's 8, by the names of our settings.
COMMON = {
    **{"optimizer.beta1": 0.9, "optimizer.beta2": 0.98, "optimizer.epsilon": 1e-6, "optimizer.decay": 0.01},
    "optimizer.warmup": 10_000,
}
BASE = {"model.layers": 12, "model.width": 768, "model.feed_forward": 3072, "model.heads": 12}
LARGE = {"model.layers": 24, "model.width": 1024, "model.feed_forward": 4096, "model.heads": 16}
XL = {"model.layers": 48, "model.width": 1536, "model.feed_forward": 6144, "model.heads": 24}
MILLION = 1_048_576


def rtd(steps: int, lr: float, tokens: int, clip: float, generator: int) -> dict[str, object]:
    return {
        **COMMON,
        **{"steps": steps, "lr": lr, "optimizer.clip": clip, "model.generator_layers": generator},
        **{"mrtd.tokens": tokens, "trtd.tokens": tokens, "mrtd.length": 512, "mrtd.lambda": 50.0, "trtd.lambda": 50.0},
        **{"mrtd.rate": 0.15, "trtd.rate": 0.15, "mrtd.span": 1.0, "model.token_table": "shared"},
        **{"sampling.text_alpha": 0.7, "sampling.pair_alpha": 0.7, "model.relative": True, "model.gate": True},
    }


CONTRASTIVE = {
    **COMMON,
    **{"optimizer.clip": 1.0, "mlm.tokens": 2048 * 512, "tlm.sequences": 2048, "xlco.pairs": 2048},
    **{"xlco.momentum": 0.999, "xlco.queue": 131_072, "xlco.temperature": 0.25, "xlco.normalize": False},
    **{"xlco.mixup": True, "xlco.pooling": "cls", "xlco.layer": None, "xlco.rate": 0.15, "xlco.symmetric": False},
    **{"mlm.rate": 0.15, "mlm.keep": 0.1, "mlm.random": 0.1, "tlm.rate": 0.15, "sampling.text_alpha": 0.7},
    **{"model.relative": False, "model.dropout": 0.0, "reduction": "mean"},
}
TWO_STREAMS = {
    **COMMON,
    **{"optimizer.warmup": 12_000, "steps": 240_000, "ca_mlm.rate": 0.15, "ca_tlm.rate": 0.25, "tlm.rate": 0.25},
    **{"ca_mlm.length": 512, "ca_tlm.length": 128, "tlm.length": 128, "ca_mlm.sequences": 1024},
    **{
        "ca_tlm.sequences": 4096,
        "tlm.sequences": 4096,
        "model.dropout": 0.1,
        "model.attention_dropout": 0.1,
        "sampling.text_alpha": 0.5,
    },
    **{"alternate": True, "ca_mlm.stop_gradient": True, "ca_tlm.stop_gradient": True, "model.cross_attention": True},
    **{"model.relative": False, "freeze_steps": 12_000},
}
PUBLISHED: dict[tuple[str, str], dict[str, object]] = {
    ("xlm_e", "base"): {**BASE, **rtd(125_000, 5e-4, MILLION, 2.0, 4), "sampling.pair_rule": "alpha"},
    ("xy_lent", "base"): {**BASE, **rtd(125_000, 8e-4, 4 * MILLION, 2.0, 4), "sampling.pair_rule": "xy_lent"},
    ("xy_lent", "large"): {**LARGE, **rtd(500_000, 2e-4, MILLION, 1.0, 6), "sampling.pair_rule": "xy_lent"},
    ("xy_lent", "xl"): {**XL, **rtd(150_000, 1e-4, 4 * MILLION, 1.0, 8), "sampling.pair_rule": "xy_lent"},
    ("infoxlm", "base"): {**BASE, **CONTRASTIVE, "steps": 150_000, "lr": 2e-4, "model.universal_layer": 8},
    ("infoxlm", "large"): {**LARGE, **CONTRASTIVE, "steps": 200_000, "lr": 1e-4, "model.universal_layer": 12},
    ("veco", "large"): {**LARGE, **TWO_STREAMS, "lr": 2e-4},
    ("veco", "ablation"): {**BASE, **TWO_STREAMS, "model.layers": 6, "lr": 3e-4, "optimizer.beta2": 0.999},
}


@pytest.mark.parametrize(("name", "size"), ALL)
def test_recipe_is_valid_and_read_back(name: str, size: str) -> None:
    recipe = get_recipe(name, size)
    recipe.check()
    assert recipe.name == name
    assert settings.from_dict(Recipe, json.loads(json.dumps(recipe.dump())), "file") == recipe


@pytest.mark.parametrize(("size", "fewest"), [("tiny", None), ("small", None), ("base", 50_000), ("xl", 50_000)])
def test_xy_lent_drops_small_languages_in_the_sizes_of_the_paper(size: str, fewest: int | None) -> None:
    assert get_recipe("xy_lent", size).sampling.min_pairs == fewest
    assert get_recipe("xlm_e", size).sampling.min_pairs is None


@pytest.mark.parametrize(("name", "size"), PUBLISHED)
def test_every_hyperparameter_is_as_published(name: str, size: str) -> None:
    found = dict(get_recipe(name, size).settings())
    assert {key: found[key] for key in PUBLISHED[name, size]} == PUBLISHED[name, size]


@pytest.mark.parametrize(("size", "shape", "generator"), [("large", LARGE, 6), ("xl", XL, 8)])
def test_large_xlm_e_has_its_own_shape_and_the_schedule_of_xy_lent(
    size: str, shape: dict[str, object], generator: int
) -> None:
    """XLM-E, Tables 8 and 9. The paper has no schedule for these sizes."""
    found, xy_lent = (dict(get_recipe(name, size).settings()) for name in ("xlm_e", "xy_lent"))
    assert {key: found[key] for key in shape} == shape
    assert found["model.generator_layers"] == generator
    assert found["sampling.pair_rule"] == "alpha"
    for key in ("steps", "lr", "mrtd.tokens", "trtd.tokens", "optimizer.clip", "optimizer.warmup"):
        assert found[key] == xy_lent[key]


def test_every_size_of_the_papers_exists() -> None:
    assert {("xlm_e", "large"), ("xlm_e", "xl")} <= set(ALL)
    assert set(PUBLISHED) <= set(ALL)
    assert get_recipe("veco") == get_recipe("veco", "large")
    assert get_recipe("infoxlm") == get_recipe("infoxlm", "base")


@pytest.mark.parametrize("size", ["tiny", "small"])
def test_small_contrastive_learning_uses_mean_pooling_and_cosine(size: str) -> None:
    for recipe in (get_recipe("infoxlm", size), get_recipe("xlm_e", size).set(["xlco=on"])):
        assert recipe.xlco is not None
        xlco = recipe.xlco
        assert (xlco.pooling, xlco.normalize, xlco.temperature, xlco.momentum) == ("mean", True, 0.05, 0.99)
        assert xlco.queue == 64 * xlco.pairs


def test_xlm_r_has_mlm_and_absolute_positions_only() -> None:
    recipe = xlm_r("base")
    assert list(recipe.objectives) == ["mlm"]
    assert isinstance(recipe.mlm, MLM)
    assert (recipe.mlm.rate, recipe.mlm.keep, recipe.mlm.random) == (0.15, 0.1, 0.1)
    assert recipe.mlm.tokens == 8192 * 512
    assert (recipe.steps, recipe.sampling.text_alpha) == (1_500_000, 0.3)
    assert (recipe.model.absolute, recipe.model.relative, recipe.model.gate) == (True, False, False)


@pytest.mark.parametrize("size", ["tiny", "small", "base", "large"])
def test_rosetta_is_infoxlm_with_one_encoder(size: str) -> None:
    ours, theirs = get_recipe("rosetta", size), get_recipe("infoxlm", size)
    assert [*ours.objectives] == [*theirs.objectives] == ["mlm", "tlm", "xlco"]
    xlco = ours.xlco
    assert xlco is not None
    assert (xlco.queue, xlco.momentum, xlco.mixup, xlco.symmetric) == (0, 0.0, False, True)
    assert (xlco.temperature, xlco.weight, xlco.rate) == (0.03, 3.0, 0.05)
    assert (xlco.pooling, xlco.normalize, ours.sampling.pivot) == ("mean", True, "most")
    # In-batch negatives are computed at once and must fit on a GPU.
    assert xlco.pairs == {"tiny": 64, "small": 1024}.get(size, 2048)
    assert (ours.lr, ours.steps, ours.optimizer) == (theirs.lr, theirs.steps, theirs.optimizer)


def test_xlm_is_xlm_r_with_translation_pairs() -> None:
    recipe = xlm("base")
    assert list(recipe.objectives) == ["mlm", "tlm"]
    assert isinstance(recipe.tlm, TLM)
    assert recipe.mlm is not None
    assert (recipe.tlm.tokens, recipe.tlm.length) == (recipe.mlm.tokens, recipe.mlm.length)
    assert recipe.model == xlm_r("base").model
    assert recipe.sampling.text_alpha == 0.7


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("xlmm", "base", "xlmm: there is no such recipe; did you mean 'xlm'?"),
        ("bert", "base", "bert: there is no such recipe"),
        ("xlm_e", "bas", "size bas: there is no such size; did you mean 'base'?"),
        ("xlm_r", "huge", "size huge: there is no such size; valid: base, large, small, tiny"),
        ("absent.json", None, "absent.json: not a readable recipe.json"),
    ],
)
def test_unknown_names_are_refused(name: str, size: str | None, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        get_recipe(name, size)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        *(("XLM-E", "xlm_e"), ("xlm-e", "xlm_e"), ("XLME", "xlm_e"), ("XLM-R", "xlm_r"), ("XLM", "xlm")),
        *(("infoXLM", "infoxlm"), ("InfoXLM", "infoxlm"), ("XY-LENT", "xy_lent"), ("VECO", "veco")),
    ],
)
def test_recipe_names_are_found_in_any_spelling(spelling: str, name: str) -> None:
    assert get_recipe(spelling) == get_recipe(name)


@pytest.mark.parametrize(
    ("model", "recipe"),
    [
        ("xlm-roberta-base", "xlm_r"),
        ("bert-base-multilingual-cased", "xlm_r"),
        ("FacebookAI/xlm-roberta-large", "xlm_r"),
        ("microsoft/infoxlm-base", "infoxlm"),
        ("google/electra-base-discriminator", "xlm_e"),
    ],
)
def test_model_given_as_recipe_is_answered_with_the_command(model: str, recipe: str) -> None:
    with pytest.raises(BadInput) as caught:
        get_recipe(model)
    assert str(caught.value) == (
        f"{model}: this is a model, not a recipe. Use `crossling pretrain {recipe} --init {model}`."
    )


def test_folder_of_a_model_given_as_recipe_is_answered_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BadInput, match=f"Use `crossling pretrain xlm_r --init {tmp_path}`"):
        get_recipe(str(tmp_path))


@pytest.mark.parametrize(
    ("assignment", "hint"),
    [
        ("learning_rate=1e-4", "learning_rate is called lr here. Set lr=1e-4."),
        ("max_steps=10", "max_steps is called steps here. Set steps=10."),
        ("num_train_steps=10", "num_train_steps is called steps here. Set steps=10."),
        ("warmup_steps=10", "warmup_steps is called optimizer.warmup here. Set optimizer.warmup=10."),
        ("optimizer.weight_decay=0.1", "weight_decay is called optimizer.decay here. Set optimizer.decay=0.1."),
        ("hidden_size=64", "hidden_size is called model.width here. Set model.width=64."),
        ("recompute=true", "recompute is called gradient_checkpointing here. Set gradient_checkpointing=true."),
        ("batch_size=32", "Set mlm.tokens=N, or that of another objective"),
        ("fp16=true", "GPUs train in bfloat16"),
        ("bf16=true", "GPUs train in bfloat16"),
        ("fp8=true", "set precision=fp8"),
        ("dtype=bfloat16", "GPUs train in bfloat16"),
        ("precision=16", "expected one of bf16, fp8"),
        ("gradient_accumulation_steps=4", "Set micro_tokens=N."),
        ("num_train_epochs=3", "Set steps=N."),
        ("mlm_probability=0.2", "Set mlm.rate=0.15, or that of another objective."),
    ],
)
def test_conventional_setting_is_answered_with_ours(assignment: str, hint: str) -> None:
    with pytest.raises(BadInput) as caught:
        get_recipe("xlm_e").set([assignment])
    assert str(caught.value).startswith(f"{assignment}: ")
    assert hint in str(caught.value)


def test_every_alias_points_to_a_setting() -> None:
    everything = get_recipe("xlm_e").set([f"{name}=on" for name in OBJECTIVES])
    keys = {key for key, _ in everything.settings()}
    assert {key for key in SETTING_ALIASES.values() if " " not in key} <= keys
    assert not {*SETTING_ALIASES} & {key for key in keys if "." not in key}


def test_gradient_checkpointing_is_a_setting() -> None:
    assert get_recipe("xlm_e").set(["gradient_checkpointing=true"]).gradient_checkpointing


def test_conventional_field_is_answered_with_ours_in_python() -> None:
    recipe = get_recipe("xlm_e")
    with pytest.raises(TypeError, match=r"^learning_rate=0\.0001: learning_rate is called lr here\. Set lr=0\.0001\.$"):
        recipe.replace(learning_rate=1e-4)
    with pytest.raises(TypeError, match=r"^dropout=0: dropout is called model\.dropout here\. Set model\.dropout=0\.$"):
        recipe.replace(dropout=0)
    with pytest.raises(TypeError, match=r"^batch_size=32: .* Set mlm\.tokens=N, or that of another objective\.$"):
        recipe.replace(batch_size=32)
    with pytest.raises(TypeError, match=r"^bf16=True: GPUs train in bfloat16"):
        recipe.replace(bf16=True)
    with pytest.raises(TypeError, match=r"^stepps=1: there is no 'stepps'; did you mean 'steps'\?$"):
        recipe.replace(stepps=1)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_takes_two_steps(name: str, shards: Shards, small_model: list[str], tmp_path: Path) -> None:
    recipe = get_recipe(name, "tiny")
    scaled = [f"{name}.length=32" for name in recipe.objectives]
    scaled += [f"{name}.tokens=128" for name, objective in recipe.objectives.items() if objective.tokens]
    scaled += ["xlco.pairs=4", "xlco.queue=8"] if recipe.xlco else []
    recipe = recipe.set([*small_model, *scaled, "steps=2", "log_every=2"])
    pretrain(recipe, shards, tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [2]
    terms = {term for objective in recipe.objectives.values() for term in objective.loss_weights}
    assert all(math.isfinite(row[term]) for row in rows for term in terms)
    assert get_recipe(str(tmp_path / "run" / "recipe.json")) == recipe
    # A run started from its own recipe.json resumes.
    pretrain(get_recipe(str(tmp_path / "run" / "recipe.json")), shards, tmp_path / "run")
