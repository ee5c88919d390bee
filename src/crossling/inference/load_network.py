"""Load an encoder to run it, without `transformers.PreTrainedModel` where the model is our own.

The import of that class takes two seconds and 200 MB. The commands that only run an encoder use this module; Python
callers get models of `transformers` from `load`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from torch import nn
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedTokenizerFast

from crossling import bundled
from crossling.core.files import read_json
from crossling.core.hub import find_local_folder
from crossling.inference.cpu_precision import resolve_precision
from crossling.inference.sentence_encoder import Encoder
from crossling.inference.sentence_head import has_modules_after_pooling
from crossling.inference.stored_weights import keep_stored
from crossling.model.config import CrosslingConfig
from crossling.model.encoder import EncoderNetwork
from crossling.model.int8 import LARGEST, SCALE, VALUES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    encoder = None if folder is None else _load_exported(folder, name, precision)
    if encoder is None:  # another kind of model, or a damaged folder: `load` reports what is wrong
        from crossling.inference.load import load

        return load(model, precision=precision)
    return encoder


def as_encoder(model: Encoder | str | os.PathLike[str]) -> Encoder:
    """Return a loaded encoder, or load the one with this name."""
    if isinstance(model, Encoder):
        return model
    from crossling.inference.load import load

    return load(model)


def _load_exported(folder: Path, name: str, precision: str) -> Encoder | None:
    """Return the encoder of a folder that crossling exported, or None if the folder is anything else."""
    weights, tokenizer_file = folder / "model.safetensors", folder / "tokenizer.json"
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        if read_json(folder / "config.json")["model_type"] != CrosslingConfig.model_type:
            return None
        if (folder / "recipe.json").exists() or has_modules_after_pooling(folder):
            return None
        if not (weights.is_file() and tokenizer_file.is_file()):
            return None
        config = CrosslingConfig.from_pretrained(folder, local_files_only=True)
        stored = load_file(weights)  # mapped: what is not read takes no memory
        precision = resolve_precision(precision, device, any(key.endswith(VALUES) for key in stored))
        network = _build_network(config, stored, kept=_kept_types(device, precision))
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    except Exception:  # of JSON, safetensors, tokenizers or torch: a damaged folder
        return None
    if network is None or config.is_encoder_decoder:
        return None
    network.to(device)
    return Encoder(network, tokenizer, name, universal_layer=config.universal_layer, precision=precision)


class _SkipInit(TorchFunctionMode):
    """Leaves new weights as they are allocated: memory that nothing is written to costs nothing.

    The meta device would do the same, but imports `torch._dynamo`.
    """

    def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(function, "__module__", None) == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **(kwargs or {}))


def _kept_types(device: torch.device, precision: str) -> Sequence[type[nn.Module]]:
    """Return the modules whose weights stay in 8 bits: those that need few rows of it, or read it once."""
    if device.type != "cpu":
        return ()
    return (nn.Embedding,) if precision == "float32" else (nn.Embedding, nn.Linear)


def _build_network(
    config: CrosslingConfig, stored: Mapping[str, Tensor], kept: Sequence[type[nn.Module]]
) -> EncoderNetwork | None:
    """Return the network with its stored weights, or None if they do not fit or are not finite.

    Args:
        config: Configuration of the network.
        stored: Weights by name, some of them in 8 bits.
        kept: Types of the modules whose weights stay in 8 bits if they are stored so. Others are in float32.
    """
    with _SkipInit():
        network = EncoderNetwork(config).eval()
    prefix = PREFIX if any(name.startswith(PREFIX) for name in stored) else ""
    unread = {name for name in stored if name.startswith(prefix)}
    for name, expected in [*network.named_parameters()]:
        (path, _, kind), key = name.rpartition("."), prefix + name
        values, scale = stored.get(key + VALUES), stored.get(key + SCALE)
        if values is None or scale is None:  # not in 8 bits
            values, scale = stored.get(key), None
        if values is None or values.shape != expected.shape:
            return None
        unread -= {key, key + VALUES, key + SCALE}
        module = network.get_submodule(path)
        if scale is not None and type(module) in kept:
            if not (scale * LARGEST).isfinite().all():
                return None
            network.set_submodule(path, keep_stored(module, values, scale))
            continue
        values = values.to(torch.float32, copy=True) if scale is None else values.float().mul_(scale)
        if not values.sum().isfinite():
            return None
        setattr(module, kind, nn.Parameter(values, requires_grad=False))
    return None if unread else network
