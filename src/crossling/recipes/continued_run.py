"""Continue a checkpoint of another run in a new one: its weights, optimizer state, step and training cost.

With `optimizer.schedule=wsd` this starts the cooldown from any checkpoint that was kept. Steps, learning rate, masking,
sampling and data may differ from the other run. The network, its vocabulary and its optimizer may not.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from crossling.core.errors import BadInput
from crossling.core.files import atomic_folder
from crossling.core.folder_kinds import kind_note
from crossling.data.shards import Shards
from crossling.recipes.network import build_meta_network
from crossling.recipes.recipe import Recipe
from crossling.recipes.run_checkpoints import find_checkpoint, run_of
from crossling.train.run_folder import CHECKPOINTS
from crossling.vocabulary.open_vocabulary import open_vocabulary


def find_continued(source: str | os.PathLike[str], recipe: Recipe, shards: Shards) -> Path:
    """Return the checkpoint that a run continues.

    Args:
        source: `RUN/checkpoints/STEP`, or a run folder for its latest checkpoint.
        recipe: Recipe of the new run.
        shards: Data of the new run.

    Raises:
        BadInput: There is no such checkpoint, or the recipe has another network, optimizer or fewer steps.
    """
    path = Path(source)
    run = run_of(path)
    if run is None:
        raise BadInput(f"resume_from={source}: no run or checkpoint{kind_note(path)}. Give RUN/checkpoints/STEP.")
    checkpoint = find_checkpoint(path)
    other, vocabulary = Recipe.load(run / "recipe.json"), open_vocabulary(run / "vocab")
    if vocabulary.fingerprint != open_vocabulary(shards.vocabulary_path).fingerprint:
        raise BadInput(
            f"resume_from={source}: {shards.path} has another vocabulary. Tokenize the corpora with {run / 'vocab'}."
        )
    pairs = {
        "another model": (other.model, recipe.model),
        "other objectives": (_shapes(other, vocabulary.size), _shapes(recipe, vocabulary.size)),
        "another optimizer.matrices": (other.optimizer.matrices, recipe.optimizer.matrices),
        "another dro": (other.dro, recipe.dro),
    }
    for name, (expected, found) in pairs.items():
        if expected != found:
            raise BadInput(f"resume_from={source}: it has {name}. Start from the recipe {run / 'recipe.json'}.")
    if int(checkpoint.name) >= recipe.steps:
        raise BadInput(
            f"resume_from={source}: it has {int(checkpoint.name)} steps and the new run only {recipe.steps}. Set steps"
            " to the sum of both."
        )
    return checkpoint


def _shapes(recipe: Recipe, vocabulary_size: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight and buffer."""
    net = build_meta_network(recipe, vocabulary_size)
    return {name: (*value.shape,) for name, value in net.state_dict().items()}


def copy_checkpoint(checkpoint: Path, run: Path) -> None:
    """Copy a checkpoint into another run, which then resumes from it."""
    with atomic_folder(run / CHECKPOINTS / checkpoint.name) as new:
        shutil.copytree(checkpoint, new, dirs_exist_ok=True)
