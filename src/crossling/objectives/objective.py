"""The contract of an objective, and the network the objectives of a recipe share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor, nn

from crossling.data.batches import Corrupted, Examples
from crossling.data.noise import Noise
from crossling.data.packing import Batch
from crossling.model.shape import Shape
from crossling.model.transformer import CrosslingModel
from crossling.vocabulary.vocabulary import PAD

Parts = dict[str, Callable[[], nn.Module]]


class Network(nn.Module):
    """The encoder that is being trained and the named parts its objectives need, each built once."""

    def __init__(self, encoder: CrosslingModel, parts: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.encoder = encoder
        self.parts: Any = nn.ModuleDict(parts)  # by name; each is of a kind of its own


class Objective(ABC):
    """A frozen dataclass whose fields are the paper's symbols. What it learns or remembers lies in the network."""

    stream: ClassVar[Literal["text", "pairs"]]
    length: int  # tokens of a sequence at most

    @property
    def order(self) -> str:
        """In which examples come. What reads the same stream reads the same examples at the same steps, if it takes as
        many: recipes are compared on the same data. The names are those of XLM-E's tasks."""
        return {"text": "mrtd", "pairs": "trtd"}[self.stream]

    @property
    def whole(self) -> bool:
        """Whether the examples of a step need each other: then a process has all of its own in one micro-batch."""
        return False

    def units(self, group_N: np.ndarray, noise: Noise) -> np.ndarray:  # noqa: ARG002
        """Which examples of a step are handed to `corrupt` one after the other, [U, E]: each alone, if not said. Chosen
        by the corpora they are from and by chance, before anything is read."""
        return np.arange(len(group_N))[:, None]

    @property
    @abstractmethod
    def weights(self) -> dict[str, float]:
        """The loss terms and the weight of each one's mean."""

    @abstractmethod
    def examples(self, expected_length: float) -> int:
        """How many sequences or pairs a step holds, over all processes."""

    @abstractmethod
    def parts(self, encoder: CrosslingModel, shape: Shape) -> Parts:
        """What builds each part it needs besides the encoder; a part that two objectives name is built once."""

    @abstractmethod
    def corrupt(self, examples: Examples, noise: Noise, mask: int) -> Corrupted:
        """On the host, so that every count is known before the forward pass; all randomness comes from `noise`."""

    @abstractmethod
    def counts(self, batch: Batch) -> dict[str, int]:
        """What each sum that `loss` returns is to be divided by, once summed over all processes and micro-batches."""

    @abstractmethod
    def loss(self, net: Network, batch: Batch) -> dict[str, Tensor]:
        """Named sums. Those named in `weights` are minimised, the others only watched."""

    def small(self, tokens: int) -> Objective:
        """Itself on a batch of so many tokens, which it may be asked for its loss on at any time: what is remembered
        from step to step stays as it is."""
        whole = {"sequences": None} if hasattr(self, "sequences") else {}
        return replace(self, tokens=tokens, **whole)  # type: ignore[type-var]

    def begin(self, net: Network, more: Iterator[list[Batch]]) -> None:  # noqa: B027 - most have nothing to do
        """Before the first step of a run: what has to be made ready, with the batches of as many steps as it takes."""

    def after_step(self, net: Network) -> None:  # noqa: B027
        """After each step of the optimizer: what moves without a gradient."""


def valid(ids_BL: Tensor) -> Tensor:
    """Which positions are tokens: padding is the only <pad> there is."""
    return ids_BL != PAD
