"""Options and arguments that several verbs share, each with its one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Out = Annotated[Path, typer.Option("-o", "--out", help="The folder to write.")]
Seed = Annotated[int, typer.Option(help="Everything random follows from it.", min=0)]
CorporaFolder = Annotated[
    str, typer.Argument(metavar="CORPORA", help="A folder with text/, pairs/ or multi/, or hf://OWNER/NAME.")
]
Workers = Annotated[int, typer.Option(help="Processes.", min=1)]
Task = Annotated[str | None, typer.Option(help="i/n: only the i-th of n shares, for one of n machines.")]
Json = Annotated[bool, typer.Option("--json", help="Print machine-readable rows.")]

Recipe = Annotated[
    str,
    typer.Argument(help="rosetta, xlm_r, xlm, xlm_e, infoxlm, xy_lent, veco, or the recipe.json of an earlier run."),
]
ShardsFolder = Annotated[Path, typer.Option(help="A folder made by crossling encode.")]
Size = Annotated[str | None, typer.Option(help="tiny, small, base, large or xl; if not said base, for veco large.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="key=value, any key of the recipe.")]
