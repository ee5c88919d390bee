"""What a run knows about itself: recipe, data, cost, scores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossling.errors import BadInput
from crossling.evaluate import scores
from crossling.evaluate.retrieval import by_list
from crossling.model.shape import SIZES
from crossling.recipe import Recipe
from crossling.recipe.recipe import OBJECTIVES
from crossling.recipes import RECIPES, named
from crossling.train import checkpoint


@dataclass(frozen=True)
class Measured:
    """One measure: the mean over languages and directions, at its best layer."""

    task: str
    protocol: str
    metric: str
    split: str
    layer: int
    value: float


@dataclass(frozen=True)
class Facts:
    recipe: dict[str, Any]
    size: str | None  # of the named recipe; none if it has no name
    differences: list[str]  # from it, as `--set` takes them
    step: int
    tokens: int
    seconds: float
    shards: str  # fingerprint
    text: dict[str, int]  # tokens of each language
    pairs: list[tuple[str, str, int]]  # how many translation pairs of which two languages
    started_from: str | None  # a model
    scores: list[Measured]


def facts(run: Path) -> Facts:
    """Of the run at its newest checkpoint that is whole."""
    recipe = Recipe.load(run / "recipe.json")
    size, differences = nearest_recipe(recipe)
    stored = _read(run / "recipe.json")
    state = _read(checkpoint.newest_whole(run) / checkpoint.STATE)
    data, started = stored.get("data") or {}, stored.get("init") or {}
    return Facts(
        recipe.dump(),
        size,
        differences,
        state["step"],
        state.get("tokens", 0),
        state.get("seconds", 0.0),
        stored.get("shards", ""),
        data.get("text", {}),
        [(first, second, count) for first, second, count in data.get("pairs", [])],
        # A folder of somebody's machine means nothing to others, its name may.
        Path(started["model"]).name if Path(started.get("model", "")).is_absolute() else started.get("model"),
        _scores(run),
    )


def nearest_recipe(recipe: Recipe) -> tuple[str | None, list[str]]:
    """The size of the recipe of this name that takes the fewest differences to become this one, and those."""
    found = {}
    for size in (*SIZES, "ablation") if recipe.name in RECIPES else ():
        try:
            found[size] = list(_differences(named(recipe.name, size), recipe))
        except BadInput:  # the recipe has no such size
            continue
    if not found:
        return None, []
    nearest = min(found, key=lambda size: len(found[size]))
    return nearest, found[nearest]


def _differences(start: Recipe, end: Recipe) -> Iterator[str]:
    """`start.set(differences)` is `end`."""
    switched = [
        f"{name}={'off' if getattr(end, name) is None else 'on'}"
        for name in OBJECTIVES
        if (getattr(start, name) is None) != (getattr(end, name) is None)
    ]
    yield from switched
    earlier = dict(start.set(switched).settings())
    for key, value in end.settings():
        if earlier[key] != value:
            text = value if isinstance(value, str) else "none" if value is None else json.dumps(value)
            yield f"{key}={text}"


def _scores(run: Path) -> list[Measured]:
    """The best of every task in the run's scores.jsonl."""
    file = run / "scores.jsonl"
    name = run.resolve().name
    rows = [row for row in scores.read(file) if Path(row["model"]).name == name] if file.is_file() else []
    return [
        Measured(each.task, each.protocol, each.metric, each.split, each.best_layer, each.best)
        for each in scores.summary([*rows, *by_list(rows)])
    ]


def _read(file: Path) -> dict[str, Any]:
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{file}: not readable ({error}); restore the file") from None
    if not isinstance(stored, dict):
        raise BadInput(f"{file}: expected an object; restore the file")
    return stored
