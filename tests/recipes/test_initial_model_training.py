"""Training of a run that is initialized from a model: frozen steps, key encoder, resuming."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from crossling.core.errors import BadInput
from crossling.data.batches import Batches, StepWork
from crossling.data.shards import Shards
from crossling.objectives import Network
from crossling.recipes.initial_model import InitialModel
from crossling.recipes.network import build_network
from crossling.recipes.pretrain import pretrain
from crossling.train import checkpoint
from crossling.train import checkpoint_storage as stored
from crossling.vocabulary.vocabulary import Vocabulary

from .conftest import Folder
from .toy_models import assert_same_weights, build_model, initialized_network, save_model, small_recipe

# Only cross-attention is trained in three of six steps.
FROZEN = ("steps=6", "freeze_steps=3", "checkpoint_every=1", "log_every=1", "lr=0.01", "keep_last=100")


def weights(run: Path, step: int) -> dict[str, Tensor]:
    return {name: value for name, value in everything(run, step).items() if "/" not in name}


def everything(run: Path, step: int) -> dict[str, Tensor]:
    return stored.read_tensors(run / "checkpoints" / f"{step:07d}")


def changed(one: dict[str, Tensor], other: dict[str, Tensor]) -> set[str]:
    assert one.keys() == other.keys()
    return {name for name in one if not torch.equal(one[name], other[name])}


def cross_attention(names: dict[str, Tensor]) -> set[str]:
    return {name for name in names if ".cross." in name or ".cross_norm." in name}


def metrics(run: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    times = ("seconds", "tokens_per_second", "loader_wait")
    return [{name: value for name, value in row.items() if name not in times} for row in rows]


@contextmanager
def crash_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Crash when the data of the next step is read."""
    original = Batches.__getitem__

    def crash(self: Batches, index: int) -> StepWork:
        if index == steps:
            raise RuntimeError("simulated crash")
        return original(self, index)

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="simulated crash"):  # noqa: PT012
        patch.setattr(Batches, "__getitem__", crash)
        yield


# ---- frozen steps --------------------------------------------------------------------------------------------


