"""Everything that decides a pre-training run, and what assembles and runs it."""

from crossling.recipe.network import build, load_run
from crossling.recipe.pretrain import pretrain
from crossling.recipe.recipe import Recipe
from crossling.recipe.start import Start

__all__ = ["Recipe", "Start", "build", "load_run", "pretrain"]
