"""Initialization from a run and from its export: training continues with the same losses."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import torch

from crossling.data.batches import Batches
from crossling.data.shards import Shards
from crossling.export import export
from crossling.objectives import Network
from crossling.recipes.initial_model import InitialModel
from crossling.recipes.network import load_run
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.vocabulary.vocabulary import Vocabulary

from .toy_models import assert_same_weights, initialized_network, small_recipe

TABLES = ("shared", "gdes", "untied")
SHAPE = [
    *("model.layers=3", "model.width=16", "model.heads=2", "model.feed_forward=32", "model.max_length=64"),
    "model.universal_layer=1",
]
Train = Callable[..., Path]


@pytest.fixture(scope="module")
def train(shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Return the folder of a run of a few steps, which changed every weight."""
    folders: dict[tuple[str, ...], Path] = {}

    def train(name: str, *differences: str) -> Path:
        if (key := (name, *differences)) not in folders:
            folders[key] = tmp_path_factory.mktemp(name) / "run"
            pretrain(small_recipe(name, *SHAPE, *differences), shards, folders[key])
        return folders[key]

    return train


@pytest.fixture(scope="module")
def place(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Path]]:
    """Return a run, and the folder to initialize from: the run or its export."""
    folders: dict[tuple[str, ...], Path] = {}

    def place(how: str, name: str, *differences: str) -> tuple[Path, Path]:
        run = train(name, *differences)
        if how == "run":
            return run, run
        if (key := (how, name, *differences)) not in folders:
            folders[key] = export(run, tmp_path_factory.mktemp("export") / "model", as_=how)
        return run, folders[key]

    return place


@torch.no_grad()
def first_losses(net: Network, recipe: Recipe, shards: Shards) -> dict[str, float]:
    """Return every loss sum of the first step, without dropout."""
    net.eval()
    work = Batches(
        shards,
        recipe.objectives,
        recipe.sampling,
        seed=recipe.seed,
        micro_tokens=recipe.micro_tokens,
        alternate=recipe.alternate,
    )[0]
    sums: dict[str, float] = {}
    for name, batch in work.micro_batches:
        for term, value in recipe.objectives[name].loss(net, batch).items():
            sums[term] = sums.get(term, 0.0) + float(value)
    assert sums
    return sums


def assert_same_network(one: Network, other: Network) -> None:
    """Compare all weights. Token tables are compared by value, however they are stored."""
    assert set(one.parts) == set(other.parts)
    for name in set(one.parts) & {"lm_head", "generator_head", "rtd_head"}:
        assert_same_weights(one.parts[name], other.parts[name])
    networks = [(one.encoder, other.encoder)]
    if "generator" in one.parts:
        networks.append((one.parts["generator"], other.parts["generator"]))
    for left, right in networks:
        theirs = dict(right.named_parameters())
        assert all(torch.equal(p, theirs[name]) for name, p in left.named_parameters() if ".tokens." not in name)
        tables = (each.embeddings.tokens.weight for each in (left, right))
        torch.testing.assert_close(*tables, atol=1e-6, rtol=0)


@pytest.mark.parametrize("how", ["run", "crossling"])
@pytest.mark.parametrize("tables", [*product(TABLES, TABLES)], ids="-to-".join)
def test_replaced_token_detection_continues_with_the_same_losses(
    tables: tuple[str, str], how: str, place: Callable[..., tuple[Path, Path]], shards: Shards, vocabulary: Vocabulary
) -> None:
    run, model = place(how, "xlm_e", f"model.token_table={tables[0]}")
    expected = load_run(run)
    assert any(parameter.std() > 0.01 for parameter in expected.parts["rtd_head"].parameters())
    initial = InitialModel.load(model)
    recipe = initial.adapt(small_recipe("xlm_e", "model.generator_layers=1", f"model.token_table={tables[1]}"))
    # Two different tables cannot be shared.
    assert recipe.model.token_table == ("gdes" if tables[1] == "shared" != tables[0] else tables[1])
    assert (recipe.model.generator_layers, recipe.model.universal_layer) == (2, 1)
    net = initialized_network(initial, recipe, vocabulary)
    assert_same_network(net, expected)
    theirs, ours = first_losses(expected, recipe, shards), first_losses(net, recipe, shards)
    assert set(theirs) >= {"mlm", "mrtd", "tlm", "trtd"}
    assert ours == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize("how", ["run", "crossling"])
