"""Pre-training recipes: one function for each paper, and our own, `rosetta`.

This module has the recipes by name, and adapts a recipe to the model that a run is initialized from.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from crossling import bundled
from crossling.core.errors import BadInput, suggestion
from crossling.core.folder_kinds import folder_kind
from crossling.model.model_shape import SIZES, ModelShape
from crossling.recipes.infoxlm import infoxlm
from crossling.recipes.mbart import mbart
from crossling.recipes.recipe import OBJECTIVES, Recipe
from crossling.recipes.rosetta import rosetta
from crossling.recipes.veco import veco
from crossling.recipes.xlm import xlm, xlm_r
from crossling.recipes.xlm_e import xlm_e
from crossling.recipes.xy_lent import xy_lent
from crossling.train.run_folder import RunFolder, same_models

if TYPE_CHECKING:
    from crossling.recipes.initial_model import InitialModel
    from crossling.recipes.native_model import NativeInitialModel

__all__ = [  # noqa: RUF022 - functions, then recipes
    "RECIPES",
    "adapt_recipe",
    "can_resume",
    "get_recipe",
    "has_size",
    "recipe_name",
    "infoxlm",
    "mbart",
    "rosetta",
    "veco",
    "xlm",
    "xlm_e",
    "xlm_r",
    "xy_lent",
]

RECIPES: dict[str, Callable[..., Recipe]] = {
    recipe.__name__: recipe for recipe in (xlm_r, xlm, xlm_e, infoxlm, xy_lent, veco, mbart, rosetta)
}
RTD_LR_FACTOR = 0.2  # of the peak learning rate, if replaced token detection continues from a model
# Names of Hugging Face encoders, by the recipe that continues their pre-training.
MODEL_NAMES = {
    "infoxlm": r"(.+/)?infoxlm-.+",
    "xlm_e": r"(.+/)?electra-.+",
    "xlm_r": r".+/.+|(xlm-r|xlm-roberta|xlm-mlm|bert|mbert|roberta|distilbert|distilroberta|camembert)-.+",
}


def get_recipe(recipe: str | os.PathLike[str] | Recipe, size: str | None = None) -> Recipe:
    """Return a recipe by its name, or that of an earlier run by its `recipe.json`.

    Args:
        recipe: Name of a recipe, in any spelling (`xlm_e`, `XLM-E`), or a path that ends in `.json`. A `Recipe` is
            returned as it is.
        size: Size of the model [default: base, for veco and mbart large].

    Returns:
        The recipe with all its settings.

    Raises:
        BadInput: There is no such recipe or size.

    Example:
        >>> crossling.recipes.get_recipe("XLM-E", "small").name
        'xlm_e'
    """
    name = recipe.name if isinstance(recipe, Recipe) else os.fspath(recipe)
    if isinstance(recipe, Recipe) or name.endswith(".json"):
        if size is not None:
            raise BadInput(f"{name}: size {size} given, but this recipe has its size already. Omit the size.")
        return recipe if isinstance(recipe, Recipe) else Recipe.load(name)
    build = RECIPES[recipe_name(name)]
    return build(size) if size else build()


def recipe_name(recipe: str) -> str:
    """Return the name of a recipe in its standard spelling.

    Args:
        recipe: Name in any spelling.

    Returns:
        Key of `RECIPES`.

    Raises:
        BadInput: There is no such recipe. The name of a model is answered with the command that adapts it.

    Example:
        >>> crossling.recipes.recipe_name("XLM-E")
        'xlm_e'
    """
    compact = {_compact(name): name for name in RECIPES}
    if _compact(recipe) in compact:
        return compact[_compact(recipe)]
    if recipe in OBJECTIVES:
        trained = [name for name, build in RECIPES.items() if recipe in build().objectives]
        fix = f"Use a recipe that has it: {', '.join(trained)}" if trained else f"Set {recipe}=on for a recipe"
        raise BadInput(f"{recipe}: this is an objective, not a recipe. {fix}.")
    if recipe == bundled.NAME:
        raise BadInput(f"{recipe}: this is a model, not a recipe. Use `crossling pretrain rosetta --init {recipe}`.")
    kind = folder_kind(recipe)
    if kind and not any((Path(recipe) / file).is_file() for file in ("config.json", "recipe.json")):
        raise BadInput(f"{recipe}: this is {kind}, not a recipe. Give the name of a recipe, such as rosetta.")
    family = next((name for name, pattern in MODEL_NAMES.items() if re.fullmatch(pattern, recipe, re.IGNORECASE)), None)
    if family or any((Path(recipe) / file).is_file() for file in ("config.json", "recipe.json")):
        command = f"crossling pretrain {family or 'xlm_r'} --init {recipe}"
        raise BadInput(f"{recipe}: this is a model, not a recipe. Use `{command}`.")
    raise BadInput(f"{recipe}: there is no such recipe{suggestion(recipe, RECIPES)}")


def has_size(recipe: str, size: str) -> bool:
    """Return whether a recipe has settings for a size.

    Args:
        recipe: Name of a recipe.
        size: tiny, small, base, large or xl.

    Returns:
        True if `get_recipe(recipe, size)` returns a recipe.

    Example:
        >>> crossling.recipes.has_size("xlm", "xl")
        False
    """
    try:
        get_recipe(recipe, size)
    except BadInput:
        return False
    return True


def can_resume(run: str | os.PathLike[str], recipe: str, init: str) -> bool:
    """Return whether a run folder has a checkpoint of this recipe, initialized from this model.

    Args:
        run: Run folder, which may not exist.
        recipe: Name of a recipe.
        init: Model to initialize from.

    Returns:
        True if the run can resume without the model.

    Raises:
        BadInput: There is no such recipe, or the `recipe.json` of the run is of another version.

    Example:
        >>> crossling.recipes.can_resume("runs/infoxlm", "infoxlm", "xlm-roberta-base")
        True
    """
    source = RunFolder.read_init_source(Path(run))
    if source is None or not same_models(source.models, {"model": init}) or recipe.endswith(".json"):
        return False
    return recipe_name(recipe) == get_recipe(Path(run) / "recipe.json").name


def adapt_recipe(
    recipe: str, model: InitialModel | NativeInitialModel, size: str | None = None, assignments: Sequence[str] = ()
) -> Recipe:
    """Return a recipe with the architecture of the model it is initialized from.

    The peak learning rate of replaced token detection is lowered, unless `assignments` set it.

    Args:
        recipe: Name of a recipe or path of a `recipe.json`.
        model: Model to initialize from.
        size: Size whose other settings are used [default: that of the model].
        assignments: `key=value` settings, as of `Recipe.set`.

    Returns:
        The recipe to train.

    Raises:
        BadInput: The size or a setting contradicts the architecture of the model.

    Example:
        >>> model = crossling.InitialModel.load("xlm-roberta-base")
        >>> crossling.recipes.adapt_recipe("infoxlm", model).model.layers
        12
    """
    config = model.encoder.config
    shape = config.num_hidden_layers, config.hidden_size
    own_size = next((name for name, each in SIZES.items() if (each.layers, each.width) == shape), None)
    if size in SIZES and own_size and size != own_size:
        raise BadInput(
            f"size {size}: {model.name} has {shape[0]} layers and hidden size {shape[1]}, which is {own_size}."
            " Omit the size."
        )
    is_file = recipe.endswith(".json")
    if size is None and not is_file:
        size = _closest_size(recipe, shape[1])
        if size is not None and size != own_size:
            warnings.warn(
                f"{model.name} has {shape[0]} layers and hidden size {shape[1]}, which is no named size. Other settings"
                f" are those of {size}; another size changes them",
                stacklevel=3,
            )
    chosen = model.adapt(get_recipe(recipe, size)).set(assignments)
    has_lr = is_file or any(assignment.startswith("lr=") for assignment in assignments)
    if chosen.has_rtd and not has_lr:  # at the original one it was seen to diverge (XY-LENT, Limitations)
        chosen = chosen.replace(lr=RTD_LR_FACTOR * chosen.lr)
    required = model.adapt(chosen).model
    for key in (field.name for field in fields(ModelShape)):
        found, expected = getattr(chosen.model, key), getattr(required, key)
        if found != expected:
            raise BadInput(f"model.{key}={found}: {model.name} has {expected}, which cannot change. Omit this setting.")
    return chosen


def _closest_size(recipe: str, width: int) -> str | None:
    """Return the size of a recipe whose hidden size is closest by ratio, the larger of two."""
    sizes = [name for name in reversed(SIZES) if has_size(recipe, name)]
    return min(sizes, key=lambda name: abs(math.log(SIZES[name].width / width)), default=None)


def __dir__() -> list[str]:
    return sorted(__all__)


def _compact(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()
