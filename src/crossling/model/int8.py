"""Weights as 8-bit integers on disk, a quarter of the size. In memory they are float32.

Each row of a matrix has its own scale, by which its largest value becomes 127. A row is one vocabulary entry of the
token table or one output of a linear layer. Biases and norms stay as they are. The integers have names of their own, so
that a reader without this module reports missing weights instead of using integers as weights.
"""
# R rows, C columns

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.utils import SAFE_WEIGHTS_NAME, cached_file

VALUES, SCALE = ".int8", ".scale"
LARGEST = 127  # symmetric: -128 is not used
MIN_ROW_LENGTH = 16  # shorter rows are not worth a scale
_LOCATION_OPTIONS = ("cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token")
_MODEL_OPTIONS = ("dtype", "torch_dtype", "trust_remote_code")  # a configuration would consume them


def quantize(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors to store: integers and scales of matrices, other weights unchanged."""
    stored = {}
    for name, values in weights.items():
        if values.ndim != 2 or values.shape[1] < MIN_ROW_LENGTH or not values.is_floating_point():
            stored[name] = values
            continue
        stored[name + VALUES], stored[name + SCALE] = quantize_rows(values)
    return stored


def quantize_rows(values_RC: Tensor) -> tuple[Tensor, Tensor]:
    """Return the integers of a matrix and the scale of each row, [R, 1]. Stored weights give the same integers."""
    values_RC = values_RC.float()
    scale_R1 = torch.maximum(values_RC.amax(1, keepdim=True), -values_RC.amin(1, keepdim=True)) / LARGEST
    scale_R1[scale_R1 == 0] = 1.0  # a row of zeros
    return (values_RC / scale_R1).round_().to(torch.int8), scale_R1


def dequantize(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights. Each value differs by at most half a scale."""
    return dict(iter_dequantized(stored))


def iter_dequantized(stored: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield the name and the values of one weight after the other, so that they need not be in memory together."""
    for name, values in stored.items():
        if name.endswith(VALUES):
            weight = name.removesuffix(VALUES)
            yield weight, values.float().mul_(stored[weight + SCALE])
        elif name.removesuffix(SCALE) + VALUES not in stored:
            yield name, values


class Int8LoadingMixin:
    """Mixin for models of `transformers` whose `from_pretrained` also loads 8-bit weights."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **options: Any) -> Self:
        """Load a model as `PreTrainedModel.from_pretrained` does, from 8-bit weights too."""
        from transformers import PreTrainedModel  # a slow import; other functions of this module do not need it

        parent: Any = super()
        file = None if options.get("state_dict") is not None else _find_weights(pretrained_model_name_or_path, options)
        if file is None or not has_int8_weights(file):
            return parent.from_pretrained(pretrained_model_name_or_path, *args, **options)
        config, rest = _load_config(cls, pretrained_model_name_or_path, options)
        # With a state_dict transformers reads no folder, so options that locate files are dropped.
        dropped = (*_LOCATION_OPTIONS, "use_safetensors", "state_dict")
        rest = {name: value for name, value in rest.items() if name not in dropped}
        loaded = parent.from_pretrained(None, *args, config=config, state_dict=dequantize(load_file(file)), **rest)
        for module in (loaded[0] if isinstance(loaded, tuple) else loaded).modules():
            if isinstance(module, PreTrainedModel):
                module.name_or_path = module.config.name_or_path = str(pretrained_model_name_or_path)
        return loaded


def _load_config(cls: Any, name: Any, options: Mapping[str, Any]) -> tuple[PreTrainedConfig, dict[str, Any]]:
    """Return the given or stored configuration, changed by the options that belong to it, and the other options."""
    others = {key: value for key, value in options.items() if key != "config"}
    config = options.get("config")
    if isinstance(config, PreTrainedConfig):
        return config, others
    model_options = {key: others.pop(key) for key in _MODEL_OPTIONS if key in others}
    source = name if config is None else config
    config, others = cls.config_class.from_pretrained(source, return_unused_kwargs=True, **others)
    return config, {**others, **model_options}


def _find_weights(name: Any, options: Mapping[str, Any]) -> Path | None:
    """Return the weights of a folder or of a model on the hub, if they are one file."""
    if name is None:
        return None
    if Path(name).is_dir():
        file = Path(name) / (options.get("subfolder") or "") / SAFE_WEIGHTS_NAME
        return file if file.is_file() else None
    location = {key: options[key] for key in _LOCATION_OPTIONS if options.get(key) is not None}
    silent = {f"_raise_exceptions_for_{kind}": False for kind in ("gated_repo", "missing_entries", "connection_errors")}
    cached = cached_file(str(name), SAFE_WEIGHTS_NAME, **silent, **location)
    return Path(cached) if cached else None


def has_int8_weights(file: Path) -> bool:
    """Return True if a file of safetensors stores weights in 8 bits."""
    with safe_open(file, framework="pt") as opened:
        return any(name.endswith(VALUES) for name in opened.keys())  # noqa: SIM118 - not a mapping
