"""Our FLOPs compared with XLM-E's Table 4."""

from __future__ import annotations

import pytest

from crossling.planning.estimate import TABLE_4, published_figures
from crossling.recipes import infoxlm, xlm_e, xlm_r
from crossling.recipes.network import ObjectiveLoad, build_meta_network, flops_per_token, total_tokens
from crossling.recipes.recipe import Recipe

TABLE_4_WITHOUT_TRTD = 6.3e19
VOCABULARY_SIZE = 250_002  # of the papers


def published_cost(recipe: Recipe) -> dict[str, float]:
    """Return the FLOPs of a whole run in both conventions, with the batch size of the paper and full sequences."""
    loads = {
        name: ObjectiveLoad(objective.examples_per_step(objective.length), objective.length)
        for name, objective in recipe.objectives.items()
    }
    per_token = flops_per_token(recipe, build_meta_network(recipe, VOCABULARY_SIZE), loads)
    return {convention: flops * total_tokens(recipe, loads) for convention, flops in per_token.items()}


def test_table_4_as_the_paper_counts() -> None:
    """Compare in the convention of the paper.

    Without TRTD our count is 6% higher, mostly because a million tokens are 2^20. InfoXLM without XLCo is 6% lower.
    The paper's figure for XLM-R is three times our count. With TRTD it is 1.5 times that without, where two batches of
    a million tokens give twice as much.
    """
    assert published_cost(xlm_e().replace(trtd=None))["paper"] == pytest.approx(TABLE_4_WITHOUT_TRTD, rel=0.07)
    assert published_cost(infoxlm().replace(xlco=None))["paper"] == pytest.approx(TABLE_4["infoxlm", "base"], rel=0.07)
    assert published_cost(xlm_e())["paper"] == pytest.approx(TABLE_4["xlm_e", "base"] * 4 / 3, rel=0.07)
    assert published_cost(xlm_r())["paper"] == pytest.approx(TABLE_4["xlm_r", "base"] / 3, rel=0.01)


@pytest.mark.parametrize("convention", ["paper", "full"])
def test_order_is_that_of_table_4(convention: str) -> None:
    ours = {recipe.name: published_cost(recipe)[convention] for recipe in (xlm_e(), infoxlm(), xlm_r())}
    printed = {name: flops for (name, _), flops in TABLE_4.items()}
    assert sorted(ours, key=lambda name: ours[name]) == sorted(printed, key=lambda name: printed[name])


def test_full_count_is_larger_than_that_of_the_paper() -> None:
    """The paper does not count the generator, the head and attention."""
    found = published_cost(xlm_e())
    assert found["full"] / found["paper"] == pytest.approx(929 / 510, rel=0.02)


def test_published_figures() -> None:
    assert published_figures("xlm_e", "base") == "64 A100, 1.7 days; 9.5e+19 FLOPs"
    assert published_figures("xy_lent", "xl") == "512 A100-80GB"
    assert published_figures("xlm_e", "xl") == published_figures("xlm", "base") == ""
