"""Everything that decides how a model is fine-tuned, but for the data: a data set's usual setting, with differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from crossling import settings
from crossling.benchmarks.dataset import DataSet
from crossling.benchmarks.hyper import Hyper
from crossling.errors import BadInput, nearest

DEFAULT = "default"  # the grid of one point: the setting itself
AT_LEAST = {
    **dict.fromkeys(("batch", "stride", "query", "answer", "n_best", "checkpoint_every", "log_every"), 1),
    **dict.fromkeys(("steps", "micro_tokens"), 1),
    **dict.fromkeys(("seed", "warmup", "weight_decay"), 0),
    "length": 8,
}
MORE_THAN_0 = ("lr", "epochs")
MAY_CHANGE = ("seed", "checkpoint_every", "log_every", "micro_tokens")  # of a folder's settings: not what is learned


@dataclass(frozen=True)
class Plan:
    lr: float  # peak
    epochs: float
    batch: int  # features of a step: texts, parts of sentences, windows
    length: int  # tokens
    warmup: float  # steps; below 1: that share of all steps
    weight_decay: float
    stride: int
    query: int
    answer: int
    n_best: int
    steps: int | None = None  # in place of epochs
    seed: int = 0  # the first
    checkpoint_every: int | None = None  # steps between two states, each scored on dev; a tenth of all if not said
    log_every: int = 50
    micro_tokens: int = 16_384  # computed at once, padding included: a matter of memory

    @classmethod
    def of(cls, hyper: Hyper, assignments: Iterable[str] = ()) -> Plan:
        """`key=value` differences, strictly."""
        plan = cls(**asdict(hyper))
        for assignment in assignments:
            plan = settings.changed(plan, assignment)
        plan.check()
        return plan

    def check(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            if field.name in AT_LEAST and value < AT_LEAST[field.name]:
                raise BadInput(f"--set {field.name}={value}: expected at least {AT_LEAST[field.name]}")
            if field.name in MORE_THAN_0 and value <= 0:
                raise BadInput(f"--set {field.name}={value}: expected more than 0")

    def steps_of(self, features: int) -> int:
        return self.steps or max(1, round(self.epochs * features / self.batch))

    @property
    def hyper(self) -> dict[str, Any]:
        """What decides what is learned, whatever the seed."""
        return {name: value for name, value in asdict(self).items() if name not in MAY_CHANGE}


def plans(data_set: DataSet, grid: str | None, assignments: Sequence[str]) -> dict[str, Plan]:
    """The points of a paper's grid by name, with the differences on each; without a grid one, the usual setting."""
    if grid in (None, DEFAULT):
        return {DEFAULT: Plan.of(data_set.hyper, assignments)}
    if grid not in data_set.grids:
        raise BadInput(
            f"--grid {grid}: no such grid for {data_set.name}{nearest(str(grid), [DEFAULT, *data_set.grids])}"
        )
    points = dict.fromkeys(Plan.of(hyper, assignments) for hyper in data_set.grids[grid].points(data_set.hyper))
    axes = [field.name for field in fields(Plan) if len({getattr(plan, field.name) for plan in points}) > 1]
    return {"_".join(f"{axis}-{getattr(plan, axis):g}" for axis in axes) or DEFAULT: plan for plan in points}
