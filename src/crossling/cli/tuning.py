"""The verb that fine-tunes, and how scores of fine-tuned models are shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from crossling.cli.options import Json
from crossling.errors import BadInput

if TYPE_CHECKING:
    from crossling.evaluate.analysis import TaskScore


def finetune(
    model: Annotated[
        str, typer.Argument(help="A run, an exported folder, a Hugging Face encoder, or a translator to go on from.")
    ],
    task: Annotated[
        str, typer.Option(help="A data set: xnli, pawsx, udpos, panx, xquad, mlqa, tydiqa, sst2, ...; or translation.")
    ],
    data: Annotated[Path, typer.Option(help="A folder of benchmark data, or of parallel text.")],
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
    plug_in: Annotated[
        bool, typer.Option("--plug-in", help="As VECO: each example is read with its translation, at test time too.")
    ] = False,
    pairs: Annotated[
        str | None, typer.Option(help="en-de,de-en: of translation, from which language to which.")
    ] = None,
    random: Annotated[
        bool, typer.Option("--random", help="Of translation: the shape of the model, and none of its weights.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value: lr, epochs, steps, batch, length, warmup, seed, checkpoint_every, ..."),
    ] = None,
    json_: Json = False,
) -> None:
    """Fine-tune an encoder for a task and score it in every language; goes on where it was stopped.

    Example: crossling finetune run --task xnli --data babel/data -o tuned --seeds 5 --set lr=2e-5
    Example: crossling finetune run --task translation --pairs en-de,de-en --data multi30k -o mt
    """
    from crossling.evaluate.asked import check_trained
    from crossling.hub import local_folder

    overrides = dict(_pair(assignment) for assignment in set_ or [])
    check_trained(task, model, data)  # what is refused is refused before torch is imported
    if not data.is_dir():
        raise BadInput(f"{data}: no such folder; give the one with the data in it")
    local_folder(model)
    from crossling.distributed import speaks, together
    from crossling.finetune.finetune import finetune

    with together():
        rows = finetune(
            model,
            task,
            data,
            out,
            setting,  # type: ignore[arg-type]
            seeds,
            selection,  # type: ignore[arg-type]
            grid,
            plug_in,
            pairs,
            random,
            **overrides,
        )
        if not speaks():
            return
        if json_:
            for row in rows:
                print(json.dumps(row))
        else:
            print_by_language(rows)
            print(out)


def print_by_language(rows: Sequence[dict[str, Any]]) -> None:
    """A table for each task: every language, and the mean over those of the papers' list, as the report takes it."""
    from crossling.evaluate.analysis import QUESTIONS, task_scores

    for task in dict.fromkeys(row["task"] for row in rows):
        found = [score for score in task_scores(rows) if score.measure.task == task]
        own = [row for row in rows if row["task"] == task]
        columns = list(dict.fromkeys((row["metric"], row["protocol"]) for row in own))
        table = Table("language", title=f"{task}, {own[0]['setting']}, %")
        for metric, protocol in columns:
            table.add_column(f"{metric} ({protocol})", justify="right")
        for language, split in dict.fromkeys((row["language"], row.get("split", "test")) for row in own):
            here = [row for row in own if (row["language"], row.get("split", "test")) == (language, split)]
            values = ([row["value"] for row in here if (row["metric"], row["protocol"]) == each] for each in columns)
            cells = (f"{fmean(each):.1f}" if each else "" for each in values)
            table.add_row(language if split == "test" else f"{language} ({split})", *cells)
        for split in dict.fromkeys(score.measure.split for score in found):
            means = {
                (score.measure.metric, score.measure.protocol): score
                for score in found
                if score.measure.split == split and score.measure.metric != QUESTIONS
            }
            _add_means(table, split, [means[each] for each in columns if each in means])
        Console().print(table)
        for metric, signature in dict.fromkeys((row["metric"], row["signature"]) for row in own if "signature" in row):
            print(f"{metric}: {signature}")


def _add_means(table: Table, split: str, scores: Sequence[TaskScore]) -> None:
    table.add_section()
    told = f"mean of {scores[0].listed}" + ("" if split == "test" else f" ({split})")
    table.add_row(told, *(f"[bold]{score.mean:.1f}[/]" for score in scores))
    seeds = len(scores[0].seeds.values)
    if seeds > 1:
        table.add_row(f"median of {seeds} seeds", *(f"{score.seeds.median:.1f}" for score in scores))
        table.add_row("deviation", *(f"{score.seeds.deviation:.2f}" for score in scores))


def _pair(assignment: str) -> tuple[str, str]:
    key, equals, value = assignment.partition("=")
    if not equals or not key:
        raise BadInput(f"--set {assignment}: expected key=value, for instance --set lr=2e-5")
    return key, value
