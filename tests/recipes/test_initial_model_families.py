"""An initialized network computes the same hidden states and logits as the model in `transformers`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForPreTraining, BertTokenizer

from crossling.data.shards import Shards
from crossling.recipes.initial_model import InitialModel
from crossling.recipes.pretrain import pretrain
from crossling.vocabulary.reuse_vocabulary import map_tokens
from crossling.vocabulary.vocabulary import Vocabulary

from .conftest import Folder
from .toy_models import (
    KINDS,
    assert_same_weights,
    build_model,
    initialized_network,
    max_difference,
    padded_ids,
    save_model,
    small_recipe,
)

RECIPES = ["xlm_r", "infoxlm", "veco", "xlm_e"]


def logits_of(output: Any) -> Tensor:
    return output.prediction_logits if "prediction_logits" in output else output.logits


@torch.no_grad()
def differences(folder: Path, kind: str, net: Any, ids_BL: Tensor, mask_BL: Tensor) -> dict[str, float]:
    """Return the largest difference over all layers, and over all logits of each copied head."""
    parts = net.parts
    head = {"ForMaskedLM": AutoModelForMaskedLM, "ForPreTraining": AutoModelForPreTraining, "Model": AutoModel}[kind]
    theirs = head.from_pretrained(folder).eval()
    expected = theirs(ids_BL, attention_mask=mask_BL.long(), output_hidden_states=True)
    found = net.encoder(ids_BL, attention_mask=mask_BL, output_hidden_states=True)
    states = zip(expected.hidden_states, found.hidden_states, strict=True)
    largest = {"states": max(max_difference(one[mask_BL], other[mask_BL]) for one, other in states)}
    words = kind == "ForMaskedLM" or "prediction_logits" in expected
    if "lm_head" in parts and words:
        logits = parts["lm_head"](found.last_hidden_state, net.encoder.embeddings.tokens.weight)
        largest["logits"] = max_difference(logits_of(expected)[mask_BL], logits[mask_BL])
    if "rtd_head" in parts and kind == "ForPreTraining" and not words:
        largest["rtd"] = max_difference(expected.logits[mask_BL], parts["rtd_head"](found.last_hidden_state)[mask_BL])
    if "generator" in parts:
        layers = len(parts["generator"].blocks)
        assert layers == 2
        shallow = head.from_pretrained(folder, num_hidden_layers=layers).eval()
        expected = shallow(ids_BL, attention_mask=mask_BL.long(), output_hidden_states=True)
        hidden_BLD = parts["generator"](ids_BL, attention_mask=mask_BL).last_hidden_state
        largest["generator"] = max_difference(expected.hidden_states[-1][mask_BL], hidden_BLD[mask_BL])
        if words:
            logits = parts["generator_head"](hidden_BLD, parts["generator"].embeddings.tokens.weight)
            largest["generator logits"] = max_difference(logits_of(expected)[mask_BL], logits[mask_BL])
    return largest


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize(("family", "kind"), KINDS)
def test_network_computes_what_the_model_computes(
    family: str, kind: str, recipe: str, folder: Folder, vocabulary: Vocabulary, lines: list[str]
) -> None:
    path = folder(family, kind)
    net = initialized_network(InitialModel.load(path), small_recipe(recipe), vocabulary)
    ids_BL, mask_BL = padded_ids(vocabulary, lines)
    assert not mask_BL.all()
    largest = differences(path, kind, net, ids_BL, mask_BL)
    print(f"\n{family} {kind} {recipe:8}", *(f"{name} {value:.1e}" for name, value in largest.items()))
    assert max(largest.values()) < 1e-5
    words = (family, kind) != ("electra", "ForPreTraining") and kind != "Model"
    heads = {"generator"} | ({"generator logits"} if words else set()) if recipe == "xlm_e" else set()
    heads |= {"rtd"} if (family, kind, recipe) == ("electra", "ForPreTraining", "xlm_e") else set()
    heads |= {"logits"} if words and recipe != "xlm_e" else set()
    assert largest.keys() == {"states", *heads}  # every head that should be copied was


@pytest.mark.parametrize("recipe", RECIPES)
def test_run_starts_with_what_the_model_computes(
    recipe: str, folder: Folder, shards: Shards, vocabulary: Vocabulary, lines: list[str], tmp_path: Path
) -> None:
    """The learning rate is too small to change a weight."""
    path = folder("xlm-roberta")
    net = pretrain(
        small_recipe(recipe, "lr=1e-30", "steps=2", "checkpoint_every=1"),
        shards,
        tmp_path / "run",
        init=InitialModel.load(path),
    )
    largest = differences(path, "ForMaskedLM", net.eval(), *padded_ids(vocabulary, lines))
    assert max(largest.values()) < 1e-5


def test_new_modules_are_random_and_a_new_bias_is_zero(folder: Folder, vocabulary: Vocabulary) -> None:
    initial = InitialModel.load(folder("xlm-roberta"))
    net = initialized_network(initial, small_recipe("xlm_e"), vocabulary)
    for network in (net.encoder, net.parts["generator"]):
        assert not network.relative.weight_NH.any()
        assert all(block.attention.gate.map.weight.std() > 0 for block in network.blocks)
    assert net.parts["rtd_head"].dense.weight.std().item() == pytest.approx(0.02, rel=0.2)
    crossed = initialized_network(initial, small_recipe("veco"), vocabulary).encoder
    for block in crossed.blocks:
        assert block.cross.query.weight.std().item() == pytest.approx(0.02, rel=0.2)


def test_new_bias_is_trained(folder: Folder, shards: Shards, tmp_path: Path) -> None:
    net = pretrain(small_recipe("xlm_e"), shards, tmp_path / "run", init=InitialModel.load(folder("xlm-roberta")))
    assert net.encoder.relative.weight_NH[:8].abs().min() > 0  # of the nearest neighbours to the left
    assert all(block.attention.gate.scale_H.ne(1).all() for block in net.encoder.blocks)


# ---- a given generator ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("token_table", ["shared", "gdes", "untied"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_given_generator_is_used(
    layers: int, token_table: str, folder: Folder, vocabulary: Vocabulary, lines: list[str]
) -> None:
    """All layers are used if they are fewer than those of the model, else the first ones. It keeps its token table."""
    model, other = folder("xlm-roberta"), folder("roberta", seed=7, num_hidden_layers=layers)
    initial = InitialModel.load(model, other)
    recipe = initial.adapt(small_recipe("xlm_e", "model.generator_layers=2", f"model.token_table={token_table}"))
    kept = min(layers, 2)
    assert recipe.model.generator_layers == kept
    assert recipe.model.token_table == ("gdes" if token_table == "shared" else token_table)
    net = initialized_network(initial, recipe, vocabulary)
    ids_BL, mask_BL = padded_ids(vocabulary, lines)
    with torch.no_grad():
        theirs = AutoModel.from_pretrained(model).eval()(ids_BL, attention_mask=mask_BL.long()).last_hidden_state
        assert (
            max_difference(theirs[mask_BL], net.encoder(ids_BL, attention_mask=mask_BL).last_hidden_state[mask_BL])
            < 1e-5
        )
        shallow = AutoModelForMaskedLM.from_pretrained(other, num_hidden_layers=kept).eval()
        expected = shallow(ids_BL, attention_mask=mask_BL.long()).logits
        generator = net.parts["generator"]
        hidden_BLD = generator(ids_BL, attention_mask=mask_BL).last_hidden_state
        logits = net.parts["generator_head"](hidden_BLD, generator.embeddings.tokens.weight)
    assert max_difference(expected[mask_BL], logits[mask_BL]) < 1e-5


def test_default_generator_shares_the_token_table(folder: Folder, vocabulary: Vocabulary) -> None:
    net = initialized_network(InitialModel.load(folder("xlm-roberta")), small_recipe("xlm_e"), vocabulary)
    assert net.parts["generator"].embeddings.tokens is net.encoder.embeddings.tokens


def test_generator_without_head_gets_that_of_the_model(folder: Folder, vocabulary: Vocabulary) -> None:
    initial = InitialModel.load(folder("xlm-roberta"), folder("xlm-roberta", "Model", seed=7))
    net = initialized_network(initial, small_recipe("xlm_e"), vocabulary)
    assert initial.encoder.lm_head is not None
    assert_same_weights(net.parts["generator_head"], initial.encoder.lm_head)


# ---- WordPiece vocabulary ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def wordpiece(lines: list[str]) -> BertTokenizer:
    words = sorted({word for line in lines for word in line.split() if word.isalpha()})
    letters = sorted({letter for word in words for letter in word})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters), *words]
    return BertTokenizer(vocab={token: number for number, token in enumerate(dict.fromkeys(tokens))})


@pytest.fixture(scope="session")
def wordpiece_folder(wordpiece: BertTokenizer, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    def folder(family: str, kind: str) -> Path:
        network = build_model(family, kind, len(wordpiece.get_vocab()) + 3, pad_token_id=0)  # a padded table
        return save_model(network, wordpiece, tmp_path_factory.mktemp(family) / "model")

    return folder


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize(
    ("family", "kind"), [("bert", "ForMaskedLM"), ("electra", "ForMaskedLM"), ("electra", "ForPreTraining")]
)
def test_token_embeddings_are_means_of_old_embeddings(
    family: str,
    kind: str,
    recipe: str,
    wordpiece_folder: Callable[..., Path],
    wordpiece: BertTokenizer,
    vocabulary: Vocabulary,
) -> None:
    """On text whose tokens all map to one old token, the network computes what the model computes."""
    path = wordpiece_folder(family, kind)
    initial = InitialModel.load(path)
    assert isinstance(initial.vocabulary, BertTokenizer)
    net = initialized_network(initial, small_recipe(recipe), vocabulary)
    theirs = AutoModel.from_pretrained(path).eval()
    old_VD, new_VD = theirs.get_input_embeddings().weight, net.encoder.embeddings.tokens.weight
    found = map_tokens(wordpiece, vocabulary)
    assert len([ids for ids in found if len(ids) > 1]) > 50
    for ids, row_D in zip(found, new_VD, strict=True):
        if ids:
            torch.testing.assert_close(row_D, old_VD[ids].mean(0), atol=1e-6, rtol=0)
    alone = [(number, ids[0]) for number, ids in enumerate(found) if len(ids) == 1 and number != 1]
    ours_L, theirs_L = (torch.tensor(column) for column in zip(*alone[:40], strict=True))
    with torch.no_grad():
        expected = theirs(theirs_L[None]).last_hidden_state
        assert max_difference(expected, net.encoder(ours_L[None]).last_hidden_state) < 1e-5
    bias = next((part.bias_V for name, part in net.parts.items() if name in ("lm_head", "generator_head")), None)
    if kind == "ForMaskedLM":
        assert bias is not None
        old_V = AutoModelForMaskedLM.from_pretrained(path).get_output_embeddings().bias
        assert all(abs(value - old_V[ids].mean()) < 1e-6 for value, ids in zip(bias, found, strict=True) if ids)


def test_padded_table_of_the_same_vocabulary(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """Rows without a token are dropped."""
    network = build_model("xlm-roberta", "ForMaskedLM", vocabulary.size + 24)
    net = initialized_network(
        InitialModel.load(save_model(network, vocabulary.tokenizer(), tmp_path)), small_recipe("xlm_r"), vocabulary
    )
    tokens: nn.Module = net.encoder.embeddings.tokens
    assert torch.equal(tokens.weight, network.get_input_embeddings().weight[: vocabulary.size])
    assert torch.equal(net.parts["lm_head"].bias_V, network.get_output_embeddings().bias[: vocabulary.size])
