"""What lies in the folders of a report: runs with their curves, scores, and examples to look at."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crossling.errors import BadInput
from crossling.evaluate import scores, showcase
from crossling.evaluate.scores import Row
from crossling.evaluate.showcase import Showcase


@dataclass(frozen=True)
class Run:
    """A trained or only measured model."""

    name: str  # short, unique on the page
    recipe: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)  # one row a logged step
    rows: list[Row] = field(default_factory=list)  # scores


def collect(folders: Sequence[Path]) -> tuple[list[Run], list[Showcase]]:
    """Runs in the order found, and the showcases of the folders that have one."""
    found: dict[str, list[Run]] = {}
    for folder in folders:
        if not folder.is_dir():
            raise BadInput(f"{folder}: no such folder; give folders with runs or a scores.jsonl")
        runs = _runs(folder)
        if not runs:
            raise BadInput(f"{folder}: no scores.jsonl and no run in it; evaluate or train something first")
        found.setdefault(str(folder), runs)
    times = Counter(run.name for runs in found.values() for run in runs)
    runs = [
        Run(f"{Path(folder).name}/{run.name}", run.recipe, run.metrics, run.rows) if times[run.name] > 1 else run
        for folder, runs in found.items()
        for run in runs
    ]
    files = [Path(folder) / "showcase.json" for folder in found]
    return runs, [showcase.read(file) for file in files if file.is_file()]


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """For each path its last part, with the parts before it only where two would be called the same."""
    distinct = list(dict.fromkeys(paths))
    names = {path: Path(path).name or path for path in distinct}
    times = Counter(names.values())
    return {path: name if times[name] == 1 else path for path, name in names.items()}


def _runs(folder: Path) -> list[Run]:
    """Runs of one folder: itself or up to two levels below; a score belongs to the run its model is named after."""
    homes = sorted({file.parent for depth in ("", "*/", "*/*/") for file in folder.glob(f"{depth}recipe.json")})
    homes = [home for home in homes if (home / "metrics.jsonl").is_file()]
    tables = [home / "scores.jsonl" for home in (folder, *homes)]
    rows = scores.unique(row for table in dict.fromkeys(tables) if table.is_file() for row in scores.read(table))
    trained = {name: Path(path) for path, name in short_names(str(home.resolve()) for home in homes).items()}
    measured = {name: path for path, name in short_names(row["model"] for row in rows).items()}
    return [
        Run(
            name,
            _recipe(trained[name] / "recipe.json") if name in trained else {},
            _metrics(trained[name] / "metrics.jsonl") if name in trained else [],
            [row for row in rows if row["model"] == measured.get(name)],
        )
        for name in dict.fromkeys([*trained, *measured])
    ]


def _recipe(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}: line {error.lineno} is not JSON; the file is damaged, restore it") from None
    recipe = stored.get("recipe") if isinstance(stored, dict) else None
    if not isinstance(recipe, dict):
        raise BadInput(f"{path}: expected the recipe.json of a run, with a 'recipe' in it; restore the file")
    return recipe


def _metrics(path: Path) -> list[dict[str, Any]]:
    *lines, _ = path.read_text(encoding="utf-8").split("\n")  # a run may be writing its last line just now
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            numbers = {name: value for name, value in row.items() if math.isfinite(value)}
            rows.append({"step": row["step"], **numbers})
        except (json.JSONDecodeError, AttributeError, KeyError, TypeError):
            raise BadInput(f"{path}: line {number} is no row of numbers with a 'step'; remove the line") from None
    return rows
