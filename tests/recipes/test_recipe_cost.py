"""Parameters and FLOPs of recipes, against hand counts and the papers."""

from __future__ import annotations

from typing import Any

import pytest

from crossling.recipes import veco, xlm, xlm_e, xlm_r
from crossling.recipes.network import (
    ObjectiveLoad,
    build_meta_network,
    build_network,
    count_parameters,
    flops_per_token,
    total_tokens,
)


@pytest.mark.parametrize("make", [xlm, xlm_e, xlm_r])
def test_parameters_are_those_of_the_built_network(make: Any) -> None:
    chosen = make("tiny").set(["model.layers=2", "model.width=16", "model.feed_forward=32", "xlco=on"])
    net = build_network(chosen, 50)
    found = count_parameters(build_meta_network(chosen, 50))
    assert sum(found.values()) == sum(parameter.numel() for parameter in net.parameters())
    assert found["encoder"] == sum(parameter.numel() for parameter in net.encoder.parameters())


def test_parameters_of_the_published_model() -> None:
    found = count_parameters(build_meta_network(xlm_e("base"), 250_002))
    assert found["encoder"] + found["rtd_head"] == pytest.approx(279e6, rel=0.01)


def test_flops_of_the_published_model() -> None:
    """Compare with a hand count of the forward pass, times three with the backward pass.

    Encoder: 170 M for the matrices of 12 layers, 19 M for attention. Generator: 57 M and 6 M for 4 layers, 58 M for its
    head at 15% of the positions. RTD head: 1 M.
    """
    chosen = xlm_e("base").replace(trtd=None)
    D, V, length = 768, 250_002, 512
    block = 4 * D * D + 2 * D * 3072
    gate = 12 * 64 * 8
    forward = 16 * (2 * (block + gate) + 4 * length * D) + 2 * 0.15 * (D * D + D * V) + 2 * (D * D + D)
    found = flops_per_token(chosen, build_meta_network(chosen, V), {"mrtd": ObjectiveLoad(2048, length)})
    assert found["full"] == pytest.approx(3 * forward)
    assert found["full"] == pytest.approx(929e6, rel=0.01)
    assert found["paper"] == pytest.approx(6 * 85e6, rel=0.01)
    # XLM-E, Table 4: 6.3e19 without TRTD.
    assert found["paper"] * chosen.steps * 2048 * 512 == pytest.approx(6.3e19, rel=0.1)


def test_flops_are_averaged_over_the_tokens_of_the_objectives() -> None:
    chosen = xlm("tiny").set(["xlco=on", "xlco.layer=1", "xlco.mixup=false", "xlco.queue=0", "xlco.momentum=0"])
    net = build_meta_network(chosen, 1000)
    of = {
        name: flops_per_token(chosen, net, {name: load})["full"]
        for name, load in {
            "mlm": ObjectiveLoad(10, 100.0),
            "tlm": ObjectiveLoad(10, 300.0),
            "xlco": ObjectiveLoad(10, 100.0),
        }.items()
    }
    both = flops_per_token(chosen, net, {"mlm": ObjectiveLoad(10, 100.0), "tlm": ObjectiveLoad(10, 300.0)})
    assert both["full"] == pytest.approx((of["mlm"] * 1000 + of["tlm"] * 3000) / 4000)
    assert of["mlm"] < of["tlm"]  # longer sequences have more attention
    width, block = 128, 4 * 128**2 + 2 * 128 * 512
    side, scores = 2 * block + 4 * 50 * width + 2 * width**2 / 50, 2 * width * 32 / 100  # one layer of four, 32 pairs
    assert of["xlco"] == pytest.approx(3 * (side + scores))
    queued = chosen.set(["xlco.queue=64", "xlco.momentum=0.9"])  # the keys need the forward pass only
    found = flops_per_token(queued, build_meta_network(queued, 1000), {"xlco": ObjectiveLoad(10, 100.0)})["full"]
    assert found == pytest.approx((3 + 1) / 2 * side + 3 * 2 * scores)


def test_two_streams_cost_two_passes_and_one_cross_attention() -> None:
    chosen = veco("tiny")
    net, load = build_meta_network(chosen, 1000), ObjectiveLoad(10, 100.0)
    block, width, layers = 4 * 128**2 + 2 * 128 * 512, 128, 4
    own, cross = 2 * block + 4 * 50 * width, 2 * 4 * width**2 + 4 * 50 * width
    heads = 2 * 2 * (width**2 + 1000 * width) * 0.15
    found = flops_per_token(chosen, net, {"ca_mlm": load})["full"]
    assert found == pytest.approx(3 * (layers * (2 * own + cross) + heads))


def test_tokens_of_a_run_follow_the_turns_of_text_and_pairs() -> None:
    loads = {"tlm": ObjectiveLoad(2, 10.0), "ca_mlm": ObjectiveLoad(10, 100.0), "ca_tlm": ObjectiveLoad(1, 10.0)}
    chosen = veco("tiny").replace(steps=5)
    assert chosen.alternate
    assert total_tokens(chosen, loads) == 3 * 1000 + 2 * 30
    assert total_tokens(chosen.replace(alternate=False), loads) == 5 * 1030
