"""Commands that score and compare: evaluate, report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import crossling as xl
from crossling.cli.closing import finish, this_command, unused
from crossling.cli.layer_tables import ModelLayers, print_training_free
from crossling.cli.options import Checkpoints, Json, Pooling, argument, check_model, flag, option
from crossling.cli.published_table import print_published
from crossling.cli.score_tables import print_by_language
from crossling.core.errors import BadInput


def evaluate(
    task: Annotated[
        str | None, option("TASKS", "tatoeba, flores, bucc2018, word-alignment, or a fine-tuned model's.")
    ] = None,
    data: Annotated[Path | None, option("FOLDER", "Folder of benchmark data.")] = None,
    pairs: Annotated[
        Path | None, option("FILE", "Score retrieval on own sentence pairs: TSV, CSV, xlsx or TMX.")
    ] = None,
    model: Annotated[
        str | None,
        argument(
            "[MODEL]",
            "Run, exported or fine-tuned folder, translator or Hugging Face encoder. [default: the bundled model]",
        ),
    ] = None,
    out: Annotated[
        Path | None, option("FOLDER", "Add the rows to scores.jsonl here and keep predictions.", "-o", "--out")
    ] = None,
    languages: Annotated[
        str | None, option("LIST", "Score only these, as sw,th,de-en. [default: all in --data]")
    ] = None,
    pooling: Pooling = "auto",
    prompt: Annotated[str | None, option("PROMPT", "Put this before each sentence, as 'query: '.", "--prompt")] = None,
    method: Annotated[str, option("METHODS", "Word alignment by ot, argmax or itermax, comma-separated.")] = "ot",
    layers: Annotated[str | None, option("LIST", "Layers for bucc2018, as 6,8. [default: the universal layer]")] = None,
    recompute: Annotated[
        bool, flag("--recompute", "Score the stored predictions of a fine-tuned model again.")
    ] = False,
    plug_in: Annotated[bool, flag("--plug-in", "tatoeba: read each sentence with its translation (VECO).")] = False,
    checkpoints: Checkpoints = None,
    dimensions: Annotated[
        str | None, option("LIST", "Retrieval: also score vectors truncated to these, as 64,128.", "--dimensions")
    ] = None,
    json_: Json = False,
) -> None:
    """Score a model on --task and --data, or on own --pairs: every layer, both directions.

    Example: crossling evaluate run --task tatoeba,word-alignment --data synth/data -o run

    On own sentence pairs: crossling evaluate run --pairs test.en-sw.tsv

    Score against pre-training FLOPs: crossling evaluate run --checkpoints all --task tatoeba --data data -o run
    """
    from crossling.evaluate.request import EvaluationRequest, tasks_and_data

    for name, value, text in (("--task", task, "Name of a task."), ("--data", data, "Folder of benchmark data.")):
        if pairs is None and value is None:
            raise BadInput(f"evaluate: {name} is missing. {text} See crossling evaluate --help, or give --pairs FILE.")
    tasks, source = tasks_and_data(task, data, pairs)
    chosen = languages.split(",") if languages else None
    at = _numbers("layers", layers) if layers else None
    request = EvaluationRequest(
        tasks=tasks,
        data=source,
        out=out,
        languages=chosen,
        pooling=pooling,
        prompt=prompt,
        methods=method.split(","),
        layers=at,
        recompute=recompute,
        plug_in=plug_in,
        checkpoints=checkpoints,
        dimensions=_numbers("dimensions", dimensions) if dimensions else (),
    )
    request.check()  # before the slow import of torch
    if model is None and request.finetuned:
        raise BadInput(f"{request.finetuned[0]}: the bundled model is not fine-tuned. Name a fine-tuned model.")
    check_model(model)
    from crossling.evaluate.evaluate import evaluate_request

    encoder = xl.load(model) if request.training_free or model is None else None
    rows = evaluate_request(model or "" if checkpoints else encoder or model or "", request)
    if json_:
        for row in rows:
            print(json.dumps(row))
        return
    if encoder is not None:
        own = ModelLayers(encoder.num_layers, encoder.universal_layer)
        for name in dict.fromkeys(row["model"] for row in rows):
            if checkpoints:
                print(name)
            print_training_free([row for row in rows if "layer" in row and row["model"] == name], own)
    print_by_language([row for row in rows if "layer" not in row])
    if not checkpoints:
        print_published(rows)
    if out is not None:
        page = out / "report.html"
        finish(f"Wrote {len(rows):,} rows to {out / 'scores.jsonl'}.", ["report", out, "-o", page])
    else:
        finish("Wrote nothing. With -o the rows are kept.", this_command("-o", unused(Path("scores"))))


def _numbers(name: str, text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise BadInput(f"--{name} {text}: expected numbers separated by commas, as 6,8.") from None


def report(
    folders: Annotated[list[Path], argument("FOLDER...", "Runs, fine-tuned models, or folders of both.")],
    out: Annotated[Path, option("FILE", "Write HTML with Markdown beside it, or *.md alone.", "-o", "--out")] = Path(
        "report.html"
    ),
) -> None:
    """Write one self-contained page that compares runs with each other and with the papers.

    Example: crossling report runs/xlm_e runs/xlm tuned -o report.html
    """
    written = xl.report(folders, out)
    print(written)
    tables = written.with_suffix(".md")
    beside = f", and its tables to {tables}" if tables != written else ""
    finish(f"Wrote the page to {written}{beside}.", f"open {written} in a browser." if beside else f"read {written}.")
