"""The encoder under a head is the encoder that was given, and the one that was given stays as it was."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from crossling.model.tables import DisentangledEmbedding
from crossling.transfer.family import Form, Kind
from crossling.transfer.heads import HEADS, with_head

from .toys import make_model

IDS = torch.tensor([[0, 5, 6, 7, 2], [0, 8, 9, 10, 2]])


def form(kind: Kind) -> Form:
    return Form(kind, () if kind in ("regression", "answering") else ("no", "yes", "maybe"), length=16)


def learned(kind: str) -> PreTrainedModel:
    """No weight of it is one that a fresh model could have: norms too have moved."""
    model = make_model(kind)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(generator=torch.Generator().manual_seed(weight.numel()), std=0.2)
    return model


def copied(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in model.state_dict().items()}


@pytest.mark.parametrize("encoder", ["crossling", "xlmr", "bert"])
@pytest.mark.parametrize("kind", HEADS)
def test_every_weight_of_the_encoder_is_under_the_head(kind: Kind, encoder: str) -> None:
    given = learned(encoder)
    before = copied(given)
    model = with_head(given, form(kind), "tiny", seed=1)
    body = model.base_model.state_dict()
    assert {name for name in before if "pooler" not in name} <= body.keys() <= before.keys()
    assert all(torch.equal(weight, before[name]) for name, weight in body.items())
    with torch.no_grad():  # what is learned is learned by the copy
        for weight in model.parameters():
            weight.add_(1.0)
    after = given.state_dict()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())


def test_a_token_table_of_two_parts_becomes_one_and_stays_two_where_it_was() -> None:
    given = learned("crossling")
    table = DisentangledEmbedding(given.get_input_embeddings())  # type: ignore[arg-type]
    with torch.no_grad():
        table.delta_VD.normal_(generator=torch.Generator().manual_seed(0))
    given.set_input_embeddings(table)
    before = copied(given)
    model = with_head(given, form("classification"), "tiny", seed=1).eval()
    assert given.get_input_embeddings() is table
    after = given.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    assert type(model.get_input_embeddings()) is nn.Embedding
    with torch.no_grad():
        torch.testing.assert_close(model.base_model(IDS).last_hidden_state, given(IDS).last_hidden_state)


def test_the_seed_gives_the_head() -> None:
    given = make_model("crossling")
    one, same, other = (
        with_head(given, form("classification"), "tiny", seed).state_dict()["classifier.out.weight"]
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
