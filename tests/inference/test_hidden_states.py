from __future__ import annotations

import pytest
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, T5Config, T5Model

from crossling.core.errors import BadInput
from crossling.inference.sentence_encoder import Encoder
from tests.tiny_encoder import make_model, make_tokenizer


def test_models_that_are_not_encoders_are_refused() -> None:
    tokenizer, without_padding = make_tokenizer(), make_tokenizer()
    without_padding.pad_token = None
    gpt = GPT2Model(GPT2Config(vocab_size=60, n_embd=16, n_layer=2, n_head=2))
    for gpt_tokenizer in (tokenizer, without_padding):
        with pytest.raises(BadInput, match="a decoder"):
            Encoder(gpt, gpt_tokenizer, "gpt")
    decoder = BertModel(
        BertConfig(vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, is_decoder=True)
    )
    with pytest.raises(BadInput, match="a decoder"):
        Encoder(decoder, tokenizer, "bert")
    t5 = T5Model(T5Config(vocab_size=60, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2))
    with pytest.raises(BadInput, match="encoder-decoder"):
        Encoder(t5, tokenizer, "t5")


def test_tokenizers_that_do_not_fit_are_refused() -> None:
    tokenizer, without_padding = make_tokenizer(), make_tokenizer()
    without_padding.pad_token = None
    with pytest.raises(BadInput, match="has no padding token"):
        Encoder(make_model(), without_padding, "tiny")
    with pytest.raises(BadInput, match="no tokenizer"):
        Encoder(make_model(), None, "tiny")  # type: ignore[arg-type]
    small = BertModel(BertConfig(vocab_size=10, hidden_size=16, num_hidden_layers=1, num_attention_heads=2))
    with pytest.raises(BadInput, match="the tokenizer has 59 entries, the model 10"):
        Encoder(small, tokenizer, "small")
