"""Weights as 8-bit integers on disk, a quarter of the room; in memory they are float32 again.

Each row of a matrix has a scale of its own, by which its largest value becomes 127: a row of the token table is a
piece, a row of a map one of its outputs. What is no matrix (biases, norms) stays as it is. The integers have names of
their own, so that a reader who does not know of them misses weights instead of taking integers for weights.
"""
# R rows, C columns

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_NAME, cached_file

VALUES, SCALE = ".int8", ".scale"
LARGEST = 127  # and not -128 on the other side: zero stays zero
SHORTEST = 16  # values in a row that a scale is worth
_WHERE = ("cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token")
_OF_THE_MODEL = ("dtype", "torch_dtype", "trust_remote_code")  # which a configuration would take to itself


def quantised(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What is written in the place of some weights."""
    stored = {}
    for name, values in weights.items():
        if values.ndim != 2 or values.shape[1] < SHORTEST or not values.is_floating_point():
            stored[name] = values
            continue
        scale_R1 = values.float().abs().amax(dim=1, keepdim=True) / LARGEST
        scale_R1[scale_R1 == 0] = 1.0  # a row of zeros
        stored[name + VALUES] = (values.float() / scale_R1).round().to(torch.int8)
        stored[name + SCALE] = scale_R1
    return stored


def restored(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights, each value at most half a scale from what it was."""
    weights = {}
    for name, values in stored.items():
        if name.endswith(VALUES):
            weight = name.removesuffix(VALUES)
            weights[weight] = values.float() * stored[weight + SCALE]
        elif name.removesuffix(SCALE) + VALUES not in stored:
            weights[name] = values
    return weights


class OpensInt8:
    """For models of `transformers`: `from_pretrained` opens weights in this form too."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **options: Any) -> Self:
        opens: Any = super()
        file = None if options.get("state_dict") is not None else _file(pretrained_model_name_or_path, options)
        if file is None or not _holds_int8(file):
            return opens.from_pretrained(pretrained_model_name_or_path, *args, **options)
        config, rest = _configured(cls, pretrained_model_name_or_path, options)
        # Weights that are given come without a folder, and so without anything there is to look up.
        rest = {name: value for name, value in rest.items() if name not in (*_WHERE, "use_safetensors", "state_dict")}
        opened = opens.from_pretrained(None, *args, config=config, state_dict=restored(load_file(file)), **rest)
        for part in (opened[0] if isinstance(opened, tuple) else opened).modules():
            if isinstance(part, PreTrainedModel):
                part.name_or_path = part.config.name_or_path = str(pretrained_model_name_or_path)
        return opened


def _configured(cls: Any, name: Any, options: Mapping[str, Any]) -> tuple[PreTrainedConfig, dict[str, Any]]:
    """The configuration that is given or lies in the folder, with the options that change it; and the others."""
    others = {key: value for key, value in options.items() if key != "config"}
    config = options.get("config")
    if isinstance(config, PreTrainedConfig):
        return config, others
    kept = {key: others.pop(key) for key in _OF_THE_MODEL if key in others}
    config, others = cls.config_class.from_pretrained(
        name if config is None else config, return_unused_kwargs=True, **others
    )
    return config, {**others, **kept}


def _file(name: Any, options: Mapping[str, Any]) -> Path | None:
    """The weights of a folder or of a model on the hub, if they are one file."""
    if name is None:
        return None
    if Path(name).is_dir():
        file = Path(name) / (options.get("subfolder") or "") / SAFE_WEIGHTS_NAME
        return file if file.is_file() else None
    where = {key: options[key] for key in _WHERE if options.get(key) is not None}
    found = cached_file(
        str(name),
        SAFE_WEIGHTS_NAME,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
        **where,
    )
    return Path(found) if found else None


def _holds_int8(file: Path) -> bool:
    with safe_open(file, framework="pt") as opened:
        return any(name.endswith(VALUES) for name in opened.keys())  # noqa: SIM118 - it is no mapping
