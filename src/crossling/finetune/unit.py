"""Each model of a folder is a unit: a finished one is not made again, one that was stopped goes on.

The run lies in a folder of its own while it goes on, and is removed when the model is whole.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from crossling.distributed import speaks, summed, together
from crossling.errors import BadInput, Failed
from crossling.evaluate import scores
from crossling.evaluate.scores import Row
from crossling.finetune.links import linked
from crossling.train.run import same

SCORES = "scores.jsonl"
UNDER_WAY = "training"  # the folder of what is not finished

Known = TypeVar("Known", covariant=True)


class Training(Protocol[Known]):
    """Of one model, in every process of the run."""

    def fit(self, work: Path) -> int:
        """Trains to the end, or goes on; says of how many steps."""

    def keep(self, out: Path, work: Path, steps: int) -> Known:
        """Writes the model that is chosen, and tells of it."""


def made(begin: Callable[[torch.device], Training[Known]], micro_tokens: int, out: Path, work: Path) -> Known:
    """A model in the folder `out`, trained in `work`."""
    with together() as device:
        training = begin(device)
        try:
            steps = training.fit(work)
        except torch.OutOfMemoryError:
            raise Failed(
                f"the {device.type} ran out of memory; with a smaller --set micro_tokens (now {micro_tokens}) the same"
                " command goes on"
            ) from None
        known = training.keep(out, work, steps)
        summed(torch.zeros(1))  # all have read what is removed now
        if speaks():
            shutil.rmtree(work)
        return known


def check(folder: Path, theirs: Mapping[str, Any], asked: Mapping[str, Any], same_data: bool, trained: str) -> None:
    """Refuses a finished model that is not the one that is asked for."""
    for name, value in theirs.items():
        if not same(asked.get(name), value):
            raise BadInput(
                f"{folder}: {trained} with another {name} ({value}, not {asked.get(name)}); give what it was made with,"
                " or another -o folder"
            )
    if not same_data:
        raise BadInput(
            f"{folder}: {trained} on or chosen by other data than lies there now; give the data it was made with, or"
            " another -o folder"
        )


def place(out: Path, seed: int) -> tuple[Path, Path]:
    """Where the model of a seed is, and where it is trained."""
    name = f"seed-{seed}"
    return out / name, out / UNDER_WAY / name


def finish(out: Path, best: int, rows: Sequence[Row]) -> None:
    """The folder is that of its best seed."""
    if speaks():
        linked(place(out, best)[0], out, deep=False)
        scores.add(out / SCORES, rows)
        shutil.rmtree(out / UNDER_WAY, ignore_errors=True)
