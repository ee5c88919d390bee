"""Tiny encoders with random weights, and sentences for them."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
    XLMRobertaModel,
)

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]

SENTENCES = [
    "the white house",
    "a",
    "one longer sentence with quite a few words in it",
    "white house the",
    "",
    "zebra quilt",
    "the white house",
    "an average sentence of words",
]


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Letters as pieces, and `the` and `house` whole, so that words have one piece or several."""
    pieces = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS), "the", "house", "<mask>"]
    tokenizer = Tokenizer(models.WordPiece({piece: row for row, piece in enumerate(pieces)}, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        cls_token="<s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token="<mask>",
    )


def make_model(kind: str = "xlmr", layers: int = 3, seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    shape = {
        "vocab_size": 60,
        "hidden_size": 16,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 66,
        "initializer_range": 0.5,
        "pad_token_id": 1,
    }
    if kind == "bert":
        return BertModel(BertConfig(**shape)).eval()
    return XLMRobertaModel(XLMRobertaConfig(**shape)).eval()
