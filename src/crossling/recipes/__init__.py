"""One paper, one function each; and our own, `rosetta`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path

from crossling.errors import BadInput, nearest
from crossling.model.shape import SIZES, Shape
from crossling.recipe import Recipe, Start
from crossling.recipe.start import lowered
from crossling.recipes.infoxlm import infoxlm
from crossling.recipes.rosetta import rosetta
from crossling.recipes.veco import veco
from crossling.recipes.xlm import xlm
from crossling.recipes.xlm_e import xlm_e
from crossling.recipes.xlm_r import xlm_r
from crossling.recipes.xy_lent import xy_lent
from crossling.train.run import Run, same_models

RECIPES: dict[str, Callable[..., Recipe]] = {
    recipe.__name__: recipe for recipe in (xlm_r, xlm, xlm_e, infoxlm, xy_lent, veco, rosetta)
}


def named(recipe: str, size: str | None = None) -> Recipe:
    """A recipe by its name, or by the `recipe.json` of an earlier run. The size is base if not said, for veco large."""
    if recipe.endswith(".json"):
        if size is not None:
            raise BadInput(f"{recipe}: an earlier run has its size already; leave --size out")
        return Recipe.load(Path(recipe))
    if recipe not in RECIPES:
        raise BadInput(f"{recipe}: there is no such recipe{nearest(recipe, RECIPES)}")
    return RECIPES[recipe](size) if size else RECIPES[recipe]()


def has_size(recipe: str, size: str) -> bool:
    """Whether a recipe knows what a size costs."""
    try:
        named(recipe, size)
    except BadInput:
        return False
    return True


def goes_on(run: Path, recipe: str, init: str) -> bool:
    """Whether a run of this recipe that began as this model has a state to go on from."""
    began = Run.began(run)
    if began is None or not same_models(began.models, {"model": init}):
        return False
    return recipe == named(str(run / "recipe.json")).name


def continued(recipe: str, start: Start, size: str | None = None, differences: Sequence[str] = ()) -> Recipe:
    """A recipe in the shape of the model it starts from, with `key=value` differences. The size decides the rest and is
    that of the model if not said; the peak rate of replaced token detection is lowered if it is not among them."""
    shape = start.encoder.config
    theirs = shape.num_hidden_layers, shape.hidden_size
    own = next((name for name, each in SIZES.items() if (each.layers, each.width) == theirs), None)
    if size in SIZES and own and size != own:
        raise BadInput(f"--size {size}: {start.name} has {theirs[0]} layers of {theirs[1]}; leave --size out")
    known = recipe.endswith(".json") or (own and not has_size(recipe, own))
    chosen = start.shape(named(recipe, size if known else size or own)).set(differences)
    if not any(difference.startswith("lr=") for difference in differences) and not recipe.endswith(".json"):
        chosen = lowered(chosen)
    kept = start.shape(chosen).model
    for key in (field.name for field in fields(Shape)):
        asked, had = getattr(chosen.model, key), getattr(kept, key)
        if asked != had:
            raise BadInput(f"--set model.{key}={asked}: {start.name} has {had}, and a model keeps its shape")
    return chosen


__all__ = [
    "RECIPES",
    "continued",
    "goes_on",
    "infoxlm",
    "named",
    "rosetta",
    "veco",
    "xlm",
    "xlm_e",
    "xlm_r",
    "xy_lent",
]
