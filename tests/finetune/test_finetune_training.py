"""Optimizer of fine-tuning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from crossling.finetune.finetune import finetune
from crossling.train.optimizer import OptimizerSettings

from .tiny_tasks import model_folder, write_xnli

BuiltOptimizers = list[tuple[OptimizerSettings, torch.optim.AdamW]]


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> BuiltOptimizers:
    """Record the optimizers of the training."""
    optimizers: BuiltOptimizers = []
    build = OptimizerSettings.build

    def record(self: OptimizerSettings, net: nn.Module) -> torch.optim.AdamW:
        optimizer = build(self, net)
        optimizers.append((self, optimizer))
        return optimizer

    monkeypatch.setattr(OptimizerSettings, "build", record)
    return optimizers


def tune(folder: Path, **settings: Any) -> None:
    data = write_xnli(folder / "data", {"train": 24, "test": 4}, {"train": ["en"], "test": ["en"]})
    model = model_folder(folder / "model")
    finetune(model, "xnli", data, folder / "tuned", selection="last", batch=8, length=64, **settings)


def test_the_optimizer_is_that_of_xtreme(tmp_path: Path, built: BuiltOptimizers) -> None:
    tune(tmp_path, steps=4, warmup=2, weight_decay=0.03)
    [(adam, optimizer)] = built
    assert {group["betas"] for group in optimizer.param_groups} == {(0.9, 0.999)}
    assert {group["eps"] for group in optimizer.param_groups} == {1e-8}
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.03, 0.0}
    assert adam.clip == 1.0
    assert adam.warmup_steps(4) == 2


def test_a_warmup_longer_than_the_run_becomes_a_tenth_of_it(tmp_path: Path, built: BuiltOptimizers) -> None:
    with pytest.warns(UserWarning, match=r"warmup 500: the run has 20 steps only"):
        tune(tmp_path, steps=20, warmup=500)
    [(adam, _)] = built
    assert [adam.learning_rate(step, 20, peak=1.0) for step in range(3)] == [0.5, 1.0, 1.0]
