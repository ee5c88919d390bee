"""Small runs, two steps each, made once for each test process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crossling.data.shards import Shards

Train = Callable[..., Path]


@pytest.fixture(scope="session")
def train(shards: Shards, small_model: list[str], tmp_path_factory: pytest.TempPathFactory) -> Train:
    """The folder of a run of a recipe with `--set` differences."""
    made: dict[tuple[str, ...], Path] = {}

    def train(name: str, *differences: str) -> Path:
        from crossling.recipe import pretrain
        from crossling.recipes import named

        if (key := (name, *differences)) not in made:
            recipe = named(name, "tiny")
            scaled = [f"{each}.length=32" for each in recipe.objectives]
            scaled += [f"{name}.tokens=128" for name, each in recipe.objectives.items() if hasattr(each, "tokens")]
            scaled += ["xlco.pairs=8", "xlco.queue=16"] if recipe.xlco else []
            # Rates as high as this make weights that differ from those a network begins with.
            short = ["steps=2", "lr=0.05", "optimizer.warmup=0", "model.layers=3"]
            made[key] = tmp_path_factory.mktemp(name) / "run"
            pretrain(recipe.set([*small_model, *scaled, *short, *differences]), shards, made[key])
        return made[key]

    return train


@pytest.fixture(scope="session")
def lines(corpora_folder: Path) -> list[str]:
    from crossling.corpora.corpus import Corpora

    corpora = Corpora(corpora_folder)
    return [line for language in corpora.languages for line in list(corpora.lines(language))[:4]]
