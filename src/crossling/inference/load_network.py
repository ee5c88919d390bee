"""Load an encoder to run it, without `transformers.PreTrainedModel` where the model is our own.

The import of that class takes two seconds and 200 MB. The commands that only run an encoder use this module; Python
callers get models of `transformers` from `load`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerFast

from crossling import bundled
from crossling.core.files import read_json
from crossling.core.hub import find_local_folder
from crossling.inference.cpu_precision import resolve_precision
from crossling.inference.sentence_encoder import Encoder
from crossling.inference.sentence_head import has_modules_after_pooling
from crossling.model.config import CrosslingConfig
from crossling.model.encoder import EncoderNetwork
from crossling.model.int8 import VALUES, iter_dequantized

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

PREFIX = "encoder."  # of the weights in a folder that has heads too


def load_network(model: str | None, precision: str = "auto") -> Encoder:
    """Load an encoder for one command. It computes the same states as that of `load`.

    Args:
        model: Name that `load` takes. None is the bundled model.
        precision: Precision on a CPU, as in `load`.

    Returns:
        The encoder, on the GPU if there is one.

    Raises:
        BadInput: There is no such model, it is not an encoder, or the device lacks the precision.

    Example:
        >>> load_network(None).align("the white house", "la maison blanche")
        [(0, 0), (1, 2), (2, 1)]
    """
    name = bundled.NAME if model is None else model
    folder = find_local_folder(bundled.resolve_model(name))
    encoder = None if folder is None else _load_exported(folder, name)
    if encoder is None:  # another kind of model, or a damaged folder: `load` reports what is wrong
        from crossling.inference.load import load

        return load(model, precision=precision)
    encoder.model.to("cuda" if torch.cuda.is_available() else "cpu")  # type: ignore[arg-type]
    encoder.precision = resolve_precision(precision, encoder.model.device, encoder.precision == "int8")
    return encoder


def as_encoder(model: Encoder | str | os.PathLike[str]) -> Encoder:
    """Return a loaded encoder, or load the one with this name."""
    if isinstance(model, Encoder):
        return model
    from crossling.inference.load import load

    return load(model)


def _load_exported(folder: Path, name: str) -> Encoder | None:
    """Return the encoder of a folder that crossling exported, or None if the folder is anything else.

    Its precision is that of the stored weights.
    """
    weights, tokenizer_file = folder / "model.safetensors", folder / "tokenizer.json"
    try:
        if read_json(folder / "config.json")["model_type"] != CrosslingConfig.model_type:
            return None
        if (folder / "recipe.json").exists() or has_modules_after_pooling(folder):
            return None
        if not (weights.is_file() and tokenizer_file.is_file()):
            return None
        config = CrosslingConfig.from_pretrained(folder, local_files_only=True)
        stored = load_file(weights)
        network = _build_network(config, stored)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    except Exception:  # of JSON, safetensors, tokenizers or torch: a damaged folder
        return None
    if network is None or config.is_encoder_decoder:
        return None
    precision = "int8" if any(key.endswith(VALUES) for key in stored) else "float32"
    return Encoder(network, tokenizer, name, universal_layer=config.universal_layer, precision=precision)


def _build_network(config: CrosslingConfig, stored: Mapping[str, Tensor]) -> EncoderNetwork | None:
    """Return the network with its stored weights in float32, or None if they do not fit or are not finite."""
    network = EncoderNetwork(config).eval().requires_grad_(False)
    missing = dict(network.named_parameters())
    has_heads = any(name.startswith(PREFIX) for name in stored)
    for name, values in iter_dequantized(stored):
        if has_heads and not name.startswith(PREFIX):
            continue
        weight = missing.pop(name.removeprefix(PREFIX), None)
        if weight is None or weight.shape != values.shape or not values.sum().isfinite():
            return None
        weight.copy_(values)
    return None if missing else network
