"""The network once more, slowly and by its equations: one sequence and one head at a time, in float64, without packing.

Only weights are taken from the network in question, nothing of what it computes.
"""
# L positions of a sequence, T of the paired one, D width, K width of a head, V vocabulary

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.testing import assert_close

from crossling.model.embedding import DisentangledEmbedding
from crossling.model.encoder import Block
from crossling.model.encoder_model import CrosslingModel


def states(
    model: CrosslingModel, ids_L: Tensor, paired_TD: Tensor | None = None, is_causal: bool = False
) -> list[Tensor]:
    """Every layer of a sequence from the embedding output on; with a paired one, cross-attention is plugged in.

    Causal: a token attends to none that comes later.
    """
    hidden_LD = table(model)[ids_L]
    if model.embeddings.positions is not None:
        hidden_LD = hidden_LD + model.embeddings.positions.weight.double()[: len(ids_L)]
    found = [norm(hidden_LD, model.embeddings.norm)]
    for block in model.blocks:
        bias_HLL = None if model.relative is None else distances(model.relative.weight_NH.double(), len(ids_L))
        found.append(layer(block, found[-1], bias_HLL, paired_TD, is_causal))
    if model.config.norm == "pre":
        found[-1] = norm(found[-1], model.final_norm)
    return found


def layer(
    block: Block, hidden_LD: Tensor, bias_HLL: Tensor | None, paired_TD: Tensor | None, is_causal: bool = False
) -> Tensor:
    def self_attention(x_LD: Tensor) -> Tensor:
        query, key, value = linear(x_LD, block.attention.qkv).chunk(3, -1)
        bias = bias_HLL
        if bias_HLL is not None and block.attention.gate is not None:
            bias = torch.stack(
                [gate(block, part, h)[:, None] * bias_HLL[h] for h, part in enumerate(heads(query, block))]
            )
        if is_causal:
            later = torch.full((len(x_LD), len(x_LD)), -math.inf, dtype=torch.double).triu(1)
            bias = later.expand(block.attention.heads, -1, -1) + (0 if bias is None else bias)
        return linear(attention(block, query, key, value, bias), block.attention.out)

    def cross_attention(x_LD: Tensor) -> Tensor:
        key, value = linear(paired_TD, block.cross.key_value).chunk(2, -1)
        return linear(attention(block, linear(x_LD, block.cross.query), key, value), block.cross.out)

    def feed_forward(x_LD: Tensor) -> Tensor:
        first, _, second = block.feed_forward
        return linear(gelu(linear(x_LD, first)), second)

    branches = [(self_attention, block.attention_norm), (feed_forward, block.feed_forward_norm)]
    if paired_TD is not None:
        branches.insert(1, (cross_attention, block.cross_norm))
    for branch, its_norm in branches:
        if block.is_pre_norm:
            hidden_LD = hidden_LD + branch(norm(hidden_LD, its_norm))
        else:
            hidden_LD = norm(hidden_LD + branch(hidden_LD), its_norm)
    return hidden_LD


def attention(block: Block, query: Tensor, key: Tensor, value: Tensor, bias_HLL: Tensor | None = None) -> Tensor:
    mixed = []
    for h, (q, k, v) in enumerate(zip(heads(query, block), heads(key, block), heads(value, block), strict=True)):
        scores = q @ k.T / math.sqrt(q.shape[-1])
        if bias_HLL is not None:
            scores = scores + bias_HLL[h]
        weights = torch.exp(scores)
        mixed.append(weights / weights.sum(-1, keepdim=True) @ v)
    return torch.cat(mixed, -1)


def gate(block: Block, query_LK: Tensor, head: int) -> Tensor:
    """1 + g_u + (1 - g_u) w g_r (XLM-E §3.3), u and v being sums of four maps each."""
    both = linear(query_LK, block.attention.gate.map)
    g_u, g_r = sigmoid(both[:, :4].sum(-1)), sigmoid(both[:, 4:].sum(-1))
    return 1 + g_u + (1 - g_u) * block.attention.gate.scale_H[head].double() * g_r


def distances(table_NH: Tensor, length: int) -> Tensor:
    """The bias of every query and key: exact up to distance 7, then eight classes up to 128, in each direction."""

    def bucket(distance: int) -> int:
        far = abs(distance)
        # The classes begin at 8 x 16^(k/8); whole numbers know no rounding.
        place = far if far < 8 else max(8 + k for k in range(8) if far**8 >= 8**8 * 16**k)
        return place + (16 if distance > 0 else 0)

    places = torch.tensor([[bucket(key - query) for key in range(length)] for query in range(length)])
    return table_NH[places].permute(2, 0, 1)


def table(model: CrosslingModel) -> Tensor:
    tokens = model.embeddings.tokens
    if isinstance(tokens, DisentangledEmbedding):
        return tokens.base.weight.detach().double() + tokens.delta_VD.double()
    return tokens.weight.double()


def language_model(head: nn.Module, hidden_LD: Tensor, table_VD: Tensor) -> Tensor:
    """Return p(token | position)."""
    scores = norm(gelu(linear(hidden_LD, head.dense)), head.norm) @ table_VD.T + head.bias_V.double()
    return torch.exp(scores) / torch.exp(scores).sum(-1, keepdim=True)


def detector(head: nn.Module, hidden_LD: Tensor) -> Tensor:
    """p(replaced | position)."""
    return sigmoid(linear(gelu(linear(hidden_LD, head.dense)), head.score))[:, 0]


def heads(values_LD: Tensor, block: Block) -> list[Tensor]:
    return list(values_LD.chunk(block.attention.heads, -1))


def linear(values: Tensor, layer: nn.Linear) -> Tensor:
    return values @ layer.weight.double().T + (0 if layer.bias is None else layer.bias.double())


def norm(values: Tensor, layer: nn.LayerNorm) -> Tensor:
    centred = values - values.mean(-1, keepdim=True)
    scaled = centred / (centred.pow(2).mean(-1, keepdim=True) + layer.eps).sqrt()
    return scaled * layer.weight.double() + layer.bias.double()


def gelu(values: Tensor) -> Tensor:
    return values * 0.5 * (1 + torch.erf(values / math.sqrt(2)))


def sigmoid(values: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-values))


def gradients(net: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    """Return the gradient of every parameter, zero without one."""
    net.zero_grad()
    loss.backward()
    found = {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in net.named_parameters()}
    net.zero_grad()
    return found


def agree(net: nn.Module, found: Tensor, expected: Tensor) -> None:
    """Assert that two losses are equal in value and in the gradient of every parameter."""
    assert_close(found.double(), expected.double(), rtol=1e-5, atol=1e-4)
    same_gradients(gradients(net, found), gradients(net, expected))


def same_gradients(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    largest = max(float(each.abs().max()) for each in expected.values())
    assert largest > 0
    for name, values in expected.items():
        assert_close(found[name], values, rtol=1e-3, atol=2e-5 * largest, msg=lambda text, name=name: f"{name}: {text}")


def differ(found: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return any(not torch.allclose(found[name], other[name], rtol=1e-2, atol=1e-4) for name in found)
