"""Small encoder-decoder models, and two sentences of different length."""

from __future__ import annotations

from typing import Any

import torch

from crossling.model.config import CrosslingConfig
from crossling.model.encoder_decoder import CrosslingForConditionalGeneration, encoder_decoder_from_encoder
from crossling.model.encoder_model import CrosslingModel
from crossling.model.heads import LMHead

SHAPE: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
    "initializer_range": 0.3,
    "dropout": 0.0,
    "cross_attention": True,
}
ABSOLUTE = {"absolute_positions": True, "relative_positions": False}
RELATIVE = {"absolute_positions": False, "relative_positions": True}
SOURCE = torch.tensor([[0, 5, 6, 7, 8, 2], [0, 9, 4, 2, 1, 1]])
MASK = (SOURCE != 1).long()
LABELS = torch.tensor([[11, 12, 13, 2], [14, 2, -100, -100]])


def make_encoder_and_head(**changes: Any) -> tuple[CrosslingModel, LMHead]:
    """Return an encoder and a head with trained-like norms and biases."""
    torch.manual_seed(0)
    config = CrosslingConfig(**(SHAPE | changes))
    encoder, head = CrosslingModel(config), LMHead(config)
    with torch.no_grad():
        for parameter in (*encoder.parameters(), *head.parameters()):
            if parameter.dim() == 1:
                parameter.add_(torch.empty_like(parameter).uniform_(-0.3, 0.3))
    return encoder.eval(), head.eval()


def make_encoder_decoder(options: dict[str, Any] | None = None, **changes: Any) -> CrosslingForConditionalGeneration:
    return encoder_decoder_from_encoder(*make_encoder_and_head(**changes), **(options or {})).eval()
