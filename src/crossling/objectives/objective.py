"""The contract of an objective.

To add an objective, subclass PretrainingObjective in one file and add it to the objectives of `Recipe`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from crossling.data.batches import DataObjective
from crossling.data.packing import Batch
from crossling.model.model_shape import ModelShape
from crossling.objectives.cost import HeadMemory

if TYPE_CHECKING:
    from torch import Tensor, nn

    from crossling.model.encoder_model import CrosslingModel
    from crossling.model.native_encoder import NativeEncoder
    from crossling.objectives.training_network import Network

ModuleBuilders = dict[str, Callable[[], "nn.Module"]]


class Objective(ABC):
    """The part of the contract that a training step needs. Fine-tuning objectives implement only this part."""

    @property
    @abstractmethod
    def loss_weights(self) -> dict[str, float]:
        """Weight of the mean of each loss term."""

    @property
    def exchanges_tensors(self) -> bool:
        """True if `loss` or `after_step` exchanges tensors between processes. CUDA graphs then do not contain them."""
        return False

    @abstractmethod
    def loss(self, net: Any, batch: Batch) -> dict[str, Tensor]:
        """Return named sums, each with a denominator of the same name in `counts`.

        Sums named in `loss_weights` are minimized; the others are only logged. Tensors with dimensions are no sums:
        `after_step` receives them.

        On a GPU it is captured in a CUDA graph: it must not change other state, copy values to the host, or depend on
        them.
        """

    def prepare(self, net: Any, batches: Iterator[list[Batch]]) -> None:  # noqa: B027 - optional
        """Prepare state before the first step, with the micro-batches of as many extra steps as needed.

        A resumed run restores the state from its checkpoint instead.
        """

    def after_step(  # noqa: B027 - optional
        self, net: Any, progress: Tensor, outputs: Sequence[Mapping[str, Tensor]]
    ) -> None:
        """Update state without gradients, in place: a momentum encoder, a queue, a schedule.

        Called after every step for every objective, also after skipped steps and steps without its batches. On a GPU
        it is captured in a CUDA graph, as `loss`.

        Args:
            net: The network.
            progress: Fraction of the steps of the run that are done, a scalar on the device.
            outputs: The tensors with dimensions that `loss` returned for each micro-batch of the step.

        Example:
            A temperature that falls linearly to its end is a buffer of a module, which `loss` reads:

                modules["temperature"] = lambda: Temperature(self.temperature)  # nn.Module with a buffer `value`
                net.parts["temperature"].value.fill_(self.start + progress * (self.end - self.start))  # after_step
        """


class PretrainingObjective(DataObjective, Objective):
    """A frozen dataclass whose fields are the paper's symbols. All learned or stored state is in the network."""

    tokens: int | None = None  # batch size in tokens per step; None: the objective has no such setting

    @property
    def batch_setting(self) -> str:
        """Name of the field that determines the batch size."""
        return "tokens"

    def problems(self, name: str) -> Iterator[str]:  # noqa: ARG002
        """Yield contradictions between its settings, each as a message, for an objective of this name in a recipe."""
        yield from ()

    @abstractmethod
    def modules(self, encoder: CrosslingModel | NativeEncoder, shape: ModelShape) -> ModuleBuilders:
        """Return the builders of the modules besides the encoder. Objectives share modules of the same name."""

    @abstractmethod
    def flops_per_token(self, net: Network, length: float) -> float:
        """Return the FLOPs per token of the forward and backward pass, for examples of a mean length."""

    @abstractmethod
    def activation_bytes(self, net: Network, gradient_checkpointing: bool) -> float:
        """Return the bytes per token that are stored for the backward pass."""

    def head_memory(self, net: Network, gradient_checkpointing: bool) -> HeadMemory | None:  # noqa: ARG002
        """Return the memory of its language model head. None without one."""
        return None

    @classmethod
    def sized_like(cls, tokens: int, length: int) -> Self:
        """Return the objective at the batch size of another: `tokens` a step, in sequences of `length`."""
        return replace(cls(), tokens=tokens, length=length)  # type: ignore[type-var]

    def stateless_copy(self, tokens: int) -> Self:
        """Return a copy with a batch of `tokens` tokens whose loss does not depend on the state of the network."""
        return replace(self, tokens=tokens)  # type: ignore[type-var]


def combined_loss_weights(objectives: Iterable[Objective]) -> dict[str, float]:
    """Return the weights of all loss terms of some objectives."""
    return {term: weight for objective in objectives for term, weight in objective.loss_weights.items()}
