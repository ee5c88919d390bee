"""The verbs that score and compare: evaluate, align, report, bench; and demo, which ends in scores."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from crossling import __version__
from crossling.cli.options import Json, Out, Seed


def demo(out: Out = Path("demo"), seed: Seed = 0, json_: Json = False) -> None:
    """The whole path on constructed languages, on a CPU in minutes; ends with a page to open.

    Example: crossling demo -o demo
    """
    from crossling.demo import demo

    rows = demo(out, seed=seed)
    if json_:
        _print_json(rows)
    else:
        _print_scores(rows)
        print(f"\nOpen {out / 'report.html'}")


def evaluate(
    model: Annotated[str, typer.Argument(help="A run, an exported folder, or a Hugging Face encoder.")],
    task: Annotated[str, typer.Option(help="tatoeba, word-alignment, or both with a comma.")],
    data: Annotated[Path, typer.Option(help="A folder of benchmark data.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Adds the rows to scores.jsonl there.")] = None,
    json_: Json = False,
) -> None:
    """Score an encoder: every layer, both directions.

    Example: crossling evaluate run --task tatoeba,word-alignment --data babel/data -o run
    """
    from crossling.evaluate.evaluate import evaluate
    from crossling.load import load

    rows = evaluate(load(model), task.split(","), data, out)
    if json_:
        _print_json(rows)
    else:
        _print_scores(rows)


def align(
    file: Annotated[Path, typer.Argument(help="Lines of `source ||| target`.")],
    model: Annotated[str, typer.Option(help="A run, an exported folder, or a Hugging Face encoder.")],
    json_: Json = False,
) -> None:
    """Word alignments, one line of Pharaoh `i-j` links for each line of the file.

    Example: crossling align pairs.txt --model run
    """
    from crossling.evaluate.alignment import align
    from crossling.load import load

    for links in align(load(model), file):
        print(json.dumps(links) if json_ else " ".join(f"{i}-{j}" for i, j in links))


def report(
    folders: Annotated[list[Path], typer.Argument(help="Runs, or folders of runs.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The page to write.")] = Path("report.html"),
) -> None:
    """One self-contained page: tables and plots of the runs side by side.

    Example: crossling report runs/xlm_e runs/xlm -o report.html
    """
    from crossling.evaluate.report import report

    print(report(folders, out))


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="step, attention, head, data, encode, evaluate, growth; all if none is given."
        ),
    ] = None,
    corpora: Annotated[Path | None, typer.Option(help="Text for data to read; else embedded languages.")] = None,
    size: Annotated[
        str | None, typer.Option(help="tiny, small, base, large or xl; if not said base, on a CPU less than tiny.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="A file for the results; how cost grows is drawn beside it.")
    ] = None,
    json_: Json = False,
) -> None:
    """Speed and memory of the parts, each beside its peer, in one run.

    Example: crossling bench step attention -o benchmarks/results/step.json
    """
    from crossling.bench import bench
    from crossling.bench.results import Results, figure

    measured = bench(names or (), corpora, size)
    kept = Results(out, " ".join(["crossling", *sys.argv[1:]]), __version__) if out else None
    table = Table("bench", "ours", "peer", "ratio", "unit", "MFU", "GiB", "beside")
    try:
        for row in measured:
            if kept is not None:
                kept.add(row)
            if json_:
                print(json.dumps(row.dump()), flush=True)
            shares = [f"{share:.3g}{times}" if share else "" for share, times in ((row.ratio, "x"), (row.mfu, ""))]
            figures = [figure(value) for value in (row.ours, row.peer, row.peak_gib)]
            table.add_row(row.name, *figures[:2], shares[0], row.unit, shares[1], figures[2], row.peer_name)
    finally:  # what was measured before something failed
        if not json_ and table.rows:
            Console().print(table)


def _print_json(rows: list[dict[str, object]]) -> None:
    for row in rows:
        print(json.dumps(row))


def _print_scores(rows: list[dict[str, object]]) -> None:
    """Means over languages and directions, by layer; the best layer is bold."""
    from crossling.evaluate.retrieval import by_list
    from crossling.evaluate.scores import Summary, summary

    tables: dict[tuple[str, ...], list[Summary]] = {}
    for found in summary([*rows, *by_list(rows)]):
        tables.setdefault((found.task, found.metric, found.protocol, found.split), []).append(found)
    for (task, metric, protocol, split), found_models in tables.items():
        layers = sorted({layer for found in found_models for layer in found.by_layer})
        name = task if split == "test" else f"{task} {split}"
        table = Table("model", *map(str, layers), title=f"{name}: {metric} ({protocol}) by layer, mean, %")
        for found in found_models:
            cells = [f"{found.by_layer[k]:.1f}" if k in found.by_layer else "" for k in layers]
            table.add_row(
                found.model,
                *(f"[bold]{c}[/]" if k == found.best_layer else c for k, c in zip(layers, cells, strict=True)),
            )
        Console().print(table)
