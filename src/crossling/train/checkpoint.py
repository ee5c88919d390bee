"""Checkpoints: everything that a run needs to resume exactly. Weights, optimizer state and the step, without pickle.

checkpoints/STEP/ contains the tensors (checkpoint_storage.py), state.json, and manifest.json with the size and checksum
of each file. It is written in the background, under a hidden name until it is complete. `Retention` decides which ones
are kept. A checkpoint that was not scheduled, because of a signal or a delay, is removed when the next one is
saved. So the checkpoints at the end do not depend on where a run was stopped.
"""

from __future__ import annotations

import copy
import math
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from crossling.core.errors import BadInput
from crossling.core.files import atomic_folder, check_format, read_json, write_json
from crossling.core.resumable import file_fingerprint
from crossling.train import checkpoint_storage
from crossling.train.run_folder import CHECKPOINTS

FORMAT = 2  # of state.json
MANIFEST, STATE = "manifest.json", "state.json"
WRITE_TIMEOUT = timedelta(minutes=10)  # between the fastest and the slowest process
HIDDEN = ".[0-9][0-9][0-9][0-9][0-9][0-9][0-9]*.*"  # incomplete, or about to be removed

T = TypeVar("T")


@dataclass(frozen=True)
class Retention:
    """Scheduled checkpoints that a run keeps, beside the newest checkpoint and the best by each stored score.

    Args:
        last: Number of latest checkpoints.
        every: Keep each checkpoint whose step is a multiple of this number.
        best: Metric whose value is stored as a score.
    """

    last: int = 2
    every: int | None = None
    best: str | None = None

    def select(self, checkpoints: Sequence[Path]) -> set[Path]:
        """Return the checkpoints to keep, of all in the order of their steps."""
        scheduled = scheduled_checkpoints(checkpoints)
        multiples = [path for path in scheduled if self.is_kept_forever(int(path.name))]
        # The scores of an earlier `best` are stored, too.
        best = {
            name: path for name, path in best_checkpoints(checkpoints).items() if _is_probe(name) or name == self.best
        }
        return {*checkpoints[-1:], *scheduled[-self.last :], *multiples, *best.values()}

    def is_kept_forever(self, step: int) -> bool:
        """Return True if the step is a multiple of `every`."""
        return self.every is not None and step % self.every == 0


def is_lower_better(metric: str) -> bool:
    """Return True for a loss: a probe metric with `loss` in its name, or any other metric that is no accuracy."""
    return "loss" in metric if _is_probe(metric) else not metric.endswith("_accuracy")


def _is_probe(metric: str) -> bool:
    return metric.startswith("probe/")