@pytest.mark.parametrize("name", ["xlm_r", "infoxlm", "veco"])
def test_masked_language_modelling_continues_with_the_same_losses(
    name: str, how: str, place: Callable[..., tuple[Path, Path]], shards: Shards, vocabulary: Vocabulary
) -> None:
    run, model = place(how, name)
    expected = load_run(run)
    net = initialized_network(InitialModel.load(model), small_recipe(name), vocabulary)
    assert_same_weights(net.encoder, expected.encoder)
    assert_same_weights(net.parts["lm_head"], expected.parts["lm_head"])
    recipe = small_recipe(name).replace(xlco=None)  # its queue is not copied
    assert first_losses(net, recipe, shards) == first_losses(expected, recipe, shards)


@pytest.mark.parametrize("name", ["xlm_r", "xlm_e"])
def test_export_as_xlm_roberta_continues_with_the_same_losses(
    name: str, place: Callable[..., tuple[Path, Path]], shards: Shards, vocabulary: Vocabulary
) -> None:
    plain = ("model.relative=false", "model.gate=false")
    run, model = place("xlm-roberta", name, *plain)
    expected, net = load_run(run), initialized_network(InitialModel.load(model), small_recipe(name, *plain), vocabulary)
    assert_same_network(net, expected)
    recipe = small_recipe(name)
    assert first_losses(net, recipe, shards) == pytest.approx(first_losses(expected, recipe, shards), rel=1e-5)


def test_continued_run_starts_at_the_loss_of_the_other_and_trains(train: Train, shards: Shards, tmp_path: Path) -> None:
    """The first logged loss equals that of the other run's network."""
    before = train("xlm_e")
    initial = InitialModel.load(before)
    recipe = initial.adapt(small_recipe("xlm_e", "steps=1", "model.dropout=0", "log_every=1"))
    net = pretrain(recipe, shards, tmp_path / "run", init=initial)
    row = json.loads((tmp_path / "run" / "metrics.jsonl").read_text())
    work = Batches(
        shards,
        recipe.objectives,
        recipe.sampling,
        seed=recipe.seed,
        micro_tokens=recipe.micro_tokens,
        alternate=recipe.alternate,
    )[0]
    for term, value in first_losses(load_run(before), recipe, shards).items():
        assert row[term] == pytest.approx(value / work.counts[term], rel=1e-5, abs=1e-5), term
    old = dict(initial.encoder.encoder.named_parameters())
    assert not any(torch.equal(parameter, old[name]) for name, parameter in net.encoder.named_parameters())


def test_other_recipes_use_the_modules_they_need(train: Train, vocabulary: Vocabulary) -> None:
    """XLM-R from XLM-E's discriminator gets a new language model head. VECO's cross-attention is kept."""
    initial = InitialModel.load(train("xlm_e"))
    net = initialized_network(initial, small_recipe("xlm_r"), vocabulary)
    assert_same_weights(net.encoder, initial.encoder.encoder)
    assert not net.parts["lm_head"].bias_V.any()
    veco = InitialModel.load(train("veco"))
    assert_same_weights(initialized_network(veco, small_recipe("xlm_r"), vocabulary).encoder, veco.encoder.encoder)
    net = initialized_network(veco, small_recipe("xlm_e"), vocabulary)
    assert net.encoder.config.cross_attention
    assert veco.encoder.lm_head is not None
    assert_same_weights(net.parts["generator_head"], veco.encoder.lm_head)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_first_layers_of_a_run_become_the_generator(norm: str, train: Train, vocabulary: Vocabulary) -> None:
    initial = InitialModel.load(train("xlm_r", f"model.norm={norm}"))
    generator = initialized_network(initial, small_recipe("xlm_e"), vocabulary).parts["generator"]
    theirs = dict(initial.encoder.encoder.named_parameters())
    new = [name for name, p in generator.named_parameters() if name not in theirs or not torch.equal(p, theirs[name])]
    assert all("gate" in name or name == "relative.weight_NH" for name in new)
    assert (generator.final_norm is not None) == (norm == "pre")
