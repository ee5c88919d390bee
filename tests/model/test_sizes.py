"""Parameter counts of the papers, counted without allocating a number."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from crossling.objectives import Network
from crossling.recipe import build
from crossling.recipes import named


def built(recipe: str, size: str, pieces: int) -> Network:
    with torch.device("meta"):
        return build(named(recipe, size), pieces)


def count(*modules: nn.Module) -> int:
    return sum(p.numel() for p in {p for module in modules for p in module.parameters()})


@pytest.mark.parametrize(
    ("recipe", "size", "pieces", "paper"),
    [
        ("xlm_e", "base", 250_002, 279e6),  # XLM-E, Table 4
        ("xy_lent", "base", 500_002, 477e6),  # XY-LENT, Table 11
        ("xy_lent", "large", 500_002, 814e6),
        ("xy_lent", "xl", 500_002, 2.1e9),
    ],
)
def test_discriminators_have_the_papers_size(recipe: str, size: str, pieces: int, paper: float) -> None:
    """The generator is not counted."""
    net = built(recipe, size, pieces)
    assert count(net.encoder, net.parts["rtd_head"]) == pytest.approx(paper, rel=0.02)


@pytest.mark.parametrize(("size", "paper"), [("ablation", 247e6), ("large", 662e6)])
def test_veco_has_the_papers_size(size: str, paper: float) -> None:
    """With its cross-attention, which is the fourth part of every layer (VECO, Table 8)."""
    net = built("veco", size, 250_002)
    assert count(net) == pytest.approx(paper, rel=0.02)
    cross = sum(p.numel() for p in net.encoder.cross_parameters())
    assert cross == pytest.approx((count(net.encoder.blocks) - cross) / 3, rel=0.01)


@pytest.mark.parametrize(("size", "layers"), [("base", 4), ("large", 6), ("xl", 8)])
def test_generators_are_as_wide_and_less_deep(size: str, layers: int) -> None:
    """XLM-E, Appendix A; with one token table for both they add layers, positions and norms only."""
    net = built("xlm_e", size, 250_002)
    generator, encoder = net.parts["generator"], net.encoder
    assert len(generator.blocks) == layers
    assert count(generator.blocks[0]) == count(encoder.blocks[0])
    added = count(encoder, generator) - count(encoder)
    assert added == pytest.approx(count(generator.blocks), rel=0.03)


def test_infoxlm_counts_its_followers_apart() -> None:
    """XLM-R Base and a projection learn; the key encoder of eight layers does not."""
    net = built("infoxlm", "base", 250_002)
    learned = sum(p.numel() for p in net.parameters() if p.requires_grad)
    assert learned == pytest.approx(279e6, rel=0.02)
    assert len(net.parts["key_encoder"].blocks) == 8
    assert count(net) - learned == count(net.parts["key_encoder"], net.parts["key_projection"])
