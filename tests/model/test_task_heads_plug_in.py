"""Task heads with `plug_in`, which encode a sequence with its translation, against a slow reference."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from crossling.model.config import CrosslingConfig
from crossling.model.encoder_model import CrosslingModel

AUTO = [
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoModelForQuestionAnswering,
    AutoModelForMultipleChoice,
]
X = torch.tensor([[0, 5, 6, 7, 2], [0, 8, 2, 1, 1]])
Y = torch.tensor([[0, 9, 2, 1, 1], [0, 10, 11, 12, 2]])


def config(**changes: Any) -> CrosslingConfig:
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    rest = {"vocab_size": 20, "max_position_embeddings": 16, "num_labels": 3, "initializer_range": 0.5}
    return CrosslingConfig(**(shape | rest | {"cross_attention": True, "plug_in": True} | changes))


def make_model(auto: Any, **changes: Any) -> Any:
    torch.manual_seed(0)
    model = auto.from_config(config(**changes)).eval()
    with torch.no_grad():
        for weight in model.parameters():  # including biases and norms
            weight.add_(0.1 * torch.randn_like(weight))
    return model


def call(model: Any, x: Tensor, y: Tensor, masks: bool = True) -> tuple[Tensor, ...]:
    given = {"input_ids": x, "paired_input_ids": y}
    if masks:
        given |= {"attention_mask": (x != 1).long(), "paired_attention_mask": (y != 1).long()}
    if isinstance(model, AutoModelForMultipleChoice._model_mapping[CrosslingConfig]):
        given = {name: values[None] for name, values in given.items()}
    with torch.no_grad():
        return model(**given).to_tuple()


# ---- slow reference: one row at a time, without padding -------------------------------------------------------


def slow_cross_attention(block: Any, hidden_LD: Tensor, paired_TD: Tensor) -> Tensor:
    """Compute cross-attention of one block, head by head and position by position."""
    cross = block.cross
    query_LD = cross.query(hidden_LD)
    key_TD, value_TD = cross.key_value(paired_TD).chunk(2, -1)
    width = query_LD.shape[-1] // cross.heads
    context_LD = torch.zeros_like(query_LD)
    for head in range(cross.heads):
        own = slice(head * width, (head + 1) * width)
        for position in range(len(query_LD)):
            scores_T = torch.stack([query_LD[position, own] @ key_D[own] for key_D in key_TD]) / math.sqrt(width)
            weights_T = scores_T.exp() / scores_T.exp().sum()
            context_LD[position, own] = sum(
                weight * value_D[own] for weight, value_D in zip(weights_T, value_TD, strict=True)
            )
    return cross.out(context_LD)


def slow(encoder: CrosslingModel, x_L: Tensor, y_T: Tensor) -> Tensor:
    """Return [H : S] of x, [L, 2 D]."""
    paired_TD = encoder(y_T[None]).last_hidden_state[0]
    alone_LD = encoder(x_L[None]).last_hidden_state[0]
    hidden_LD = encoder.embeddings(x_L[None])[0]
    for block in encoder.blocks:
        self_LD = block.attention(hidden_LD[None], None, None)[0]
        hidden_LD = block.attention_norm(hidden_LD + self_LD)
        hidden_LD = block.cross_norm(hidden_LD + slow_cross_attention(block, hidden_LD, paired_TD))
        hidden_LD = block.feed_forward_norm(hidden_LD + block.feed_forward(hidden_LD))
    return torch.cat([alone_LD, hidden_LD], -1)


def head_output(model: Any, both_LD: Tensor) -> list[Tensor]:
    """Return the output of the head for one row."""
    head = getattr(model, "qa_outputs", None) or model.classifier
    if hasattr(head, "dense"):
        pooled_D = torch.tanh(both_LD[0] @ head.dense.weight.T + head.dense.bias)
        return [pooled_D @ head.out.weight.T + head.out.bias]
    logits_LK = both_LD @ head.weight.T + head.bias
    return [logits_LK] if hasattr(model, "classifier") else list(logits_LK.unbind(-1))


@pytest.mark.parametrize("auto", AUTO, ids=lambda auto: auto.__name__)
@torch.no_grad()
def test_head_reads_states_without_and_with_the_translation(auto: Any) -> None:
    model = make_model(auto, relative_positions=False)
    found = call(model, X, Y)
    for row, (x, y) in enumerate(zip(X, Y, strict=True)):
        x_L = x[x != 1]
        expected = head_output(model, slow(model.encoder, x_L, y[y != 1]))
        for ours, theirs in zip(found, expected, strict=True):
            own = ours[0, row : row + 1] if auto is AutoModelForMultipleChoice else ours[row]
            per_token = auto in (AutoModelForTokenClassification, AutoModelForQuestionAnswering)
            torch.testing.assert_close(own[: len(x_L)] if per_token else own, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("auto", AUTO, ids=lambda auto: auto.__name__)
def test_different_shapes_and_missing_masks_give_the_same_logits(auto: Any) -> None:
    model = make_model(auto)
    narrow = Y[:, :3].clone()  # without the padding of one row
    narrow[1, 2] = 2
    wide = torch.nn.functional.pad(narrow, (0, 2), value=1)
    torch.testing.assert_close(call(model, X, narrow), call(model, X, wide), rtol=1e-4, atol=1e-5)
    full = X[:1], Y[1:]
    torch.testing.assert_close(call(model, *full), call(model, *full, masks=False), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("auto", AUTO, ids=lambda auto: auto.__name__)
def test_translation_changes_the_prediction(auto: Any) -> None:
    model = make_model(auto)
    one, other = call(model, X, Y), call(model, X, Y.flip(0))
    assert all((ours - theirs).abs().max() > 0.01 for ours, theirs in zip(one, other, strict=True))


def test_gradient_reaches_both_sequences() -> None:
    """The gradient flows through the states that cross-attention reads."""
    model = make_model(AutoModelForSequenceClassification).train()
    model(X, (X != 1).long(), Y, (Y != 1).long(), labels=torch.tensor([0, 1])).loss.backward()
    learned = model.encoder.embeddings.tokens.weight.grad.abs().sum(-1) > 0
    assert learned[[5, 6, 7, 8]].all()
    assert learned[[9, 10, 11, 12]].all()
    assert all(
        weight.grad is not None and weight.grad.abs().sum() > 0 for weight in model.encoder.cross_attention_parameters()
    )


@pytest.mark.parametrize("auto", AUTO, ids=lambda auto: auto.__name__)
def test_save_and_load(auto: Any, tmp_path: Path) -> None:
    model = make_model(auto)
    model.save_pretrained(tmp_path)
    again = auto.from_pretrained(tmp_path).eval()
    assert again.config.plug_in
    torch.testing.assert_close(call(model, X, Y), call(again, X, Y), rtol=1e-5, atol=1e-6)


def test_hidden_states_are_those_without_the_translation() -> None:
    model = make_model(AutoModelForTokenClassification)
    with torch.no_grad():
        states = model(X, (X != 1).long(), Y, (Y != 1).long(), output_hidden_states=True).hidden_states
        alone = model.encoder(X, (X != 1).long(), output_hidden_states=True).hidden_states
    torch.testing.assert_close(states, alone, rtol=1e-4, atol=1e-5)


def test_invalid_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="plug_in: the model has no cross-attention"):
        AutoModelForSequenceClassification.from_config(config(cross_attention=False))
    with pytest.raises(ValueError, match="encodes every sequence with its translation"):
        make_model(AutoModelForSequenceClassification)(X)
    with pytest.raises(ValueError, match="plug_in=False"):
        make_model(AutoModelForSequenceClassification, plug_in=False)(X, paired_input_ids=Y)
