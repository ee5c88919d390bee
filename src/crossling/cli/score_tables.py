"""Tables of scores on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from crossling.report.analysis import TaskScore

Row = dict[str, Any]


def print_by_language(rows: Sequence[Row]) -> None:
    """Print one table per task: every language, and the mean over the papers' list of languages."""
    from crossling.report.analysis import QA_MEAN, task_scores
    from crossling.tasks.scores import SUPERVISED, describe_setting

    for task in dict.fromkeys(row["task"] for row in rows):
        scores = [score for score in task_scores(rows) if score.measure.task == task]
        own = [row for row in rows if row["task"] == task]
        columns = list(dict.fromkeys((row["metric"], row["protocol"]) for row in own))
        supervised = {row["language"] for row in own if row["setting"] == SUPERVISED}
        settings = dict.fromkeys(row["setting"] for row in own if row["language"] not in supervised)
        setting = describe_setting(", ".join(settings), {row["language"] for row in own}, supervised)
        table = Table("language", title=f"{task}, {setting}, %")
        for metric, protocol in columns:
            table.add_column(f"{metric} ({protocol})", justify="right")
        for language, split in dict.fromkeys((row["language"], row.get("split", "test")) for row in own):
            here = [row for row in own if (row["language"], row.get("split", "test")) == (language, split)]
            values = ([row["value"] for row in here if (row["metric"], row["protocol"]) == key] for key in columns)
            cells = (_mean_cell(column) for column in values)
            table.add_row(language if split == "test" else f"{language} ({split})", *cells)
        for split in dict.fromkeys(score.measure.split for score in scores):
            means = {
                (score.measure.metric, score.measure.protocol): score
                for score in scores
                if score.measure.split == split and score.measure.metric != QA_MEAN
            }
            _add_means(table, split, [means.get(key) for key in columns])
        Console().print(table)
        for metric, signature in dict.fromkeys((row["metric"], row["signature"]) for row in own if "signature" in row):
            print(f"{metric}: {signature}")


def print_by_direction(rows: Sequence[Row]) -> None:
    """Print the dev scores of sentence vectors, before and after training."""
    table = Table("direction", "metric", title=f"{rows[0]['task']}, {rows[0]['language']} (dev), %")
    seeds = list(dict.fromkeys(row.get("seed") for row in rows))
    for seed in seeds:
        table.add_column("before" if seed is None else f"seed {seed}", justify="right")
    for direction, metric in dict.fromkeys((row["direction"], row["metric"]) for row in rows):
        own = [row for row in rows if (row["direction"], row["metric"]) == (direction, metric)]
        values = {row.get("seed"): f"{row['value']:.1f}" for row in own}
        table.add_row(direction, metric, *(values.get(seed, "") for seed in seeds))
    Console().print(table)


def _mean_cell(values: Sequence[float | None]) -> str:
    defined = [value for value in values if value is not None]
    if len(defined) < len(values):
        return "n.a."
    return f"{fmean(defined):.1f}" if values else ""


def _add_means(table: Table, split: str, columns: Sequence[TaskScore | None]) -> None:
    table.add_section()
    first = next(score for score in columns if score is not None)
    label = f"mean of {first.coverage}" + ("" if split == "test" else f" ({split})")
    table.add_row(label, *(f"[bold]{score.mean:.1f}[/]" if score else "n.a." for score in columns))
    seeds = len(first.seeds.values)
    if seeds > 1:
        table.add_row(f"median of {seeds} seeds", *(f"{score.seeds.median:.1f}" if score else "" for score in columns))
        table.add_row("deviation", *(f"{score.seeds.deviation or 0:.2f}" if score else "" for score in columns))


def print_means(rows: Sequence[Row]) -> None:
    """Print one row for each model and metric: the mean over languages and directions at the best layer."""
    from crossling.tasks.scores import summarize_layers

    table = Table("model", "task", "metric", title="Mean over languages at the best layer, %", title_justify="left")
    for heading in ("layer", "mean"):
        table.add_column(heading, justify="right")
    for best in summarize_layers(rows):
        table.add_row(best.model, best.task, best.metric, str(best.best_layer), f"{best.best:.1f}")
    Console().print(table)
