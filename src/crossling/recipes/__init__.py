"""One paper, one function each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from crossling.errors import BadInput, nearest
from crossling.recipe import Recipe
from crossling.recipes.infoxlm import infoxlm
from crossling.recipes.veco import veco
from crossling.recipes.xlm import xlm
from crossling.recipes.xlm_e import xlm_e
from crossling.recipes.xlm_r import xlm_r
from crossling.recipes.xy_lent import xy_lent

RECIPES: dict[str, Callable[[str], Recipe]] = {
    recipe.__name__: recipe for recipe in (xlm_r, xlm, xlm_e, infoxlm, xy_lent, veco)
}


def named(recipe: str, size: str | None = None) -> Recipe:
    """A recipe by its name, or by the `recipe.json` of an earlier run. The size is base if not said."""
    if recipe.endswith(".json"):
        if size is not None:
            raise BadInput(f"{recipe}: an earlier run has its size already; leave --size out")
        return Recipe.load(Path(recipe))
    if recipe not in RECIPES:
        raise BadInput(f"{recipe}: there is no such recipe{nearest(recipe, RECIPES)}")
    return RECIPES[recipe](size or "base")


__all__ = ["RECIPES", "infoxlm", "named", "veco", "xlm", "xlm_e", "xlm_r", "xy_lent"]
