"""The plan of a run, and the page that shows it."""

from __future__ import annotations

from pathlib import Path

from crossling.data.shards import Shards
from crossling.hardware import card
from crossling.inspect.page import write_page
from crossling.inspect.plan import Plan, plan
from crossling.recipe import Recipe


def inspect(recipe: Recipe, shards: Shards, out: Path | None = None, gpus: int = 1, gpu: str | None = None) -> Plan:
    """What the recipe would do with the shards, as a value and, with `out`, as a page. Trains nothing. Memory and time
    are those of so many cards of that name; if not said of the one that is here, else of an H200."""
    found = plan(recipe, shards, card(gpu), gpus)
    if out is not None:
        write_page(found, shards.path, Path(out))
    return found
