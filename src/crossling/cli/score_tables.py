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

    for task in dict.fromkeys(row["task"] for row in rows):
        scores = [score for score in task_scores(rows) if score.measure.task == task]
        own = [row for row in rows if row["task"] == task]
        columns = list(dict.fromkeys((row["metric"], row["protocol"]) for row in own))
        table = Table("language", title=f"{task}, {own[0]['setting']}, %")
        for metric, protocol in columns:
            table.add_column(f"{metric} ({protocol})", justify="right")
        for language, split in dict.fromkeys((row["language"], row.get("split", "test")) for row in own):
            here = [row for row in own if (row["language"], row.get("split", "test")) == (language, split)]
            values = ([row["value"] for row in here if (row["metric"], row["protocol"]) == key] for key in columns)
            cells = (f"{fmean(column):.1f}" if column else "" for column in values)
            table.add_row(language if split == "test" else f"{language} ({split})", *cells)
        for split in dict.fromkeys(score.measure.split for score in scores):
            means = {
                (score.measure.metric, score.measure.protocol): score
                for score in scores
                if score.measure.split == split and score.measure.metric != QA_MEAN
            }
            _add_means(table, split, [means[key] for key in columns if key in means])
        Console().print(table)
        for metric, signature in dict.fromkeys((row["metric"], row["signature"]) for row in own if "signature" in row):
            print(f"{metric}: {signature}")


def _add_means(table: Table, split: str, scores: Sequence[TaskScore]) -> None:
    table.add_section()
    label = f"mean of {scores[0].coverage}" + ("" if split == "test" else f" ({split})")
    table.add_row(label, *(f"[bold]{score.mean:.1f}[/]" for score in scores))
    seeds = len(scores[0].seeds.values)
    if seeds > 1:
        table.add_row(f"median of {seeds} seeds", *(f"{score.seeds.median:.1f}" for score in scores))
        table.add_row("deviation", *(f"{score.seeds.deviation:.2f}" for score in scores))


def print_means(rows: Sequence[Row]) -> None:
    """Print one row for each model and metric: the mean over languages and directions at the best layer."""
    from crossling.tasks.scores import summarize_layers

    table = Table("model", "task", "metric", title="Mean over languages at the best layer, %", title_justify="left")
    for heading in ("layer", "mean"):
        table.add_column(heading, justify="right")
    for best in summarize_layers(rows):
        table.add_row(best.model, best.task, best.metric, str(best.best_layer), f"{best.best:.1f}")
    Console().print(table)
