"""Tables of training-free tasks on the terminal: languages at the best layer, then the mean at every layer.

The rows of protocol `xtreme` are printed for models of 12 and 24 layers only. XTREME's scripts define their layer for
these; at another depth the row is in `scores.jsonl` and would look like a second, worse result on the terminal.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from crossling.tasks.scores import LayerSummary, ScoreRow

XTREME, MTEB, DECLARED = "xtreme", "mteb", "declared"
XTREME_DEPTHS = (12, 24)
NO_BREAK = "\N{NO-BREAK SPACE}"
MIN_COVERAGE = 0.5  # of a list of the papers whose mean is printed
ALIGNMENT_METRICS = ("aer", "precision", "recall", "f_measure")  # the first selects the layer
_METRICS = {"accuracy": "accuracy", "aer": "alignment error rate (lower is better)"}


@dataclass(frozen=True)
class ModelLayers:
    """Depth of a model and the layer that it reads by default."""

    depth: int
    universal: int | None = None


def print_training_free(rows: Sequence[ScoreRow], layers: ModelLayers) -> None:
    """Print the results of one model: one table of languages for each task, and the mean by layer.

    Args:
        rows: Rows of training-free tasks, as `evaluate` returns them.
        layers: Layers of the model.
    """
    rows = [row for row in rows if row["protocol"] != XTREME or layers.depth in XTREME_DEPTHS]
    for task in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == task]
        with_layers = {row["protocol"] for row in own if row["layer"] == 0} - {MTEB}
        swept = [row for row in own if row["protocol"] in with_layers]
        if not swept:
            _print_chosen_layers(own)
        elif any("direction" in row for row in swept):
            _print_directions(swept, own, layers)
        else:
            _print_pairs(swept, layers)


def _print_directions(swept: Sequence[ScoreRow], rows: Sequence[ScoreRow], layers: ModelLayers) -> None:
    """Print retrieval: both directions of every language, and the protocols at one layer in columns of their own."""
    from crossling.evaluate.retrieval import group_by_paper_list

    xtreme = [row for row in rows if row["protocol"] == XTREME]
    mteb = [row for row in rows if row["protocol"] == MTEB and row["direction"] != "en-xx"]  # MTEB's direction
    declared = [row for row in rows if row["protocol"] == DECLARED]
    fixed = [each for each in (xtreme, declared, mteb) if each]
    for best in _summaries(swept):
        own = [row for row in swept if row["protocol"] == best.protocol]
        at_best = [row for row in own if row["layer"] == best.best_layer]
        table = Table()
        table.add_column("language", no_wrap=True)
        headings = ("sentences", *_direction_names(at_best), "mean")
        names = (f"{each[0]['protocol']}{' F1' * (each is mteb)}, layer {each[0]['layer']}" for each in fixed)
        for heading in (*headings, *names):
            table.add_column(heading, justify="right")
        for language in dict.fromkeys(row["language"] for row in at_best):
            here = [row for row in at_best if row["language"] == language]
            forward = [row for row in here if row["direction"] in ("en-xx", language)]
            backward = [row for row in here if row not in forward]
            extra = ([row for row in each if row["language"] == language] for each in fixed)
            columns: list[Sequence[ScoreRow]] = [forward, backward, here, *extra]
            table.add_row(language, f"{here[0]['examples']:,}", *map(_mean_cell, columns))
        table.add_section()
        languages = len({row["language"] for row in at_best})
        means = {f"mean of {_count(languages, at_best)}": [at_best, *fixed]} if languages > 1 else {}
        listed = [group_by_paper_list(each) for each in (at_best, *fixed)]
        for name in dict.fromkeys(row["task"] for row in listed[0]):
            if _coverage(name) >= MIN_COVERAGE:
                means[name] = [[row for row in each if row["task"] == name] for each in listed]
        for name, (both, *others) in means.items():
            forward = [row for row in both if row["direction"] in ("en-xx", row["language"])]
            columns = [forward, [row for row in both if row not in forward], both, *others]
            table.add_row(name, "", *(f"[bold]{_mean_cell(column)}[/]" for column in columns))
        _print_table(_title(best, layers), table)
        _print_means_by_layer(best, layers)
    _print_dimensions(rows)


def _print_dimensions(rows: Sequence[ScoreRow]) -> None:
    """Print the mean of vectors truncated to each dimension, and of whole ones at the same layer."""
    truncated = [row for row in rows if "dimension" in row]
    for pooling, layer in dict.fromkeys((row["pooling"], row["layer"]) for row in truncated):
        own = [row for row in truncated if (row["pooling"], row["layer"]) == (pooling, layer)]
        protocol = own[0]["protocol"].rpartition("-")[0]
        whole = [row for row in rows if (row["protocol"], row["pooling"], row["layer"]) == (protocol, pooling, layer)]
        table = Table()
        for heading in ("dimensions", *_direction_names(own), "mean"):
            table.add_column(heading, justify="right")
        by_dimension = {str(row["dimension"]): row["dimension"] for row in own}
        groups = {name: [row for row in own if row["dimension"] == m] for name, m in by_dimension.items()}
        for name, here in (groups | {"all": whole}).items():
            forward = [row for row in here if row["direction"] in ("en-xx", row["language"])]
            backward = [row for row in here if row not in forward]
            table.add_row(name, *map(_mean_cell, (forward, backward, here)))
        _print_table(f"{own[0]['task']}: mean by dimension, {protocol}, layer {layer}", table)


def _print_pairs(swept: Sequence[ScoreRow], layers: ModelLayers) -> None:
    """Print word alignment: every language pair at the best layer. Several methods have a column of AER each."""
    summaries = [summary for summary in _summaries(swept) if summary.metric == ALIGNMENT_METRICS[0]]
    title = _title(summaries[0], layers) if len(summaries) == 1 else _heading(summaries[0])
    table = Table("pair")
    table.add_column("sentences", justify="right")
    columns = []
    for best in summaries:
        at_best = [row for row in swept if (row["protocol"], row["layer"]) == (best.protocol, best.best_layer)]
        present = {row["metric"] for row in at_best} if len(summaries) == 1 else {best.metric}
        for metric in (metric for metric in ALIGNMENT_METRICS if metric in present):
            name = metric.replace("_", "-") if len(summaries) == 1 else f"{best.protocol}, layer {best.best_layer}"
            table.add_column(name, justify="right")
            columns.append([row for row in at_best if row["metric"] == metric])
    for pair in dict.fromkeys(row["language"] for row in swept):
        cells = [[row for row in column if row["language"] == pair] for column in columns]
        table.add_row(pair, f"{cells[0][0]['examples']:,}", *map(_mean_cell, cells))
    table.add_section()
    table.add_row(
        f"mean of {_count(len({row['language'] for row in swept}), swept)}",
        "",
        *(f"[bold]{_mean_cell(column)}[/]" for column in columns),
    )
    _print_table(title, table)
    for best in summaries:
        _print_means_by_layer(best, layers, name=best.protocol if len(summaries) > 1 else "")


def _print_chosen_layers(rows: Sequence[ScoreRow]) -> None:
    """Print a task that is scored at a few layers, as BUCC: every pair, split, protocol and layer."""
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    table = Table("language", "split", "protocol", "layer")
    for metric in metrics:
        table.add_column(metric, justify="right")

    def add(name: str, chosen: Sequence[ScoreRow], style: str) -> None:
        for split, protocol, layer in dict.fromkeys((row["split"], row["protocol"], row["layer"]) for row in chosen):
            here = [row for row in chosen if (row["split"], row["protocol"], row["layer"]) == (split, protocol, layer)]
            cells = (_mean_cell([row for row in here if row["metric"] == metric]) for metric in metrics)
            table.add_row(name, split, protocol, str(layer), *(f"{style}{cell}" for cell in cells))

    pairs = list(dict.fromkeys(row["language"] for row in rows))
    for pair in pairs:
        add(pair, [row for row in rows if row["language"] == pair], "")
    table.add_section()
    add(f"mean of {_count(len(pairs), rows)}", rows, "[bold]")
    _print_table(f"{rows[0]['task']}: {', '.join(metrics)}, %, model {rows[0]['model']}", table)


def _print_means_by_layer(best: LayerSummary, layers: ModelLayers, name: str = "") -> None:
    """Print the mean at every layer on one line, the best one and the universal layer marked."""
    cells = []
    for layer, value in best.by_layer.items():
        marks = {"best": layer == best.best_layer, "universal layer": layer == layers.universal}
        marked = ", ".join(mark for mark, applies in marks.items() if applies)
        cells.append(f"{layer}: {value:.1f}" + (f" ({marked})" if marked else ""))
    line = f"{name + ', mean' if name else 'Mean'} by layer:   {'   '.join(map(_unbroken, cells))}"
    for part in textwrap.wrap(line, Console().width, subsequent_indent="  ", drop_whitespace=True):
        print(part.replace(NO_BREAK, " "))


def _unbroken(cell: str) -> str:
    return cell.replace(" ", NO_BREAK)


def _summaries(rows: Sequence[ScoreRow]) -> Iterable[LayerSummary]:
    from crossling.tasks.scores import summarize_layers

    return summarize_layers(rows)


def _heading(best: LayerSummary) -> str:
    pooling = f", {best.pooling} pooling" if best.pooling not in (None, "mean") else ""
    protocol = f", {best.protocol}" if best.protocol == "plug-in" else ""
    return f"{best.task}: {_METRICS.get(best.metric, best.metric)}, %{pooling}{protocol}, model {best.model}"


def _title(best: LayerSummary, layers: ModelLayers) -> str:
    return f"{_heading(best)}, best layer {best.best_layer} of {layers.depth}"


def _direction_names(rows: Iterable[ScoreRow]) -> tuple[str, str]:
    if all(row["direction"] in ("en-xx", "xx-en") for row in rows):
        return "en → xx", "xx → en"
    return "forward", "backward"  # qaa → qab and qab → qaa of qaa-qab


def _coverage(name: str) -> float:
    """Return the present fraction of a list: 0.75 of `tatoeba-36 (27 of 36)`."""
    _, bracket, counts = name.partition(" (")
    if not bracket:
        return 1.0
    present, _, total = counts.rstrip(")").partition(" of ")
    return int(present) / int(total)


def _count(number: int, rows: Sequence[ScoreRow]) -> str:
    noun = "pair" if all("-" in row["language"] for row in rows) else "language"
    return f"{number} {noun}{'s' * (number != 1)}"


def _mean_cell(rows: Sequence[ScoreRow]) -> str:
    return f"{fmean(row['value'] for row in rows):.1f}" if rows else ""


def _print_table(title: str, table: Table) -> None:
    print(title)
    Console().print(table)
