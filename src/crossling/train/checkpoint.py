"""Everything a run needs to go on exactly where it was: weights, optimizer state, the step. No pickle.

checkpoints/STEP/ has the tensors (stored.py), state.json, and a manifest.json with the size and checksum of each file.
It is written in the background, under a hidden name until it is whole; the newest ones and the best one are kept.
One that was saved where none was due, for a signal or after a doubt, is removed for the next: which ones are left at
the end must not depend on where a run was stopped.
"""

from __future__ import annotations

import copy
import json
import math
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from crossling.data.column import checksum
from crossling.disk import new_folder, write_json
from crossling.errors import BadInput
from crossling.train import stored

KEEP = 2
MANIFEST, STATE = "manifest.json", "state.json"
PATIENCE = timedelta(minutes=10)  # with the process that is slowest to write
HIDDEN = ".[0-9][0-9][0-9][0-9][0-9][0-9][0-9]*.*"  # begun, or about to be removed

T = TypeVar("T")


class Checkpoints:
    """The checkpoints of a run. Where it has several processes, each calls everything here."""

    def __init__(self, folder: Path, keep: int | None = None) -> None:
        self.folder, self.keep = Path(folder), KEEP if keep is None else keep
        several = dist.is_initialized() and dist.get_world_size() > 1
        # Of its own: what the background says must not come between the words of training.
        self.group = dist.new_group(backend="gloo", timeout=PATIENCE) if several else None
        self.rank, self.world = (dist.get_rank(), dist.get_world_size()) if several else (0, 1)
        self._copies = stored.Copies()
        self._background = ThreadPoolExecutor(1, "checkpoint")
        self._under_way: Future[None] | None = None

    def save(
        self,
        step: int,
        net: nn.Module,
        optimizer: torch.optim.Optimizer,
        state: dict[str, Any],
        scores: Mapping[str, float] | None = None,
    ) -> None:
        """Copies what is to be saved and returns; each process writes its own share in the background.

        A save still under way is waited for first, and its error raised. `state` is that of the first process. Of
        those with a score of one name, the one with the highest is kept too.
        """
        self.wait()
        told = {"step": step, "scores": dict(scores or {}), **copy.deepcopy(state)}
        self._under_way = self._background.submit(self._write, self._copies.of(net, optimizer), told)

    def wait(self) -> None:
        """Until what was begun is on disk; raises what went wrong with it."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    def close(self) -> None:
        """Lets what was begun come to its end; for a run that ends for another reason."""
        with suppress(Exception):
            self.wait()

    def load(self, net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any] | None:
        """Puts the newest whole checkpoint back and returns its state; None if there is none.

        A damaged one is passed over with a warning.
        """
        self.wait()
        steps = self._gathered(all_steps(self.folder))[0]
        target = _newest_whole(steps, self._damage, warn=self.rank == 0)
        if target is None:
            return None
        stored.load(target, net, optimizer, self.group)
        state: dict[str, Any] = json.loads((target / STATE).read_text(encoding="utf-8"))
        state.pop("scores", None)
        return state

    def _write(self, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        target = self.folder / f"{state['step']:07d}"
        with self._new_folder(target) as new:
            with self._agreed(target):
                file = stored.write(tensors, new, self.rank, self.group)
                mine = {file.name: _seal(file)}
            everything = {name: seal for theirs in self._gathered(mine) for name, seal in theirs.items()}
            with self._agreed(target):
                if self.rank == 0:
                    write_json(new / STATE, state)
                    write_json(new / MANIFEST, {"files": {**everything, STATE: _seal(new / STATE)}})
        if self.rank == 0:
            self._prune(state["step"])

    @contextmanager
    def _new_folder(self, target: Path) -> Iterator[Path]:
        """One for all processes: the first makes it and puts it in its place, the others hear of it."""
        with ExitStack() as stack:
            with self._agreed(target):
                new = None
                if self.rank == 0:
                    for left in self.folder.glob(HIDDEN):  # by a crash
                        shutil.rmtree(left, ignore_errors=True)
                    new = stack.enter_context(new_folder(target))
            place = self._gathered(new)[0]
            assert place is not None
            yield place
            with self._agreed(target):
                stack.close()

    @contextmanager
    def _agreed(self, target: Path) -> Iterator[None]:
        """What goes wrong in one process goes wrong in all, so that none waits for the others for ever."""
        mine: Exception | None = None
        try:
            yield
        except OSError as error:  # of a file that is hidden, or of none
            mine = OSError(error.errno, error.strerror, str(target)) if error.errno else error
        except Exception as error:
            mine = error
        for theirs in self._gathered(mine):
            if theirs is not None:
                raise theirs

    def _gathered(self, value: T) -> list[T]:
        """Of all processes, in the order of their ranks."""
        if self.group is None:
            return [value]
        found: list[Any] = [None] * self.world
        dist.all_gather_object(found, value, group=self.group)
        return found

    def _damage(self, target: Path) -> str | None:
        """Each process looks at its share of the files."""
        return next(filter(None, self._gathered(_damage(target, self.rank, self.world))), None)

    def _prune(self, step: int) -> None:
        """Leaves this one, the newest few that were due and the best. Later ones were passed over as damaged."""
        past = [path for path in all_steps(self.folder) if int(path.name) <= step]
        kept = {past[-1], *due(past)[-self.keep :], *best(past).values()}
        for path in all_steps(self.folder):
            if path not in kept:
                # Hidden first: one that is half removed must not be taken for one.
                shutil.rmtree(path.replace(path.with_name(f".{path.name}.old")), ignore_errors=True)


def all_steps(folder: Path) -> list[Path]:
    """Finished checkpoints, oldest first. Unfinished ones have hidden names."""
    found = [path for path in folder.iterdir() if path.name.isdecimal() and path.is_dir()] if folder.is_dir() else []
    return sorted(found, key=lambda path: int(path.name))


def due(steps: Sequence[Path]) -> list[Path]:
    """Those that were saved where one was due, wherever the run was stopped."""
    return [path for path in steps if _state(path).get("due", True)]


def newest_whole(run: Path) -> Path:
    """The checkpoint of a run to take. A damaged one is passed over with a warning."""
    found = _newest_whole(all_steps(run / "checkpoints"), _damage, warn=True)
    if found is None:
        raise BadInput(f"{run}: this run has no checkpoint yet")
    return found


def load_weights(target: Path, net: nn.Module) -> None:
    """Puts the weights of a checkpoint into a network of this process, whoever saved it."""
    stored.load(target, net, None, None)


def _newest_whole(steps: Sequence[Path], find: Callable[[Path], str | None], warn: bool) -> Path | None:
    for target in reversed(steps):
        damage = find(target)
        if damage is None:
            return target
        if target == steps[0]:
            raise BadInput(
                f"{target.parent}: no checkpoint there is whole ({damage}); put one back from a copy, or remove the"
                " folder to begin anew"
            )
        if warn:
            warnings.warn(f"{damage}; taking the checkpoint before {target.name}", stacklevel=3)
    return None


def _damage(target: Path, first: int = 0, every: int = 1) -> str | None:
    """What is wrong with a checkpoint, or with a share of its files."""
    try:
        listed = json.loads((target / MANIFEST).read_text(encoding="utf-8"))["files"]
        seals = {name: (int(seal["bytes"]), str(seal["xxh3"])) for name, seal in listed.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{target / MANIFEST} is missing or damaged"
    for name in sorted({*seals, *(file.name for file in target.glob("*.safetensors"))})[first::every]:
        file = target / name
        if name not in seals:
            return f"{file} does not belong there"
        if not file.is_file():
            return f"{file} is missing"
        size, expected = seals[name]
        if file.stat().st_size != size:
            return f"{file} is damaged ({file.stat().st_size:,} of {size:,} bytes)"
        if checksum(file) != expected:
            return f"{file} is damaged (its checksum is another)"
    return None


def _seal(file: Path) -> dict[str, Any]:
    return {"bytes": file.stat().st_size, "xxh3": checksum(file)}


def best(steps: Sequence[Path]) -> dict[str, Path]:
    """By the name of each score, the first of the checkpoints with the highest."""
    scores = {path: _scores(path) for path in steps}
    names = {name for found in scores.values() for name in found}
    return {
        name: max((path for path in steps if name in scores[path]), key=lambda path: scores[path][name])
        for name in sorted(names)
    }


def _scores(target: Path) -> dict[str, float]:
    return {name: score for name, score in _state(target).get("scores", {}).items() if math.isfinite(score)}


def _state(target: Path) -> dict[str, Any]:
    """What it tells of itself; nothing, if that is damaged."""
    try:
        found: dict[str, Any] = json.loads((target / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found
