"""The contract of an objective, and the network that the objectives of a recipe share.

To add an objective, subclass PretrainingObjective in one file and add it to the objectives of `Recipe`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from torch import Tensor, nn

from crossling.data.batches import DataObjective
from crossling.data.packing import Batch
from crossling.model.config import CrosslingConfig
from crossling.model.encoder import CrosslingModel
from crossling.model.model_shape import ModelShape
from crossling.model.position import BiasGate
from crossling.vocabulary.vocabulary import PAD

ModuleBuilders = dict[str, Callable[[], nn.Module]]


class Network(nn.Module):
    """The encoder in training and the named modules of its objectives, each built once."""

    def __init__(self, encoder: CrosslingModel, parts: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.encoder = encoder
        self.parts: Any = nn.ModuleDict(parts)  # heads, generator, key encoder, ...


class Objective(ABC):
    """The part of the contract that a training step needs. Fine-tuning objectives implement only this part."""

    @property
    @abstractmethod
    def loss_weights(self) -> dict[str, float]:
        """Weight of the mean of each loss term."""

    @abstractmethod
    def loss(self, net: Any, batch: Batch) -> dict[str, Tensor]:
        """Return named sums, each with a denominator of the same name in `counts`.

        Sums named in `loss_weights` are minimized; the others are only logged.
        """

    def prepare(self, net: Any, batches: Iterator[list[Batch]]) -> None:  # noqa: B027 - optional
        """Prepare state before the first step, with the micro-batches of as many extra steps as needed."""

    def after_step(self, net: Any) -> None:  # noqa: B027 - optional
        """Update state without gradients: a momentum encoder, a queue, a schedule that counts steps in a buffer.

        Called after every step for every objective, also after skipped steps and steps without its batches.
        """


class PretrainingObjective(DataObjective, Objective):
    """A frozen dataclass whose fields are the paper's symbols. All learned or stored state is in the network."""

    @abstractmethod
    def modules(self, encoder: CrosslingModel, shape: ModelShape) -> ModuleBuilders:
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
        """Return a copy with a batch of `tokens` tokens whose loss changes no state of the network."""
        sequences = {"sequences": None} if hasattr(self, "sequences") else {}
        return replace(self, tokens=tokens, **sequences)  # type: ignore[type-var]


def token_mask(ids_BL: Tensor) -> Tensor:
    """Return which positions are not padding."""
    return ids_BL != PAD


# FLOPs and activation bytes of encoders and heads, from which each objective adds up its own cost.
#
# A matrix product takes 2 FLOPs for each weight and token in the forward pass, and twice that in the backward pass.
# Attention adds 4 x length x width for each layer and token. Norms, softmaxes, embedding look-ups and padding are not
# counted. Activations are those of plain layers under bfloat16, with attention that stores no scores.


FORWARD_AND_BACKWARD = 3  # times the FLOPs of the forward pass


@dataclass(frozen=True)
class HeadMemory:
    """Memory while a language model head computes its loss and gradient."""

    table_gradients: int  # gradients of the token table that exist at once
    predicted: float  # predicted positions per token
    activation_bytes: float  # per token, of the network below the head


def encoder_flops(encoder: CrosslingModel, layers: int, length: float) -> float:
    """Return the forward FLOPs per token of self-attention and feed-forward layers, without cross-attention."""
    attention = 4 * length * encoder.config.hidden_size
    return sum(
        2 * (matrix_weights(block.attention) + matrix_weights(block.feed_forward)) + attention
        for block in encoder.blocks[:layers]
    )


def lm_head_flops(encoder: CrosslingModel, head: nn.Module) -> float:
    """Return the forward FLOPs per predicted position of a language model head."""
    return 2 * (matrix_weights(head) + encoder.config.vocab_size * encoder.config.hidden_size)


def matrix_weights(module: nn.Module) -> int:
    """Count the weights of all matrices. Those of a gate are applied once per head."""
    inside = sum(linear.weight.numel() for linear in module.modules() if isinstance(linear, nn.Linear))
    gates = [gate for gate in module.modules() if isinstance(gate, BiasGate)]
    return inside + sum((len(gate.scale_H) - 1) * gate.map.weight.numel() for gate in gates)


def encoder_bytes(
    config: CrosslingConfig, layers: int, gradient_checkpointing: bool, cross_attention: bool = False
) -> float:
    """Return the bytes per token that the embeddings and some blocks store for the backward pass.

    With gradient checkpointing a block stores its input alone.
    """
    block = 2 * config.hidden_size if gradient_checkpointing else block_bytes(config, cross_attention)
    return 4 * config.hidden_size + layers * block


def block_bytes(config: CrosslingConfig, cross_attention: bool = False) -> float:
    """Return the bytes per token that one block stores for the backward pass.

    In bfloat16: q, k, v and their input, the output of attention, and the inputs of the two norms. Also the input of
    the feed-forward layer and its inner values before and after GELU. In float32: the log-sum-exp of attention. Dropout
    stores one byte per element, twice. Cross-attention adds the same once more.
    """
    width, inner, heads = config.hidden_size, config.intermediate_size, config.num_attention_heads
    dropout = 1 if config.dropout else 0
    own = 2 * (8 * width + 2 * inner) + 4 * heads + 2 * dropout * width
    cross = 2 * 6 * width + 4 * heads + dropout * width
    return own + (cross if cross_attention else 0)
