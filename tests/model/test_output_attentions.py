"""Attention weights are those of the fast path: with them, the outputs are equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModel, AutoModelForSequenceClassification

from crossling.model.attention import compute_attention
from crossling.model.config import CrosslingConfig
from crossling.model.encoder_model import CrosslingModel
from crossling.model.heads import CrosslingForMaskedLM, CrosslingForPreTraining
from crossling.model.task_heads import CrosslingForQuestionAnswering, CrosslingForSequenceClassification

from .small_encoder_decoder import LABELS, MASK, RELATIVE, SOURCE, make_encoder_decoder

IDS = torch.tensor([[0, 5, 6, 7, 8, 2], [0, 9, 4, 2, 1, 1]])
PADDING = (IDS != 1).long()
SHAPE: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
    "initializer_range": 0.3,
    "cross_attention": True,
}


def config(**changes: Any) -> CrosslingConfig:
    torch.manual_seed(0)
    return CrosslingConfig(**(SHAPE | changes))


def paired_inputs() -> dict[str, Any]:
    states_BTD = torch.randn(2, 4, 16, generator=torch.Generator().manual_seed(1))
    return {"encoder_hidden_states": states_BTD, "encoder_attention_mask": torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])}


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_outputs_equal_those_of_the_fast_path(norm: str, relative: bool, packed: bool) -> None:
    model = CrosslingModel(config(norm=norm, relative_positions=relative)).eval()
    inputs: dict[str, Any] = {"attention_mask": PADDING, **paired_inputs()}
    if packed:
        segments_BL = torch.tensor([[1, 1, 1, 2, 2, 2], [1, 1, 2, 2, 0, 0]])
        inputs = {"segments": segments_BL, "encoder_segments": segments_BL[:, [0, 2, 3, 4]]}
        inputs["encoder_hidden_states"] = paired_inputs()["encoder_hidden_states"]
    fast, plain = (model(IDS, **inputs, output_hidden_states=True, output_attentions=on) for on in (False, True))
    assert fast.attentions is None and fast.cross_attentions is None  # noqa: PT018
    assert_close(plain.last_hidden_state, fast.last_hidden_state)
    assert [weights.shape for weights in plain.attentions] == [(2, 2, 6, 6)] * 2
    assert [weights.shape for weights in plain.cross_attentions] == [(2, 2, 6, 4)] * 2
    for weights_BHLT in (*plain.attentions, *plain.cross_attentions):
        assert_close(weights_BHLT.sum(-1), torch.ones(2, 2, 6))
    hidden_LT = segments_BL[0, :, None] != segments_BL[0] if packed else (PADDING[0] == 0).expand(6, 6)
    assert (plain.attentions[1][0, :, hidden_LT] == 0).all()
    assert (plain.attentions[1][0, :, ~hidden_LT] > 0).all()


def test_weights_times_values_are_the_context() -> None:
    """The context of the fast path is the input of the output layer."""
    model = CrosslingModel(config()).eval()
    recorded: dict[str, torch.Tensor] = {}
    block = model.blocks[1]
    block.attention.qkv.register_forward_hook(lambda *hook: recorded.update(qkv=hook[2]))
    block.attention.out.register_forward_hook(lambda *hook: recorded.update(context=hook[1][0]))
    block.cross.key_value.register_forward_hook(lambda *hook: recorded.update(key_value=hook[2]))
    block.cross.out.register_forward_hook(lambda *hook: recorded.update(cross_context=hook[1][0]))
    inputs = {"attention_mask": PADDING, **paired_inputs()}
    weights = model(IDS, **inputs, output_attentions=True)
    model(IDS, **inputs)  # the hooks now have the fast path
    value_BHLK = recorded["qkv"].unflatten(-1, (3, 2, 8))[:, :, 2].transpose(1, 2)
    assert_close((weights.attentions[1] @ value_BHLK).transpose(1, 2).flatten(2), recorded["context"])
    value_BHTK = recorded["key_value"].unflatten(-1, (2, 2, 8))[:, :, 1].transpose(1, 2)
    assert_close((weights.cross_attentions[1] @ value_BHTK).transpose(1, 2).flatten(2), recorded["cross_context"])


def test_weights_are_the_softmax_of_the_scores() -> None:
    model = CrosslingModel(config(relative_positions=False, cross_attention=False, num_hidden_layers=1)).eval()
    output = model(IDS, PADDING, output_attentions=True, output_hidden_states=True)
    query, key, _ = model.blocks[0].attention.qkv(output.hidden_states[0]).unflatten(-1, (3, 2, 8)).unbind(2)
    for head in range(2):
        scores_LT = query[1, :, head] @ key[1, :, head].T / 8**0.5
        scores_LT[:, 4:] = -torch.inf  # padding
        assert_close(output.attentions[0][1, head], scores_LT.softmax(-1))
    assert output.cross_attentions is None
    assert compute_attention(query, key, key).shape == (2, 6, 2, 8)


def test_training_with_gradient_checkpointing_records_each_layer_once() -> None:
    model = CrosslingModel(config(attention_dropout=0.5)).train()
    model.gradient_checkpointing_enable()
    output = model(IDS, PADDING, output_attentions=True)
    output.last_hidden_state.sum().backward()
    assert len(output.attentions) == 2
    assert_close(output.attentions[0].sum(-1), torch.ones(2, 2, 6))  # before dropout


def test_selected_positions_have_the_weights_of_all_positions() -> None:
    model = CrosslingModel(config()).eval()
    positions_M = torch.tensor([0, 7])
    output = model(IDS, PADDING, output_attentions=True, positions=positions_M)
    everywhere = model(IDS, PADDING, output_attentions=True)
    assert output.last_hidden_state.shape == (2, 16)
    assert_close(output.attentions, everywhere.attentions)


def test_auto_model_and_heads_return_weights(tmp_path: Path) -> None:
    CrosslingModel(config()).save_pretrained(tmp_path)
    model = AutoModel.from_pretrained(tmp_path)
    expected = model(IDS, PADDING, output_attentions=True).attentions
    assert len(expected) == 2
    assert_close(AutoModel.from_pretrained(tmp_path, output_attentions=True)(IDS, PADDING).attentions, expected)
    assert_close(model(IDS, PADDING, output_attentions=True, return_dict=False)[1], expected)
    classifier = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=3)
    assert_close(classifier(IDS, PADDING, output_attentions=True).attentions, expected)


@pytest.mark.parametrize(
    "kind",
    [
        CrosslingForMaskedLM,
        CrosslingForPreTraining,
        CrosslingForQuestionAnswering,
        CrosslingForSequenceClassification,
    ],
)
def test_models_with_a_head_return_those_of_the_encoder(kind: Any) -> None:
    model = kind(config(num_labels=2)).eval()
    found = model(input_ids=IDS, attention_mask=PADDING, output_attentions=True).attentions
    assert_close(found, model.encoder(IDS, PADDING, output_attentions=True).attentions)


def test_plug_in_refuses() -> None:
    model = CrosslingForSequenceClassification(config(plug_in=True))
    with pytest.raises(ValueError, match="plug_in encodes every sequence twice"):
        model(IDS, PADDING, IDS, PADDING, output_attentions=True)


@pytest.mark.parametrize("tied", [True, False])
def test_an_encoder_decoder_returns_weights_of_both(tied: bool) -> None:
    model = make_encoder_decoder({"tied": tied}, **RELATIVE).eval()
    fast, plain = (model(SOURCE, MASK, labels=LABELS, output_attentions=on) for on in (False, True))
    assert_close(plain.logits, fast.logits)
    assert [weights.shape for weights in plain.decoder_attentions] == [(2, 2, 4, 4)] * len(model.decoder_blocks)
    assert {weights.shape for weights in plain.cross_attentions} == {(2, 2, 4, 6)}
    assert {weights.shape for weights in plain.encoder_attentions} == {(2, 2, 6, 6)}
    assert (plain.decoder_attentions[0].triu(1) == 0).all()  # causal
    assert fast.decoder_attentions is None
    settings = {"max_new_tokens": 2, "output_attentions": True, "return_dict_in_generate": True}
    generated = model.generate(SOURCE, attention_mask=MASK, **settings)
    assert generated.cross_attentions[0][0].shape == (2, 2, 1, 6)
