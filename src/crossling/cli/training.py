"""The verbs that plan, train and hand on: inspect, pretrain, export."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from crossling.cli.options import Json, Out, Recipe, Set, ShardsFolder, Size
from crossling.errors import BadInput

if TYPE_CHECKING:
    from crossling.data.shards import Shards


def inspect(
    recipe: Recipe,
    shards: ShardsFolder,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="A page (.html) to write.")] = None,
    size: Size = None,
    set_: Set = None,
    hours: Annotated[float | None, typer.Option(help="A budget: chooses the size and the steps that fit.")] = None,
    gpus: Annotated[int, typer.Option(help="How many.", min=1)] = 1,
    gpu: Annotated[
        str | None, typer.Option(help="v100, a100-40, a100, h100, h200, b200, l40s or 4090; if not said, the one here.")
    ] = None,
    json_: Json = False,
) -> None:
    """What a recipe would do with some shards: sampling, epochs, parameters, FLOPs, memory, time; trains nothing.

    Example: crossling inspect xlm_e --shards shards --set sampling.pair_rule=xy_lent -o page.html

    What a day on two cards buys: crossling inspect xlm_e --shards shards --hours 24 --gpus 2 --gpu a100
    """
    from crossling.data.shards import Shards
    from crossling.hardware import card
    from crossling.inspect import inspect
    from crossling.inspect.budget import Budget
    from crossling.inspect.tables import budget, tables
    from crossling.recipes import named

    data = Shards.open(shards)
    choice = None if hours is None else Budget(hours, gpus, card(gpu)).choose(recipe, data, size, set_ or [])
    plan = inspect(choice.recipe if choice else named(recipe, size).set(set_ or []), data, out, gpus, gpu)
    if json_:
        chosen = {"budget": {**choice.dump(), "command": choice.command(data)}} if choice else {}
        print(json.dumps(plan.dump() | chosen))
        return
    for table in tables(plan):
        Console().print(table)
    if choice:
        Console().print(budget(choice))
        print(choice.command(data))
    if out is not None:
        print(f"Open {out}")


def pretrain(
    recipe: Recipe,
    shards: ShardsFolder,
    out: Out,
    size: Size = None,
    set_: Set = None,
    init: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Begin as a run, an exported folder or a Hugging Face encoder.")
    ] = None,
    init_generator: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Its generator; if not said its own, or its first layers.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Loader processes; chosen by the machine if not given.", min=0)
    ] = None,
    probe: Annotated[
        Path | None, typer.Option(metavar="DATA", help="Benchmark data: measures retrieval by language as it trains.")
    ] = None,
    validate: Annotated[
        Path | None,
        typer.Option(metavar="SHARDS", help="Other shards of the same vocabulary: their losses, by language."),
    ] = None,
    probe_every: Annotated[
        int | None, typer.Option(help="Steps between two measures; a tenth of all if not given.", min=1)
    ] = None,
) -> None:
    """Train a model; goes on when the folder holds a checkpoint. What is measured is shown before and after.

    Example: crossling pretrain xlm_e --shards shards -o run --size tiny --set steps=500 --set trtd=off

    On 8 GPUs: torchrun --nproc-per-node 8 -m crossling pretrain xlm_e --shards shards -o run

    Adapting XLM-R: crossling pretrain infoxlm --shards shards -o run --init xlm-roberta-base --set sampling.focus=si
    """
    from crossling import probes
    from crossling.data.shards import Shards
    from crossling.distributed import speaks, together
    from crossling.recipe import Start, pretrain
    from crossling.recipes import continued, goes_on, named
    from crossling.train.run import Run
    from crossling.vocabulary.vocabulary import Vocabulary

    with together():
        data = Shards.open(shards)
        asked = [probes.retrieval(probe, Vocabulary.load(data.vocabulary_path))] if probe else []
        if init_generator and not init:
            raise BadInput("--init-generator: there is no model for it; give --init MODEL too")
        start: Start | str | None = None
        if init:  # a run that goes on does without the model
            known = not init_generator and goes_on(out, recipe, init)
            start = init if known else Start.load(init, init_generator)
        if isinstance(start, str):
            chosen = named(str(out / "recipe.json")).set(set_ or [])
        elif start is None:
            chosen = named(recipe, size).set(set_ or [])
            if recipe.endswith(".json") and (earlier := Run.began(Path(recipe).parent)):
                warnings.warn(f"that run began as {earlier.models['model']}, this one does not", stacklevel=2)
        else:
            chosen = continued(recipe, start, size, set_ or [])
            warnings.warn(f"peak rate {chosen.lr:g}", stacklevel=2)
        if validate:
            asked.append(probes.losses(_held_out(validate, data), chosen))
        elif start is not None and data.manifest["text"]:
            asked.append(probes.losses(data, chosen))
        if probe_every and not asked:
            raise BadInput("--probe-every: there is nothing to measure; give --probe DATA or --validate SHARDS too")
        every = probe_every or max(1, chosen.steps // 10)
        pretrain(chosen, data, out, probes.together(asked) if asked else None, every, workers, start)
        if not speaks():
            return
        if asked:
            for table in probes.tables(out / "metrics.jsonl"):
                Console().print(table)
        print(out)


def _held_out(folder: Path, trained: Shards) -> Shards:
    from crossling.data.shards import Shards

    held_out = Shards.open(folder)
    if held_out.manifest["vocabulary"] != trained.manifest["vocabulary"]:
        raise BadInput(
            f"--validate {folder}: these shards have another vocabulary than {trained.path};"
            f" encode them with --vocab {trained.vocabulary_path}"
        )
    if not held_out.manifest["text"]:
        raise BadInput(f"--validate {folder}: these shards have no text to measure losses on")
    return held_out


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder made by crossling pretrain.")],
    out: Out,
    standalone: Annotated[
        bool, typer.Option("--standalone", help="With the model's code, for those who do without crossling.")
    ] = False,
    as_: Annotated[
        str, typer.Option("--as", metavar="FAMILY", help="crossling, or xlm-roberta for a network of its shape.")
    ] = "crossling",
    precision: Annotated[
        str, typer.Option(help="single, half or int8: of the file, which becomes a half or a quarter of the size.")
    ] = "single",
    layers: Annotated[
        int | None, typer.Option(metavar="N", help="The encoder up to layer N alone: no head, no generator.")
    ] = None,
) -> None:
    """Write a run as a Hugging Face folder, with a model card; the generator is in generator/.

    Example: crossling export run -o exported --standalone

    As small as it gets: crossling export run -o exported --precision int8 --layers 6
    """
    from crossling.export import export

    print(export(run, out, standalone=standalone, family=as_, precision=precision, layers=layers))
