"""Small runs of two steps, trained once per test process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crossling.data.shards import Shards

Train = Callable[..., Path]


@pytest.fixture(scope="session")
def train(shards: Shards, small_model: list[str], tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Return a function that trains a recipe with changed settings and returns its run folder."""
    runs: dict[tuple[str, ...], Path] = {}

    def train(name: str, *differences: str) -> Path:
        from crossling.recipes import get_recipe
        from crossling.recipes.pretrain import pretrain

        if (key := (name, *differences)) not in runs:
            recipe = get_recipe(name, "tiny")
            scaled = [f"{objective}.length=32" for objective in recipe.objectives]
            scaled += [f"{name}.tokens=128" for name, objective in recipe.objectives.items() if objective.tokens]
            scaled += ["xlco.pairs=8", "xlco.queue=16"] if recipe.xlco else []
            # A high learning rate makes weights that differ from the initial ones.
            short = ["steps=2", "lr=0.05", "optimizer.warmup=0", "model.layers=3"]
            runs[key] = tmp_path_factory.mktemp(name) / "run"
            pretrain(recipe.set([*small_model, *scaled, *short, *differences]), shards, runs[key])
        return runs[key]

    return train


@pytest.fixture(scope="session")
def lines(corpora_folder: Path) -> list[str]:
    from crossling.corpora.corpus import Corpora

    corpora = Corpora(corpora_folder)
    return [line for language in corpora.languages for line in list(corpora.lines(language))[:4]]
