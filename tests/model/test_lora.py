"""LoRA of a Hugging Face encoder: what is trained, what stays, and that the merged model computes the same."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from crossling.model.native_encoder import NativeEncoder
from tests.tiny_encoder import make_model

pytest.importorskip("peft")

from crossling.model.lora import add_lora, merge_lora
from crossling.model.model_shape import SIZES

IDS = torch.tensor([[0, 5, 9, 30, 2], [0, 7, 58, 4, 2]])


@pytest.fixture(params=["xlmr", "bert"])
def encoder(request: pytest.FixtureRequest) -> NativeEncoder:
    model = make_model(request.param)
    return NativeEncoder(model, SIZES["tiny"].to_config(60).replace(num_hidden_layers=3, hidden_size=16))


def states(encoder: NativeEncoder) -> torch.Tensor:
    return encoder.eval()(IDS).last_hidden_state.detach()


def test_only_new_matrices_and_new_embeddings_change(encoder: NativeEncoder) -> None:
    before = states(encoder)
    add_lora(encoder, 2, old_tokens=50)
    assert_close(states(encoder), before)  # B is zero
    old = {name: weight.detach().clone() for name, weight in encoder.named_parameters()}
    optimizer = torch.optim.AdamW((p for p in encoder.parameters() if p.requires_grad), lr=0.1, weight_decay=0.0)
    encoder(IDS).last_hidden_state.square().sum().backward()
    optimizer.step()
    changed = {name for name, weight in encoder.named_parameters() if not torch.equal(weight, old[name])}
    table = next(name for name in changed if "word_embeddings" in name)
    assert all("lora_" in name for name in changed - {table})
    assert len(changed) > 10
    rows = (dict(encoder.named_parameters())[table] != old[table]).any(1).nonzero().flatten().tolist()
    assert rows == [58]  # of ids 49 to 58, the only one in the text; 59 is <mask>


def test_the_merged_model_has_the_original_classes_and_computes_the_same(encoder: NativeEncoder) -> None:
    names = {name: type(module) for name, module in encoder.named_modules()}
    add_lora(encoder, 2, old_tokens=60)
    assert not encoder.embeddings.tokens.weight.requires_grad
    with torch.no_grad():
        for parameter in encoder.parameters():
            if parameter.requires_grad:
                parameter += 0.1 * torch.randn(parameter.shape)
    before = states(encoder)
    merge_lora(encoder)
    assert_close(states(encoder), before, rtol=1e-4, atol=1e-4)
    assert {name: type(module) for name, module in encoder.named_modules()} == names
