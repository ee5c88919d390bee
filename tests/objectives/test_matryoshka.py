"""Widths of prefixes, their cost, and vectors whose first dimensions are enough."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from crossling.core.errors import BadInput
from crossling.objectives import XLCo
from crossling.objectives.matryoshka import parse_widths, project_prefixes
from crossling.recipes import get_recipe
from crossling.recipes.network import ObjectiveLoad, build_meta_network, flops_per_token

from .conftest import network


def test_widths_are_sorted_and_end_with_the_full_width() -> None:
    assert XLCo(matryoshka="128,64").widths(384) == [64, 128, 384]
    assert XLCo().widths(384) == [384]


@pytest.mark.parametrize("text", ["64,", "a", "0,4", "4,4", "-1", "64;128"])
def test_widths_that_are_no_distinct_numbers_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"xlco\.matryoshka=.*: expected .* as 64,128,256"):
        parse_widths(text, "xlco.matryoshka")
    with pytest.raises(BadInput, match=r"xlco\.matryoshka"):
        get_recipe("infoxlm", "tiny").set([f"xlco.matryoshka={text}"]).check()


def test_widths_below_that_of_the_model_are_needed() -> None:
    recipe = get_recipe("infoxlm", "tiny")
    recipe.set([f"xlco.matryoshka={recipe.model.width // 2}"]).check()
    with pytest.raises(BadInput, match=r"xlco\.matryoshka is 8,128, and model\.width 128\. Set smaller"):
        recipe.set(["xlco.matryoshka=8,128", "model.width=128"]).check()


def test_a_prefix_reads_and_writes_its_own_dimensions_only() -> None:
    torch.manual_seed(0)
    projection, pooled_ND = nn.Linear(6, 6, bias=False), torch.randn(3, 6)
    first = project_prefixes(projection, pooled_ND, [2, 6], normalize=False)
    torch.testing.assert_close(first[:, :2], pooled_ND[:, :2] @ projection.weight[:2, :2].T)
    torch.testing.assert_close(first[:, 2:], projection(pooled_ND))


def test_queue_and_flops_count_every_prefix() -> None:
    net = network(XLCo(layer=2, queue=8, mixup=False, matryoshka="4,8"))
    assert net.parts["queue"].keys_AD.shape == (8, 4 + 8 + 16)
    recipe = get_recipe("infoxlm", "tiny").set(["mlm=off", "tlm=off", "xlco.queue=64", "xlco.mixup=false"])
    load, flops = ObjectiveLoad(10, 100.0), {}
    width = recipe.model.width
    for text in ("none", "32"):
        chosen = recipe.set([f"xlco.matryoshka={text}", "xlco.symmetric=false"])
        flops[text] = flops_per_token(chosen, build_meta_network(chosen, 1000), {"xlco": load})["full"]
    projection, scores = 2 * width**2 / 50, 2 * 32 * 64 / 100  # forward, for 50 tokens a side
    assert flops["32"] - flops["none"] == pytest.approx((3 + 1) / 2 * projection + 3 * scores)
