"""Interrupted training of translators resumes exactly, and finished translators are kept."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from crossling.core.errors import BadInput, Interrupted
from crossling.data.batches import StepWork
from crossling.finetune.translation.translation_batches import TranslationBatches
from crossling.finetune.translation.translation_training import TranslationRun
from crossling.finetune.translation.translator import TRANSLATOR_INFO
from crossling.train import checkpoint
from crossling.train.trainer import Trainer

from .tiny_parallel import train_short, write_parallel

TIMES = {"seconds", "tokens_per_second", "loader_wait"}


def _never(*_: object, **__: object) -> None:
    raise AssertionError("trained again")


def test_a_resumed_run_equals_an_uninterrupted_one(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"dropout": 0.1}
    whole = train_short(encoder, data, tmp_path / "whole", **changes)
    original = TranslationBatches.__getitem__

    def failing(self: TranslationBatches, step: int) -> StepWork:
        if step == 5:
            raise OSError(5, "the disk is gone")
        return original(self, step)

    monkeypatch.setattr(TranslationBatches, "__getitem__", failing)
    with pytest.raises(OSError, match="the disk is gone"):
        train_short(encoder, data, tmp_path / "cut", **changes)
    monkeypatch.undo()
    assert checkpoint.list_checkpoints(tmp_path / "cut" / "training" / "seed-0" / "checkpoints")
    assert train_short(encoder, data, tmp_path / "cut", **changes) == whole
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    logs = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("whole", "cut")]
    first, second = ([without_times(line) for line in log] for log in logs)
    assert first == second
    assert not (tmp_path / "cut" / "training").exists()


def interrupt_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Send a signal while the data of a step is read. The step is finished and saved."""
    original = TranslationBatches.__getitem__

    def stopping(self: TranslationBatches, number: int) -> StepWork:
        if number == step - 1:
            signal.raise_signal(signal.SIGTERM)
        return original(self, number)

    monkeypatch.setattr(TranslationBatches, "__getitem__", stopping)


@pytest.mark.parametrize(
    ("stop", "unsafe", "killed"), [(11, 0, False), (11, 0, True), (6, 0, False), (4, 4, False), (5, 4, False)]
)
def test_averaged_checkpoints_do_not_depend_on_the_interruption(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int, unsafe: int, killed: bool
) -> None:
    """A step with a bad gradient norm (`unsafe`) is not saved as scheduled, also if the run was interrupted there."""
    data = write_parallel(tmp_path / "data", {"train": 40, "test": 2})  # without dev, the mean is used
    changes = {"steps": 12 if not unsafe else 8, "average": 3}
    monkeypatch.setattr(Trainer, "_is_suspect", lambda self: self.step == unsafe)
    train_short(encoder, data, tmp_path / "whole", **changes)
    assert TRANSLATOR_INFO.read(tmp_path / "whole").averaged_steps == ([2, 6, 8] if unsafe else [8, 10, 12])
    with monkeypatch.context() as once:
        interrupt_at(once, stop)
        with pytest.raises(Interrupted, match=f"stopped at step {stop}"):
            train_short(encoder, data, tmp_path / "cut", **changes)
    if killed:  # after the last checkpoint was written, before old ones were removed
        monkeypatch.setattr(checkpoint.Checkpoints, "_remove_old", lambda *_: None)
    train_short(encoder, data, tmp_path / "cut", **changes)
    assert TRANSLATOR_INFO.read(tmp_path / "cut") == TRANSLATOR_INFO.read(tmp_path / "whole")
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_an_unsafe_checkpoint_is_never_the_best_one(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def score_dev(self: Any, translator: Any) -> dict[str, float]:
        return {"dev": next(evaluations if translator is self.translator else choices)}

    monkeypatch.setattr(TranslationRun, "_score_dev", score_dev)
    monkeypatch.setattr(Trainer, "_is_suspect", lambda self: self.step == 4)
    for name in ("whole", "cut"):
        # Scores at steps 0, 2, 4, ...; at the end those of the mean and of the best checkpoint.
        evaluations, choices = iter([0.0, 3.0, 9.0, 1.0, 1.0]), iter([1.0, 5.0])
        if name == "cut":
            with monkeypatch.context() as once:
                interrupt_at(once, 4)
                with pytest.raises(Interrupted):
                    train_short(encoder, data, tmp_path / name, directions="en-de", steps=8)
        train_short(encoder, data, tmp_path / name, directions="en-de", steps=8)
        assert TRANSLATOR_INFO.read(tmp_path / name).averaged_steps == [2]


def test_a_resumed_run_may_change_the_beam_search_only(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as once:
        interrupt_at(once, 3)
        with pytest.raises(Interrupted):
            train_short(encoder, data, tmp_path / "mt", directions="en-de")
    with pytest.raises(BadInput, match="different: checkpoint_every"):
        train_short(encoder, data, tmp_path / "mt", directions="en-de", checkpoint_every=3)
    spelling = f"{os.path.relpath(encoder)}/"
    train_short(spelling, data, tmp_path / "mt", directions="en-de", beam=2, length_penalty=0.5, log_every=3)
    assert TRANSLATOR_INFO.read(tmp_path / "mt").averaged_steps
    train_short(encoder, data, tmp_path / "mt", directions="en-de")  # finished, with the first spelling


def without_times(line: str) -> dict[str, Any]:
    return {name: value for name, value in json.loads(line).items() if name not in TIMES}


def test_a_finished_translator_is_kept_and_other_settings_are_refused(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "mt"
    rows = train_short(encoder, data, out)
    monkeypatch.setattr(TranslationRun, "fit", _never)
    assert train_short(encoder, data, out) == rows
    with pytest.raises(BadInput, match=r"trained with lr 0.005, not 0.1"):
        train_short(encoder, data, out, lr=0.1)
    with pytest.raises(BadInput, match="trained with init pre-trained, not from-scratch"):
        train_short(encoder, data, out, from_scratch=True)
    other = write_parallel(tmp_path / "other", {"train": 50, "dev": 4, "test": 4})
    with pytest.raises(BadInput, match="trained or selected on other data"):
        train_short(encoder, other, out)


def test_a_run_that_patience_ended_is_not_trained_further(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def score_dev(self: Any, translator: Any) -> dict[str, float]:  # noqa: ARG001
        return {"dev": 1.0, "dev/en-de": 1.0}

    def failing(*_: object) -> None:
        raise OSError(5, "the disk is gone")

    monkeypatch.setattr(TranslationRun, "_score_dev", score_dev)
    with monkeypatch.context() as once:
        once.setattr(TranslationRun, "save_model", failing)
        with pytest.raises(OSError, match="the disk is gone"):
            train_short(encoder, data, tmp_path / "mt", steps=40, patience=2)
    monkeypatch.setattr(TranslationBatches, "__getitem__", _never)
    train_short(encoder, data, tmp_path / "mt", steps=40, patience=2)
    assert TRANSLATOR_INFO.read(tmp_path / "mt").steps == 2 + 2 * 2
