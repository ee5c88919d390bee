"""Throughput from measured runs: MFU by width, and the days that follow from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crossling.core.hardware import ACCELERATORS
from crossling.planning.estimate import ThroughputRecord, estimate_run, mfu, throughput_records, tokens_per_second
from crossling.recipes import xlm_e
from crossling.recipes.network import ObjectiveLoad, build_meta_network, flops_per_token
from crossling.recipes.recipe import Recipe

H200 = ACCELERATORS["h200"]


def run(width: int, fraction: float, gradient_checkpointing: bool = False) -> ThroughputRecord:
    """Return a run that reached a fraction of the peak."""
    return ThroughputRecord(
        gpu="h200",
        width=width,
        gradient_checkpointing=gradient_checkpointing,
        flops_per_token=1e9,
        tokens_per_second=fraction * H200.peak_flops / 1e9,
    )


def wide(width: int) -> Recipe:
    recipe = xlm_e("base")
    return recipe.replace(model=replace(recipe.model, width=width))


def test_records_are_plausible() -> None:
    assert throughput_records()
    for each in throughput_records():
        assert each.gpu in ACCELERATORS
        assert 0.01 < each.mfu < 0.77  # a plain matrix product reached 0.77
        assert each.tokens_per_second > 0


def test_mfu_is_interpolated_in_the_logarithm_of_the_width() -> None:
    runs = [run(1024, 0.4), run(256, 0.2)]
    fractions = [mfu(wide(width), runs) for width in (128, 256, 512, 1024, 2048)]
    assert fractions == pytest.approx([0.2, 0.2, 0.3, 0.4, 0.4])


def test_fastest_run_without_checkpointing_counts() -> None:
    assert mfu(wide(512), [run(512, 0.2), run(512, 0.3), run(512, 0.5, gradient_checkpointing=True)]) == pytest.approx(
        0.3
    )


def test_throughput_is_proportional_to_peak_and_number_of_gpus() -> None:
    recipe = xlm_e("base")
    one = tokens_per_second(recipe, 1e9, H200, 1)
    assert one == pytest.approx(H200.peak_flops * mfu(recipe) / 1e9)
    assert tokens_per_second(recipe, 1e9, H200, 8) == pytest.approx(8 * one)
    assert tokens_per_second(recipe, 1e9, ACCELERATORS["a100"], 1) == pytest.approx(one * 312 / 989)
    assert tokens_per_second(recipe.replace(gradient_checkpointing=True), 1e9, H200, 1) == pytest.approx(one / 1.1)


def test_days_are_tokens_divided_by_throughput() -> None:
    recipe = xlm_e("base").replace(trtd=None)
    loads = {"mrtd": ObjectiveLoad(2048, 512.0)}
    net = build_meta_network(recipe, 250_002)
    found = estimate_run(recipe, net, loads, H200, gpus=4)
    alone = tokens_per_second(recipe, flops_per_token(recipe, net, loads)["full"], H200, 4)
    assert found.tokens_per_second == pytest.approx(alone * (1 - found.waiting))
    assert found.days == pytest.approx(125_000 * 2048 * 512 / found.tokens_per_second / 86_400)
    assert estimate_run(recipe, net, loads, H200, gpus=1).waiting == 0
    assert found.dump()["days"] == found.days
    assert found.dump()["memory_gib"] == found.memory.gib
