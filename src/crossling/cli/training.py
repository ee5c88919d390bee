"""The verbs that plan, train and hand on: inspect, pretrain, export."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crossling.cli.options import Json, Out, Recipe, Set, ShardsFolder, Size
from crossling.errors import BadInput


def inspect(
    recipe: Recipe,
    shards: ShardsFolder,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="A page (.html) to write.")] = None,
    size: Size = None,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """What a recipe would do with some shards: sampling under every rule, epochs, parameters, FLOPs; trains nothing.

    Memory and time are not estimated yet.

    Example: crossling inspect xlm_e --shards shards --set sampling.pair_rule=xy_lent -o page.html
    """
    from crossling.data.shards import Shards
    from crossling.inspect import inspect
    from crossling.inspect.tables import tables
    from crossling.recipes import named

    plan = inspect(named(recipe, size).set(set_ or []), Shards.open(shards), out)
    if json_:
        print(json.dumps(plan.dump()))
        return
    for table in tables(plan):
        Console().print(table)
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
    probe_every: Annotated[
        int | None, typer.Option(help="Steps between two measures; a tenth of all if not given.", min=1)
    ] = None,
) -> None:
    """Train a model; goes on when the folder holds a checkpoint. What is measured is shown before and after.

    Example: crossling pretrain xlm_e --shards shards -o run --size tiny --set steps=500 --set trtd=off

    Adapting XLM-R: crossling pretrain infoxlm --shards shards -o run --init xlm-roberta-base --set sampling.focus=si
    """
    from crossling import probes
    from crossling.data.shards import Shards
    from crossling.recipe import Start, pretrain
    from crossling.recipes import continued, goes_on, named
    from crossling.train.run import Run
    from crossling.vocabulary.vocabulary import Vocabulary

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
            print(f"crossling: note: that run began as {earlier.models['model']}, this one does not", file=sys.stderr)
    else:
        chosen = continued(recipe, start, size, set_ or [])
        print(f"crossling: note: peak rate {chosen.lr:g}", file=sys.stderr)
    if start is not None and data.manifest["text"]:
        asked.append(probes.losses(data, chosen))
    if probe_every and not asked:
        raise BadInput("--probe-every: there is nothing to measure; give --probe DATA too")
    every = probe_every or max(1, chosen.steps // 10)
    pretrain(chosen, data, out, probes.together(asked) if asked else None, every, workers, start)
    if asked:
        for table in probes.tables(out / "metrics.jsonl"):
            Console().print(table)
    print(out)


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder made by crossling pretrain.")],
    out: Out,
    standalone: Annotated[
        bool, typer.Option("--standalone", help="With the model's code, for those who do without crossling.")
    ] = False,
    as_: Annotated[
        str, typer.Option("--as", metavar="FAMILY", help="crossling, or xlm-roberta for a network of its shape.")
    ] = "crossling",
) -> None:
    """Write a run as a Hugging Face folder, with a model card; the generator is in generator/.

    Example: crossling export run -o exported --standalone
    """
    from crossling.export import export

    print(export(run, out, standalone=standalone, family=as_))
