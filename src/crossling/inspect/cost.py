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

from crossling.model.position import Gate
from crossling.model.transformer import CrosslingModel, LMHead
from crossling.objectives import Network, Objective, XLCo
from crossling.recipe import Recipe, build

BOTH_WAYS = 3  # forwards once, backwards twice as much


@dataclass(frozen=True)
class Load:
    """What one objective reads in one step."""

    examples: int
    length: float  # real tokens of an example, on average

    @property
    def tokens(self) -> float:
        return self.examples * self.length


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


def flops_per_token(recipe: Recipe, net: Network, loads: Mapping[str, Load]) -> dict[str, float]:
    """`full`: all matrices, heads and attention, both ways, averaged over the tokens of a step, for MFU.
    `paper`: 6 for each weight of the encoder's layers, which is how XLM-E's Table 4 seems to count."""
    tokens = sum(load.tokens for load in loads.values())
    forwards = sum(_forwards(recipe.objectives[name], net, load) * load.tokens for name, load in loads.items())
    layers = sum(parameter.numel() for parameter in net.encoder.blocks.parameters())
    return {"full": BOTH_WAYS * forwards / tokens, "paper": 6.0 * layers}


def _forwards(objective: Objective, net: Network, load: Load) -> float:
    """Operations for each token of an objective's examples, forwards."""
    layers, length = len(net.encoder.blocks), load.length
    if isinstance(objective, XLCo):  # reads the two sides of a pair apart, and only up to its layer
        layers = net.encoder.config.universal_layer if objective.layer is None else objective.layer
        length = length / 2
    operations = _encoder(net.encoder, layers, length)
    for name in objective.parts(net.encoder, 1):  # the depth of a generator does not change its name
        part = net.parts[name]
        if isinstance(part, CrosslingModel):
            operations += _encoder(part, len(part.blocks), length)
        elif isinstance(part, LMHead):  # where something was masked
            table = net.encoder.config.vocab_size * net.encoder.config.hidden_size
            operations += 2 * (_weights(part) + table) * objective.rate  # type: ignore[attr-defined]
        elif isinstance(objective, XLCo):  # once for a sentence
            operations += 2 * _weights(part) / length
        else:
            operations += 2 * _weights(part)
    return operations


def _encoder(encoder: CrosslingModel, layers: int, length: float) -> float:
    attention = 4 * length * encoder.config.hidden_size
    return sum(2 * _weights(block) + attention for block in encoder.blocks[:layers])


def _weights(module: nn.Module) -> int:
    """Weights of all matrices; those of a gate serve every head."""
    inside = sum(linear.weight.numel() for linear in module.modules() if isinstance(linear, nn.Linear))
    gates = [gate for gate in module.modules() if isinstance(gate, Gate)]
    return inside + sum((len(gate.scale_H) - 1) * gate.map.weight.numel() for gate in gates)
