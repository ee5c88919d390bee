"""Parameter counts of the papers, computed without allocating memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from crossling.objectives import Network
from crossling.recipes import get_recipe
from crossling.recipes.network import build_network


def build(recipe: str, size: str, vocab_size: int) -> Network:
    with torch.device("meta"):
        return build_network(get_recipe(recipe, size), vocab_size)


def count(*modules: nn.Module) -> int:
    return sum(p.numel() for p in {p for module in modules for p in module.parameters()})


@pytest.mark.parametrize(
    ("recipe", "size", "vocab_size", "paper"),
    [
        ("xlm_e", "base", 250_002, 279e6),  # XLM-E, Table 4
        ("xy_lent", "base", 500_002, 477e6),  # XY-LENT, Table 11
        ("xy_lent", "large", 500_002, 814e6),
        ("xy_lent", "xl", 500_002, 2.1e9),
    ],
)
def test_discriminators_have_the_size_of_the_papers(recipe: str, size: str, vocab_size: int, paper: float) -> None:
    """The generator is not counted."""
    net = build(recipe, size, vocab_size)
    assert count(net.encoder, net.parts["rtd_head"]) == pytest.approx(paper, rel=0.02)


@pytest.mark.parametrize(("size", "paper"), [("ablation", 247e6), ("large", 662e6)])
def test_veco_has_the_size_of_the_paper(size: str, paper: float) -> None:
    """Cross-attention is a quarter of every layer (VECO, Table 8)."""
    net = build("veco", size, 250_002)
    assert count(net) == pytest.approx(paper, rel=0.02)
    cross = sum(p.numel() for p in net.encoder.cross_attention_parameters())
    assert cross == pytest.approx((count(net.encoder.blocks) - cross) / 3, rel=0.01)


@pytest.mark.parametrize(("size", "layers"), [("base", 4), ("large", 6), ("xl", 8)])
def test_generators_have_the_same_width_and_fewer_layers(size: str, layers: int) -> None:
    """XLM-E, Appendix A. With a shared token table a generator adds layers, positions and norms only."""
    net = build("xlm_e", size, 250_002)
    generator, encoder = net.parts["generator"], net.encoder
    assert len(generator.blocks) == layers
    assert count(generator.blocks[0]) == count(encoder.blocks[0])
    added = count(encoder, generator) - count(encoder)
    assert added == pytest.approx(count(generator.blocks), rel=0.03)


def test_infoxlm_counts_its_momentum_encoder_separately() -> None:
    """XLM-R Base and a projection are trained. The key encoder of eight layers is not."""
    net = build("infoxlm", "base", 250_002)
    learned = sum(p.numel() for p in net.parameters() if p.requires_grad)
    assert learned == pytest.approx(279e6, rel=0.02)
    assert len(net.parts["key_encoder"].blocks) == 8
    assert count(net) - learned == count(net.parts["key_encoder"], net.parts["key_projection"])
