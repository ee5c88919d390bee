"""Parameters and floating-point operations of a recipe, from the shapes of its network: no weight is made.

A matrix product takes 2 operations for each weight and token, forwards, and twice that backwards. Attention adds
4 x length x width for each layer and token. Not counted: norms, softmaxes, the look-up of embeddings, padding.
"""
# D width, V vocabulary

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from crossling.model.heads import LMHead
from crossling.model.position import Gate
from crossling.model.shape import Shape
from crossling.model.transformer import CrosslingModel
from crossling.objectives import CAMLM, Network, Objective, XLCo
from crossling.recipe.network import build
from crossling.recipe.recipe import Recipe

BOTH_WAYS = 3  # forwards once, backwards twice as much


@dataclass(frozen=True)
class Load:
    """What one objective reads in one step."""

    examples: int
    length: float  # real tokens of an example, on average

    @property
    def tokens(self) -> float:
        return self.examples * self.length


def tokens(recipe: Recipe, loads: Mapping[str, Load]) -> float:
    """Read in a whole run."""
    return sum(load.tokens * recipe.turns(recipe.objectives[name].stream) for name, load in loads.items())


def network(recipe: Recipe, vocabulary_size: int) -> Network:
    """The network without its weights."""
    with torch.device("meta"):
        return build(recipe, vocabulary_size)


def parameters(net: Network) -> dict[str, int]:
    """By part; what two parts share is counted where it comes first."""
    counted: set[int] = set()
    sizes = {}
    for name, part in {"encoder": net.encoder, **dict(net.parts.items())}.items():
        new = {id(parameter): parameter.numel() for parameter in part.parameters() if id(parameter) not in counted}
        counted |= {*new}
        sizes[name] = sum(new.values())
    return sizes


def layer_parameters(net: Network) -> int:
    """Of the encoder without its embeddings: what every token passes through."""
    return sum(parameter.numel() for block in net.encoder.blocks for parameter in block.parameters())


def flops_per_token(recipe: Recipe, net: Network, loads: Mapping[str, Load]) -> dict[str, float]:
    """`full`: all matrices, heads and attention, both ways, averaged over the tokens of a step, for MFU.
    `paper`: 6 for each weight of the encoder's layers, which is how XLM-E's Table 4 seems to count."""
    operations = sum(_cost(recipe.objectives[name], net, load) * load.tokens for name, load in loads.items())
    return {
        "full": operations / sum(load.tokens for load in loads.values()),
        "paper": 6.0 * layer_parameters(net),
    }


def _cost(objective: Objective, net: Network, load: Load) -> float:
    """Operations for each token of an objective's examples, both ways."""
    if isinstance(objective, XLCo):
        return _contrast(objective, net, load)
    if isinstance(objective, CAMLM):
        return _two_streams(objective, net, load)
    operations = _encoder(net.encoder, len(net.encoder.blocks), load.length)
    for name in objective.parts(net.encoder, Shape(1, 1, 1, 1, 1)):  # the shape does not change the names
        part = net.parts[name]
        if isinstance(part, CrosslingModel):
            operations += _encoder(part, len(part.blocks), load.length)
        elif isinstance(part, LMHead):  # where something was masked
            operations += _lm_head(net, part) * objective.rate  # type: ignore[attr-defined]
        else:
            operations += 2 * _weights(part)
    return BOTH_WAYS * operations


def _contrast(objective: XLCo, net: Network, load: Load) -> float:
    """The two sides of a pair are read apart (two joined pairs with mixup), and only up to the layer of contrast. Keys
    that learn nothing are read forwards only."""
    layers = net.encoder.config.universal_layer if objective.layer is None else objective.layer
    length = load.length if objective.mixup else load.length / 2
    one_side = _encoder(net.encoder, layers, length) + 2 * _weights(net.parts["projection"]) / length
    candidates = objective.queue or objective.pairs
    scores = 2 * net.encoder.config.hidden_size * candidates / (2 * length)
    learns = objective.queue == 0 and objective.momentum == 0
    sides = BOTH_WAYS if learns else (BOTH_WAYS + 1) / 2
    more = 2 if objective.symmetric and not learns else 1
    return sides * more * one_side + BOTH_WAYS * (2 if objective.symmetric else 1) * scores


def _two_streams(objective: CAMLM, net: Network, load: Load) -> float:
    """Both sequences of a pair twice: without and with cross-attention."""
    length, width = load.length / 2, net.encoder.config.hidden_size
    own = _encoder(net.encoder, len(net.encoder.blocks), length)
    cross = sum(2 * _weights(block.cross) + 4 * length * width for block in net.encoder.blocks)
    heads = 2 * _lm_head(net, net.parts["lm_head"]) * objective.rate
    return BOTH_WAYS * (2 * own + cross + heads)


def _lm_head(net: Network, head: nn.Module) -> float:
    return 2 * (_weights(head) + net.encoder.config.vocab_size * net.encoder.config.hidden_size)


def _encoder(encoder: CrosslingModel, layers: int, length: float) -> float:
    """Self-attention and feed-forward; cross-attention is counted where it is plugged in."""
    attention = 4 * length * encoder.config.hidden_size
    return sum(
        2 * (_weights(block.attention) + _weights(block.feed_forward)) + attention for block in encoder.blocks[:layers]
    )


def _weights(module: nn.Module) -> int:
    """Weights of all matrices; those of a gate serve every head."""
    inside = sum(linear.weight.numel() for linear in module.modules() if isinstance(linear, nn.Linear))
    gates = [gate for gate in module.modules() if isinstance(gate, Gate)]
    return inside + sum((len(gate.scale_H) - 1) * gate.map.weight.numel() for gate in gates)
