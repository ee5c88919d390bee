"""Read the folders of a report: runs with their metrics, scores, and examples."""

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

from crossling.core.errors import BadInput
from crossling.report import showcase
from crossling.report.showcase import Showcase
from crossling.tasks import scores
from crossling.tasks.scores import ScoreRow

_SYNTHETIC = re.compile(r"q[a-t][a-z]")  # private-use codes of crossling synth


@dataclass(frozen=True)
class ReportRun:
    """A model with its training metrics and scores, including those of models fine-tuned from it."""

    name: str  # short, unique on the page
    path: str = ""  # folder, or name of a Hugging Face model
    recipe: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)  # one row per logged step
    rows: list[ScoreRow] = field(default_factory=list)  # scores
    data: dict[str, Any] = field(default_factory=dict)  # `text`: tokens by language; `pairs`
    init: str | None = None  # model it was initialized from
    cost: dict[str, Any] = field(default_factory=dict)  # of a finished run
    parameters: int | None = None  # of the encoder
    folders: list[Path] = field(default_factory=list)  # that may contain its predictions


def collect_runs(folders: Sequence[Path]) -> tuple[list[ReportRun], list[Showcase]]:
    """Return the runs of the folders, and the showcases of the folders that have one."""
    models: dict[str, _ModelFiles] = {}
    for folder in dict.fromkeys(folders):
        if not folder.is_dir():
            raise BadInput(f"{folder}: no such folder. Give folders with runs or a scores.jsonl.")
        if not _scan_folder(folder, models):
            raise BadInput(f"{folder}: no scores.jsonl and no run. Train or evaluate a model first.")
    names = short_names(models)
    runs = [part for model, files in models.items() for part in _split_synthetic(_read_run(names[model], model, files))]
    files = [folder / "showcase.json" for folder in dict.fromkeys(folders)]
    return runs, [showcase.read_showcase(file) for file in files if file.is_file()]


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """Shorten each path to its last part; to its last two parts, or not at all, where names would be equal."""
    distinct = list(dict.fromkeys(paths))
    names = {path: Path(path).name or path for path in distinct}
    for parts in (2, 99):
        counts = Counter(names.values())
        names = {
            path: name if counts[name] == 1 else str(Path(*Path(path).parts[-parts:])) for path, name in names.items()
        }
    return names


@dataclass
class _ModelFiles:
    """Run folder, scores and prediction folders of one model."""

    home: Path | None = None  # run folder
    rows: list[ScoreRow] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)


def _scan_folder(folder: Path, models: dict[str, _ModelFiles]) -> bool:
    """Add the models in a folder, at most two levels down. Return False if there are none.

    A score belongs to the run with the name of its model. Scores of a fine-tuned model belong to its base model.
    """
    homes = [home.resolve() for home in _folders_with(folder, "recipe.json") if (home / "metrics.jsonl").is_file()]
    for home in homes:
        models.setdefault(str(home), _ModelFiles(home))
    tuned = {home.resolve(): _base_model(home / "tuned.json") for home in _folders_with(folder, "tuned.json")}
    tables = [home for home in dict.fromkeys([folder.resolve(), *homes, *tuned]) if (home / "scores.jsonl").is_file()]
    for table in tables:
        by_model: dict[tuple[str, str | None], list[ScoreRow]] = defaultdict(list)
        for row in scores.read_scores(table / "scores.jsonl"):
            by_model[_model_key(tuned.get(table) or row["model"], homes, models), row.get("tuned")].append(row)
        for (model, settings), rows in by_model.items():
            is_plugged_in = any("plug" in row for row in rows)  # reads translations as well: always another model
            name = f"{model} ({settings})" if is_plugged_in or _has_other_tuning(models.get(model), rows) else model
            files = models.setdefault(name, _ModelFiles())
            files.rows += rows
            if len(by_model) == 1:  # otherwise the predictions cannot be assigned to a model
                files.folders.append(table)
    return bool(homes or tables)


