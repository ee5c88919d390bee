"""FLOPs and activation bytes of encoders and heads, from which each objective adds up its own cost.

A matrix product takes 2 FLOPs for each weight and token in the forward pass, and twice that in the backward pass.
Attention adds 4 x length x width for each layer and token. Norms, softmaxes, embedding look-ups and padding are not
counted. Every layer counts at all positions, as in papers, even if its states are read at some only. Activations are
those of plain layers under bfloat16, with attention that stores no scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

    from crossling.model.config import CrosslingConfig
    from crossling.model.encoder_model import CrosslingModel
    from crossling.model.native_encoder import NativeEncoder

FORWARD_AND_BACKWARD = 3  # times the FLOPs of the forward pass


@dataclass(frozen=True)
class HeadMemory:
    """Memory while a language model head computes its loss and gradient."""

    predicted: float  # positions per token that one call of the head predicts
    activation_bytes: float  # per token, of the network below the head
    table_gradients: int = 1  # gradients of the token table that exist at once


def encoder_flops(encoder: CrosslingModel | NativeEncoder, length: float, layers: int | None = None) -> float:
    """Return the forward FLOPs per token of self-attention and feed-forward layers, without cross-attention."""
    attention = 4 * length * encoder.config.hidden_size
    return sum(2 * _layer_weights(block) + attention for block in encoder.blocks[:layers])


def _layer_weights(block: nn.Module) -> int:
    """Count the weights of self-attention and feed-forward layer. Layers of other families have nothing else."""
    from crossling.model.encoder import Block

    if not isinstance(block, Block):
        return matrix_weights(block)
    return matrix_weights(block.attention) + matrix_weights(block.feed_forward)


def lm_head_flops(encoder: CrosslingModel | NativeEncoder, head: nn.Module) -> float:
    """Return the forward FLOPs per predicted position of a language model head."""
    return 2 * (matrix_weights(head) + encoder.config.vocab_size * encoder.config.hidden_size)


def matrix_weights(module: nn.Module) -> int:
    """Count the weights of all matrices. Those of a gate are applied once per head."""
    from torch import nn

    from crossling.model.position import BiasGate

    inside = sum(linear.weight.numel() for linear in module.modules() if isinstance(linear, nn.Linear))
    gates = [gate for gate in module.modules() if isinstance(gate, BiasGate)]
    return inside + sum((len(gate.scale_H) - 1) * gate.map.weight.numel() for gate in gates)


def stored_bytes(
    encoder: CrosslingModel | NativeEncoder,
    gradient_checkpointing: bool,
    layers: int | None = None,
    *,
    cross_attention: bool = False,
    predicted: float = 1.0,
) -> float:
    """Return the bytes per token that the embeddings and some blocks store for the backward pass.

    Args:
        encoder: Encoder.
        gradient_checkpointing: Count only what checkpointing stores.
        layers: Number of blocks [default: all].
        cross_attention: The blocks attend to a paired sequence.
        predicted: Positions per token at which the last block is computed.
    """
    blocks = len(encoder.blocks[:layers])
    count = checkpointed_bytes if gradient_checkpointing else block_bytes
    whole, last = count(encoder.config, cross_attention), count(encoder.config, cross_attention, predicted)
    return 4 * encoder.config.hidden_size + ((blocks - 1) * whole + last if blocks else 0)


def peak_bytes(
    encoder: CrosslingModel | NativeEncoder,
    gradient_checkpointing: bool,
    layers: int | None = None,
    *,
    cross_attention: bool = False,
    predicted: float = 1.0,
) -> float:
    """Return the stored bytes per token, and those of the block that gradient checkpointing recomputes at a time."""
    stored = stored_bytes(encoder, gradient_checkpointing, layers, cross_attention=cross_attention, predicted=predicted)
    block = block_bytes(encoder.config, cross_attention) - checkpointed_bytes(encoder.config, cross_attention)
    return stored + (block if gradient_checkpointing else 0)


def block_bytes(config: CrosslingConfig, cross_attention: bool = False, predicted: float = 1.0) -> float:
    """Return the bytes per token that one block stores for the backward pass.

    In bfloat16: q, k, v and their input, the output of attention, and the inputs of the two norms. Also the input of
    the feed-forward layer and its inner values before and after GELU, and with a gate the gate and the product. In
    float32: the log-sum-exp of attention. Dropout stores one byte per element, twice. Cross-attention adds the same
    once more.

    Args:
        config: Configuration of the encoder.
        cross_attention: The block attends to a paired sequence.
        predicted: Positions per token at which the block is computed after its last attention.
    """
    width, inner, heads = config.hidden_size, config.intermediate_size, config.num_attention_heads
    attentions = 2 if cross_attention else 1
    attention = 2 * 5 * width + 4 * heads
    norm = 2 * width + (width if config.dropout else 0)
    feed_forward = 2 * (width + (4 if config.hidden_act == "geglu" else 2) * inner)
    gathered = 0 if predicted == 1 else 2 * width  # input of the output layer of attention
    last = predicted * (2 * norm + feed_forward + gathered)
    return attentions * attention + (attentions - 1) * norm + last


def checkpointed_bytes(config: CrosslingConfig, cross_attention: bool = False, predicted: float = 1.0) -> float:
    """Return the bytes per token that one block stores with gradient checkpointing.

    They are the output of every attention, and the sum and the output of every residual norm.
    """
    width, heads = config.hidden_size, config.num_attention_heads
    attentions = 2 if cross_attention else 1
    norms = 4 * width * (attentions - 1 + 2 * predicted)
    return attentions * (2 * width + 4 * heads) + norms
