"""The verb that tells which corpora to look at: audit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crossling.cli.options import Json

if TYPE_CHECKING:
    from crossling.audit.ranking import Group


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run that was trained with --set dro=on.")],
    shards: Annotated[
        Path | None, typer.Option(help="What it was trained on: shows lines, copies and repeats of each corpus.")
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="A .json file for all corpora.")] = None,
    ends: Annotated[int, typer.Option(help="Corpora to show at each end.", min=1)] = 10,
    json_: Json = False,
) -> None:
    """Rank the bitext of a run by how it was learned: too hard (wrong lines) first, too easy (copies) last.

    Example: crossling audit run --shards shards -o audit.json
    """
    from crossling.audit import audit
    from crossling.data.shards import Shards
    from crossling.disk import write_json

    groups = audit(run, Shards.open(shards) if shards else None)
    if out is not None:
        write_json(out, [group.dump() for group in groups])
    if json_:
        for group in groups:
            print(json.dumps(group.dump(), ensure_ascii=False))
        return
    hard, easy = groups[:ends], groups[max(ends, len(groups) - ends) :]
    _print("the hardest of all first: wrong lines, many to one?", hard)
    if easy:
        _print("the easiest of all last: copies, the same again?", easy)
    if out is not None:
        print(out)


def _label(name: str) -> str:
    """`opus.en-sw` in place of `opus.en-sw en-sw`."""
    corpus, _, pair = name.rpartition(" ")
    return corpus if corpus.endswith(pair) else name


def _print(title: str, groups: Sequence[Group]) -> None:
    looked = any(group.look for group in groups)
    table = Table("corpus", title=title)
    for column in ("pairs", "loss", "deviations", "drawn", *(("copies", "repeats") if looked else ())):
        table.add_column(column, justify="right")
    for group in groups:
        cells = [f"{group.pairs:,}", f"{group.loss:.3f}", f"{group.deviation:+.1f}", f"{group.ratios[-1]:.2f}x"]
        if group.look:
            cells += [f"{share:.0%}" for share in (group.look.copies, group.look.repeats)]
        table.add_row(escape(_label(group.name)), *cells)
    console = Console()
    console.print(table)
    for group in groups:
        for source, target in group.look.lines if group.look else ():
            console.print(f"{_label(group.name)}: {source} ||| {target}", markup=False, highlight=False, soft_wrap=True)
