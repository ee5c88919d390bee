r"""Low-rank adaptation (LoRA; Hu et al. 2022) of a Hugging Face encoder, by the library peft.

    W x + (alpha / r) B A x,    A: r x D at random, B: D x r from zero, alpha = 2 r

A and B of every linear layer in the blocks are trained, and with them the head and the embeddings of new vocabulary
entries. All other weights are frozen. `merge_lora` adds the products to the weights, so that a plain model remains.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from crossling.core.errors import import_package
from crossling.model.native_encoder import NativeEncoder

SCALE = 2  # alpha / r


def add_lora(encoder: NativeEncoder, rank: int, old_tokens: int) -> None:
    """Add LoRA matrices to the linear layers of all blocks, and freeze the other weights.

    Args:
        encoder: Encoder whose weights are set later.
        rank: Rank of the matrices.
        old_tokens: Vocabulary entries of the original model. Only embeddings of entries after them are trained.

    Raises:
        BadInput: If peft is not installed.
    """
    peft = import_package("peft", "lora", extra="lora")
    inside = {id(module) for module in encoder.blocks.modules()}
    names = [
        name for name, module in encoder.model.named_modules() if isinstance(module, nn.Linear) and id(module) in inside
    ]
    config = peft.LoraConfig(r=rank, lora_alpha=SCALE * rank, target_modules=names, lora_dropout=0.0)
    in_base = {id(parameter) for parameter in encoder.base.parameters()}
    peft.inject_adapter_in_model(config, encoder.model)
    for parameter in encoder.model.parameters():
        if id(parameter) not in in_base and parameter.ndim > 0:
            parameter.requires_grad_(True)  # the new matrices, and the head
    table = encoder.embeddings.tokens.weight
    new = len(table) - old_tokens
    if new <= 0:
        table.requires_grad_(False)
        return
    table.requires_grad_(True)
    first = old_tokens - 1  # the last entry is <mask>, which stands after the new ones
    table.register_hook(lambda gradient: _keep_rows(gradient, first, first + new))


def _keep_rows(gradient: Tensor, first: int, end: int) -> Tensor:
    row_V1 = torch.arange(len(gradient), device=gradient.device)[:, None]
    return torch.where((row_V1 >= first) & (row_V1 < end), gradient, 0)


def merge_lora(encoder: NativeEncoder) -> None:
    """Add the products of the LoRA matrices to the weights, and remove the matrices."""
    for name, module in list(encoder.model.named_modules()):
        if hasattr(module, "lora_A") and hasattr(module, "base_layer"):
            layer: Any = module
            layer.merge()
            parent, _, last = name.rpartition(".")
            setattr(encoder.model.get_submodule(parent), last, layer.base_layer)
    for holder in (encoder.model, encoder.base):
        if hasattr(holder, "peft_config"):
            del holder.peft_config
    encoder.requires_grad_(True)
