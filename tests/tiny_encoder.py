"""Tiny encoders with random weights, their tokenizers, and sentences for them."""

from __future__ import annotations

from collections.abc import Sequence

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
    """Return a tokenizer with letters as tokens, and two whole words, so that words have one token or several."""
    letters = [*LETTERS, *(f"##{letter}" for letter in LETTERS)]
    return make_word_tokenizer([*letters, "the", "house"], pair="<s> $A </s> $B </s>", lowercase=True)


def make_word_tokenizer(
    entries: Sequence[str], pair: str, *, lowercase: bool = False, **special_tokens: str
) -> PreTrainedTokenizerFast:
    """Return a WordPiece tokenizer with these entries between the special tokens.

    Args:
        entries: Vocabulary entries.
        pair: Template of two texts.
        lowercase: Convert texts to lower case first.
        special_tokens: More special tokens, such as `bos_token`.
    """
    vocabulary = [*SPECIAL, *entries, "<mask>"]
    tokenizer = Tokenizer(models.WordPiece({entry: row for row, entry in enumerate(vocabulary)}, unk_token="<unk>"))
    if lowercase:
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair=pair, special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        cls_token="<s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token="<mask>",
        **special_tokens,
    )


def make_model(kind: str = "xlmr", layers: int = 3, seed: int = 0) -> PreTrainedModel:
    """Return a BERT ("bert") or XLM-R ("xlmr") with random weights."""
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
