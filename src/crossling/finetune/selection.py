"""Which state of a run becomes the model.

english-dev   the best on the dev part of the language that was trained on (XTREME)
all-dev       the best mean over the dev parts of all languages: one model for all, #M=1 (InfoXLM, VECO)
each-dev      for each language the best on its own dev part: #M=N; the others get the all-dev one
last          the last
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Literal

Selection = Literal["english-dev", "all-dev", "each-dev", "last"]

SELECTIONS: tuple[Selection, ...] = ("english-dev", "all-dev", "each-dev", "last")
MEAN = "dev"  # by which the state is chosen; dev/LL is that of one language


def watched(selection: Selection, languages: Sequence[str]) -> list[str]:
    """The languages whose dev part is scored while it trains; the first of all is the pivot."""
    return [*languages] if selection in ("all-dev", "each-dev") else [*languages[:1]] * (selection != "last")


def measured(values: Mapping[str, float]) -> dict[str, float]:
    """What the engine is told of dev scores by language."""
    return {MEAN: fmean(values.values()), **{f"{MEAN}/{language}": value for language, value in values.items()}}


def kept(selection: Selection, languages: Sequence[str]) -> list[str]:
    """By the best of which scores a state is kept."""
    names = [] if selection == "last" else [MEAN]
    return names + ([f"{MEAN}/{language}" for language in languages] if selection == "each-dev" else [])


def value(selection: Selection, dev: Mapping[str, float | None]) -> float:
    """By which a model is compared with those of other settings and seeds."""
    name = "all-dev" if selection in ("all-dev", "each-dev") else "english-dev"
    found = dev.get(name)
    return float("-inf") if found is None else found
