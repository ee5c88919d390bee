"""Parameters and operations of recipes, against hand counts and the papers."""

from __future__ import annotations

from typing import Any

import pytest

from crossling.recipe import build
from crossling.recipe.cost import Load, flops_per_token, network, parameters, tokens
from crossling.recipes import veco, xlm, xlm_e, xlm_r


@pytest.mark.parametrize("make", [xlm, xlm_e, xlm_r])
def test_parameters_are_those_of_the_network_that_would_be_built(make: Any) -> None:
    chosen = make("tiny").set(["model.layers=2", "model.width=16", "model.feed_forward=32", "xlco=on"])
    net = build(chosen, 50)
    found = parameters(network(chosen, 50))
    assert sum(found.values()) == sum(parameter.numel() for parameter in net.parameters())
    assert found["encoder"] == sum(parameter.numel() for parameter in net.encoder.parameters())


def test_parameters_of_the_published_model() -> None:
    found = parameters(network(xlm_e("base"), 250_002))
    assert found["encoder"] + found["rtd_head"] == pytest.approx(279e6, rel=0.01)


def test_operations_of_the_published_model() -> None:
    """Forwards: 170 M for the matrices of 12 layers and 19 M for their attention, 57 M and 6 M for the generator's 4,
    58 M for its head at 15% of the positions, 1 M for the detecting head; three times that with the way back."""
    chosen = xlm_e("base").but(trtd=None)
    D, V, length = 768, 250_002, 512
    block = 4 * D * D + 2 * D * 3072
    gate = 12 * 64 * 8
    forwards = 16 * (2 * (block + gate) + 4 * length * D) + 2 * 0.15 * (D * D + D * V) + 2 * (D * D + D)
    found = flops_per_token(chosen, network(chosen, V), {"mrtd": Load(2048, length)})
    assert found["full"] == pytest.approx(3 * forwards)
    assert found["full"] == pytest.approx(929e6, rel=0.01)
    assert found["paper"] == pytest.approx(6 * 85e6, rel=0.01)
    # XLM-E, Table 4: 6.3e19 without TRTD.
    assert found["paper"] * chosen.steps * 2048 * 512 == pytest.approx(6.3e19, rel=0.1)


def test_operations_are_averaged_over_the_tokens_of_the_objectives() -> None:
    chosen = xlm("tiny").set(["xlco=on", "xlco.layer=1", "xlco.mixup=false", "xlco.queue=0", "xlco.momentum=0"])
    net = network(chosen, 1000)
    of = {
        name: flops_per_token(chosen, net, {name: load})["full"]
        for name, load in {"mlm": Load(10, 100.0), "tlm": Load(10, 300.0), "xlco": Load(10, 100.0)}.items()
    }
    both = flops_per_token(chosen, net, {"mlm": Load(10, 100.0), "tlm": Load(10, 300.0)})
    assert both["full"] == pytest.approx((of["mlm"] * 1000 + of["tlm"] * 3000) / 4000)
    assert of["mlm"] < of["tlm"]  # longer sequences have more attention
    width, block = 128, 4 * 128**2 + 2 * 128 * 512
    side, scores = 2 * block + 4 * 50 * width + 2 * width**2 / 50, 2 * width * 32 / 100  # one layer of four, 32 pairs
    assert of["xlco"] == pytest.approx(3 * (side + scores))
    queued = chosen.set(["xlco.queue=64", "xlco.momentum=0.9"])  # the keys' side is read forwards only
    found = flops_per_token(queued, network(queued, 1000), {"xlco": Load(10, 100.0)})["full"]
    assert found == pytest.approx((3 + 1) / 2 * side + 3 * 2 * scores)


def test_two_streams_are_read_twice_and_cross_once() -> None:
    chosen = veco("tiny")
    net, load = network(chosen, 1000), Load(10, 100.0)
    block, width, layers = 4 * 128**2 + 2 * 128 * 512, 128, 4
    own, cross = 2 * block + 4 * 50 * width, 2 * 4 * width**2 + 4 * 50 * width
    heads = 2 * 2 * (width**2 + 1000 * width) * 0.15
    found = flops_per_token(chosen, net, {"ca_mlm": load})["full"]
    assert found == pytest.approx(3 * (layers * (2 * own + cross) + heads))


def test_tokens_of_a_run_follow_the_turns_of_text_and_pairs() -> None:
    loads = {"tlm": Load(2, 10.0), "ca_mlm": Load(10, 100.0), "ca_tlm": Load(1, 10.0)}
    chosen = veco("tiny").but(steps=5)
    assert chosen.alternate
    assert tokens(chosen, loads) == 3 * 1000 + 2 * 30
    assert tokens(chosen.but(alternate=False), loads) == 5 * 1030
