"""What a run does that began as a model: what learns first, what follows, and how it goes on after a stop."""

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

from crossling.data.batches import Batches, Work
from crossling.data.shards import Shards
from crossling.errors import BadInput
from crossling.objectives import Network
from crossling.recipe import Start, build, pretrain
from crossling.train import checkpoint, stored
from crossling.vocabulary.vocabulary import Vocabulary

from .conftest import Folder
from .made import model, same_weights, saved, small, started

# Cross-attention alone learns for three steps of six.
FROZEN = ("steps=6", "freeze_steps=3", "checkpoint_every=1", "log_every=1", "lr=0.01")


@pytest.fixture(autouse=True)
def _all_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "KEEP", 100)


def weights(run: Path, step: int) -> dict[str, Tensor]:
    return {name: value for name, value in everything(run, step).items() if "/" not in name}


def everything(run: Path, step: int) -> dict[str, Tensor]:
    return stored.tensors(run / "checkpoints" / f"{step:07d}")


def moved(one: dict[str, Tensor], other: dict[str, Tensor]) -> set[str]:
    assert one.keys() == other.keys()
    return {name for name in one if not torch.equal(one[name], other[name])}


def crossing(names: dict[str, Tensor]) -> set[str]:
    return {name for name in names if ".cross." in name or ".cross_norm." in name}


