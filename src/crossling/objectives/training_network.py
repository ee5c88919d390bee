"""The network in training, which the objectives of a recipe share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from crossling.model.encoder_model import CrosslingModel
from crossling.model.native_encoder import NativeEncoder


class Network(nn.Module):
    """The encoder in training and the named modules of its objectives, each built once.

    Checkpoints store the buffers of all modules. Processes exchange them only at the start of a run, so each must
    compute the same values.
    """

    def __init__(self, encoder: CrosslingModel | NativeEncoder, parts: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.encoder: Any = encoder
        self.parts: Any = nn.ModuleDict(parts)  # heads, generator, key encoder, ...
