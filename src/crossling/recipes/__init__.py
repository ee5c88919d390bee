"""Pre-training recipes: one function for each paper, and our own, `rosetta`."""

from crossling.recipes.catalog import RECIPES, adapt_recipe, can_resume, get_recipe, has_size
from crossling.recipes.infoxlm import infoxlm
from crossling.recipes.rosetta import rosetta
from crossling.recipes.veco import veco
from crossling.recipes.xlm import xlm, xlm_r
from crossling.recipes.xlm_e import xlm_e
from crossling.recipes.xy_lent import xy_lent

__all__ = [
    "RECIPES",
    "adapt_recipe",
    "can_resume",
    "get_recipe",
    "has_size",
    "infoxlm",
    "rosetta",
    "veco",
    "xlm",
    "xlm_e",
    "xlm_r",
    "xy_lent",
]
