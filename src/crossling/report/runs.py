"""Runs of a report with their metrics, scores and examples, read from folders."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any

from safetensors import SafetensorError, safe_open

from crossling.core.errors import BadInput
from crossling.core.files import check_format
from crossling.core.progress import format_count, format_duration
from crossling.evaluate.retrieval import PLUG_IN
from crossling.evaluate.word_alignment import PROTOCOLS
from crossling.report import showcase
from crossling.report.analysis import TaskScore, task_scores
from crossling.report.showcase import Showcase
from crossling.tasks import scores
from crossling.tasks.mteb_results import find_results, read_results
from crossling.tasks.scores import LayerSummary, ScoreRow, summarize_layers
from crossling.train.run_folder import FORMAT as RECIPE_FORMAT

_SYNTHETIC = re.compile(r"q[a-t][a-z]")  # private-use codes of crossling synth


@dataclass(frozen=True, kw_only=True)
class ReportRun:
    """A model with its training metrics and scores, including those of models fine-tuned from it."""

    name: str  # short, unique on the page
    path: str = ""  # folder, or name of a Hugging Face model
    recipe: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)  # one row per logged step
    rows: list[ScoreRow] = field(default_factory=list)  # scores
    checkpoint_rows: list[ScoreRow] = field(default_factory=list)  # scores of checkpoints, with `step` and `flops`
    data: dict[str, Any] = field(default_factory=dict)  # `text`: tokens by language; `pairs`
    init: str | None = None  # model it was initialized from
    cost: dict[str, Any] = field(default_factory=dict)  # of a finished run
    parameters: int | None = None  # of the encoder
    folders: list[Path] = field(default_factory=list)  # that may contain its predictions
    colour: int = 0  # position in the palette of the page

    @cached_property
    def scores(self) -> list[TaskScore]:
        return task_scores(self.rows)

    @cached_property
    def retrieval(self) -> LayerSummary | None:
        return self._summary("tatoeba", "accuracy")

    @cached_property
    def chance(self) -> float | None:
        """Retrieval accuracy of random guesses, averaged like the scores."""
        return chance_accuracy([self])

    @cached_property
    def alignment(self) -> LayerSummary | None:
        return self._summary("word-alignment", "aer")

    @cached_property
    def pairs(self) -> int:
        """Number of directed language pairs in the retrieval mean."""
        return len({(row["language"], row.get("direction")) for row in self._rows(self.retrieval)})

    @cached_property
    def training(self) -> dict[str, str]:
        """Steps, tokens, time and throughput from the metrics of the run."""
        last = self.metrics[-1] if self.metrics else {}
        speeds = [row["tokens_per_second"] for row in self.metrics if "tokens_per_second" in row]
        facts = {
            "steps": f"{last['step']:,}" if last else "",
            "tokens": format_count(last["tokens"]) if "tokens" in last else "",
            "time": format_duration(last["seconds"]) if "seconds" in last else "",
            "tokens/s": f"{median(speeds):,.0f}" if speeds else "",
        }
        return {name: fact for name, fact in facts.items() if fact}

    @cached_property
    def cost_facts(self) -> dict[str, str]:
        """Parameters, FLOPs in both conventions, MFU and hardware of a finished run."""
        machines = self.cost.get("machines") or {}
        facts = {
            "parameters": format_count(self.parameters) if self.parameters else "",
            **{f"FLOPs, {kind}": f"{number:.2g}" for kind, number in self.cost.get("flops", {}).items()},
            "MFU": f"{self.cost['mfu']:.2f}" if self.cost.get("mfu") else "",
            "machines": ", ".join(f"{format_duration(spent)} on {name}" for name, spent in machines.items()),
        }
        return {name: fact for name, fact in facts.items() if fact}

    @cached_property
    def layers(self) -> list[tuple[int, float | None, float | None]]:
        """(layer, retrieval accuracy, AER) of every layer."""
        retrieval = self.retrieval.by_layer if self.retrieval else {}
        alignment = self.alignment.by_layer if self.alignment else {}
        return [(layer, retrieval.get(layer), alignment.get(layer)) for layer in sorted({*retrieval, *alignment})]

    @cached_property
    def heatmap(self) -> dict[str, Any] | None:
        """Retrieval accuracy by (query language, target language) at the best layer, without pairs with English."""
        if self.retrieval is None:
            return None
        by_pair = defaultdict(list)  # the seeds of a run are averaged
        layer = self.retrieval.best_layer
        for row in self._rows(self.retrieval):
            direction = row.get("direction")
            if row["layer"] == layer and direction not in (None, "en-xx", "xx-en"):
                query, target = (row["language"] if code == "xx" else code for code in direction.split("-", 1))
                by_pair[query, target].append(row["value"])
        values = {pair: fmean(seeds) for pair, seeds in by_pair.items()}
        if not values:
            return None
        queries, targets = (sorted({pair[side] for pair in values}) for side in (0, 1))
        return {"rows": queries, "columns": targets, "values": values}

    def _summary(self, task: str, metric: str) -> LayerSummary | None:
        """Scores by layer on the test set, of the protocol that has the most layers."""
        candidates = [
            each
            for each in summarize_layers(self.rows)
            if (each.task, each.metric, each.split) == (task, metric, "test") and each.protocol != PLUG_IN
        ]
        # Prefer, of several alignment methods, the one that the papers use.
        return max(candidates, key=lambda each: (each.protocol == PROTOCOLS["ot"], len(each.by_layer)), default=None)

    def _rows(self, measure: LayerSummary | None) -> list[ScoreRow]:
        if measure is None:
            return []
        return [
            row
            for row in self.rows
            if (row["task"], row.get("protocol", ""), row["metric"], row.get("split", "test"), row.get("pooling"))
            == (measure.task, measure.protocol, measure.metric, measure.split, measure.pooling)
        ]


def chance_accuracy(runs: Sequence[ReportRun]) -> float | None:
    """Mean retrieval accuracy of random guesses in percent, or None without retrieval scores."""
    rows = (row for run in runs for row in run.rows if row["task"] == "tatoeba" and "examples" in row)
    values = [100 / row["examples"] for row in rows]
    return fmean(values) if values else None


def collect_runs(folders: Sequence[Path]) -> tuple[list[ReportRun], list[Showcase]]:
    """Return the runs of the folders, and the showcases of the folders that have one."""
    models: dict[str, _ModelFiles] = {}
    for folder in dict.fromkeys(folders):
        if not folder.is_dir():
            raise BadInput(f"{folder}: no such folder. Give folders with runs, a scores.jsonl or results of MTEB.")
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
    checkpoint_rows: list[ScoreRow] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)


def _scan_folder(folder: Path, models: dict[str, _ModelFiles]) -> bool:
    """Add the models in a folder, at most two levels down, and results of MTEB. Return False if there are none.

    A score belongs to the run with the name of its model. Scores of a fine-tuned model belong to its base model, and
    those of a checkpoint to its run.
    """
    homes = [home.resolve() for home in _folders_with(folder, "recipe.json") if (home / "metrics.jsonl").is_file()]
    for home in homes:
        models.setdefault(str(home), _ModelFiles(home))
    tuned = {home.resolve(): _base_model(home / "tuned.json") for home in _folders_with(folder, "tuned.json")}
    mteb_rows = read_results(folder) if find_results(folder) else []
    for row in mteb_rows:
        models.setdefault(_model_key(row["model"], homes, models), _ModelFiles()).rows.append(row)
    tables = [home for home in dict.fromkeys([folder.resolve(), *homes, *tuned]) if (home / "scores.jsonl").is_file()]
    for table in tables:
        by_model: dict[tuple[str, str | None], list[ScoreRow]] = defaultdict(list)
        for row in scores.read_scores(table / "scores.jsonl"):
            if "step" in row:
                _files_of_run(Path(row["model"]).absolute().parents[1], homes, models).checkpoint_rows.append(row)
                continue
            by_model[_model_key(tuned.get(table) or row["model"], homes, models), row.get("tuned")].append(row)
        for (model, settings), rows in by_model.items():
            is_plugged_in = any("plug" in row for row in rows)  # reads translations as well: always another model
            name = f"{model} ({settings})" if is_plugged_in or _has_other_tuning(models.get(model), rows) else model
            files = models.setdefault(name, _ModelFiles())
            files.rows += rows
            if len(by_model) == 1:  # otherwise the predictions cannot be assigned to a model
                files.folders.append(table)
    return bool(homes or tables or mteb_rows)


def _files_of_run(run: Path, homes: Sequence[Path], models: dict[str, _ModelFiles]) -> _ModelFiles:
    """Return the files of the run of a checkpoint. Its folder may be scanned later, or not at all."""
    if (run / "recipe.json").is_file() and (run / "metrics.jsonl").is_file():
        return models.setdefault(str(run.resolve()), _ModelFiles(run.resolve()))
    return models.setdefault(_model_key(str(run), homes, models), _ModelFiles())


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
    of_checkpoints = scores.deduplicate_scores(files.checkpoint_rows)
    home = files.home
    if home is None:
        sizes = (count_parameters(each) for each in (Path(model), *files.folders))
        parameters = next((size for size in sizes if size), None)
        return ReportRun(
            name=name,
            path=model,
            rows=rows,
            checkpoint_rows=of_checkpoints,
            parameters=parameters,
            folders=files.folders,
        )
    stored = _read_recipe(home / "recipe.json")
    return ReportRun(
        name=name,
        path=str(home),
        recipe=stored["recipe"],
        metrics=_read_metrics(home / "metrics.jsonl"),
        rows=rows,
        checkpoint_rows=of_checkpoints,
        data=stored.get("data") or {},
        init=(stored.get("init") or {}).get("model"),
        cost=_read_object(home / "cost.json") if (home / "cost.json").is_file() else {},
        parameters=count_parameters(home),
        folders=list(dict.fromkeys([home, *files.folders])),
    )


def _split_synthetic(run: ReportRun) -> list[ReportRun]:
    """Split a run with scores of real and of synthetic languages in two, since a mean over both means little."""
    kinds: dict[bool, list[ScoreRow]] = {False: [], True: []}
    for row in run.rows:
        kinds[all(_SYNTHETIC.fullmatch(code) for code in row.get("language", "").split("-"))].append(row)
    if not all(kinds.values()):
        return [run]
    other = ReportRun(
        name=f"{run.name}, synthetic languages", rows=kinds[True], data=run.data, parameters=run.parameters
    )
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
    check_format(path, stored.get("format", 1), RECIPE_FORMAT, "Train again with crossling pretrain.")
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
            numbers = {name: value for name, value in row.items() if value is not None and math.isfinite(value)}
            rows.append({"step": row["step"], **numbers})
        except (json.JSONDecodeError, AttributeError, KeyError, TypeError):
            raise BadInput(f"{path}: line {number}: expected numbers with a 'step'. Remove the line.") from None
    return rows
