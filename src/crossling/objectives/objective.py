"""The contract of an objective, and the network the objectives of a recipe share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from torch import Tensor, nn

from crossling.data.batches import Corrupted, Examples
from crossling.data.noise import Noise
from crossling.data.packing import Batch
from crossling.model.transformer import CrosslingConfig, CrosslingModel
from crossling.vocabulary.vocabulary import PAD


class Network(nn.Module):
    """The encoder that is being trained and the named parts its objectives need, each built once."""

    def __init__(self, encoder: CrosslingModel, parts: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.encoder = encoder
        self.parts = nn.ModuleDict(parts)


class Objective(Protocol):
    """A frozen dataclass whose fields are the paper's symbols. It holds no network and no state of its own."""

    @property
    def stream(self) -> Literal["text", "pairs"]: ...
    @property
    def length(self) -> int: ...
    @property
    def whole(self) -> bool: ...

    @property
    def weights(self) -> dict[str, float]:
        """The loss terms and the weight of each one's mean."""
        ...

    def examples(self, expected_length: float) -> int:
        """How many sequences or pairs a step holds, over all ranks."""
        ...

    def parts(self, encoder: CrosslingModel, generator_layers: int) -> dict[str, Callable[[], nn.Module]]:
        """What builds each part it needs besides the encoder; a part that two objectives name is built once."""
        ...

    def corrupt(self, examples: Examples, noise: Noise, mask: int) -> Corrupted:
        """On the host, so that every count is known before the forward pass; all randomness comes from `noise`."""
        ...

    def counts(self, batch: Batch) -> dict[str, int]:
        """What each sum that `loss` returns is to be divided by, once summed over all ranks and micro-batches."""
        ...

    def loss(self, net: Network, batch: Batch) -> dict[str, Tensor]:
        """Named sums. Those named in `weights` are minimised, the others only watched."""
        ...


def valid(ids_BL: Tensor) -> Tensor:
    """Which positions are tokens: padding is the only <pad> there is."""
    return ids_BL != PAD


def smaller(config: CrosslingConfig, layers: int) -> CrosslingConfig:
    """The same network with fewer layers and no dropout: the generator (XLM-E App. A, XY-LENT §5)."""
    return CrosslingConfig(**(config.to_dict() | {"num_hidden_layers": layers, "dropout": 0.0}))
