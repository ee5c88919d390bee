"""The folder of a run: it explains itself, and refuses to go on as something else."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from crossling.disk import new_file, write_json
from crossling.errors import BadInput
from crossling.train.checkpoint import all_steps

# What the machine needs, not what is learned.
MAY_CHANGE = {"checkpoint_every", "log_every", "micro_tokens", "parallel", "recompute"}


@dataclass(frozen=True)
class Begun:
    """What a run began as: the model, and a generator if it was given one; and what it had to make anew."""

    models: dict[str, str]
    new: list[str]


class Run:
    """recipe.json  metrics.jsonl  tensorboard/  checkpoints/STEP/  vocab/  and at the end cost.json"""

    def __init__(
        self,
        path: Path,
        recipe: dict[str, Any],
        shards: str,
        begun: Begun | None = None,
        data: dict[str, Any] | None = None,
        may_change: Collection[str] = MAY_CHANGE,
    ) -> None:
        """Opens or starts a run of `recipe` on the shards of the fingerprint `shards`, which hold `data`; what it
        began as, if anything, is `begun`. A run that goes on may differ in what `may_change` names."""
        self.path = Path(path)
        known = self.path / "recipe.json"
        described: dict[str, Any] = {"recipe": recipe, "shards": shards, "init": None, "data": data}
        if begun is not None:
            described |= {"init": begun.models, "new": begun.new}
        if known.is_file():
            earlier = _read(known)
            if earlier.get("shards") != shards:
                raise BadInput(
                    f"{self.path}: this run was trained on shards {earlier.get('shards')}, these are {shards}, of other"
                    " data or another vocabulary; give the shards it began with, or another -o folder"
                )
            if not same_models(earlier.get("init") or {}, described["init"] or {}):
                models = " with ".join((earlier.get("init") or {}).values())
                began = f"as {models}" if models else "with random weights"
                raise BadInput(
                    f"{self.path}: this run began {began}; give the --init it began with, or another -o folder"
                )
            changed = sorted(_changes(earlier["recipe"], recipe) - {*may_change})
            if changed:
                raise BadInput(
                    f"{self.path}: this run was started with another recipe (different: {', '.join(changed)});"
                    " give the recipe it began with, or another -o folder"
                )
        elif self.path.exists() and not self.path.is_dir():
            raise BadInput(f"{self.path}: this is a file; give a folder for the run")
        elif self.path.is_dir() and any(not entry.name.startswith(f".{known.name}.") for entry in self.path.iterdir()):
            # What begins so is a recipe that was being written when the process was killed.
            raise BadInput(f"{self.path}: the folder is not empty and holds no run; give another -o folder")
        else:
            write_json(known, described)
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self._first = 0  # the step this process begins at

    @staticmethod
    def began(path: Path) -> Begun | None:
        """As what a run began that can go on; none if it began with nothing, or is none yet."""
        known = Path(path) / "recipe.json"
        if not known.is_file() or not all_steps(Path(path) / "checkpoints"):
            return None
        stored = _read(known)
        return Begun(stored["init"], stored.get("new", [])) if stored.get("init") else None

    @property
    def saved(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return bool(all_steps(self.checkpoints))

    def rewind(self, step: int) -> None:
        """Forgets metrics after `step`: they will be made again."""
        self._first = step
        if self.metrics.is_file():
            rows = [line for line in self.metrics.read_text(encoding="utf-8").splitlines() if _step(line) <= step]
            with new_file(self.metrics) as new:
                new.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")

    def log(self, row: dict[str, Any]) -> None:
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        if self._tensorboard is not None:
            for name, value in row.items():
                self._tensorboard.add_scalar(name, value, row["step"])

    def write_cost(self, bill: dict[str, Any]) -> None:
        write_json(self.path / "cost.json", bill)

    def close(self) -> None:
        """Writes what TensorBoard still holds back."""
        writer = self.__dict__.pop("_tensorboard", None)
        if writer is not None:
            writer.close()

    @cached_property
    def _tensorboard(self) -> Any:
        """A writer, where TensorBoard is installed."""
        if find_spec("tensorboard") is None:
            return None
        from torch.utils.tensorboard import SummaryWriter

        # The points after the step a run goes on from are made again.
        return SummaryWriter(str(self.path / "tensorboard"), purge_step=self._first + 1 if self._first else None)


def same_models(one: dict[str, str], other: dict[str, str]) -> bool:
    """However their folders are spelled."""
    return one.keys() == other.keys() and all(same(one[part], other[part]) for part in one)


def same(one: Any, other: Any) -> bool:
    """Whether two settings are alike; the name of a folder may be spelled in another way."""
    named = isinstance(one, str) and isinstance(other, str)
    return one == other or (named and Path(one).resolve() == Path(other).resolve())


def _read(known: Path) -> dict[str, Any]:
    try:
        stored = json.loads(known.read_text(encoding="utf-8"))
    except ValueError:
        stored = None
    if not isinstance(stored, dict) or not isinstance(stored.get("recipe"), dict):
        raise BadInput(f"{known}: not the recipe.json of a run; restore the file, or give another -o folder")
    return stored


def _step(line: str) -> float:
    """The step of a metrics row; a row cut off by a crash counts as never written."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")


def _changes(old: Any, new: Any, path: str = "") -> set[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        return set().union(*(_changes(old.get(k), new.get(k), f"{path}.{k}".strip("._")) for k in {*old, *new}))
    return set() if same(old, new) else {path}
