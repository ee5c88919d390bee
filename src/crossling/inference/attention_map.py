"""Attention between two sentences, averaged over the heads of one layer (VECO, Figure 1 and appendix B)."""
# L tokens that attend, T tokens that are attended to

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from crossling.core.errors import BadInput
from crossling.inference.hidden_states import evaluation_mode
from crossling.inference.load_network import as_encoder
from crossling.inference.sentence_encoder import Encoder
from crossling.inference.word_links import join_word_pairs


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """Attention weights of one layer, averaged over its heads.

    Attributes:
        queries: Tokens that attend, one for each row.
        keys: Tokens that are attended to, one for each column.
        weights_LT: The weights. Every row sums to one.
        layer: The layer.

    Example:
        >>> attention = crossling.attention_map("runs/veco", "the house", "das Haus")
        >>> attention.keys[attention.weights_LT[1].argmax()]
        '▁das'
    """

    queries: list[str]
    keys: list[str]
    weights_LT: np.ndarray
    layer: int


def attention_map(
    model: Encoder | str | os.PathLike[str], first: str, second: str, *, layer: int | None = None
) -> AttentionMap:
    """Return the attention weights between two sentences.

    A model with cross-attention (VECO) encodes them separately, and the tokens of `first` attend to those of `second`.
    Other models encode both as one input, `<s> first </s> second </s>`, and all its tokens attend to each other.

    Args:
        model: Encoder, or a name that `load` takes.
        first: A sentence.
        second: Its translation.
        layer: Layer, counted from 1. [default: the middle one, as in VECO's Figure 1]

    Returns:
        The tokens and the weights.

    Raises:
        BadInput: A sentence is no string, the layer does not exist, the sentences are too long, or the model does not
            return its weights.

    Example:
        >>> attention = attention_map("runs/veco", "the house", "das Haus")
        >>> attention.weights_LT.shape
        (4, 4)
    """
    for name, sentence in (("first", first), ("second", second)):
        if not isinstance(sentence, str):
            raise BadInput(f"attention_map: {name} is {type(sentence).__name__}, expected a string. Give one sentence.")
    encoder = as_encoder(model)
    layer = max(1, encoder.num_layers // 2) if layer is None else layer
    if isinstance(layer, bool) or not isinstance(layer, int) or not 1 <= layer <= encoder.num_layers:
        raise BadInput(f"layer={layer!r}: {encoder.name} has attention in layers 1 to {encoder.num_layers}.")
    has_cross = bool(getattr(encoder.model.config, "cross_attention", False))
    [joint] = join_word_pairs([(first.split(), second.split())], encoder.tokenizer, encoder.name)
    if len(joint.ids) > encoder.max_length:
        raise BadInput(f"attention_map: the pair is longer than the {encoder.max_length} tokens of {encoder.name}.")
    # <s> first </s> and <s> second </s>, or both in one input
    end = joint.source.stop + 1
    inputs = [joint.ids[:end], [joint.ids[0], *joint.ids[end:]]] if has_cross else [joint.ids, joint.ids]
    with evaluation_mode(encoder.model), _plain_attention(encoder.model):
        queries, keys = (torch.tensor([ids], device=encoder.model.device) for ids in inputs)
        if has_cross:
            paired_BTD = encoder.model(input_ids=keys).last_hidden_state
            output = encoder.model(input_ids=queries, encoder_hidden_states=paired_BTD, output_attentions=True)
        else:
            output = encoder.model(input_ids=queries, output_attentions=True)
    weights = output.cross_attentions if has_cross else getattr(output, "attentions", None)
    if not weights or weights[layer - 1] is None:
        raise BadInput(f"{encoder.name}: the model does not return its attention weights. Give another model.")
    tokens = [[*encoder.tokenizer.convert_ids_to_tokens(ids)] for ids in inputs]
    return AttentionMap(tokens[0], tokens[1], weights[layer - 1][0].float().mean(0).cpu().numpy(), layer)


@contextmanager
def _plain_attention(model: Any) -> Iterator[None]:
    """Let models of transformers compute attention in plain torch, since their fused kernels return no weights."""
    config: Any = model.config
    before = config._attn_implementation
    if before in (None, "eager"):
        yield
        return
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)
