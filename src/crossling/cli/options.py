"""Options and arguments that several commands have in common, each with one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Out = Annotated[Path, typer.Option("-o", "--out", metavar="FOLDER", help="Write to this folder.")]
OutFile = Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write to this file.")]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed of all random numbers.", min=0)]
CorporaFolder = Annotated[
    str, typer.Argument(metavar="CORPORA", help="Folder with text/, pairs/ or multi/, or hf://OWNER/NAME.")
]
Workers = Annotated[int, typer.Option(metavar="N", help="Run this many worker processes.", min=1)]
ShareOption = Annotated[
    str | None, typer.Option("--share", metavar="I/N", help="Do only the I-th of N parts, for one of N machines.")
]
Json = Annotated[bool, typer.Option("--json", help="Print machine-readable JSON.")]
Data = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of benchmark data.")]

Recipe = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="rosetta, xlm_r, xlm, xlm_e, infoxlm, xy_lent, veco, or the recipe.json of an earlier run.",
    ),
]
ShardsFolder = Annotated[Path, typer.Option(metavar="FOLDER", help="Shards made by crossling tokenize.")]
Size = Annotated[
    str | None,
    typer.Option("--size", metavar="SIZE", help="tiny, small, base, large or xl. [default: base; veco: large]"),
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the recipe. Repeatable.")
]

Model = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="MODEL", help="Run, exported folder or Hugging Face encoder. [default: the bundled model]"
    ),
]
Layer = Annotated[
    int | None,
    typer.Option(metavar="N", help="Layer to read; 0 is the embedding output. [default: the universal layer]"),
]
Pooling = Annotated[
    str, typer.Option("--pooling", metavar="POOLING", help="mean (over positions) or cls (first position).")
]
