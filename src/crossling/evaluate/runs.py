"""What lies in the folders of a report: runs with their curves, scores, and examples to look at."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from crossling.errors import BadInput
from crossling.evaluate import scores, showcase
from crossling.evaluate.scores import Row
from crossling.evaluate.showcase import Showcase

_CONSTRUCTED = re.compile(r"q[a-t][a-z]")  # the codes that are nobody's: those of crossling babel


@dataclass(frozen=True)
class Run:
    """A trained or only measured model, with what was fine-tuned from it."""

    name: str  # short, unique on the page
    path: str = ""  # or the name of a Hugging Face encoder
    recipe: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)  # one row a logged step
    rows: list[Row] = field(default_factory=list)  # scores
    data: dict[str, Any] = field(default_factory=dict)  # `text`, tokens by language, and `pairs`
    init: str | None = None  # the model it began as
    cost: dict[str, Any] = field(default_factory=dict)  # of a finished run
    parameters: int | None = None  # of the encoder
    folders: list[Path] = field(default_factory=list)  # in which its predictions may lie


def collect(folders: Sequence[Path]) -> tuple[list[Run], list[Showcase]]:
    """Runs in the order found, and the showcases of the folders that have one."""
    found: dict[str, _Found] = {}
    for folder in dict.fromkeys(folders):
        if not folder.is_dir():
            raise BadInput(f"{folder}: no such folder; give folders with runs or a scores.jsonl")
        if not _look(folder, found):
            raise BadInput(f"{folder}: no scores.jsonl and no run in it; evaluate or train something first")
    names = short_names(found)
    runs = [part for model, each in found.items() for part in _apart(_run(names[model], model, each))]
    files = [folder / "showcase.json" for folder in dict.fromkeys(folders)]
    return runs, [showcase.read(file) for file in files if file.is_file()]


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """For each path its last part, with the one before it where two would be called the same, or else all of it."""
    distinct = list(dict.fromkeys(paths))
    names = {path: Path(path).name or path for path in distinct}
    for parts in (2, 99):
        times = Counter(names.values())
        names = {
            path: name if times[name] == 1 else str(Path(*Path(path).parts[-parts:])) for path, name in names.items()
        }
    return names


@dataclass
class _Found:
    """What there is of one model."""

    home: Path | None = None  # of the run
    rows: list[Row] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)


def _look(folder: Path, found: dict[str, _Found]) -> bool:
    """Adds what a folder holds, itself or up to two levels below. A score belongs to the run its model is named after,
    that of a fine-tuned model to the run it was made of."""
    homes = [home.resolve() for home in _holding(folder, "recipe.json") if (home / "metrics.jsonl").is_file()]
    for home in homes:
        found.setdefault(str(home), _Found(home))
    tuned = {home.resolve(): _origin(home / "tuned.json") for home in _holding(folder, "tuned.json")}
    tables = [home for home in dict.fromkeys([folder.resolve(), *homes, *tuned]) if (home / "scores.jsonl").is_file()]
    for table in tables:
        by_model: dict[tuple[str, str | None], list[Row]] = defaultdict(list)
        for row in scores.read(table / "scores.jsonl"):
            by_model[_identity(tuned.get(table) or row["model"], homes, found), row.get("tuned")].append(row)
        for (model, settings), rows in by_model.items():
            plugged = any("plug" in row for row in rows)  # it reads translations too: another model at any rate
            name = f"{model} ({settings})" if plugged or _clash(found.get(model), rows) else model
            each = found.setdefault(name, _Found())
            each.rows += rows
            if len(by_model) == 1:  # else nobody knows whose predictions lie there
                each.folders.append(table)
    return bool(homes or tables)


def _clash(known: _Found | None, rows: Sequence[Row]) -> bool:
    """Whether a model was fine-tuned for a task in another way already: then it is another model."""

    def tuned(row: Row) -> tuple[Any, ...]:
        return row["task"], row.get("setting"), row.get("selection")

    ways = {tuned(row): row["tuned"] for row in (known.rows if known else ()) if "tuned" in row}
    return any(ways.get(tuned(row), row["tuned"]) != row["tuned"] for row in rows if "tuned" in row)


def _identity(model: str, homes: Sequence[Path], found: Mapping[str, _Found]) -> str:
    """The run of that path or, wherever it was when it was measured, of that name; else the name of the model."""
    path = str(Path(model).resolve())
    named = [str(home) for home in homes if home.name == Path(model).name]
    return path if path in found else named[0] if len(named) == 1 else model


def _run(name: str, model: str, found: _Found) -> Run:
    rows = scores.unique({**row, "model": name} for row in found.rows)
    home = found.home
    if home is None:
        sizes = (weights(each) for each in (Path(model), *found.folders))
        parameters = next((size for size in sizes if size), None)
        return Run(name, model, rows=rows, parameters=parameters, folders=found.folders)
    stored = _described(home / "recipe.json")
    return Run(
        name,
        str(home),
        stored["recipe"],
        _metrics(home / "metrics.jsonl"),
        rows,
        stored.get("data") or {},
        (stored.get("init") or {}).get("model"),
        _object(home / "cost.json") if (home / "cost.json").is_file() else {},
        weights(home),
        list(dict.fromkeys([home, *found.folders])),
    )


def _apart(run: Run) -> list[Run]:
    """A mean over real and constructed languages would say nothing of either: where a run has both, they are two."""
    kinds: dict[bool, list[Row]] = {False: [], True: []}
    for row in run.rows:
        kinds[all(_CONSTRUCTED.fullmatch(code) for code in row.get("language", "").split("-"))].append(row)
    if not all(kinds.values()):
        return [run]
    other = Run(f"{run.name}, constructed languages", rows=kinds[True], data=run.data, parameters=run.parameters)
    return [replace(run, rows=kinds[False]), other]


def weights(folder: Path) -> int | None:
    """How many parameters the encoder in a folder has, from the heads of its files; none if there are none."""
    steps = sorted(each for each in folder.glob("checkpoints/*/") if each.name.isdigit())
    files = sorted((steps[-1] if steps else folder).glob("*.safetensors"))
    number = 0
    for file in files:
        try:
            with safe_open(file, "np") as tensors:
                # A checkpoint also has what the optimizer keeps (NAME/...), and the parts that are only for training.
                stored = tensors.keys()
                names = [name for name in stored if not steps or (name.startswith("encoder.") and "/" not in name)]
                number += sum(math.prod(tensors.get_slice(name).get_shape()) for name in names)
        except SafetensorError:
            return None  # being written, or damaged: for the page it only means one figure less
    return number or None


def _holding(folder: Path, name: str) -> list[Path]:
    return sorted({file.parent for depth in ("", "*/", "*/*/") for file in folder.glob(f"{depth}{name}")})


def _origin(path: Path) -> str | None:
    """The model that a fine-tuned one was made of, if it says so."""
    model = _object(path).get("model")
    return model if isinstance(model, str) else None


def _described(path: Path) -> dict[str, Any]:
    stored = _object(path)
    if not isinstance(stored.get("recipe"), dict):
        raise BadInput(f"{path}: expected the recipe.json of a run, with a 'recipe' in it; restore the file")
    return stored


def _object(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}: line {error.lineno} is not JSON; the file is damaged, restore it") from None
    return stored if isinstance(stored, dict) else {}


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
