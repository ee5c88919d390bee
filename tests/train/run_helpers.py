"""Runs of the trainer: metrics, checkpoints, and what interrupts them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from crossling.data.batches import Batches, StepWork
from crossling.train import checkpoint
from crossling.train import checkpoint_storage as stored

TIMES = {"seconds", "tokens_per_second", "loader_wait"}


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def without_times(run: Path) -> list[dict[str, Any]]:
    """Return the rows of the steps without times. The row before the first step belongs to the probe."""
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows(run) if row["step"]]


def saved(run: Path) -> list[int]:
    return [int(path.name) for path in checkpoint.list_checkpoints(run / "checkpoints")]


def tensors(run: Path, step: int) -> dict[str, Tensor]:
    return stored.read_tensors(run / "checkpoints" / f"{step:07d}")


def weights(run: Path, step: int) -> dict[str, Tensor]:
    return {name: value for name, value in tensors(run, step).items() if "/" not in name}


def assert_same_run(one: Path, other: Path, step: int) -> None:
    """Compare weights, optimizer state and every row of metrics without times, exactly."""
    left, right = tensors(one, step), tensors(other, step)
    assert left.keys() == right.keys()
    assert any(name.endswith("/exp_avg_sq") for name in left)
    different = [name for name in left if not torch.equal(left[name], right[name])]
    assert different == []
    assert without_times(one) == without_times(other)


def before_step(monkeypatch: pytest.MonkeyPatch, step: int, act: Callable[[], object]) -> None:
    """Call `act` when the data of a step, counted from 1, is read."""
    original = Batches.__getitem__

    def acting(self: Batches, index: int) -> StepWork:
        if index == step - 1:
            act()
        return original(self, index)

    monkeypatch.setattr(Batches, "__getitem__", acting)


def crash() -> None:
    raise RuntimeError("the machine went down")