class Checkpoints:
    """Checkpoints of a run. Every process of the run must call every method."""

    def __init__(self, folder: Path, retention: Retention = Retention()) -> None:  # noqa: B008 - frozen
        self.folder, self.retention = Path(folder), retention
        is_distributed = dist.is_initialized() and dist.get_world_size() > 1
        # A group of its own: collectives of the background thread must not mix with those of training.
        self.group = dist.new_group(backend="gloo", timeout=WRITE_TIMEOUT) if is_distributed else None
        self.rank, self.world_size = (dist.get_rank(), dist.get_world_size()) if is_distributed else (0, 1)
        self._staged = checkpoint_storage.StagedTensors()
        self._background = ThreadPoolExecutor(1, "checkpoint")
        self._pending: Future[None] | None = None

    def save(
        self,
        step: int,
        net: nn.Module,
        optimizer: torch.optim.Optimizer,
        state: dict[str, Any],
        scores: Mapping[str, float] | None = None,
    ) -> None:
        """Copy the tensors and return. Each process writes its own part in the background.

        Waits for an earlier save first, and raises its error.

        Args:
            step: Completed steps.
            net: Network.
            optimizer: Optimizer of the network.
            state: JSON state of the run. That of the main process is stored.
            scores: Scores by name. The checkpoint with the best score of each name is kept, see `is_lower_better`.
        """
        self.wait()
        stored = {"format": FORMAT, "step": step, "scores": dict(scores or {}), **copy.deepcopy(state)}
        self._pending = self._background.submit(self._write, self._staged.copy(net, optimizer), stored)

    def wait(self) -> None:
        """Wait until the pending checkpoint is on disk. Raise its error."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Wait for the pending checkpoint and ignore its error, for a run that ends for another reason."""
        with suppress(Exception):
            self.wait()

    def load(self, net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any] | None:
        """Restore the latest valid checkpoint and return its state. None if there is none.

        Damaged checkpoints are skipped with a warning.
        """
        self.wait()
        folders = self._all_gather(list_checkpoints(self.folder))[0]
        latest = _latest_valid(folders, self._find_damage, warn=self.rank == 0)
        if latest is None:
            return None
        checkpoint_storage.load_tensors(latest, net, optimizer, self.group)
        state = read_state(latest)
        for key in ("format", "scores"):
            state.pop(key, None)
        return state

    def _write(self, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        target = self.folder / f"{state['step']:07d}"
        with self._new_folder(target) as new:
            with self._shared_errors(target):
                file = checkpoint_storage.write_tensors(tensors, new, self.rank, self.group)
                own = {file.name: _describe_file(file)}
            files = {name: entry for entries in self._all_gather(own) for name, entry in entries.items()}
            with self._shared_errors(target):
                if self.rank == 0:
                    write_json(new / STATE, state)
                    write_json(new / MANIFEST, {"files": {**files, STATE: _describe_file(new / STATE)}})
        if self.rank == 0:
            self._remove_old(state["step"])

    @contextmanager
    def _new_folder(self, target: Path) -> Iterator[Path]:
        """Yield one hidden folder to all processes. The main process creates it and moves it to `target`."""
        with ExitStack() as stack:
            with self._shared_errors(target):
                new = None
                if self.rank == 0:
                    for leftover in self.folder.glob(HIDDEN):  # of a crash
                        shutil.rmtree(leftover, ignore_errors=True)
                    new = stack.enter_context(atomic_folder(target))
            folder = self._all_gather(new)[0]
            assert folder is not None
            yield folder
            with self._shared_errors(target):
                stack.close()

    @contextmanager
    def _shared_errors(self, target: Path) -> Iterator[None]:
        """Raise an error of one process in all of them, so that none waits for the others forever."""
        own: Exception | None = None
        try:
            yield
        except OSError as error:  # names a hidden file, or none
            own = OSError(error.errno, error.strerror, str(target)) if error.errno else error
        except Exception as error:
            own = error
        for shared in self._all_gather(own):
            if shared is not None:
                raise shared

    def _all_gather(self, value: T) -> list[T]:
        """Return the values of all processes, in the order of their ranks."""
        if self.group is None:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def _find_damage(self, folder: Path) -> str | None:
        """Check a checkpoint. Each process checks a part of its files."""
        return next(filter(None, self._all_gather(_find_damage(folder, self.rank, self.world_size))), None)

    def _remove_old(self, step: int) -> None:
        """Remove checkpoints that are not retained, and later ones, which were skipped as damaged."""
        kept = self.retention.select([path for path in list_checkpoints(self.folder) if int(path.name) <= step])
        for path in list_checkpoints(self.folder):
            if path not in kept:
                # Hidden first: a half-removed checkpoint must not be taken for a valid one.
                shutil.rmtree(path.replace(path.with_name(f".{path.name}.old")), ignore_errors=True)


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the complete checkpoints of a folder, oldest first. Incomplete ones have hidden names."""
    paths = [path for path in folder.iterdir() if path.name.isdecimal() and path.is_dir()] if folder.is_dir() else []
    return sorted(paths, key=lambda path: int(path.name))


def scheduled_checkpoints(checkpoints: Sequence[Path]) -> list[Path]:
    """Return the checkpoints that were scheduled, which do not depend on where the run was stopped."""
    return [path for path in checkpoints if read_state(path).get("is_scheduled", True)]


def best_checkpoints(checkpoints: Sequence[Path]) -> dict[str, Path]:
    """Return the first checkpoint with the best score, by the name of the score."""
    best: dict[str, tuple[float, Path]] = {}
    for path in checkpoints:
        for name, score in read_state(path).get("scores", {}).items():
            gain = -score if is_lower_better(name) else score
            if math.isfinite(gain) and (name not in best or gain > best[name][0]):
                best[name] = gain, path
    return {name: path for name, (_, path) in sorted(best.items())}


def latest_valid_checkpoint(run: Path) -> Path:
    """Return the latest valid checkpoint of a run. Damaged ones are skipped with a warning."""
    latest = _latest_valid(list_checkpoints(run / CHECKPOINTS), _find_damage, warn=True)
    if latest is None:
        raise BadInput(f"{run}: this run has no checkpoint yet. Run crossling pretrain first.")
    return latest


def check_checkpoint(folder: Path) -> None:
    """Raise BadInput if a checkpoint is damaged, or of another version."""
    damage = _find_damage(folder)
    if damage is not None:
        raise BadInput(f"{folder}: not valid ({damage}). Give another checkpoint.")
    check_format(folder, read_state(folder).get("format", 1), FORMAT, "Train again with crossling pretrain.")


def load_weights(folder: Path, net: nn.Module) -> None:
    """Load the weights of a checkpoint into a network of this process, whatever world size saved it."""
    checkpoint_storage.load_tensors(folder, net, None, None)


def _latest_valid(checkpoints: Sequence[Path], find_damage: Callable[[Path], str | None], warn: bool) -> Path | None:
    for folder in reversed(checkpoints):
        damage = find_damage(folder)
        if damage is None:
            check_format(folder, read_state(folder).get("format", 1), FORMAT, "Train again with crossling pretrain.")
            return folder
        if folder == checkpoints[0]:
            raise BadInput(
                f"{folder.parent}: no valid checkpoint ({damage}). Restore one from a backup, or remove the folder to"
                " start from scratch."
            )
        if warn:
            warnings.warn(f"{damage}. Using the checkpoint before {folder.name}.", stacklevel=3)
    return None


def _find_damage(folder: Path, first: int = 0, every: int = 1) -> str | None:
    """Return what is wrong with a checkpoint, or with a part of its files."""
    try:
        listed = read_json(folder / MANIFEST)["files"]
        entries = {name: (int(entry["bytes"]), str(entry["xxh3"])) for name, entry in listed.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{folder / MANIFEST} is missing or damaged"
    for name in sorted({*entries, *(file.name for file in folder.glob("*.safetensors"))})[first::every]:
        file = folder / name
        if name not in entries:
            return f"{file} is not in the manifest"
        if not file.is_file():
            return f"{file} is missing"
        size, expected = entries[name]
        if file.stat().st_size != size:
            return f"{file} is damaged ({file.stat().st_size:,} of {size:,} bytes)"
        if file_fingerprint(file) != expected:
            return f"{file} is damaged (its checksum is another)"
    return None


def _describe_file(file: Path) -> dict[str, Any]:
    return {"bytes": file.stat().st_size, "xxh3": file_fingerprint(file)}


def read_state(folder: Path) -> dict[str, Any]:
    """Return the state of a checkpoint. Empty if it is damaged."""
    try:
        state = read_json(folder / STATE)
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}
