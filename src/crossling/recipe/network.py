"""The network of a recipe: as it begins, and as a run has left it."""

from __future__ import annotations

from pathlib import Path

import torch

from crossling.model.transformer import CrosslingModel
from crossling.objectives import Network
from crossling.recipe.recipe import Recipe
from crossling.train import checkpoint
from crossling.vocabulary.vocabulary import Vocabulary


def build(recipe: Recipe, vocabulary_size: int) -> Network:
    """The network of a recipe, with the initial weights its seed gives."""
    torch.manual_seed(recipe.seed)
    encoder = CrosslingModel(recipe.model.config(vocabulary_size))
    parts: dict[str, torch.nn.Module] = {}
    for objective in recipe.objectives.values():
        for name, make in objective.parts(encoder, recipe.model).items():
            if name not in parts:
                parts[name] = make()
    return Network(encoder, parts)


def load_run(path: Path) -> Network:
    """The network of a run, at its newest checkpoint that is whole."""
    saved = checkpoint.newest_whole(Path(path))
    recipe = Recipe.load(Path(path) / "recipe.json")
    net = build(recipe, Vocabulary.load(Path(path) / "vocab").size)
    checkpoint.load_weights(saved, net)
    return net
