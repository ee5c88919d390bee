"""Initialization with another vocabulary: kept tokens keep their rows, new ones are means of old rows."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from crossling.objectives import Network
from crossling.recipes.initial_model import InitialModel
from crossling.recipes.network import build_network
from crossling.train import checkpoint
from crossling.train.optimizer import OptimizerSettings
from crossling.vocabulary.reuse_vocabulary import extend, trim
from crossling.vocabulary.vocabulary import Vocabulary

from .conftest import Folder
from .toy_models import assert_same_weights, initialized_network, padded_ids, small_recipe

# Name of the language model head.
HEADS = {"xlm_r": "lm_head", "infoxlm": "lm_head", "veco": "lm_head", "xlm_e": "generator_head"}


def new_language(lines: list[str]) -> list[str]:
    """Return sentences of stems with endings, in letters of the first line and in unknown ones."""
    rng = random.Random(3)
    known = sorted({letter for letter in lines[0].lower() if letter.isalpha()})
    words = []
    for letters in (known, "цжшъыэющ"):
        stems = ["".join(rng.choices(letters, k=rng.randint(2, 4))) for _ in range(60)]
        endings = ["".join(rng.choices(letters, k=3)) for _ in range(4)]
        words += [stem + ending for stem in stems for ending in endings]
    return [" ".join(rng.choices(words, k=8)) for _ in range(300)]


@pytest.fixture(scope="module")
def extended(vocabulary: Vocabulary, lines: list[str]) -> Vocabulary:
    return extend(vocabulary, new_language(lines), vocabulary.size + 80)


@pytest.fixture(scope="module")
def trimmed(vocabulary: Vocabulary, lines: list[str]) -> Vocabulary:
    return trim(vocabulary, vocabulary.count_tokens(lines[:6]))


@torch.no_grad()
def logits(net: Network, head: str, ids_BL: Tensor, mask_BL: Tensor) -> Tensor:
    network: Any = net.encoder if head == "lm_head" else net.parts["generator"]
    hidden_BLD = network(ids_BL, attention_mask=mask_BL).last_hidden_state
    return net.parts[head](hidden_BLD, network.embeddings.tokens.weight)[mask_BL]


def numbers(vocabulary: Vocabulary) -> dict[str, int]:
    return {vocabulary.processor.id_to_piece(number): number for number in range(vocabulary.size)}


@pytest.mark.parametrize("recipe", HEADS)
def test_extended_vocabulary(
    recipe: str, folder: Folder, vocabulary: Vocabulary, extended: Vocabulary, lines: list[str]
) -> None:
    initial, head = InitialModel.load(folder("xlm-roberta")), HEADS[recipe]
    before, after = (initialized_network(initial, small_recipe(recipe), each) for each in (vocabulary, extended))
    old_VD, new_VD = (net.encoder.embeddings.tokens.weight for net in (before, after))
    old_V, new_V = (net.parts[head].bias_V for net in (before, after))
    count = vocabulary.size - 1  # <mask> is last in both
    assert torch.equal(new_VD[:count], old_VD[:count])
    assert torch.equal(new_VD[-1], old_VD[-1])
    assert torch.equal(new_V[:count], old_V[:count])
    assert torch.equal(new_V[-1], old_V[-1])
    tokenizer, checked = vocabulary.tokenizer(), 0
    space = numbers(vocabulary)["▁"]
    for number in range(count, extended.size - 1):
        token = extended.processor.id_to_piece(number)
        if not token.startswith("▁"):
            continue
        cut = [i for i in tokenizer(token[1:], add_special_tokens=False)["input_ids"] if i not in (space, 3)]
        if cut:
            checked += 1
            torch.testing.assert_close(new_VD[number], old_VD[cut].mean(0), atol=1e-6, rtol=0)
            torch.testing.assert_close(new_V[number], old_V[cut].mean(), atol=1e-6, rtol=0)
    assert checked > 5
    # Text that is tokenized as before gets the same logits for old tokens.
    old_text = [line for line in lines if vocabulary.encode([line]) == extended.encode([line])]
    assert len(old_text) > 3
    one, other = (
        logits(net, head, *padded_ids(each, old_text)) for net, each in ((before, vocabulary), (after, extended))
    )
    torch.testing.assert_close(other[:, :count], one[:, :count], atol=1e-5, rtol=0)
    torch.testing.assert_close(other[:, -1], one[:, -1], atol=1e-5, rtol=0)
    assert one.std() > 0.1


@pytest.mark.parametrize("recipe", HEADS)
def test_trimmed_vocabulary(
    recipe: str, folder: Folder, vocabulary: Vocabulary, trimmed: Vocabulary, lines: list[str]
) -> None:
    assert trimmed.size < vocabulary.size - 50
    initial, head = InitialModel.load(folder("xlm-roberta")), HEADS[recipe]
    before, after = (initialized_network(initial, small_recipe(recipe), each) for each in (vocabulary, trimmed))
    where = numbers(vocabulary)
    kept = [where[trimmed.processor.id_to_piece(number)] for number in range(trimmed.size)]
    assert kept[-1] == vocabulary.mask_id
    assert torch.equal(after.encoder.embeddings.tokens.weight, before.encoder.embeddings.tokens.weight[kept])
    assert torch.equal(after.parts[head].bias_V, before.parts[head].bias_V[kept])
    one, other = (
        logits(net, head, *padded_ids(each, lines[:6])) for net, each in ((before, vocabulary), (after, trimmed))
    )
    torch.testing.assert_close(other, one[:, kept], atol=1e-5, rtol=0)
    torch.testing.assert_close(other.softmax(-1), one.softmax(-1)[:, kept] / one.softmax(-1)[:, kept].sum(-1, True))


def test_rows_without_old_tokens_depend_on_the_seed(
    folder: Folder, extended: Vocabulary, vocabulary: Vocabulary
) -> None:
    initial = InitialModel.load(folder("xlm-roberta"))
    recipe = small_recipe("xlm_e", "model.token_table=untied")
    first, again, other = (initialized_network(initial, recipe.replace(seed=seed), extended) for seed in (3, 3, 4))
    assert_same_weights(first, again)
    tables = [net.encoder.embeddings.tokens.weight for net in (first, other)]
    new = [n for n in range(vocabulary.size - 1, extended.size - 1) if not torch.equal(tables[0][n], tables[1][n])]
    assert new  # letters that the old vocabulary lacks
    assert torch.equal(tables[0][: vocabulary.size - 1], tables[1][: vocabulary.size - 1])
    # One table becomes two equal ones.
    assert torch.equal(tables[0], first.parts["generator"].embeddings.tokens.weight)


@pytest.mark.parametrize("token_table", ["shared", "gdes", "untied"])
def test_every_kind_of_token_table_gets_new_rows(
    token_table: str, folder: Folder, vocabulary: Vocabulary, extended: Vocabulary
) -> None:
    """Generator and model have two tables, each with its own new rows."""
    initial = InitialModel.load(folder("xlm-roberta"), folder("xlm-roberta", seed=5))
    net = initialized_network(initial, small_recipe("xlm_e", f"model.token_table={token_table}"), extended)
    count = vocabulary.size - 1
    for network, source in ((net.encoder, initial.encoder), (net.parts["generator"], initial.generator)):
        assert source is not None
        found, old = (each.embeddings.tokens.weight[:count] for each in (network, source.encoder))
        torch.testing.assert_close(found, old, atol=1e-6, rtol=0)


def test_vocabulary_changes_in_sequence_keep_common_rows(
    folder: Folder, vocabulary: Vocabulary, extended: Vocabulary, trimmed: Vocabulary, tmp_path: Path
) -> None:
    """Extended, trimmed and original in turn: rows of the smallest vocabulary never change."""

    initial = InitialModel.load(folder("xlm-roberta"))
    original = initialized_network(initial, small_recipe("xlm_r"), vocabulary)
    for number, each in enumerate((extended, trimmed, vocabulary)):
        recipe = initial.adapt(small_recipe("xlm_r"))
        net = build_network(recipe, each.size)
        initial.initialize(net, each, 0)
        run = tmp_path / str(number)
        each.save(run / "vocab")

        (run / "recipe.json").write_text(json.dumps({"format": 2, "recipe": recipe.dump()}))
        saved = checkpoint.Checkpoints(run / "checkpoints")
        saved.save(1, net, OptimizerSettings().build(net), {})
        saved.wait()
        initial = InitialModel.load(run)
    where = [numbers(vocabulary)[trimmed.processor.id_to_piece(number)] for number in range(trimmed.size)]
    tables = [net.encoder.embeddings.tokens.weight[where] for net in (original, net)]
    assert torch.equal(*tables)
