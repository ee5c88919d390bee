"""The verb that fine-tunes, and how scores of fine-tuned models are shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from crossling.cli.options import Json
from crossling.errors import BadInput


def finetune(
    model: Annotated[str, typer.Argument(help="A run, an exported folder, or a Hugging Face encoder.")],
    task: Annotated[str, typer.Option(help="A data set: xnli, pawsx, udpos, panx, xquad, mlqa, tydiqa, sst2, ...")],
    data: Annotated[Path, typer.Option(help="A folder of benchmark data.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="TUNED", help="The folder to write.")],
    setting: Annotated[
        str, typer.Option(help="zero-shot: trained on one language; translate-train: on its translations too.")
    ] = "zero-shot",
    seeds: Annotated[int, typer.Option(help="How many models, each from a seed of its own.", min=1)] = 1,
    selection: Annotated[
        str, typer.Option(help="By what a state is chosen: english-dev, all-dev, each-dev or last.")
    ] = "english-dev",
    grid: Annotated[
        str | None, typer.Option(help="Settings to try first, by paper: xlm-e, infoxlm, veco, xy-lent.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value: lr, epochs, steps, batch, length, warmup, seed, checkpoint_every, ..."),
    ] = None,
    json_: Json = False,
) -> None:
    """Fine-tune an encoder for a task and score it in every language; goes on where it was stopped.

    Example: crossling finetune run --task xnli --data babel/data -o tuned --seeds 5 --set lr=2e-5
    """
    from crossling.distributed import speaks, together
    from crossling.finetune.finetune import finetune

    overrides = dict(_pair(assignment) for assignment in set_ or [])
    with together():
        rows = finetune(model, task, data, out, setting, seeds, selection, grid, **overrides)  # type: ignore[arg-type]
        if not speaks():
            return
        if json_:
            for row in rows:
                print(json.dumps(row))
        else:
            print_by_language(rows)
            print(out)


def print_by_language(rows: Sequence[dict[str, Any]]) -> None:
    """A table for each task: the mean over seeds of each language; and over languages, by which papers compare."""
    from crossling.evaluate.scores import Spread

    for task in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == task]
        metrics = list(dict.fromkeys((row["metric"], row["protocol"]) for row in own))
        seeds = list(dict.fromkeys(row.get("seed") for row in own))
        table = Table("language", title=f"{task}, {own[0]['setting']}, %")
        for metric, protocol in metrics:
            table.add_column(f"{metric} ({protocol})", justify="right")
        for language, split in dict.fromkeys((row["language"], row.get("split", "test")) for row in own):
            found = [row for row in own if (row["language"], row.get("split", "test")) == (language, split)]
            cells = [[row["value"] for row in found if (row["metric"], row["protocol"]) == each] for each in metrics]
            name = language if split == "test" else f"{language} ({split})"
            table.add_row(name, *(f"{fmean(values):.1f}" if values else "" for values in cells))
        spreads = [
            Spread(
                tuple(
                    fmean(
                        row["value"]
                        for row in own
                        if (*each, seed) == (row["metric"], row["protocol"], row.get("seed"))
                    )
                    for seed in seeds
                )
            )
            for each in metrics
        ]
        table.add_section()
        table.add_row("mean", *(f"[bold]{spread.mean:.1f}[/]" for spread in spreads))
        if len(seeds) > 1:
            table.add_row(f"median of {len(seeds)} seeds", *(f"{spread.median:.1f}" for spread in spreads))
            table.add_row("deviation", *(f"{spread.deviation:.2f}" for spread in spreads))
        Console().print(table)


def _pair(assignment: str) -> tuple[str, str]:
    key, equals, value = assignment.partition("=")
    if not equals or not key:
        raise BadInput(f"--set {assignment}: expected key=value, for instance --set lr=2e-5")
    return key, value
