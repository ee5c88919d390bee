"""Messages of a run that is initialized from a model, and what it stores."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from crossling.core.errors import BadInput, Interrupted
from crossling.data.batches import Batches, StepWork
from crossling.data.shards import Shards
from crossling.recipes import get_recipe
from crossling.recipes.initial_model import InitialModel
from crossling.recipes.network import build_network
from crossling.recipes.pretrain import pretrain
from crossling.vocabulary.vocabulary import Vocabulary

from .conftest import Folder
from .toy_models import small_recipe


def test_message_lists_new_modules_and_token_embeddings(
    folder: Folder, shards: Shards, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    with pytest.warns(UserWarning, match=r"same vocabulary; new modules: rtd_head\.$"):
        pretrain(small_recipe("xlm_e"), shards, tmp_path / "detector", init=InitialModel.load(folder("xlm-roberta")))
    with pytest.warns(UserWarning, match=r"new modules: cross-attention\.$"):
        pretrain(
            small_recipe("veco", "freeze_steps=1"),
            shards,
            tmp_path / "veco",
            init=InitialModel.load(folder("xlm-roberta")),
        )
    initial = InitialModel.load(folder("xlm-roberta"))
    fewer = Vocabulary.from_scores(
        dict([*vocabulary.scores.items()][:60]), vocabulary.charsmap, vocabulary.normalizer_name
    )
    summary = initial.initialize(build_network(initial.adapt(small_recipe("xlm_r")), fewer.size), fewer, 0)
    assert summary == "token embeddings from one old token 65, from the mean of several 0, new 0"


def test_model_is_given_by_name_in_any_spelling_of_its_path(
    folder: Folder, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder("xlm-roberta")
    recipe = small_recipe("xlm")
    pretrain(recipe, shards, tmp_path / "run", init=str(place))
    known = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert known["init"] == {"model": str(place)}
    assert known["data"]["pairs"]
    monkeypatch.chdir(place.parent)
    pretrain(recipe, shards, tmp_path / "run", init=f"./{place.name}/")


@pytest.mark.parametrize("head", ["ForMaskedLM", "Model"])
def test_run_resumes_after_its_model_was_deleted(
    head: str, folder: Folder, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It resumes in its frozen phase, and equals the uninterrupted run."""
    place = tmp_path / "model"
    shutil.copytree(folder("xlm-roberta", head), place)
    recipe = small_recipe("veco", "steps=6", "freeze_steps=4", "checkpoint_every=1")
    whole = pretrain(recipe, shards, tmp_path / "whole", init=str(place))
    original = Batches.__getitem__

    def interrupting(self: Batches, step: int) -> StepWork:
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


def test_generator_for_a_recipe_without_one_is_refused(folder: Folder, shards: Shards, tmp_path: Path) -> None:
    place = folder("xlm-roberta")
    with pytest.raises(BadInput, match=r"recipe infoxlm: trains no generator, but .* was given"):
        pretrain(small_recipe("infoxlm"), shards, tmp_path / "run", init=InitialModel.load(place, place))
    assert not (tmp_path / "run").exists()


def test_weights_that_are_not_finite_or_of_another_shape_are_refused(folder: Folder, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    place.mkdir()
    for file in folder("xlm-roberta").iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    weights = load_file(place / "model.safetensors")
    name = next(key for key in weights if key.endswith("layer.0.output.dense.weight"))
    sound = weights[name].clone()
    weights[name][0, 0] = torch.nan
    save_file(weights, place / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadInput, match=rf"weight {name} has non-finite values"):
        InitialModel.load(place)
    save_file({**weights, name: sound[:, :-1].contiguous()}, place / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadInput, match=rf"weight {name} has shape .*, but config\.json expects"):
        InitialModel.load(place)


def test_steps_of_alternating_streams() -> None:
    recipe = get_recipe("veco", "tiny").replace(steps=7)
    assert (recipe.stream_steps("text"), recipe.stream_steps("pairs")) == (4, 3)
    assert recipe.replace(alternate=False).stream_steps("pairs") == 7
    assert recipe.set(["tlm=off", "ca_tlm=off"]).stream_steps("text") == 7
