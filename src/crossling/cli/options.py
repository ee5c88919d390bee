"""Declaration of options and arguments, and those that several commands have in common."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from crossling.core.errors import BadInput


def option(metavar: str, text: str, *names: str, min: int | None = None) -> Any:
    """Return an option with its metavariable and help text. `names` replace that of the parameter: "-o", "--out"."""
    return typer.Option(*names, metavar=metavar, help=text, min=min)


def flag(name: str, text: str) -> Any:
    """Return an option without a value. Naming it avoids a second flag, `--no-NAME`."""
    return typer.Option(name, help=text)


def argument(metavar: str, text: str) -> Any:
    """Return a positional argument with its metavariable and help text."""
    return typer.Argument(metavar=metavar, help=text)


Out = Annotated[Path, option("FOLDER", "Write to this folder.", "-o", "--out")]
OutFile = Annotated[Path | None, option("FILE", "Write to this file.", "-o", "--out")]
Seed = Annotated[int, option("N", "Seed of all random numbers.", min=0)]
CorporaFolder = Annotated[str, argument("CORPORA", "Folder with text/, pairs/ or multi/, or hf://OWNER/NAME.")]
Workers = Annotated[int, option("N", "Run this many worker processes.", min=1)]
ShareOption = Annotated[str | None, option("I/N", "Do only the I-th of N parts, for one of N machines.", "--share")]
Json = Annotated[bool, flag("--json", "Print machine-readable JSON.")]
Data = Annotated[Path, option("FOLDER", "Folder of benchmark data.")]

Recipe = Annotated[
    str,
    argument(
        "RECIPE", "rosetta, xlm_r, xlm, xlm_e, infoxlm, xy_lent, veco, mbart, or the recipe.json of an earlier run."
    ),
]
ShardsFolder = Annotated[Path, option("FOLDER", "Shards made by crossling tokenize.")]
Size = Annotated[
    str | None, option("SIZE", "tiny, small, base, large or xl. [default: base; veco, mbart: large]", "--size")
]
Set = Annotated[list[str] | None, option("KEY=VALUE", "Change a setting of the recipe. Repeatable.", "--set")]

Model = Annotated[
    str | None, option("MODEL", "Run, exported folder or Hugging Face encoder. [default: the bundled model]", "--model")
]
Checkpoints = Annotated[
    str | None, option("STEPS", "Checkpoints of the run: all, or as 1000,2000. [default: the latest]", "--checkpoints")
]
Layer = Annotated[int | None, option("N", "Layer to read; 0 is the embedding output. [default: the universal layer]")]
Pooling = Annotated[str, option("POOLING", "auto (as the model folder declares, else mean), mean or cls.", "--pooling")]

Precision = Annotated[str, option("PRECISION", "auto, float32, bfloat16 or int8, on a CPU.", "--precision")]


def check_model(model: str | None) -> None:
    """Check before the slow import of torch that the folder of a model exists. None is the bundled model."""
    from crossling.bundled import folder
    from crossling.core.hub import find_local_folder

    find_local_folder(model or folder())


def check_data_folder(data: Path) -> None:
    """Check that a folder of data exists."""
    check_folder(data, "Give the folder that holds the data.")


def check_folder(folder: Path, fix: str) -> None:
    """Check before the slow import of torch that a folder exists."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder. {fix}")


def check_recipe(
    recipe: str, shards: Path, *, size: str | None, assignments: Sequence[str], is_final: bool = True
) -> None:
    """Check a recipe, its settings and its shards before the slow import of torch.

    Args:
        recipe: Name of a recipe, or a `recipe.json`.
        shards: Folder of shards.
        size: Size of the model.
        assignments: `key=value` settings.
        is_final: False if a model to initialize from or a budget will change the recipe.
    """
    from crossling.core.settings import check_bounds
    from crossling.data.shards import Shards
    from crossling.recipes import get_recipe

    if os.environ.get("RANK", "0") != "0":  # an error that every process has is printed once
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the command gives the same notes
        chosen = get_recipe(recipe, size).set(assignments)
    if is_final:
        chosen.check()
    else:
        check_bounds(chosen, f"recipe {chosen.name}")
    Shards.open(shards)