def metrics(run: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    times = ("seconds", "tokens_per_second", "loader_wait")
    return [{name: value for name, value in row.items() if name not in times} for row in rows]


@contextmanager
def crash_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine that goes down when the data of the next step is asked for."""
    original = Batches.__getitem__

    def crash(self: Batches, index: int) -> Work:
        if index == steps:
            raise RuntimeError("the machine went down")
        return original(self, index)

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="the machine went down"):  # noqa: PT012
        patch.setattr(Batches, "__getitem__", crash)
        yield


# ---- the frozen phase ----------------------------------------------------------------------------------------


def test_only_cross_attention_learns_at_first(
    folder: Folder, shards: Shards, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    start = Start.load(folder("xlm-roberta"))
    recipe = small("veco", *FROZEN)
    first = {name: p.detach().clone() for name, p in started(start, recipe, vocabulary).named_parameters()}
    pretrain(recipe, shards, tmp_path / "run", init=start)
    for step in (1, 2, 3):
        assert moved(first, weights(tmp_path / "run", step)) == crossing(first), step
    frozen = weights(tmp_path / "run", 3)
    assert moved(frozen, weights(tmp_path / "run", 4)) == set(first)
    theirs = dict(start.encoder.encoder.named_parameters())
    ours = {name.removeprefix("encoder."): value for name, value in frozen.items() if name.startswith("encoder.")}
    assert all(torch.equal(theirs[name], value) for name, value in ours.items() if name in theirs)


def test_from_nothing_everything_learns_at_once(shards: Shards, tmp_path: Path) -> None:
    shape = ("model.layers=2", "model.width=16", "model.heads=2", "model.feed_forward=32", "model.max_length=64")
    recipe = small("veco", *FROZEN, *shape, "model.generator_layers=1")
    first = {name: p.detach().clone() for name, p in build(recipe, shards.vocabulary_size).named_parameters()}
    pretrain(recipe.but(steps=2), shards, tmp_path / "run")
    assert moved(first, weights(tmp_path / "run", 1)) == set(first)


def test_cross_attention_that_learned_before_needs_no_time_of_its_own(
    folder: Folder, shards: Shards, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    pretrain(small("veco", *FROZEN), shards, tmp_path / "before", init=Start.load(folder("xlm-roberta")))
    start = Start.load(tmp_path / "before")
    recipe = small("veco", *FROZEN)
    first = {name: p.detach().clone() for name, p in started(start, recipe, vocabulary).named_parameters()}
    assert moved(first, weights(tmp_path / "before", 6)) == set()
    pretrain(recipe, shards, tmp_path / "run", init=start)
    assert moved(first, weights(tmp_path / "run", 1)) == set(first)


@pytest.mark.parametrize("stop", [2, 3, 4], ids=["within", "at its end", "after"])
def test_a_run_stopped_around_the_frozen_phase_is_the_same_run(
    stop: int, folder: Folder, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, recipe = Start.load(folder("xlm-roberta")), small("veco", *FROZEN)
    pretrain(recipe, shards, tmp_path / "whole", init=start)
    with crash_after(stop, monkeypatch):
        pretrain(recipe, shards, tmp_path / "stopped", init=start)
    assert checkpoint.all_steps(tmp_path / "stopped" / "checkpoints")[-1].name == f"{stop:07d}"
    pretrain(recipe, shards, tmp_path / "stopped", init=start)
    assert moved(everything(tmp_path / "whole", 6), everything(tmp_path / "stopped", 6)) == set()
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "stopped")


# ---- contrast ------------------------------------------------------------------------------------------------


def test_the_key_encoder_begins_as_the_model(folder: Folder, shards: Shards, tmp_path: Path) -> None:
    """A rate that no weight feels: what follows the encoder is as it began, and so are the keys in the queue."""
    start = Start.load(folder("xlm-roberta"))
    recipe = small("infoxlm", "lr=1e-30", "steps=1", "checkpoint_every=1", "model.universal_layer=2")
    net = pretrain(recipe, shards, tmp_path / "run", init=start)
    follower = net.parts["key_encoder"]
    assert len(follower.blocks) == 2
    theirs = dict(start.encoder.encoder.named_parameters())
    for name, parameter in follower.named_parameters():
        torch.testing.assert_close(parameter, theirs[name], atol=1e-7, rtol=0)
    torch.testing.assert_close(net.parts["key_projection"].weight, net.parts["projection"].weight, atol=1e-7, rtol=0)
    queue = net.parts["queue"]
    assert queue.filled == recipe.xlco.queue  # type: ignore[union-attr]
    # What it holds came from the encoder that was filled: the keys of the step, from that encoder by itself.
    batches = Batches(shards, {"xlco": recipe.xlco}, recipe.sampling, recipe.seed, 10**6)  # type: ignore[dict-item]
    [batch] = batches.of("xlco", 0)
    leader = Network(start.encoder.encoder.eval(), {"projection": net.parts["projection"]})
    with torch.no_grad():
        keys_ND = replace(recipe.xlco, layer=2).represent(leader, batch, "key")  # type: ignore[type-var]
    near = torch.cdist(keys_ND, queue.keys_AD).min(1).values
    assert near.max() < 1e-5


# ---- going on ------------------------------------------------------------------------------------------------


def test_a_run_goes_on_as_itself_and_not_as_the_model_again(
    shards: Shards, vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command, with a model that has other weights by now."""
    place, recipe = tmp_path / "model", small("xlm_e", "steps=4", "checkpoint_every=2")
    saved(model("xlm-roberta", "ForMaskedLM", vocabulary.size), vocabulary.tokenizer(), place)
    pretrain(recipe, shards, tmp_path / "whole", init=Start.load(place))
    with crash_after(3, monkeypatch):
        pretrain(recipe, shards, tmp_path / "stopped", init=Start.load(place))
    shutil.rmtree(place)
    saved(model("xlm-roberta", "ForMaskedLM", vocabulary.size, seed=9), vocabulary.tokenizer(), place)
    monkeypatch.setattr(Start, "fill", None)
    pretrain(recipe, shards, tmp_path / "stopped", init=Start.load(place))
    assert moved(weights(tmp_path / "whole", 4), weights(tmp_path / "stopped", 4)) == set()


def test_a_run_that_never_saved_begins_as_the_model(
    folder: Folder, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, recipe = Start.load(folder("xlm-roberta")), small("xlm_r")
    with crash_after(0, monkeypatch):
        pretrain(recipe, shards, tmp_path / "run", init=start)
    again = pretrain(recipe, shards, tmp_path / "run", init=start)
    same_weights(again, pretrain(recipe, shards, tmp_path / "whole", init=start))


def test_a_run_says_what_it_began_as_and_refuses_to_go_on_as_another(
    folder: Folder, shards: Shards, tmp_path: Path
) -> None:
    one, other = folder("xlm-roberta"), folder("roberta")
    recipe = small("xlm_r")
    pretrain(recipe, shards, tmp_path / "run", init=Start.load(one))
    known = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert known["init"] == {"model": str(one)}
    assert known["data"]["text"].keys() == shards.manifest["text"].keys()
    assert known["data"]["pairs"] == []  # there are, but this recipe reads none
    assert known["recipe"]["model"]["layers"] == 3
    shaped = Start.load(one).shape(recipe)
    for init in (Start.load(other), None):
        with pytest.raises(BadInput) as caught:
            pretrain(shaped, shards, tmp_path / "run", init=init)
        assert str(caught.value) == (
            f"{tmp_path / 'run'}: this run began as {one}; give the --init it began with, or another -o folder"
        )
    pretrain(recipe, shards, tmp_path / "run", init=Start.load(one))  # is done already
    pretrain(shaped, shards, tmp_path / "random")
    assert json.loads((tmp_path / "random" / "recipe.json").read_text())["init"] is None
    with pytest.raises(BadInput, match="this run began with random weights; give the --init it began with"):
        pretrain(recipe, shards, tmp_path / "random", init=Start.load(one))
