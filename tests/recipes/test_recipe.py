"""Recipe: settings, checks, JSON, and the network it builds."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from crossling.core.errors import BadInput
from crossling.data.shards import Shards
from crossling.recipes import adapt_recipe, infoxlm, xlm, xlm_e, xlm_r
from crossling.recipes.initial_model import InitialModel
from crossling.recipes.network import build_network, load_run
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.sampling import DRO


def test_settings_of_a_recipe() -> None:
    recipe = xlm_e("tiny").set(
        ["steps=9", "trtd=off", "mrtd.lambda=5", "model.gate=false", "sampling.pivot=en", "optimizer.beta2=0.999"]
    )
    assert (recipe.steps, recipe.trtd, recipe.model.gate, recipe.sampling.pivot) == (9, None, False, "en")
    assert recipe.mrtd is not None
    assert recipe.mrtd.loss_weights == {"mlm": 1.0, "mrtd": 5.0}
    assert recipe.optimizer.beta2 == 0.999
    assert list(recipe.objectives) == ["mrtd"]
    assert recipe.set(["sampling.pivot=none"]).sampling.pivot is None


def test_plain_gate_has_no_biases_and_is_kept_by_an_adapted_run(
    full_recipe: Recipe, shards: Shards, tmp_path: Path
) -> None:
    recipe = full_recipe.set(["steps=1", "model.plain_gate=true", "xlco=off", "optimizer.warmup=0"])
    net = pretrain(recipe, shards, tmp_path / "run")
    width = recipe.model.width // recipe.model.heads
    found = [tuple(each.shape) for name, each in net.encoder.named_parameters() if ".gate." in name]
    assert found == [(recipe.model.heads,), (2, width)] * recipe.model.layers
    loaded = load_run(tmp_path / "run")
    assert all(torch.equal(one, other) for one, other in zip(net.parameters(), loaded.parameters(), strict=True))
    adapted = adapt_recipe("xlm_e", InitialModel.load(tmp_path / "run"), "tiny")
    assert adapted.model.plain_gate
    assert adapt_recipe("xlm_e", InitialModel.load(tmp_path / "run"), "tiny", ["model.gate_input=query"]) == adapted


def test_objectives_have_a_fixed_order() -> None:
    recipe = xlm_e("tiny").set(["trtd=off", "mrtd=off", "xlco=on", "tlm=on", "mlm=on"])
    assert list(recipe.objectives) == ["mlm", "tlm", "xlco"]


@pytest.mark.parametrize("assignment", ["stream=pairs", "mrtd.stream=pairs", "mrtd.term=x", "objectives=x"])
def test_unknown_settings_are_refused(assignment: str) -> None:
    with pytest.raises(BadInput, match="there is no"):
        xlm_e("tiny").set([assignment])


@pytest.mark.parametrize("recipe", [xlm_e("tiny"), xlm("small"), xlm_r("base"), xlm_e("xl")])
def test_bundled_recipes_pass(recipe: Recipe) -> None:
    recipe.check()


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (
            ["mrtd=off", "trtd=off"],
            "no objective is on. Set one of mlm, tlm, mrtd, trtd, xlco, ca_mlm, ca_tlm, denoising, pair_denoising,"
            " distill.",
        ),
        (["mlm=on"], "mrtd already trains a generator with mlm. Turn one of them off."),
        (["tlm=on"], "trtd already trains a generator with tlm. Turn one of them off."),
        (
            ["mrtd.length=600"],
            "mrtd.length is 600 (padded to 600), more than model.max_length = 512. Set a shorter mrtd.length.",
        ),
        (
            ["model.max_length=100", "mrtd.length=98", "trtd.length=64"],
            "mrtd.length is 98 (padded to 104), more than model.max_length = 100. Set a shorter mrtd.length.",
        ),
        (["xlco=on", "xlco.layer=5"], "xlco.layer is 5, the model has layers 0 to 4. Set one of these."),
        (["xlco=on", "xlco.layer=-1"], "xlco.layer is -1, the model has layers 0 to 4. Set one of these."),
        (["model.universal_layer=5"], "model.universal_layer is 5, the model has layers 0 to 4. Set one of these."),
        (["model.heads=3"], "model.width is 128, expected a multiple of model.heads = 3."),
        (
            ["precision=fp8", "model.width=120", "model.heads=2"],
            "model.width is 120, and precision=fp8 needs a multiple of 16. Set another model.width or precision=bf16.",
        ),
        (
            ["precision=fp8", "parallel=fsdp"],
            "precision=fp8 trains on replicas only, found parallel=fsdp. Set parallel=ddp or precision=bf16.",
        ),
        (["model.heads=0"], "model.heads must be at least 1 and at most 1000000, found 0."),
        (["model.layers=0"], "model.layers must be at least 1 and at most 1000, found 0."),
        (["steps=0"], "steps must be at least 1, found 0."),
        (["checkpoint_every=0"], "checkpoint_every must be at least 1, found 0."),
        (["log_every=-1"], "log_every must be at least 1, found -1."),
        (["micro_tokens=0"], "micro_tokens must be at least 1, found 0."),
        (["mrtd.tokens=0"], "mrtd.tokens must be at least 1, found 0."),
        (["mrtd.length=1"], "mrtd.length must be at least 8, found 1."),
        (["xlco.pairs=1"], "xlco.pairs must be at least 2, found 1."),
        (["seed=-1"], "seed must be at least 0 and less than 4294967296, found -1."),
        (["seed=4294967296"], "seed must be at least 0 and less than 4294967296, found 4294967296."),
        (["optimizer.warmup=-1"], "optimizer.warmup must be at least 0, found -1.0."),
        (["lr=0"], "lr must be more than 0, found 0.0."),
        (["optimizer.clip=0"], "optimizer.clip must be more than 0, found 0.0."),
        (["optimizer.beta2=1"], "optimizer.beta2 must be at least 0 and less than 1, found 1.0."),
        (["model.dropout=1"], "model.dropout must be at least 0 and less than 1, found 1.0."),
        (["mrtd.rate=1.5"], "mrtd.rate must be at least 0 and at most 1, found 1.5."),
        (["mrtd.lambda=-1"], "mrtd.lambda must be at least 0, found -1.0."),
        (["xlco.temperature=0"], "xlco.temperature must be more than 0, found 0.0."),
        (
            ["mrtd=off", "mlm.keep=0.6", "mlm.random=0.6"],
            "mlm.keep and mlm.random add up to more than 1. Set lower values.",
        ),
        (
            ["model.cross_query=hidden"],
            "model.cross_query is that of cross-attention. Set model.cross_attention=true, or omit it.",
        ),
        (
            ["model.plain_gate=true", "model.gate=false"],
            "model.plain_gate is that of the gate. Set model.relative=true and model.gate=true, or omit it.",
        ),
        (
            ["sampling.languages=de,sw", "sampling.focus=sw,ta"],
            "sampling.focus has ta, which is not in sampling.languages=de,sw. Add it there, or set another"
            " sampling.focus.",
        ),
        (
            ["sampling.languages=de,sw", "sampling.pivot=en"],
            "sampling.pivot has en, which is not in sampling.languages=de,sw. Add it there, or set another"
            " sampling.pivot.",
        ),
    ],
)
def test_contradictions_and_values_out_of_bounds_are_refused(assignments: list[str], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        xlm_e("tiny").set(assignments).check()
    assert str(caught.value) == f"recipe xlm_e: {message}"


def test_refused_recipe_leaves_no_folder(shards: Shards, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="steps must be"):
        pretrain(xlm_e("tiny").replace(steps=0), shards, tmp_path / "run")
    with pytest.raises(BadInput, match="no translation pairs with en in these shards"):
        pretrain(xlm_e("tiny").set(["sampling.pivot=en"]), shards, tmp_path / "run")
    assert not (tmp_path / "run").exists()


# ---- JSON ---------------------------------------------------------------------------------------------------


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_recipe_of_a_run_is_read_back(full_recipe: Recipe, tmp_path: Path) -> None:
    file = write(tmp_path / "recipe.json", {"format": 2, "recipe": full_recipe.dump(), "shards": "abc"})
    assert Recipe.load(file) == full_recipe


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stepz": 5}, "there is no 'stepz'; did you mean 'steps'?"),
        ({"steps": "5"}, "expected a whole number"),
        ({"model": {"layers": 2}}, "model: 'width' is missing"),
        ({"mrtd": {"lambda": 5}}, "mrtd: there is no 'lambda'; did you mean 'lambda_'?"),
        ({"trtd": "off"}, "trtd: expected an object, found 'off'"),
        ({"lr": None}, "expected a number"),
    ],
)
def test_mistyped_recipe_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = write(tmp_path / "recipe.json", {"format": 2, "recipe": xlm_e("tiny").dump() | change})
    with pytest.raises(BadInput) as caught:
        Recipe.load(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '"recipe"', '{"recipe": 5}'])
def test_file_without_a_recipe_is_refused(content: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"recipe\.json: "):
        Recipe.load(write(tmp_path / "recipe.json", content))


@pytest.mark.parametrize("version", [{}, {"format": 1}, {"format": 3}, {"format": "2"}, {"format": None}])
def test_recipe_of_another_version_is_refused(version: dict[str, Any], tmp_path: Path) -> None:
    stored = {"recipe": xlm_e("tiny").dump() | {"recompute": True}, **version}
    with pytest.raises(BadInput, match=r"format version .*, expected 2\. Train again with crossling pretrain"):
        Recipe.load(write(tmp_path / "recipe.json", stored))


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a readable"):
        Recipe.load(tmp_path / "recipe.json")


# ---- DRO ----------------------------------------------------------------------------------------------------


def test_dro_is_turned_on_as_a_part_or_by_one_of_its_settings(full_recipe: Recipe) -> None:
    assert full_recipe.dro is None
    assert full_recipe.set(["dro=on"]).dro == DRO(times=10, rho=0.05, floor=0.0, baseline=None)
    assert full_recipe.set(["dro.rho=0.2"]).dro == DRO(rho=0.2)
    assert full_recipe.set(["dro.rho=0.2", "dro=off"]).dro is None


def test_dro_is_read_back(full_recipe: Recipe, tmp_path: Path) -> None:
    recipe = full_recipe.set(["dro.times=3", "dro.baseline=runs/plain"])
    (tmp_path / "recipe.json").write_text(json.dumps({"format": 2, "recipe": recipe.dump()}))
    assert Recipe.load(tmp_path / "recipe.json") == recipe


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["dro.times=0"], "dro.times must be at least 1"),
        (["dro.rho=-0.1"], "dro.rho must be at least 0"),
        (["dro.floor=1.5"], "dro.floor must be at least 0 and at most 1"),
        (["dro.times=7"], "dro.times is 7 and steps only 7. Set a lower dro.times"),
        (["dro.times=3", "trtd=off", "xlco=off"], "no objective reads any. Set tlm=on or trtd=on"),
    ],
)
def test_impossible_dro_is_refused(assignments: list[str], message: str, full_recipe: Recipe) -> None:
    with pytest.raises(BadInput, match=message):
        full_recipe.set(assignments).check()


# ---- network ------------------------------------------------------------------------------------------------


def test_modules_that_objectives_share_exist_once(full_recipe: Recipe) -> None:
    net = build_network(full_recipe, 400)
    momentum = ["key_encoder", "key_projection", "projection", "queue"]
    assert sorted(net.parts) == ["generator", "generator_head", *momentum, "rtd_head"]
    alone = build_network(full_recipe.replace(trtd=None), 400)
    assert sum(p.numel() for p in net.parameters()) == sum(p.numel() for p in alone.parameters())


def test_generator_and_encoder_share_one_token_table(full_recipe: Recipe) -> None:
    net = build_network(full_recipe, 400)
    found = dict(net.named_parameters(remove_duplicate=False))
    tables = [p for name, p in found.items() if name.endswith("tokens.weight") and "key_encoder" not in name]
    assert len(tables) == 2
    assert tables[0] is tables[1]
    with torch.no_grad():
        net.encoder.embeddings.tokens.weight[7, 0] = 123.0
    assert net.parts["generator"].embeddings.tokens.weight[7, 0].item() == 123.0


def test_generator_is_smaller_and_has_no_dropout(full_recipe: Recipe) -> None:
    recipe = full_recipe.set(["model.layers=3", "model.dropout=0.25"])
    net = build_network(recipe, 400).train()
    generator = net.parts["generator"]
    assert len(net.encoder.blocks) == 3
    assert len(generator.blocks) == 1
    assert {m.p for m in generator.modules() if isinstance(m, nn.Dropout)} == {0.0}
    assert {m.p for m in net.encoder.modules() if isinstance(m, nn.Dropout)} == {0.25}
    ids = torch.arange(5, 13)[None]
    assert torch.equal(generator(ids).last_hidden_state, generator(ids).last_hidden_state)
    assert not torch.equal(net.encoder(ids).last_hidden_state, net.encoder(ids).last_hidden_state)


def test_network_is_a_function_of_the_seed(full_recipe: Recipe) -> None:
    first, again, other = (build_network(full_recipe.replace(seed=seed), 400).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["encoder.embeddings.tokens.weight"], other["encoder.embeddings.tokens.weight"])


def test_network_of_a_run_is_that_of_its_latest_checkpoint(full_recipe: Recipe, shards: Shards, tmp_path: Path) -> None:
    trained = pretrain(full_recipe.replace(steps=3), shards, tmp_path / "run")
    loaded = load_run(tmp_path / "run").state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in trained.state_dict().items())


def test_run_without_a_checkpoint_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no checkpoint yet"):
        load_run(tmp_path)


def test_changes_make_copies(full_recipe: Recipe) -> None:
    assert full_recipe.replace(steps=3).replace(steps=full_recipe.steps) == full_recipe
    assert replace(full_recipe) == full_recipe
    assert full_recipe.set([]) is full_recipe


def test_a_setting_that_turns_an_objective_on_is_reported() -> None:
    with pytest.warns(UserWarning, match=r"xlco is off in xlm_e, and this setting turns it on\. Set xlco=on"):
        assert xlm_e("tiny").set(["xlco.temperature=0.1"]).xlco is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        xlm_e("tiny").set(["xlco=on", "xlco.temperature=0.1", "xlco=off"])


def test_setting_tokens_resets_sequences() -> None:
    recipe = infoxlm("base")
    assert recipe.tlm is not None
    assert recipe.tlm.sequences is not None
    changed = recipe.set(["tlm.tokens=4096"]).tlm
    assert changed is not None
    assert (changed.tokens, changed.sequences) == (4096, None)
    both = recipe.set(["tlm.tokens=4096", "tlm.sequences=8"]).tlm
    assert both is not None
    assert both.batch_setting == "sequences"
