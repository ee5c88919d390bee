"""Pieces that stay keep their rows in every table, new ones begin as what they were cut into."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from crossling.corpora.corpus import Corpora
from crossling.objectives import Network
from crossling.recipe import Start, build
from crossling.train import checkpoint
from crossling.train.optimizer import Adam
from crossling.vocabulary.reuse import extend, trim
from crossling.vocabulary.vocabulary import Vocabulary

from .conftest import Folder
from .made import rows_of, same_weights, small, started

# Which part fills in what was masked, and over which network.
HEADS = {"xlm_r": "lm_head", "infoxlm": "lm_head", "veco": "lm_head", "xlm_e": "generator_head"}


def new_language(lines: list[str]) -> list[str]:
    """Stems with endings, in the letters of the first line and in others that were never seen."""
    draw = random.Random(3)
    known = sorted({letter for letter in lines[0].lower() if letter.isalpha()})
    words = []
    for letters in (known, "цжшъыэющ"):
        stems = ["".join(draw.choices(letters, k=draw.randint(2, 4))) for _ in range(60)]
        endings = ["".join(draw.choices(letters, k=3)) for _ in range(4)]
        words += [stem + ending for stem in stems for ending in endings]
    return [" ".join(draw.choices(words, k=8)) for _ in range(300)]


@pytest.fixture(scope="module")
def extended(vocabulary: Vocabulary, lines: list[str]) -> Vocabulary:
    return extend(vocabulary, new_language(lines), vocabulary.size + 80)


@pytest.fixture(scope="module")
def trimmed(vocabulary: Vocabulary, lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    folder = tmp_path_factory.mktemp("corpora")
    (folder / "text").mkdir()
    (folder / "text" / "en.txt").write_text("\n".join(lines[:6]), encoding="utf-8")
    return trim(vocabulary, Corpora(folder))


@torch.no_grad()
def logits(net: Network, head: str, ids_BL: Tensor, seen_BL: Tensor) -> Tensor:
    network: Any = net.encoder if head == "lm_head" else net.parts["generator"]
    hidden_BLD = network(ids_BL, attention_mask=seen_BL).last_hidden_state
    return net.parts[head](hidden_BLD, network.embeddings.tokens.weight)[seen_BL]


def numbers(vocabulary: Vocabulary) -> dict[str, int]:
    return {vocabulary.pieces.id_to_piece(number): number for number in range(vocabulary.size)}


@pytest.mark.parametrize("recipe", HEADS)
def test_more_pieces(
    recipe: str, folder: Folder, vocabulary: Vocabulary, extended: Vocabulary, lines: list[str]
) -> None:
    start, head = Start.load(folder("xlm-roberta")), HEADS[recipe]
    before, after = (started(start, small(recipe), each) for each in (vocabulary, extended))
    old_VD, new_VD = (net.encoder.embeddings.tokens.weight for net in (before, after))
    old_V, new_V = (net.parts[head].bias_V for net in (before, after))
    count = vocabulary.size - 1  # <mask> is last in both
    assert torch.equal(new_VD[:count], old_VD[:count])
    assert torch.equal(new_VD[-1], old_VD[-1])
    assert torch.equal(new_V[:count], old_V[:count])
    assert torch.equal(new_V[-1], old_V[-1])
    tokenizer, cut_anew = vocabulary.tokenizer(), 0
    space = numbers(vocabulary)["▁"]
    for number in range(count, extended.size - 1):
        piece = extended.pieces.id_to_piece(number)
        if not piece.startswith("▁"):
            continue
        cut = [i for i in tokenizer(piece[1:], add_special_tokens=False)["input_ids"] if i not in (space, 3)]
        if cut:
            cut_anew += 1
            torch.testing.assert_close(new_VD[number], old_VD[cut].mean(0), atol=1e-6, rtol=0)
            torch.testing.assert_close(new_V[number], old_V[cut].mean(), atol=1e-6, rtol=0)
    assert cut_anew > 5
    # Text that is written as before is understood as before, and old pieces are as likely beside each other.
    old_text = [line for line in lines if vocabulary.encode([line]) == extended.encode([line])]
    assert len(old_text) > 3
    one, other = (
        logits(net, head, *rows_of(each, old_text)) for net, each in ((before, vocabulary), (after, extended))
    )
    torch.testing.assert_close(other[:, :count], one[:, :count], atol=1e-5, rtol=0)
    torch.testing.assert_close(other[:, -1], one[:, -1], atol=1e-5, rtol=0)
    assert one.std() > 0.1


@pytest.mark.parametrize("recipe", HEADS)
def test_fewer_pieces(
    recipe: str, folder: Folder, vocabulary: Vocabulary, trimmed: Vocabulary, lines: list[str]
) -> None:
    assert trimmed.size < vocabulary.size - 50
    start, head = Start.load(folder("xlm-roberta")), HEADS[recipe]
    before, after = (started(start, small(recipe), each) for each in (vocabulary, trimmed))
    where = numbers(vocabulary)
    kept = [where[trimmed.pieces.id_to_piece(number)] for number in range(trimmed.size)]
    assert kept[-1] == vocabulary.mask
    assert torch.equal(after.encoder.embeddings.tokens.weight, before.encoder.embeddings.tokens.weight[kept])
    assert torch.equal(after.parts[head].bias_V, before.parts[head].bias_V[kept])
    one, other = (
        logits(net, head, *rows_of(each, lines[:6])) for net, each in ((before, vocabulary), (after, trimmed))
    )
    torch.testing.assert_close(other, one[:, kept], atol=1e-5, rtol=0)
    torch.testing.assert_close(other.softmax(-1), one.softmax(-1)[:, kept] / one.softmax(-1)[:, kept].sum(-1, True))


def test_rows_of_nothing_are_those_of_the_seed(folder: Folder, extended: Vocabulary, vocabulary: Vocabulary) -> None:
    start = Start.load(folder("xlm-roberta"))
    recipe = small("xlm_e", "model.token_table=untied")
    first, again, other = (started(start, recipe.but(seed=seed), extended) for seed in (3, 3, 4))
    same_weights(first, again)
    tables = [net.encoder.embeddings.tokens.weight for net in (first, other)]
    new = [n for n in range(vocabulary.size - 1, extended.size - 1) if not torch.equal(tables[0][n], tables[1][n])]
    assert new  # letters that the old vocabulary has not
    assert torch.equal(tables[0][: vocabulary.size - 1], tables[1][: vocabulary.size - 1])
    # What was one table begins as two equal ones.
    assert torch.equal(tables[0], first.parts["generator"].embeddings.tokens.weight)


@pytest.mark.parametrize("token_table", ["shared", "gdes", "untied"])
def test_every_way_to_hold_the_tables_takes_new_pieces(
    token_table: str, folder: Folder, vocabulary: Vocabulary, extended: Vocabulary
) -> None:
    """Two tables, each with its own new rows."""
    start = Start.load(folder("xlm-roberta"), folder("xlm-roberta", seed=5))
    net = started(start, small("xlm_e", f"model.token_table={token_table}"), extended)
    count = vocabulary.size - 1
    for network, source in ((net.encoder, start.encoder), (net.parts["generator"], start.generator)):
        assert source is not None
        found, old = (each.embeddings.tokens.weight[:count] for each in (network, source.encoder))
        torch.testing.assert_close(found, old, atol=1e-6, rtol=0)


def test_a_run_goes_on_with_another_vocabulary(
    folder: Folder, vocabulary: Vocabulary, extended: Vocabulary, trimmed: Vocabulary, tmp_path: Path
) -> None:
    """Through all of them and back: what the smallest kept is as it was."""

    start = Start.load(folder("xlm-roberta"))
    original = started(start, small("xlm_r"), vocabulary)
    for number, each in enumerate((extended, trimmed, vocabulary)):
        recipe = start.shape(small("xlm_r"))
        net = build(recipe, each.size)
        start.fill(net, each, 0)
        run = tmp_path / str(number)
        each.save(run / "vocab")

        (run / "recipe.json").write_text(json.dumps({"recipe": recipe.dump()}))
        saved = checkpoint.Checkpoints(run / "checkpoints")
        saved.save(1, net, Adam().build(net), {})
        saved.wait()
        start = Start.load(run)
    where = [numbers(vocabulary)[trimmed.pieces.id_to_piece(number)] for number in range(trimmed.size)]
    tables = [net.encoder.embeddings.tokens.weight[where] for net in (original, net)]
    assert torch.equal(*tables)
