"""What a user is told, or spared, when a run begins as a model."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from crossling.data.batches import Batches, Work
from crossling.data.shards import Shards
from crossling.errors import BadInput, Interrupted
from crossling.recipe import Start, build, pretrain
from crossling.recipes import named
from crossling.vocabulary.vocabulary import Vocabulary

from .conftest import Folder
from .made import small


def test_what_is_the_models_and_what_is_new(
    folder: Folder, shards: Shards, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    with pytest.warns(UserWarning, match="the vocabulary is its own; new: rtd_head$"):
        pretrain(small("xlm_e"), shards, tmp_path / "detector", init=Start.load(folder("xlm-roberta")))
    with pytest.warns(UserWarning, match="new: cross-attention$"):
        pretrain(small("veco", "freeze_steps=1"), shards, tmp_path / "veco", init=Start.load(folder("xlm-roberta")))
    start = Start.load(folder("xlm-roberta"))
    fewer = Vocabulary.of(dict([*vocabulary.scores.items()][:60]), vocabulary.rules, vocabulary.rules_name)
    told = start.fill(build(start.shape(small("xlm_r")), fewer.size), fewer, 0)
    assert told == "65 pieces come from one of its pieces, 0 from several, 0 from none"


def test_a_name_will_do_and_however_it_is_spelled(
    folder: Folder, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder("xlm-roberta")
    recipe = small("xlm")
    pretrain(recipe, shards, tmp_path / "run", init=str(place))
    known = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert known["init"] == {"model": str(place)}
    assert known["data"]["pairs"]
    monkeypatch.chdir(place.parent)
    pretrain(recipe, shards, tmp_path / "run", init=f"./{place.name}/")


@pytest.mark.parametrize("head", ["ForMaskedLM", "Model"])
def test_a_run_goes_on_where_its_model_is_gone(
    head: str, folder: Folder, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its frozen phase, and as the whole run would have."""
    place = tmp_path / "model"
    shutil.copytree(folder("xlm-roberta", head), place)
    recipe = small("veco", "steps=6", "freeze_steps=4", "checkpoint_every=1")
    whole = pretrain(recipe, shards, tmp_path / "whole", init=str(place))
    original = Batches.__getitem__

    def interrupting(self: Batches, step: int) -> Work:
        if step == 2:
            signal.raise_signal(signal.SIGINT)
        return original(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(Batches, "__getitem__", interrupting)
        with pytest.raises(Interrupted):
            pretrain(recipe, shards, tmp_path / "run", init=str(place))
    known = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert known["new"] == (["cross-attention"] if head == "ForMaskedLM" else ["lm_head", "cross-attention"])
    shutil.rmtree(place)
    found = pretrain(recipe, shards, tmp_path / "run", init=str(place))
    for (name, one), (_, other) in zip(whole.named_parameters(), found.named_parameters(), strict=True):
        assert torch.equal(one, other), name
    with pytest.raises(BadInput, match="no such folder"):
        pretrain(recipe, shards, tmp_path / "another", init=str(place))


def test_a_generator_for_nobody(folder: Folder, shards: Shards, tmp_path: Path) -> None:
    place = folder("xlm-roberta")
    with pytest.raises(BadInput, match="recipe infoxlm trains no generator; leave --init-generator out"):
        pretrain(small("infoxlm"), shards, tmp_path / "run", init=Start.load(place, place))
    assert not (tmp_path / "run").exists()


def test_weights_that_are_no_numbers_or_of_another_shape(folder: Folder, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    place.mkdir()
    for file in folder("xlm-roberta").iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    weights = load_file(place / "model.safetensors")
    name = next(key for key in weights if key.endswith("layer.0.output.dense.weight"))
    sound = weights[name].clone()
    weights[name][0, 0] = torch.nan
    save_file(weights, place / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadInput, match=rf"the weight {name} holds values that are no numbers"):
        Start.load(place)
    save_file({**weights, name: sound[:, :-1].contiguous()}, place / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadInput, match=rf"the weight {name} is of shape .* and its config.json asks for"):
        Start.load(place)


def test_streams_that_take_turns_are_counted_so() -> None:
    recipe = named("veco", "tiny").but(steps=7)
    assert (recipe.turns("text"), recipe.turns("pairs")) == (4, 3)
    assert recipe.but(alternate=False).turns("pairs") == 7
    assert recipe.set(["tlm=off", "ca_tlm=off"]).turns("text") == 7
