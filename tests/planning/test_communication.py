"""Time of collectives between GPUs, from bandwidths, and how much of a step it takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crossling.core.hardware import ACCELERATORS
from crossling.planning.communication import (
    GRADIENT_BYTES,
    LINK_EFFICIENCY,
    micro_batches_per_step,
    scatter_seconds,
    waiting_seconds,
)
from crossling.planning.estimate import estimate_run
from crossling.recipes import veco, xlm_e
from crossling.recipes.network import ObjectiveLoad, build_meta_network
from crossling.recipes.recipe import Recipe

H100 = ACCELERATORS["h100"]
LOADS = {"mrtd": ObjectiveLoad(2048, 512.0)}
INSIDE, BETWEEN = LINK_EFFICIENCY * 450e9, LINK_EFFICIENCY * 50e9


def text_only(size: str = "base") -> Recipe:
    return xlm_e(size).replace(trtd=None)


def waiting(recipe: Recipe, gpus: int, *, sharded: bool, compute_seconds: float = 1e9) -> float:
    net = build_meta_network(recipe, 1000)
    return waiting_seconds(
        recipe, net, LOADS, H100, gpus=gpus, sharded=sharded, compute_seconds=compute_seconds
    )  # fmt: skip


def test_one_gpu_exchanges_nothing() -> None:
    assert scatter_seconds(1e9, H100, 1) == 0
    assert waiting(text_only(), 1, sharded=False) == 0


def test_parts_are_exchanged_inside_a_machine_and_between_machines() -> None:
    assert scatter_seconds(8e9, H100, 8) == pytest.approx(7e9 / INSIDE)
    assert scatter_seconds(8e9, H100, 32) == pytest.approx(7e9 / INSIDE + 0.75e9 / BETWEEN)
    faster = replace(H100, network_bandwidth=1e30)
    assert scatter_seconds(8e9, faster, 32) == pytest.approx(scatter_seconds(8e9, H100, 8))


def test_replicas_wait_for_the_gradient_of_a_step() -> None:
    recipe = text_only()
    net = build_meta_network(recipe, 1000)
    trained = sum(parameter.numel() for parameter in net.parameters())
    expected = 2 * scatter_seconds(GRADIENT_BYTES * trained, H100, 64)
    assert waiting(recipe, 64, sharded=False) == expected
    assert waiting(recipe.replace(micro_tokens=512), 64, sharded=False) == expected  # once a step


def test_shards_wait_only_for_what_computation_does_not_hide() -> None:
    recipe = text_only()
    assert waiting(recipe, 64, sharded=True, compute_seconds=1e9) == 0
    all_of_it = waiting(recipe, 64, sharded=True, compute_seconds=0)
    assert waiting(recipe, 64, sharded=True, compute_seconds=all_of_it / 4) == pytest.approx(0.75 * all_of_it)
    smaller = recipe.replace(micro_tokens=4096)  # 4 of 16,384 tokens of each GPU
    assert waiting(smaller, 64, sharded=True, compute_seconds=0) == pytest.approx(4 * all_of_it)


def test_micro_batches_of_alternating_streams_are_those_of_a_mean_step() -> None:
    recipe = veco("base").replace(micro_tokens=512, steps=10)
    loads = {
        "ca_mlm": ObjectiveLoad(8, 512.0),
        "ca_tlm": ObjectiveLoad(16, 128.0),
        "tlm": ObjectiveLoad(16, 128.0),
    }
    assert micro_batches_per_step(recipe, loads, 2) == pytest.approx((4 + 2 + 2) / 2)


def test_efficiency_falls_with_every_machine() -> None:
    recipe = text_only()
    net = build_meta_network(recipe, 250_002)
    fractions = [estimate_run(recipe, net, LOADS, H100, gpus=gpus).waiting for gpus in (1, 8, 64, 512)]
    assert fractions == sorted(fractions)
    assert 0 == fractions[0] < fractions[1] < 0.1
    assert fractions[3] > 0.3
