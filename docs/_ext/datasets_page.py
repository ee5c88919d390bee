"""Reference of the benchmark data sets, from the registry: files, metrics, training sets and default settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields

from markdown_tables import code, table

from crossling.tasks.dataset import BenchmarkDataset, FilePattern
from crossling.tasks.hyperparameters import FinetuneHyperparameters
from crossling.tasks.registry import DATASETS

TITLES = {"classification": "Classification", "tagging": "Tagging", "qa": "Question answering"}
QA_ONLY = ("stride", "query", "answer", "n_best")


def datasets() -> str:
    """Return one table of data sets for each type of task."""
    header = ["data set", "files below the data folder", "metrics", "trained on the first of"]
    parts = []
    for task_type, title in TITLES.items():
        rows = [_row(dataset) for dataset in DATASETS.values() if dataset.task_type == task_type]
        parts += [f"### {title}\n", table(header, rows)]
    return "\n".join(parts)


def translated_files() -> str:
    """Return the files of translated training, dev and test splits."""
    rows = [
        [code(name), *map(_file_list, translations)]
        for name, dataset in DATASETS.items()
        if any(translations := (dataset.training_translations, dataset.test_translations))
    ]
    return table(["data set", "training split", "dev and test splits"], rows)


def default_settings() -> str:
    """Return the default settings by type of task, and which grids each data set has."""
    names = [field.name for field in fields(FinetuneHyperparameters)]
    pairs = [(task_type, _defaults(task_type)) for task_type in TITLES]
    rows = [
        [code(name), *("" if name in QA_ONLY and kind != "qa" else f"{getattr(each, name):g}" for kind, each in pairs)]
        for name in names
    ]
    grids = [
        [code(name), ", ".join(code(grid) for grid in dataset.grids)]
        for name, dataset in DATASETS.items()
        if dataset.grids
    ]
    others = [
        [code(dataset.name), ", ".join(code(setting) for setting in _changes(dataset, _defaults(dataset.task_type)))]
        for dataset in DATASETS.values()
        if dataset.hyperparameters != _defaults(dataset.task_type)
    ]
    return "\n".join(
        [
            table(["key", *map(str.lower, TITLES.values())], rows),
            table(["data set", "other defaults"], others),
            table(["data set", "grids"], grids),
        ]
    )


def _row(dataset: BenchmarkDataset) -> list[str]:
    metrics = ", ".join(map(code, dataset.metrics))
    trained_on = ", ".join(map(code, dataset.training_sets or (dataset.name,)))
    return [code(dataset.name), _file_list(dataset.patterns), metrics, trained_on]


def _file_list(patterns: Sequence[FilePattern]) -> str:
    """Return file names separated by commas. Patterns of several splits may have one name."""
    return ", ".join(dict.fromkeys(code(_files(pattern)) for pattern in patterns))


def _files(pattern: FilePattern) -> str:
    """Return file names with their splits as a shell writes them: `xnli/{train,dev,test}-LL.tsv`."""
    splits = ",".join(pattern.splits.values())
    name = pattern.pattern.replace("{split}", f"{{{splits}}}" if len(pattern.splits) > 1 else splits)
    return name.replace("{language}", "LL").replace("{question}", "QQ").replace("{into}", "XX")


def _defaults(task_type: str) -> FinetuneHyperparameters:
    """Return the default settings of most data sets of a type."""
    used = Counter(dataset.hyperparameters for dataset in DATASETS.values() if dataset.task_type == task_type)
    return used.most_common(1)[0][0]


def _changes(dataset: BenchmarkDataset, defaults: FinetuneHyperparameters) -> list[str]:
    """Return the settings of a data set that differ, such as `length=512`."""
    return [
        f"{field.name}={getattr(dataset.hyperparameters, field.name):g}"
        for field in fields(defaults)
        if getattr(dataset.hyperparameters, field.name) != getattr(defaults, field.name)
    ]
