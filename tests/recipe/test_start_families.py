"""A network begins as the model it starts from: the same states and the same logits as `transformers` computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForPreTraining, BertTokenizer

from crossling.data.shards import Shards
from crossling.recipe import Start, pretrain
from crossling.vocabulary.transfer import origins
from crossling.vocabulary.vocabulary import Vocabulary

from .conftest import Folder
from .made import KINDS, far, model, rows_of, same_weights, saved, small, started

RECIPES = ["xlm_r", "infoxlm", "veco", "xlm_e"]


def logits_of(output: Any) -> Tensor:
    return output.prediction_logits if "prediction_logits" in output else output.logits


@torch.no_grad()
def differences(folder: Path, kind: str, net: Any, ids_BL: Tensor, seen_BL: Tensor) -> dict[str, float]:
    """The largest one over all layers, and over all logits of each head that came over."""
    parts = net.parts
    head = {"ForMaskedLM": AutoModelForMaskedLM, "ForPreTraining": AutoModelForPreTraining, "Model": AutoModel}[kind]
    theirs = head.from_pretrained(folder).eval()
    expected = theirs(ids_BL, attention_mask=seen_BL.long(), output_hidden_states=True)
    found = net.encoder(ids_BL, attention_mask=seen_BL, output_hidden_states=True)
    states = zip(expected.hidden_states, found.hidden_states, strict=True)
    largest = {"states": max(far(one[seen_BL], other[seen_BL]) for one, other in states)}
    words = kind == "ForMaskedLM" or "prediction_logits" in expected
    if "lm_head" in parts and words:
        logits = parts["lm_head"](found.last_hidden_state, net.encoder.embeddings.tokens.weight)
        largest["logits"] = far(logits_of(expected)[seen_BL], logits[seen_BL])
    if "rtd_head" in parts and kind == "ForPreTraining" and not words:
        largest["rtd"] = far(expected.logits[seen_BL], parts["rtd_head"](found.last_hidden_state)[seen_BL])
    if "generator" in parts:
        layers = len(parts["generator"].blocks)
        assert layers == 2
        shallow = head.from_pretrained(folder, num_hidden_layers=layers).eval()
        expected = shallow(ids_BL, attention_mask=seen_BL.long(), output_hidden_states=True)
        hidden_BLD = parts["generator"](ids_BL, attention_mask=seen_BL).last_hidden_state
        largest["generator"] = far(expected.hidden_states[-1][seen_BL], hidden_BLD[seen_BL])
        if words:
            logits = parts["generator_head"](hidden_BLD, parts["generator"].embeddings.tokens.weight)
            largest["generator logits"] = far(logits_of(expected)[seen_BL], logits[seen_BL])
    return largest


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize(("family", "kind"), KINDS)
def test_the_network_begins_as_the_model(
    family: str, kind: str, recipe: str, folder: Folder, vocabulary: Vocabulary, lines: list[str]
) -> None:
    path = folder(family, kind)
    net = started(Start.load(path), small(recipe), vocabulary)
    ids_BL, seen_BL = rows_of(vocabulary, lines)
    assert not seen_BL.all()
    largest = differences(path, kind, net, ids_BL, seen_BL)
    print(f"\n{family} {kind} {recipe:8}", *(f"{name} {value:.1e}" for name, value in largest.items()))
    assert max(largest.values()) < 1e-5
    words = (family, kind) != ("electra", "ForPreTraining") and kind != "Model"
    heads = {"generator"} | ({"generator logits"} if words else set()) if recipe == "xlm_e" else set()
    heads |= {"rtd"} if (family, kind, recipe) == ("electra", "ForPreTraining", "xlm_e") else set()
    heads |= {"logits"} if words and recipe != "xlm_e" else set()
    assert largest.keys() == {"states", *heads}  # what should come over did


@pytest.mark.parametrize("recipe", RECIPES)
def test_so_does_a_run(
    recipe: str, folder: Folder, shards: Shards, vocabulary: Vocabulary, lines: list[str], tmp_path: Path
) -> None:
    """The first step has a rate that no weight feels."""
    path = folder("xlm-roberta")
    net = pretrain(
        small(recipe, "lr=1e-30", "steps=2", "checkpoint_every=1"), shards, tmp_path / "run", init=Start.load(path)
    )
    largest = differences(path, "ForMaskedLM", net.eval(), *rows_of(vocabulary, lines))
    assert max(largest.values()) < 1e-5


def test_what_is_new_is_as_new_and_a_bias_zero(folder: Folder, vocabulary: Vocabulary) -> None:
    start = Start.load(folder("xlm-roberta"))
    net = started(start, small("xlm_e"), vocabulary)
    for network in (net.encoder, net.parts["generator"]):
        assert not network.relative.weight_NH.any()
        assert all(block.attention.gate.map.weight.std() > 0 for block in network.blocks)
    assert net.parts["rtd_head"].dense.weight.std().item() == pytest.approx(0.02, rel=0.2)
    crossed = started(start, small("veco"), vocabulary).encoder
    for block in crossed.blocks:
        assert block.cross.query.weight.std().item() == pytest.approx(0.02, rel=0.2)


def test_the_bias_that_begins_at_zero_learns(folder: Folder, shards: Shards, tmp_path: Path) -> None:
    net = pretrain(small("xlm_e"), shards, tmp_path / "run", init=Start.load(folder("xlm-roberta")))
    assert net.encoder.relative.weight_NH[:8].abs().min() > 0  # of the nearest neighbours to the left
    assert all(block.attention.gate.scale_H.ne(1).all() for block in net.encoder.blocks)


# ---- a given generator ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("token_table", ["shared", "gdes", "untied"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_given_generator(
    layers: int, token_table: str, folder: Folder, vocabulary: Vocabulary, lines: list[str]
) -> None:
    """With fewer layers than the model it is taken whole, else its first ones; its own token table comes along."""
    model, other = folder("xlm-roberta"), folder("roberta", seed=7, num_hidden_layers=layers)
    start = Start.load(model, other)
    recipe = start.shape(small("xlm_e", "model.generator_layers=2", f"model.token_table={token_table}"))
    kept = min(layers, 2)
    assert recipe.model.generator_layers == kept
    assert recipe.model.token_table == ("gdes" if token_table == "shared" else token_table)
    net = started(start, recipe, vocabulary)
    ids_BL, seen_BL = rows_of(vocabulary, lines)
    with torch.no_grad():
        theirs = AutoModel.from_pretrained(model).eval()(ids_BL, attention_mask=seen_BL.long()).last_hidden_state
        assert far(theirs[seen_BL], net.encoder(ids_BL, attention_mask=seen_BL).last_hidden_state[seen_BL]) < 1e-5
        shallow = AutoModelForMaskedLM.from_pretrained(other, num_hidden_layers=kept).eval()
        expected = shallow(ids_BL, attention_mask=seen_BL.long()).logits
        generator = net.parts["generator"]
        hidden_BLD = generator(ids_BL, attention_mask=seen_BL).last_hidden_state
        logits = net.parts["generator_head"](hidden_BLD, generator.embeddings.tokens.weight)
    assert far(expected[seen_BL], logits[seen_BL]) < 1e-5


def test_a_generator_that_was_not_given_shares_the_table(folder: Folder, vocabulary: Vocabulary) -> None:
    net = started(Start.load(folder("xlm-roberta")), small("xlm_e"), vocabulary)
    assert net.parts["generator"].embeddings.tokens is net.encoder.embeddings.tokens


def test_a_bare_generator_gets_the_head_of_the_model(folder: Folder, vocabulary: Vocabulary) -> None:
    start = Start.load(folder("xlm-roberta"), folder("xlm-roberta", "Model", seed=7))
    net = started(start, small("xlm_e"), vocabulary)
    assert start.encoder.lm_head is not None
    same_weights(net.parts["generator_head"], start.encoder.lm_head)


# ---- another kind of vocabulary ------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def word_pieces(lines: list[str]) -> BertTokenizer:
    words = sorted({word for line in lines for word in line.split() if word.isalpha()})
    letters = sorted({letter for word in words for letter in word})
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters), *words]
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(dict.fromkeys(pieces))})


@pytest.fixture(scope="session")
def word_piece_folder(word_pieces: BertTokenizer, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    def folder(family: str, kind: str) -> Path:
        network = model(family, kind, len(word_pieces.get_vocab()) + 3, pad_token_id=0)  # a padded table
        return saved(network, word_pieces, tmp_path_factory.mktemp(family) / "model")

    return folder


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize(
    ("family", "kind"), [("bert", "ForMaskedLM"), ("electra", "ForMaskedLM"), ("electra", "ForPreTraining")]
)
def test_pieces_begin_as_the_word_pieces_they_were(
    family: str,
    kind: str,
    recipe: str,
    word_piece_folder: Callable[..., Path],
    word_pieces: BertTokenizer,
    vocabulary: Vocabulary,
) -> None:
    """The mean of their rows; and where each piece is one word piece, the network is the model."""
    path = word_piece_folder(family, kind)
    start = Start.load(path)
    assert isinstance(start.vocabulary, BertTokenizer)
    net = started(start, small(recipe), vocabulary)
    theirs = AutoModel.from_pretrained(path).eval()
    old_VD, new_VD = theirs.get_input_embeddings().weight, net.encoder.embeddings.tokens.weight
    found = origins(word_pieces, vocabulary)
    assert len([ids for ids in found if len(ids) > 1]) > 50
    for ids, row_D in zip(found, new_VD, strict=True):
        if ids:
            torch.testing.assert_close(row_D, old_VD[ids].mean(0), atol=1e-6, rtol=0)
    alone = [(number, ids[0]) for number, ids in enumerate(found) if len(ids) == 1 and number != 1]
    ours_L, theirs_L = (torch.tensor(column) for column in zip(*alone[:40], strict=True))
    with torch.no_grad():
        expected = theirs(theirs_L[None]).last_hidden_state
        assert far(expected, net.encoder(ours_L[None]).last_hidden_state) < 1e-5
    bias = next((part.bias_V for name, part in net.parts.items() if name in ("lm_head", "generator_head")), None)
    if kind == "ForMaskedLM":
        assert bias is not None
        old_V = AutoModelForMaskedLM.from_pretrained(path).get_output_embeddings().bias
        assert all(abs(value - old_V[ids].mean()) < 1e-6 for value, ids in zip(bias, found, strict=True) if ids)


def test_a_padded_table_of_the_same_vocabulary(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """Rows that no piece has are left behind."""
    network = model("xlm-roberta", "ForMaskedLM", vocabulary.size + 24)
    net = started(Start.load(saved(network, vocabulary.tokenizer(), tmp_path)), small("xlm_r"), vocabulary)
    tokens: nn.Module = net.encoder.embeddings.tokens
    assert torch.equal(tokens.weight, network.get_input_embeddings().weight[: vocabulary.size])
    assert torch.equal(net.parts["lm_head"].bias_V, network.get_output_embeddings().bias[: vocabulary.size])
