"""Bitext ranked by how a run learned it (XY-LENT §6.6): what is damaged is at the ends.

A run with `dro` measures the loss of every group (one corpus in one language pair) as it goes on, and draws the hard
ones more often. The groups are ranked by the running mean of their losses, less that of the baseline if there was one.
That is the order in which the best response raises and lowers their rates, before its floors, which hide how easy a
small group is.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from crossling.audit.look import Look, look
from crossling.data.rates import group_name
from crossling.data.shards import Shards
from crossling.errors import BadInput
from crossling.progress import watched
from crossling.recipe import Recipe
from crossling.train.resampling import FILE, LEAST, read
from crossling.vocabulary.vocabulary import Vocabulary

NORMAL = 1.4826  # median distances in one standard deviation, of what is distributed normally


@dataclass(frozen=True)
class Group:
    """One corpus in one language pair, as a run saw it."""

    name: str
    pairs: int
    loss: float  # the running mean at the end, less the baseline's
    deviation: float  # how far from the median of all groups, in robust standard deviations: above 0 hard, below easy
    ratios: list[float]  # q / p each time it was drawn anew: how much more often than at first
    look: Look | None = None  # what its rows show by themselves, if the shards were given

    def dump(self) -> dict[str, Any]:
        return asdict(self)


def audit(run: Path | str, shards: Shards | None = None) -> list[Group]:
    """All groups that a run measured, the hardest first. With its shards, also what the rows of each show."""
    run = Path(run)
    rows = read(run)
    if not rows:
        raise BadInput(_unmeasured(run))
    if len(rows) < 2:
        raise BadInput(f"{run}: no corpus was measured yet; let the run go on until its first measurement")
    losses = _losses(rows[-1]["means"], rows[0].get("baseline"))
    if not losses:
        raise BadInput(f"{run}: none of its corpora has a loss; only those of at least {LEAST} pairs are measured")
    left_out = [name for name in rows[0]["pairs"] if name not in losses]
    if left_out:
        warnings.warn(f"not measured, for want of {LEAST} pairs or a baseline: {', '.join(left_out)}", stacklevel=2)
    bitexts = {group_name(bitext): bitext for bitext in shards.bitexts} if shards else {}
    if shards and not losses.keys() <= bitexts.keys():
        raise BadInput(f"{shards.path}: the run read other corpora than these; give the shards it was trained on")
    looks: dict[str, Look] = {}
    if shards:
        vocabulary = Vocabulary.load(shards.vocabulary_path)
        looks = {name: look(bitexts[name], vocabulary) for name in watched("audit", [*losses], str)}
    middle, spread = _spread([*losses.values()])
    groups = []
    for name, loss in losses.items():
        ratios = [row["rates"][name] / rows[0]["rates"][name] for row in rows[1:]]
        deviation = (loss - middle) / spread
        groups.append(Group(name, rows[0]["pairs"][name], loss, deviation, ratios, looks.get(name)))
    return sorted(groups, key=lambda group: (-group.loss, group.name))


def _losses(means: Mapping[str, float], baseline: Mapping[str, float] | None) -> dict[str, float]:
    """Of the groups that have one."""
    if baseline is not None:
        means = {name: loss - baseline[name] for name, loss in means.items() if name in baseline}
    return {name: loss for name, loss in means.items() if math.isfinite(loss)}


def _spread(values: Sequence[float]) -> tuple[float, float]:
    """The median, and how far from it values usually are: what a few damaged corpora change little."""
    middle = median(values)
    return middle, NORMAL * median(abs(value - middle) for value in values) or 1.0


def _unmeasured(run: Path) -> str:
    if not (run / "recipe.json").is_file():
        return f"{run}: no run here (expected recipe.json); give a folder made by crossling pretrain"
    recipe = Recipe.load(run / "recipe.json")
    pairs = any(task.stream == "pairs" for task in recipe.objectives.values())
    return (
        f"{run}: this run did not measure its corpora (no {FILE}); train one that does:"
        f" crossling pretrain {recipe.name} --shards SHARDS -o RUN {'' if pairs else '--set tlm=on '}--set dro=on"
    )
