"""A run and its export hold all that training goes on from."""

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
from crossling.recipe import Recipe, Start, load_run, pretrain
from crossling.vocabulary.vocabulary import Vocabulary

from .made import same_weights, small, started

TABLES = ("shared", "gdes", "untied")
SHAPE = [
    *("model.layers=3", "model.width=16", "model.heads=2", "model.feed_forward=32", "model.max_length=64"),
    "model.universal_layer=1",
]
Train = Callable[..., Path]


@pytest.fixture(scope="module")
def train(shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """The folder of a run of a few steps, which have moved every weight."""
    made: dict[tuple[str, ...], Path] = {}

    def train(name: str, *differences: str) -> Path:
        if (key := (name, *differences)) not in made:
            made[key] = tmp_path_factory.mktemp(name) / "run"
            pretrain(small(name, *SHAPE, *differences), shards, made[key])
        return made[key]

    return train


@pytest.fixture(scope="module")
def place(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Path]]:
    """A run, and the same or its export to start from."""
    made: dict[tuple[str, ...], Path] = {}

    def place(how: str, name: str, *differences: str) -> tuple[Path, Path]:
        run = train(name, *differences)
        if how == "run":
            return run, run
        if (key := (how, name, *differences)) not in made:
            made[key] = export(run, tmp_path_factory.mktemp("export") / "model", family=how)
        return run, made[key]

    return place


@torch.no_grad()
def first_losses(net: Network, recipe: Recipe, shards: Shards) -> dict[str, float]:
    """Every sum of the first step, without dropout."""
    net.eval()
    work = Batches(shards, recipe.objectives, recipe.sampling, recipe.seed, recipe.micro_tokens, recipe.alternate)[0]
    sums: dict[str, float] = {}
    for name, batch in work.micro:
        for term, value in recipe.objectives[name].loss(net, batch).items():
            sums[term] = sums.get(term, 0.0) + float(value)
    assert sums
    return sums


def same_network(one: Network, other: Network) -> None:
    """But for how the token tables are held, which are compared as they are seen."""
    assert set(one.parts) == set(other.parts)
    for name in set(one.parts) & {"lm_head", "generator_head", "rtd_head"}:
        same_weights(one.parts[name], other.parts[name])
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
def test_replaced_token_detection_goes_on(
    tables: tuple[str, str], how: str, place: Callable[..., tuple[Path, Path]], shards: Shards, vocabulary: Vocabulary
) -> None:
    run, model = place(how, "xlm_e", f"model.token_table={tables[0]}")
    expected = load_run(run)
    assert any(parameter.std() > 0.01 for parameter in expected.parts["rtd_head"].parameters())
    start = Start.load(model)
    recipe = start.shape(small("xlm_e", "model.generator_layers=1", f"model.token_table={tables[1]}"))
    # Two tables cannot become one.
    assert recipe.model.token_table == ("gdes" if tables[1] == "shared" != tables[0] else tables[1])
    assert (recipe.model.generator_layers, recipe.model.universal_layer) == (2, 1)
    net = started(start, recipe, vocabulary)
    same_network(net, expected)
    theirs, ours = first_losses(expected, recipe, shards), first_losses(net, recipe, shards)
    assert set(theirs) >= {"mlm", "mrtd", "tlm", "trtd"}
    assert ours == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize("how", ["run", "crossling"])
@pytest.mark.parametrize("name", ["xlm_r", "infoxlm", "veco"])
def test_prediction_goes_on(
    name: str, how: str, place: Callable[..., tuple[Path, Path]], shards: Shards, vocabulary: Vocabulary
) -> None:
    run, model = place(how, name)
    expected = load_run(run)
    net = started(Start.load(model), small(name), vocabulary)
    same_weights(net.encoder, expected.encoder)
    same_weights(net.parts["lm_head"], expected.parts["lm_head"])
    recipe = small(name).but(xlco=None)  # what it remembers stays in the run
    assert first_losses(net, recipe, shards) == first_losses(expected, recipe, shards)


@pytest.mark.parametrize("name", ["xlm_r", "xlm_e"])
def test_an_export_as_another_family(
    name: str, place: Callable[..., tuple[Path, Path]], shards: Shards, vocabulary: Vocabulary
) -> None:
    plain = ("model.relative=false", "model.gate=false")
    run, model = place("xlm-roberta", name, *plain)
    expected, net = load_run(run), started(Start.load(model), small(name, *plain), vocabulary)
    same_network(net, expected)
    recipe = small(name)
    assert first_losses(net, recipe, shards) == pytest.approx(first_losses(expected, recipe, shards), rel=1e-5)


def test_a_run_that_goes_on_trains(train: Train, shards: Shards, tmp_path: Path) -> None:
    """All the way: the loss of its first row is that of where the other had come to."""
    before = train("xlm_e")
    start = Start.load(before)
    recipe = start.shape(small("xlm_e", "steps=1", "model.dropout=0", "log_every=1"))
    net = pretrain(recipe, shards, tmp_path / "run", init=start)
    row = json.loads((tmp_path / "run" / "metrics.jsonl").read_text())
    work = Batches(shards, recipe.objectives, recipe.sampling, recipe.seed, recipe.micro_tokens, recipe.alternate)[0]
    for term, value in first_losses(load_run(before), recipe, shards).items():
        assert row[term] == pytest.approx(value / work.counts[term], rel=1e-5, abs=1e-5), term
    was = dict(start.encoder.encoder.named_parameters())
    assert not any(torch.equal(parameter, was[name]) for name, parameter in net.encoder.named_parameters())


def test_other_recipes_take_what_they_can_use(train: Train, vocabulary: Vocabulary) -> None:
    """XLM-R from XLM-E's discriminator: no head for words was trained on it. VECO's modules stay where they are."""
    start = Start.load(train("xlm_e"))
    net = started(start, small("xlm_r"), vocabulary)
    same_weights(net.encoder, start.encoder.encoder)
    assert not net.parts["lm_head"].bias_V.any()
    veco = Start.load(train("veco"))
    same_weights(started(veco, small("xlm_r"), vocabulary).encoder, veco.encoder.encoder)
    taken = started(veco, small("xlm_e"), vocabulary)
    assert taken.encoder.config.cross_attention
    assert veco.encoder.lm_head is not None
    same_weights(taken.parts["generator_head"], veco.encoder.lm_head)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_first_layers_of_a_run_as_generator(norm: str, train: Train, vocabulary: Vocabulary) -> None:
    start = Start.load(train("xlm_r", f"model.norm={norm}"))
    generator = started(start, small("xlm_e"), vocabulary).parts["generator"]
    theirs = dict(start.encoder.encoder.named_parameters())
    new = [name for name, p in generator.named_parameters() if name not in theirs or not torch.equal(p, theirs[name])]
    assert all("gate" in name or name == "relative.weight_NH" for name in new)
    assert (generator.final_norm is not None) == (norm == "pre")
