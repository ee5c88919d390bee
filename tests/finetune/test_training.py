"""The optimizer a task is learned with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transfer.toys import model_folder, write_xnli

from crossling.finetune.finetune import finetune
from crossling.train.optimizer import Adam

Built = list[tuple[Adam, torch.optim.AdamW]]


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Built:
    """What was trained with."""
    found: Built = []
    build = Adam.build

    def kept(self: Adam, net: nn.Module) -> torch.optim.AdamW:
        optimizer = build(self, net)
        found.append((self, optimizer))
        return optimizer

    monkeypatch.setattr(Adam, "build", kept)
    return found


def tune(folder: Path, **settings: Any) -> None:
    data = write_xnli(folder / "data", {"train": 24, "test": 4}, {"train": ["en"], "test": ["en"]})
    model = model_folder(folder / "model")
    finetune(model, "xnli", data, folder / "tuned", selection="last", batch=8, length=64, **settings)


def test_adam_is_that_of_xtreme(tmp_path: Path, built: Built) -> None:
    tune(tmp_path, steps=4, warmup=2, weight_decay=0.03)
    [(adam, optimizer)] = built
    assert {group["betas"] for group in optimizer.param_groups} == {(0.9, 0.999)}
    assert {group["eps"] for group in optimizer.param_groups} == {1e-8}
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.03, 0.0}
    assert adam.clip == 1.0
    assert adam.warmup_steps(4) == 2


def test_a_warm_up_longer_than_the_run_becomes_a_tenth_of_it(tmp_path: Path, built: Built) -> None:
    with pytest.warns(UserWarning, match=r"a warm-up of 500 steps in 20: one of a tenth of them is taken"):
        tune(tmp_path, steps=20, warmup=500)
    [(adam, _)] = built
    assert [adam.rate(step, 20, peak=1.0) for step in range(3)] == [0.5, 1.0, 1.0]
