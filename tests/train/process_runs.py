"""Small runs of several recipes in one start of one or several processes, on CPUs or on one GPU.

`torchrun -m tests.train.process_runs FILE` trains the runs of a JSON file, as `start` writes it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from crossling.core.distributed import is_main_process, process_group
from crossling.core.errors import Interrupted
from crossling.data.batches import Batches, StepWork
from crossling.data.shards import Shards
from crossling.recipes import get_recipe
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe

from .worlds import PAIRS, SMALL, TEXT, in_processes

STEPS = 4
# Heads of 32, for which a GPU has kernels.
NETWORK = ["model.width=64", "model.heads=2", "model.feed_forward=128", "lr=0.001", f"steps={STEPS}"]
START_SECONDS = 240.0  # for a process that compiles


@dataclass(frozen=True)
class Run:
    """A run of a recipe, or a part of it.

    Args:
        recipe: Name of the recipe.
        out: Run folder.
        settings: Settings of the recipe.
        stop: Step after which a signal stops the run, counted from 1.
    """

    recipe: str
    out: str
    settings: list[str] = field(default_factory=list)
    stop: int | None = None


def make_recipe(name: str, settings: Sequence[str] = ()) -> Recipe:
    """Return a small variant of a recipe, with four micro-batches a step for one process and for two."""
    recipe = get_recipe(name, "tiny")
    for objective in recipe.objectives:
        sizes = (
            ["pairs=13", "length=40", "layer=1"] if objective == "xlco" else TEXT if "tlm" not in objective else PAIRS
        )
        recipe = recipe.set([f"{objective}.{size}" for size in sizes])
    queue = ["xlco.queue=50"] if recipe.xlco and recipe.xlco.queue else []
    # Each process has one micro-batch of in-batch negatives, so dropout would depend on the world size.
    in_batch = ["model.dropout=0"] if recipe.xlco and not queue else []
    freeze = ["freeze_steps=1"] if recipe.freeze_steps else []
    return recipe.set([*SMALL, *NETWORK, *queue, *in_batch, *freeze, "cuda_graphs=false", *settings])


def train(shards: str, runs: Sequence[Run], share_device: bool = False) -> None:
    """Train runs one after the other, in each process."""
    with process_group(share_device) as device:
        if device.type == "cuda" and dist.is_initialized():
            assert ("cuda:gloo" if share_device else "cuda:nccl") in dist.get_backend_config()
        for run in runs:
            recipe = make_recipe(run.recipe, run.settings)
            with suppress(Interrupted), _stopping(run.stop):
                net = pretrain(recipe, Shards.open(shards), run.out, workers=0)
                assert all(isinstance(p, DTensor) == (recipe.parallel == "fsdp") for p in net.parameters())


@contextmanager
def _stopping(step: int | None) -> Iterator[None]:
    original = Batches.__getitem__

    def signalled(self: Batches, index: int) -> StepWork:
        if index + 1 == step and is_main_process():
            signal.raise_signal(signal.SIGTERM)
        return original(self, index)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batches, "__getitem__", signalled)
        yield


def start(device: str, processes: int | None, shards: Shards, runs: Sequence[Run], *, compiled: bool = False) -> None:
    """Train runs in so many processes of torchrun, or in one without it (None)."""
    if device == "cpu":
        act = (str(shards.path), [*runs])
        train(*act) if processes is None else in_processes(processes, train, *act)
        return
    share_device = (processes or 1) > 1
    file = Path(runs[0].out).with_suffix(f".{processes}.json")
    file.write_text(json.dumps([str(shards.path), [asdict(run) for run in runs], share_device]))
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    finished = subprocess.run(
        [sys.executable, *(launcher if processes else []), "-m", __name__, str(file)],
        env=os.environ | {"TORCHDYNAMO_DISABLE": "0" if compiled else "1"},
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


if __name__ == "__main__":
    path, listed, share = json.loads(Path(sys.argv[1]).read_text())
    train(path, [Run(**each) for each in listed], share)
