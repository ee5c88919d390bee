"""Packed rows in encoders of Hugging Face equal one sequence a row, in states and in gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from crossling.core.errors import BadInput
from crossling.model.config import CrosslingConfig
from crossling.model.native_encoder import NativeEncoder
from crossling.model.native_packing import choose_packing, run_unpacked
from tests.recipes.native_models import FAMILIES, PACKED, SHAPE, build_native

ROWS = 60
LENGTHS = (14, 5, 1, 9)  # the first is longer than the reach of ModernBERT's local attention
SEGMENTS = torch.tensor([[1] * 14 + [2] * 5 + [0] * 5, [3] + [4] * 9 + [0] * 14])
IDS = torch.randint(10, ROWS, SEGMENTS.shape, generator=torch.Generator().manual_seed(1)).where(SEGMENTS > 0, 0)


def native(family: str) -> NativeEncoder:
    model: Any = build_native(family, ROWS)
    layers, width = model.config.num_hidden_layers, model.config.hidden_size
    return NativeEncoder(model, CrosslingConfig(ROWS, hidden_size=width, num_hidden_layers=layers)).eval()


def states_and_gradients(encoder: NativeEncoder, states: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    encoder.zero_grad()
    visible = states[SEGMENTS > 0]
    (visible * torch.arange(visible.numel()).view_as(visible).sin()).sum().backward()
    return visible.detach(), [p.grad for p in encoder.base.parameters() if p.grad is not None]


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_packed_rows_equal_single_sequences(family: str) -> None:
    encoder = native(family)
    assert (encoder.packing is not None) == (family in PACKED)
    packed = states_and_gradients(encoder, encoder(IDS, segments=SEGMENTS).last_hidden_state)
    single = states_and_gradients(encoder, run_unpacked(encoder.base, IDS, SEGMENTS))
    torch.testing.assert_close(packed, single, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(packed[0][:14], encoder.base(IDS[:1, :14]).last_hidden_state[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["modernbert", "mobilebert"])
def test_layers_and_positions_select_states(family: str) -> None:
    encoder, positions = native(family), torch.tensor([3, 30])
    expected = encoder.base(IDS[:1, :14], output_hidden_states=True).hidden_states
    for layer in range(4):
        states = encoder(IDS, segments=SEGMENTS, layers=layer).last_hidden_state
        torch.testing.assert_close(states[0, :14], expected[layer][0], rtol=1e-4, atol=1e-5)
        selected = encoder(IDS, segments=SEGMENTS, layers=layer, positions=positions).last_hidden_state
        torch.testing.assert_close(selected, states.flatten(0, 1)[positions])


def test_a_model_that_mixes_sequences_is_not_packed() -> None:
    model: Any = build_native("modernbert", ROWS)
    assert choose_packing(model.base_model) is not None
    for layer in model.base_model.layers:
        layer.attention_type = "full_attention"
        layer.attn.register_forward_hook(
            lambda _, __, output: (output[0] + output[0].mean(1, keepdim=True), *output[1:])
        )
    assert choose_packing(model.base_model) is None


@pytest.mark.parametrize("family", ["fnet", "convbert"])
def test_a_model_whose_states_change_with_padding_is_refused(family: str) -> None:
    """FNet ignores the mask. The convolutions of ConvBERT read the padding beside a sequence."""
    config = transformers.AutoConfig.for_model(family, **SHAPE, vocab_size=ROWS)
    model: Any = transformers.AutoModelForMaskedLM.from_config(config).train()
    with pytest.raises(BadInput, match=f"states of type {family} change with the padding of a batch. Give a model of"):
        choose_packing(model.base_model)
    assert model.base_model.training


def test_the_choice_changes_neither_random_numbers_nor_modes() -> None:
    model: Any = build_native("bert", ROWS).train()
    torch.manual_seed(3)
    choose_packing(model.base_model)
    after = torch.rand(1)
    torch.manual_seed(3)
    assert after == torch.rand(1)
    assert all(module.training for module in model.modules())