def _has_other_tuning(known: _ModelFiles | None, rows: Sequence[ScoreRow]) -> bool:
    """True if the model already has scores for one of these tasks with other fine-tuning settings."""

    def task_key(row: ScoreRow) -> tuple[Any, ...]:
        return row["task"], row.get("setting"), row.get("selection")

    settings = {task_key(row): row["tuned"] for row in (known.rows if known else ()) if "tuned" in row}
    return any(settings.get(task_key(row), row["tuned"]) != row["tuned"] for row in rows if "tuned" in row)


def _model_key(model: str, homes: Sequence[Path], models: Mapping[str, _ModelFiles]) -> str:
    """Return the run with that path, the only run with that name (folders may have moved), or the model itself."""
    path = str(Path(model).resolve())
    named = [str(home) for home in homes if home.name == Path(model).name]
    return path if path in models else named[0] if len(named) == 1 else model


def _read_run(name: str, model: str, files: _ModelFiles) -> ReportRun:
    rows = scores.deduplicate_scores({**row, "model": name} for row in files.rows)
    home = files.home
    if home is None:
        sizes = (count_parameters(each) for each in (Path(model), *files.folders))
        parameters = next((size for size in sizes if size), None)
        return ReportRun(name, model, rows=rows, parameters=parameters, folders=files.folders)
    stored = _read_recipe(home / "recipe.json")
    return ReportRun(
        name,
        str(home),
        stored["recipe"],
        _read_metrics(home / "metrics.jsonl"),
        rows,
        stored.get("data") or {},
        (stored.get("init") or {}).get("model"),
        _read_object(home / "cost.json") if (home / "cost.json").is_file() else {},
        count_parameters(home),
        list(dict.fromkeys([home, *files.folders])),
    )


def _split_synthetic(run: ReportRun) -> list[ReportRun]:
    """Split a run with scores of real and of synthetic languages in two, since a mean over both means little."""
    kinds: dict[bool, list[ScoreRow]] = {False: [], True: []}
    for row in run.rows:
        kinds[all(_SYNTHETIC.fullmatch(code) for code in row.get("language", "").split("-"))].append(row)
    if not all(kinds.values()):
        return [run]
    other = ReportRun(f"{run.name}, synthetic languages", rows=kinds[True], data=run.data, parameters=run.parameters)
    return [replace(run, rows=kinds[False]), other]


def count_parameters(folder: Path) -> int | None:
    """Count the parameters of the encoder in a folder from the file headers. None if there are no weights."""
    steps = sorted(each for each in folder.glob("checkpoints/*/") if each.name.isdigit())
    files = sorted((steps[-1] if steps else folder).glob("*.safetensors"))
    total = 0
    for file in files:
        try:
            with safe_open(file, "np") as tensors:
                # A checkpoint also contains optimizer state (NAME/...) and modules used only in training.
                stored = tensors.keys()
                names = [name for name in stored if not steps or (name.startswith("encoder.") and "/" not in name)]
                total += sum(math.prod(tensors.get_slice(name).get_shape()) for name in names)
        except SafetensorError:
            return None  # incomplete or damaged: the page then lacks one number
    return total or None


def _folders_with(folder: Path, name: str) -> list[Path]:
    return sorted({file.parent for depth in ("", "*/", "*/*/") for file in folder.glob(f"{depth}{name}")})


def _base_model(path: Path) -> str | None:
    """Return the model that was fine-tuned, if it is recorded."""
    model = _read_object(path).get("model")
    return model if isinstance(model, str) else None


def _read_recipe(path: Path) -> dict[str, Any]:
    stored = _read_object(path)
    if not isinstance(stored.get("recipe"), dict):
        raise BadInput(f"{path}: expected the recipe.json of a run, with a 'recipe'. Restore the file.")
    return stored


def _read_object(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}: line {error.lineno} is not JSON. Restore the file.") from None
    return stored if isinstance(stored, dict) else {}


def _read_metrics(path: Path) -> list[dict[str, Any]]:
    *lines, _ = path.read_text(encoding="utf-8").split("\n")  # the last line may be incomplete
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            numbers = {name: value for name, value in row.items() if math.isfinite(value)}
            rows.append({"step": row["step"], **numbers})
        except (json.JSONDecodeError, AttributeError, KeyError, TypeError):
            raise BadInput(f"{path}: line {number}: expected numbers with a 'step'. Remove the line.") from None
    return rows
