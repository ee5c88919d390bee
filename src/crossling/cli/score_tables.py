"""Tables of scores on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from crossling.report.analysis import TaskScore
    from crossling.tasks.scores import LayerSummary

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


def print_scores(rows: Sequence[Row]) -> None:
    """Print means over languages and directions: by layer where every layer was scored, else by metric."""
    from crossling.evaluate.retrieval import group_by_paper_list
    from crossling.tasks.scores import summarize_layers

    by_layer: dict[tuple[str, ...], list[LayerSummary]] = {}
    fixed_layer: list[LayerSummary] = []
    for mean in summarize_layers([*rows, *group_by_paper_list(rows)]):
        if 0 in mean.by_layer:
            by_layer.setdefault((_task_name(mean), mean.metric, mean.protocol), []).append(mean)
        else:
            fixed_layer.append(mean)
    for (name, metric, protocol), means in by_layer.items():
        layers = sorted({layer for mean in means for layer in mean.by_layer})
        table = Table("model", *map(str, layers), title=f"{name}: {metric} ({protocol}) by layer, mean, %")
        for mean in means:
            cells = [f"{mean.by_layer[layer]:.1f}" if layer in mean.by_layer else "" for layer in layers]
            marked = zip(layers, cells, strict=True)
            table.add_row(
                mean.model, *(f"[bold]{cell}[/]" if layer == mean.best_layer else cell for layer, cell in marked)
            )
        Console().print(table)
    metrics: dict[str, tuple[str, ...]] = {
        task: tuple(dict.fromkeys(mean.metric for mean in fixed_layer if mean.task == task))
        for task in dict.fromkeys(mean.task for mean in fixed_layer)
    }
    for columns in dict.fromkeys(metrics.values()):
        _print_fixed_layer([mean for mean in fixed_layer if metrics[mean.task] == columns], columns)


def _print_fixed_layer(means: Sequence[LayerSummary], metrics: Sequence[str]) -> None:
    values: dict[tuple[str, str, str, int], dict[str, float]] = {}
    for mean in means:
        for layer, value in mean.by_layer.items():
            values.setdefault((mean.model, _task_name(mean), mean.protocol, layer), {})[mean.metric] = value
    table = Table("model", "task", "protocol", "layer", *metrics, title="At the layer of the protocol: mean, %")
    for (*names, layer), row in values.items():
        table.add_row(*names, str(layer), *(f"{row[metric]:.1f}" if metric in row else "" for metric in metrics))
    Console().print(table)


def _task_name(mean: LayerSummary) -> str:
    return mean.task if mean.split == "test" else f"{mean.task} {mean.split}"
