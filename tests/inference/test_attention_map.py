from __future__ import annotations

import numpy as np
import pytest
import torch

from crossling.core.errors import BadInput
from crossling.inference.attention_map import attention_map
from crossling.inference.sentence_encoder import Encoder
from crossling.model.config import CrosslingConfig
from crossling.model.encoder_model import CrosslingModel
from tests.tiny_encoder import make_tokenizer


def make_encoder(cross_attention: bool) -> Encoder:
    torch.manual_seed(0)
    tokenizer = make_tokenizer()
    shape = {"num_hidden_layers": 3, "intermediate_size": 32, "max_position_embeddings": 24, "initializer_range": 0.5}
    config = CrosslingConfig(len(tokenizer), 16, num_attention_heads=2, cross_attention=cross_attention, **shape)
    return Encoder(CrosslingModel(config).eval(), tokenizer, "tiny")


def test_cross_attention_is_from_the_first_sentence_to_the_second() -> None:
    encoder = make_encoder(cross_attention=True)
    found = attention_map(encoder, "the house", "a b c", layer=2)
    assert (found.queries, found.keys) == (["<s>", "the", "house", "</s>"], ["<s>", "a", "b", "c", "</s>"])
    ids, other = (torch.tensor([encoder.tokenizer(text)["input_ids"]]) for text in ("the house", "a b c"))
    with torch.no_grad():
        states_BTD = encoder.model(other).last_hidden_state
        output = encoder.model(ids, encoder_hidden_states=states_BTD, output_attentions=True)
    np.testing.assert_allclose(found.weights_LT, output.cross_attentions[1][0].mean(0), atol=1e-6)


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_model_without_cross_attention_reads_both_as_one_input(is_ours: bool, encoder: Encoder) -> None:
    """Also a model of transformers, whose fused attention returns no weights."""
    encoder = make_encoder(cross_attention=False) if is_ours else encoder
    before = encoder.model.config._attn_implementation
    found = attention_map(encoder, "the house", "a")
    assert found.queries == found.keys == ["<s>", "the", "house", "</s>", "a", "</s>"]
    assert found.weights_LT.shape == (6, 6)
    np.testing.assert_allclose(found.weights_LT.sum(1), 1, atol=1e-5)
    middle = attention_map(encoder, "the house", "a", layer=1)  # of three layers
    np.testing.assert_array_equal(found.weights_LT, middle.weights_LT)
    assert encoder.model.config._attn_implementation == before


def test_invalid_requests_are_refused(encoder: Encoder) -> None:
    for layer in (0, 4):
        with pytest.raises(BadInput, match=f"layer={layer}: runs/tiny has attention in layers 1 to 3"):
            attention_map(encoder, "a", "b", layer=layer)
    for wrong in ("2", 2.5, True):
        with pytest.raises(BadInput, match=f"layer={wrong!r}: runs/tiny has attention in layers 1 to 3"):
            attention_map(encoder, "a", "b", layer=wrong)  # type: ignore[arg-type]
    for sentences in ((5, "b"), (["a"], "b"), (None, "b")):
        with pytest.raises(BadInput, match=r"attention_map: first is .*, expected a string"):
            attention_map(encoder, *sentences)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="attention_map: second is bytes, expected a string"):
        attention_map(encoder, "a", b"b")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="the pair is longer than the 64 tokens"):
        attention_map(encoder, "a " * 60, "b c d e")