def test_only_cross_attention_is_trained_in_frozen_steps(
    folder: Folder, shards: Shards, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    initial = InitialModel.load(folder("xlm-roberta"))
    recipe = small_recipe("veco", *FROZEN)
    first = {
        name: p.detach().clone() for name, p in initialized_network(initial, recipe, vocabulary).named_parameters()
    }
    pretrain(recipe, shards, tmp_path / "run", init=initial)
    for step in (1, 2, 3):
        assert changed(first, weights(tmp_path / "run", step)) == cross_attention(first), step
    frozen = weights(tmp_path / "run", 3)
    assert changed(frozen, weights(tmp_path / "run", 4)) == set(first)
    theirs = dict(initial.encoder.encoder.named_parameters())
    ours = {name.removeprefix("encoder."): value for name, value in frozen.items() if name.startswith("encoder.")}
    assert all(torch.equal(theirs[name], value) for name, value in ours.items() if name in theirs)


def test_from_scratch_everything_is_trained_from_the_first_step(shards: Shards, tmp_path: Path) -> None:
    shape = ("model.layers=2", "model.width=16", "model.heads=2", "model.feed_forward=32", "model.max_length=64")
    recipe = small_recipe("veco", *FROZEN, *shape, "model.generator_layers=1")
    first = {name: p.detach().clone() for name, p in build_network(recipe, shards.vocabulary_size).named_parameters()}
    pretrain(recipe.replace(steps=2), shards, tmp_path / "run")
    assert changed(first, weights(tmp_path / "run", 1)) == set(first)


def test_cross_attention_of_the_model_needs_no_frozen_steps(
    folder: Folder, shards: Shards, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    pretrain(small_recipe("veco", *FROZEN), shards, tmp_path / "before", init=InitialModel.load(folder("xlm-roberta")))
    initial = InitialModel.load(tmp_path / "before")
    recipe = small_recipe("veco", *FROZEN)
    first = {
        name: p.detach().clone() for name, p in initialized_network(initial, recipe, vocabulary).named_parameters()
    }
    assert changed(first, weights(tmp_path / "before", 6)) == set()
    pretrain(recipe, shards, tmp_path / "run", init=initial)
    assert changed(first, weights(tmp_path / "run", 1)) == set(first)


@pytest.mark.parametrize("stop", [2, 3, 4], ids=["within", "at its end", "after"])
def test_run_interrupted_around_the_frozen_steps_gives_the_same_weights(
    stop: int, folder: Folder, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    initial, recipe = InitialModel.load(folder("xlm-roberta")), small_recipe("veco", *FROZEN)
    pretrain(recipe, shards, tmp_path / "whole", init=initial)
    with crash_after(stop, monkeypatch):
        pretrain(recipe, shards, tmp_path / "stopped", init=initial)
    assert checkpoint.list_checkpoints(tmp_path / "stopped" / "checkpoints")[-1].name == f"{stop:07d}"
    pretrain(recipe, shards, tmp_path / "stopped", init=initial)
    assert changed(everything(tmp_path / "whole", 6), everything(tmp_path / "stopped", 6)) == set()
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "stopped")


# ---- contrastive learning ------------------------------------------------------------------------------------


def test_key_encoder_is_initialized_from_the_model(folder: Folder, shards: Shards, tmp_path: Path) -> None:
    """The learning rate is too small to change a weight, so key encoder and queue are as initialized."""
    initial = InitialModel.load(folder("xlm-roberta"))
    recipe = small_recipe("infoxlm", "lr=1e-30", "steps=1", "checkpoint_every=1", "model.universal_layer=2")
    net = pretrain(recipe, shards, tmp_path / "run", init=initial)
    key_encoder = net.parts["key_encoder"]
    assert len(key_encoder.blocks) == 2
    theirs = dict(initial.encoder.encoder.named_parameters())
    for name, parameter in key_encoder.named_parameters():
        torch.testing.assert_close(parameter, theirs[name], atol=1e-7, rtol=0)
    torch.testing.assert_close(net.parts["key_projection"].weight, net.parts["projection"].weight, atol=1e-7, rtol=0)
    queue = net.parts["queue"]
    assert queue.filled == recipe.xlco.queue  # type: ignore[union-attr]
    # The queue contains the keys that the initialized encoder computes.
    batches = Batches(shards, {"xlco": recipe.xlco}, recipe.sampling, seed=recipe.seed, micro_tokens=10**6)  # type: ignore[dict-item]
    [batch] = batches.objective_batches("xlco", 0)
    query_encoder = Network(initial.encoder.encoder.eval(), {"projection": net.parts["projection"]})
    with torch.no_grad():
        keys_ND = replace(recipe.xlco, layer=2).represent(query_encoder, batch, "key")  # type: ignore[type-var]
    near = torch.cdist(keys_ND, queue.keys_AD).min(1).values
    assert near.max() < 1e-5


# ---- resuming ------------------------------------------------------------------------------------------------


def test_resumed_run_is_not_initialized_again(
    shards: Shards, vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model has other weights when the run resumes."""
    place, recipe = tmp_path / "model", small_recipe("xlm_e", "steps=4", "checkpoint_every=2")
    save_model(build_model("xlm-roberta", "ForMaskedLM", vocabulary.size), vocabulary.tokenizer(), place)
    pretrain(recipe, shards, tmp_path / "whole", init=InitialModel.load(place))
    with crash_after(3, monkeypatch):
        pretrain(recipe, shards, tmp_path / "stopped", init=InitialModel.load(place))
    shutil.rmtree(place)
    save_model(build_model("xlm-roberta", "ForMaskedLM", vocabulary.size, seed=9), vocabulary.tokenizer(), place)
    monkeypatch.setattr(InitialModel, "initialize", None)
    pretrain(recipe, shards, tmp_path / "stopped", init=InitialModel.load(place))
    assert changed(weights(tmp_path / "whole", 4), weights(tmp_path / "stopped", 4)) == set()


def test_run_without_a_checkpoint_is_initialized_again(
    folder: Folder, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    initial, recipe = InitialModel.load(folder("xlm-roberta")), small_recipe("xlm_r")
    with crash_after(0, monkeypatch):
        pretrain(recipe, shards, tmp_path / "run", init=initial)
    again = pretrain(recipe, shards, tmp_path / "run", init=initial)
    assert_same_weights(again, pretrain(recipe, shards, tmp_path / "whole", init=initial))


def test_run_stores_its_model_and_refuses_another(folder: Folder, shards: Shards, tmp_path: Path) -> None:
    one, other = folder("xlm-roberta"), folder("roberta")
    recipe = small_recipe("xlm_r")
    pretrain(recipe, shards, tmp_path / "run", init=InitialModel.load(one))
    known = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert known["init"] == {"model": str(one)}
    assert known["data"]["text"].keys() == shards.manifest["text"].keys()
    assert known["data"]["pairs"] == []  # the shards have pairs, but this recipe reads none
    assert known["recipe"]["model"]["layers"] == 3
    shaped = InitialModel.load(one).adapt(recipe)
    for init in (InitialModel.load(other), None):
        with pytest.raises(BadInput) as caught:
            pretrain(shaped, shards, tmp_path / "run", init=init)
        assert str(caught.value) == (
            f"{tmp_path / 'run'}: this run was initialized from {one}. Give the original init, or another folder."
        )
    pretrain(recipe, shards, tmp_path / "run", init=InitialModel.load(one))  # already complete
    pretrain(shaped, shards, tmp_path / "random")
    assert json.loads((tmp_path / "random" / "recipe.json").read_text())["init"] is None
    with pytest.raises(BadInput, match=r"this run was initialized with random weights\. Give the original init"):
        pretrain(recipe, shards, tmp_path / "random", init=InitialModel.load(one))
