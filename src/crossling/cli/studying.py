"""The verb that puts recipes to the test against each other: lab."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from crossling.cli.options import Json


def lab(
    plan: Annotated[
        str, typer.Argument(help="papers, rosetta, embedded, embedded-all, or a plan of your own (.json).")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="LAB", help="The folder to write.")],
    shards: Annotated[Path | None, typer.Option(help="A folder made by crossling encode, for all runs.")] = None,
    data: Annotated[Path | None, typer.Option(help="A folder of benchmark data.")] = None,
    only: Annotated[str | None, typer.Option(help="Runs by comma, for a process of its own; all if not given.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Stop in good order after so many; the same command goes on.")
    ] = None,
    json_: Json = False,
) -> None:
    """Train the runs of a plan under one budget, measure them, and say which claims of the papers held.

    Example: crossling lab embedded -o lab

    Example: crossling lab papers -o lab --shards shards --data data --minutes 25
    """
    from crossling.laboratory.lab import lab

    board = lab(plan, out, shards, data, only=None if only is None else only.split(","), minutes=minutes)
    if json_:
        print(json.dumps(board))
        return
    for table in (_scores(board), _claims(board)):
        if table.row_count:
            Console().print(table)
    print(out / "results.md")


def _scores(board: Mapping[str, Any]) -> Table:
    from crossling.progress import duration

    measures = list(
        dict.fromkeys(
            (task, metric) for run in board["runs"] for task, found in run["scores"].items() for metric in found
        )
    )
    table = Table("run", "seed", "state", title="scores, % (layer)")
    for heading in ("FLOPs", "time", *(f"{task} {metric}" for task, metric in measures)):
        table.add_column(heading, justify="right")
    for run in board["runs"]:
        cost = run["cost"]
        spent = (f"{cost['flops']['full']:.3g}", duration(cost["seconds"])) if cost else ("", "")
        cells = [_cell(run["scores"].get(task, {}).get(metric)) for task, metric in measures]
        table.add_row(run["run"], str(run["seed"]), run["state"], *spent, *cells)
    return table


def _claims(board: Mapping[str, Any]) -> Table:
    from crossling.laboratory.results import told_of

    table = Table("claim", "at", "what was found", title="claims")
    for claim in board["claims"]:
        for view, found in claim["views"].items():
            table.add_row(claim["claim"], view, told_of(found))
    return table


def _cell(score: Mapping[str, Any] | None) -> str:
    if score is None:
        return ""
    return f"{score['mean']:.1f}" + (f" ({score['layer']})" if score["layer"] is not None else "")
