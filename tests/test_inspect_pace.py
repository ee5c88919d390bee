"""Speed from measured runs: how a share of the peak is read off them, and what follows for days."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crossling.hardware import CARDS
from crossling.inspect.estimate import estimate
from crossling.inspect.pace import Measured, measured, mfu, tokens_per_second
from crossling.recipe import Recipe
from crossling.recipe.cost import Load, flops_per_token, network
from crossling.recipes import xlm_e

H200 = CARDS["h200"]


def run(width: int, share: float, recipe: str = "xlm_e", recompute: bool = False) -> Measured:
    """A run that reached a share of the peak."""
    return Measured("2026-11-15", "h200", recipe, width, 65_536, recompute, 1e9, share * H200.peak / 1e9, None)


def wide(width: int) -> Recipe:
    recipe = xlm_e("base")
    return recipe.but(model=replace(recipe.model, width=width))


def test_the_file_is_of_runs_that_can_have_been() -> None:
    assert measured()
    for each in measured():
        assert each.gpu in CARDS
        assert 0.01 < each.mfu < 0.77  # no product of matrices was faster
        assert each.tokens_per_second > 0


def test_between_two_widths_by_the_logarithm_and_outside_as_at_the_nearest() -> None:
    runs = [run(1024, 0.4), run(256, 0.2)]
    shares = [mfu(wide(width), runs) for width in (128, 256, 512, 1024, 2048)]
    assert shares == pytest.approx([0.2, 0.2, 0.3, 0.4, 0.4])


def test_the_fastest_run_of_a_width_counts_and_none_that_computes_twice() -> None:
    assert mfu(wide(512), [run(512, 0.2), run(512, 0.3), run(512, 0.5, recompute=True)]) == pytest.approx(0.3)


def test_speed_follows_cards_and_their_number() -> None:
    recipe = xlm_e("base")
    one = tokens_per_second(recipe, 1e9, H200, 1)
    assert one == pytest.approx(H200.peak * mfu(recipe) / 1e9)
    assert tokens_per_second(recipe, 1e9, H200, 8) == pytest.approx(8 * one)
    assert tokens_per_second(recipe, 1e9, CARDS["a100"], 1) == pytest.approx(one * 312 / 989)
    assert tokens_per_second(recipe.but(recompute=True), 1e9, H200, 1) == pytest.approx(0.75 * one)


def test_days_are_tokens_over_speed() -> None:
    recipe = xlm_e("base").but(trtd=None)
    loads = {"mrtd": Load(2048, 512.0)}
    net = network(recipe, 250_002)
    found = estimate(recipe, net, loads, H200, 4)
    speed = tokens_per_second(recipe, flops_per_token(recipe, net, loads)["full"], H200, 4)
    assert found.tokens_per_second == speed
    assert found.days == pytest.approx(125_000 * 2048 * 512 / speed / 86_400)
    assert found.dump()["days"] == found.days
    assert found.dump()["memory_gib"] == found.memory.gib
