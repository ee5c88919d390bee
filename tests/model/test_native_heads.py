"""Heads of Hugging Face models, called with given states: equal to the whole model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers

from crossling.model.native_heads import NativeLMHead, NativeRTDHead, build_rtd_head
from tests.model.test_native_packing import IDS, ROWS, native
from tests.recipes.native_models import FAMILIES, build_native

TARGETS = torch.randint(5, ROWS, (14,), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_language_model_head_equals_that_of_the_model(family: str) -> None:
    encoder = native(family)
    ids, model = IDS[:1, :14], encoder.model
    states = encoder.base(ids).last_hidden_state
    prediction = NativeLMHead(encoder).predict(states[0], encoder.embeddings.tokens.weight, TARGETS)
    logits = model(ids).logits[0]
    torch.testing.assert_close(prediction.loss, F.cross_entropy(logits, TARGETS, reduction="sum"), rtol=1e-5, atol=1e-4)
    assert prediction.correct == (logits.argmax(-1) == TARGETS).sum()
    gradients = []
    for loss in (prediction.loss, F.cross_entropy(logits, TARGETS, reduction="sum")):
        model.zero_grad()
        loss.backward(retain_graph=True)
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("family", ["bert", "mobilebert"])  # with the decoder as last operation, and without
def test_samples_follow_the_noise(family: str) -> None:
    encoder = native(family)
    states = encoder.base(IDS[:1, :14]).last_hidden_state[0]
    low, high = (
        NativeLMHead(encoder).predict(states, encoder.embeddings.tokens.weight, TARGETS, torch.full((14,), quantile))
        for quantile in (0.0, 0.999)
    )
    assert low.sampled_M.shape == TARGETS.shape
    assert (low.sampled_M < high.sampled_M).all()


def test_padding_positions_add_nothing() -> None:
    encoder = native("mobilebert")
    states = encoder.base(IDS[:1, :14]).last_hidden_state[0]
    table = encoder.embeddings.tokens.weight
    ignored = NativeLMHead(encoder).predict(states, table, torch.full((14,), -100))
    assert ignored.loss == 0


def test_electra_keeps_its_discriminator_head() -> None:
    encoder = native("bert")
    encoder.model = build_native("electra", ROWS, transformers.AutoModelForPreTraining)
    head: Any = build_rtd_head(encoder)
    assert isinstance(head, NativeRTDHead)
    states = encoder.base(IDS[:1, :14]).last_hidden_state
    torch.testing.assert_close(head(states), encoder.model(IDS[:1, :14]).logits)
    assert not [*head.parameters()]  # they belong to the model
