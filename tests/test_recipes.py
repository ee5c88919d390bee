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
from crossling.recipes import RECIPES, has_size, named, xlm, xlm_r

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


CONTRAST = {
    **COMMON,
    **{"optimizer.clip": 1.0, "mlm.tokens": 2048 * 512, "tlm.sequences": 2048, "xlco.pairs": 2048},
    **{"xlco.momentum": 0.999, "xlco.queue": 131_072, "xlco.temperature": 0.25, "xlco.normalise": False},
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
    ("xlm_e", "large"): {**LARGE, **rtd(500_000, 2e-4, MILLION, 1.0, 6)},
    ("xlm_e", "xl"): {**XL, **rtd(150_000, 1e-4, 4 * MILLION, 1.0, 8)},
    ("xy_lent", "base"): {**BASE, **rtd(125_000, 8e-4, 4 * MILLION, 2.0, 4), "sampling.pair_rule": "xy_lent"},
    ("xy_lent", "large"): {**LARGE, **rtd(500_000, 2e-4, MILLION, 1.0, 6), "sampling.pair_rule": "xy_lent"},
    ("xy_lent", "xl"): {**XL, **rtd(150_000, 1e-4, 4 * MILLION, 1.0, 8), "sampling.pair_rule": "xy_lent"},
    ("infoxlm", "base"): {**BASE, **CONTRAST, "steps": 150_000, "lr": 2e-4, "model.universal_layer": 8},
    ("infoxlm", "large"): {**LARGE, **CONTRAST, "steps": 200_000, "lr": 1e-4, "model.universal_layer": 12},
    ("veco", "large"): {**LARGE, **TWO_STREAMS, "lr": 2e-4},
    ("veco", "ablation"): {**BASE, **TWO_STREAMS, "model.layers": 6, "lr": 3e-4, "optimizer.beta2": 0.999},
}


@pytest.mark.parametrize(("name", "size"), ALL)
def test_a_recipe_is_sound_and_survives_being_written(name: str, size: str) -> None:
    recipe = named(name, size)
    recipe.check()
    assert recipe.name == name
    assert settings.read(Recipe, json.loads(json.dumps(recipe.dump())), "file") == recipe


@pytest.mark.parametrize(("name", "size"), PUBLISHED)
def test_every_hyperparameter_is_as_published(name: str, size: str) -> None:
    found = dict(named(name, size).settings())
    assert {key: found[key] for key in PUBLISHED[name, size]} == PUBLISHED[name, size]


def test_every_size_of_the_papers_is_there() -> None:
    assert set(PUBLISHED) <= set(ALL)
    assert named("veco") == named("veco", "large")
    assert named("infoxlm") == named("infoxlm", "base")


@pytest.mark.parametrize("size", ["tiny", "small"])
def test_smaller_contrast_is_of_means_by_cosine(size: str) -> None:
    for recipe in (named("infoxlm", size), named("xlm_e", size).set(["xlco=on"])):
        assert recipe.xlco is not None
        form = recipe.xlco
        assert (form.pooling, form.normalise, form.temperature, form.momentum) == ("mean", True, 0.05, 0.99)
        assert form.queue == 64 * form.pairs


def test_xlm_r_masks_text_only_and_knows_absolute_positions_only() -> None:
    recipe = xlm_r("base")
    assert list(recipe.objectives) == ["mlm"]
    assert isinstance(recipe.mlm, MLM)
    assert (recipe.mlm.rate, recipe.mlm.keep, recipe.mlm.random) == (0.15, 0.1, 0.1)
    assert recipe.mlm.tokens == 8192 * 512
    assert (recipe.steps, recipe.sampling.text_alpha) == (1_500_000, 0.3)
    assert (recipe.model.absolute, recipe.model.relative, recipe.model.gate) == (True, False, False)


@pytest.mark.parametrize("size", ["tiny", "small", "base", "large"])
def test_rosetta_is_infoxlm_with_one_encoder(size: str) -> None:
    ours, theirs = named("rosetta", size), named("infoxlm", size)
    assert [*ours.objectives] == [*theirs.objectives] == ["mlm", "tlm", "xlco"]
    contrast = ours.xlco
    assert contrast is not None
    assert (contrast.queue, contrast.momentum, contrast.mixup, contrast.symmetric) == (0, 0.0, False, True)
    assert (contrast.temperature, contrast.weight, contrast.rate) == (0.03, 3.0, 0.05)
    assert (contrast.pooling, contrast.normalise, ours.sampling.pivot) == ("mean", True, "most")
    # The pairs of a step are computed at once, so that they must fit a GPU.
    assert contrast.pairs == {"tiny": 64, "small": 1024}.get(size, 2048)
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
