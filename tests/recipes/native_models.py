"""Tiny random models of many families of Hugging Face encoders, with a tokenizer of their kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from tests.tiny_tokenizers import GEMMA, WORDPIECE

LENGTH = 64
SHAPE: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": LENGTH,
}
XLM = {"emb_dim": 16, "n_layers": 3, "n_heads": 2, "max_position_embeddings": LENGTH, "n_langs": 1}
DEBERTA = {
    **{"relative_attention": True, "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True},
    **{"pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "type_vocab_size": 0},
}
# Settings of each family, by model type, and the name of a variant after a colon.
FAMILIES: dict[str, dict[str, Any]] = {
    "modernbert": SHAPE | {"local_attention": 8, "global_attn_every_n_layers": 2},
    "xlm-roberta": SHAPE | {"max_position_embeddings": LENGTH + 1},
    "roberta": SHAPE | {"max_position_embeddings": LENGTH + 1},
    "bert": SHAPE,
    "deberta-v2": SHAPE | DEBERTA,
    "deberta-v2:v3": SHAPE | DEBERTA | {"legacy": False},
    "electra": SHAPE | {"embedding_size": 8},
    # Not named anywhere in the code: any encoder of transformers.
    "mpnet": SHAPE | {"max_position_embeddings": LENGTH + 1},
    "eurobert": SHAPE | {"num_key_value_heads": 2},
    "roformer": SHAPE | {"embedding_size": 16},
    "ernie": SHAPE,
    "xlm": XLM,
    "mobilebert": SHAPE | {"embedding_size": 8, "intra_bottleneck_size": 8},
}
PACKED = set(FAMILIES) - {"xlm", "mobilebert"}  # MobileBERT mixes neighbouring tokens of a row


def special_of(family: str) -> tuple[str, ...]:
    return GEMMA if family in ("modernbert", "eurobert", "xlm", "roberta", "xlm-roberta") else WORDPIECE


def build_config(family: str, rows: int, **changes: Any) -> Any:
    """Return the configuration of a family for a vocabulary of so many rows, with ids of its tokenizer."""
    ids = {"pad_token_id": 0}
    if special_of(family) == GEMMA:
        ids |= {"bos_token_id": 2, "eos_token_id": 1, "mask_token_id": 4}
        ids |= {"cls_token_id": 2, "sep_token_id": 1} if family == "modernbert" else {}
    return transformers.AutoConfig.for_model(
        family.partition(":")[0], **(FAMILIES[family] | ids | changes), vocab_size=rows
    )


def build_native(family: str, rows: int, auto_class: Any = transformers.AutoModelForMaskedLM, **changes: Any) -> Any:
    """Return a model of a family with weights as after training: no bias is zero and no norm the identity."""
    torch.manual_seed(0)
    model = auto_class.from_config(build_config(family, rows, **changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.empty_like(parameter).uniform_(-0.2, 0.2))
    return model


def save_native(
    family: str, tokenizer: Any, folder: Path, auto_class: Any = transformers.AutoModelForMaskedLM, **changes: Any
) -> Path:
    """Write a model folder with its tokenizer. The table has spare rows, as those of published models."""
    model = build_native(family, len(tokenizer) + 6, auto_class, **changes)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
