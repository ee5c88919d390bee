"""The folder of a run. It refuses to resume with another recipe, other shards or another initialization."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from crossling.core.errors import BadInput
from crossling.core.files import atomic_file, check_format, read_json, write_json
from crossling.core.resumable import check_output_folder

FORMAT = 2  # of recipe.json
CHECKPOINTS = "checkpoints"
# Settings that depend on the machine and change no result, apart from rounding and the dropout masks.
CHANGEABLE_SETTINGS = {"checkpoint_every", "log_every", "micro_tokens", "parallel"}
CHANGEABLE_SETTINGS |= {"keep_last", "keep_every", "keep_best"}
CHANGEABLE_SETTINGS |= {"gradient_checkpointing", "cuda_graphs"}
ADDED_SETTINGS = {"precision": "bf16"}  # values in runs that were started before these settings existed


@dataclass(frozen=True)
class InitSource:
    """The models that a run was initialized from."""

    models: dict[str, str]  # `model`, and `generator` if one was given
    new: list[str]  # modules that no model has and that start with random weights


class RunFolder:
    """Folder with recipe.json, metrics.jsonl, tensorboard/, checkpoints/STEP/, vocab/ and finally cost.json."""

    def __init__(
        self,
        path: Path,
        recipe: dict[str, Any],
        shards: str,
        *,
        init_source: InitSource | None = None,
        data: dict[str, Any] | None = None,
        changeable: Collection[str] = CHANGEABLE_SETTINGS,
    ) -> None:
        """Open a run, or create it.

        Args:
            path: Folder of the run.
            recipe: Settings of the run.
            shards: Fingerprint of the shards.
            init_source: Models that the run is initialized from.
            data: Sizes of the corpora, for readers of the run.
            changeable: Settings that may differ when a run is resumed.

        Raises:
            BadInput: If the folder contains another run, or is not empty.
        """
        self.path = Path(path)
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoints = self.path / CHECKPOINTS
        self._first_step = 0  # of this process
        file = self.path / "recipe.json"
        description: dict[str, Any] = {"format": FORMAT, "recipe": recipe, "shards": shards, "init": None, "data": data}
        if init_source is not None:
            description |= {"init": init_source.models, "new": init_source.new}
        if file.is_file():
            self._check_same_run(read_description(file), description, changeable)
        else:
            # A hidden file is a recipe that was being written when the process was killed.
            check_output_folder(self.path, holds=[f".{file.name}.*"], command="crossling pretrain", exclusive=True)
            write_json(file, description)

    def _check_same_run(self, stored: dict[str, Any], description: dict[str, Any], changeable: Collection[str]) -> None:
        if stored.get("shards") != description["shards"]:
            raise BadInput(
                f"{self.path}: this run was trained on shards {stored.get('shards')}, not on {description['shards']},"
                " which have other data or another vocabulary. Give the original shards, or another folder."
            )
        if not same_models(stored.get("init") or {}, description["init"] or {}):
            models = " with ".join((stored.get("init") or {}).values())
            source = f"from {models}" if models else "with random weights"
            raise BadInput(
                f"{self.path}: this run was initialized {source}. Give the original init, or another folder."
            )
        recipe = description["recipe"]
        added = {name: value for name, value in ADDED_SETTINGS.items() if name in recipe}
        changed = sorted(_changed_keys(added | stored["recipe"], recipe) - {*changeable})
        if changed:
            raise BadInput(
                f"{self.path}: this run has another recipe (different: {', '.join(changed)}). Give the original recipe,"
                " or another folder."
            )

    @staticmethod
    def read_init_source(path: Path) -> InitSource | None:
        """Return what a run with a checkpoint was initialized from. None if from scratch, or if there is no run."""
        from crossling.train.checkpoint import list_checkpoints

        file = Path(path) / "recipe.json"
        if not file.is_file() or not list_checkpoints(Path(path) / "checkpoints"):
            return None
        stored = read_description(file)
        return InitSource(stored["init"], stored.get("new", [])) if stored.get("init") else None

    @property
    def has_checkpoint(self) -> bool:
        """True if the run can be resumed."""
        from crossling.train.checkpoint import list_checkpoints

        return bool(list_checkpoints(self.checkpoints))

    def truncate_metrics(self, step: int) -> None:
        """Remove the metrics after a step. They will be written again."""
        self._first_step = step
        if self.metrics.is_file():
            rows = [line for line in self.metrics.read_text(encoding="utf-8").splitlines() if _step_of(line) <= step]
            with atomic_file(self.metrics) as new:
                new.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")

    def log(self, row: dict[str, Any]) -> None:
        """Append a row of metrics, also to tensorboard if it is installed. JSON has null for a non-finite value."""
        values = {name: value if math.isfinite(value) else None for name, value in row.items()}
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values, allow_nan=False) + "\n")
        if self._tensorboard is not None:
            for name, value in row.items():
                self._tensorboard.add_scalar(name, value, row["step"])

    def write_cost(self, cost: dict[str, Any]) -> None:
        """Write cost.json."""
        write_json(self.path / "cost.json", cost)

    def close(self) -> None:
        """Flush tensorboard."""
        writer = self.__dict__.pop("_tensorboard", None)
        if writer is not None:
            writer.close()

    @cached_property
    def _tensorboard(self) -> Any:
        if find_spec("tensorboard") is None:
            return None
        from torch.utils.tensorboard import SummaryWriter

        # Points after the step of the checkpoint are written again.
        purge_step = self._first_step + 1 if self._first_step else None
        return SummaryWriter(str(self.path / "tensorboard"), purge_step=purge_step)


def same_models(one: dict[str, str], other: dict[str, str]) -> bool:
    """Return True if the models are the same, even if their folders are spelled differently."""
    return one.keys() == other.keys() and all(same_setting(one[part], other[part]) for part in one)


def same_setting(one: Any, other: Any) -> bool:
    """Return True if two settings are equal, or name the same folder."""
    are_names = isinstance(one, str) and isinstance(other, str)
    return one == other or (are_names and Path(one).resolve() == Path(other).resolve())


def read_description(file: Path) -> dict[str, Any]:
    """Return the content of the recipe.json of a run.

    Raises:
        BadInput: The file is not readable, not the recipe.json of a run, or of another version.
    """
    try:
        stored = read_json(file)
    except (OSError, ValueError) as error:
        raise BadInput(f"{file}: not a readable recipe.json ({error}). Give the recipe.json of a run.") from None
    if not isinstance(stored, dict) or not isinstance(stored.get("recipe"), dict):
        raise BadInput(f"{file}: not the recipe.json of a run. Restore the file, or give another one.")
    check_format(file, stored.get("format", 1), FORMAT, "Train again with crossling pretrain, in another folder.")
    return stored


def _step_of(line: str) -> float:
    """Return the step of a row of metrics. Infinity for a row that a crash truncated."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")


def _changed_keys(old: Any, new: Any, path: str = "") -> set[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        return set().union(
            *(_changed_keys(old.get(key), new.get(key), f"{path}.{key}".strip("._")) for key in {*old, *new})
        )
    return set() if same_setting(old, new) else {path}
