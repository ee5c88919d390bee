"""A run that was stopped and resumed is the run that was not."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
from pathlib import Path

import pytest
import torch

from crossling.core.errors import Interrupted
from crossling.data.shards import Shards
from crossling.objectives import Network
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.train import checkpoint_storage as stored

from .run_helpers import assert_same_run, before_step, crash, rows, saved, tensors


@pytest.fixture(scope="module")
def uninterrupted(full_recipe: Recipe, shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "uninterrupted"
    pretrain(full_recipe, shards, out)
    return out


def test_the_same_recipe_gives_the_same_run(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    pretrain(full_recipe, shards, tmp_path / "again")
    assert_same_run(uninterrupted, tmp_path / "again", 7)


def test_resume_after_a_crash_gives_the_same_run(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        before_step(patch, 6, crash)
        with pytest.raises(RuntimeError, match="went down"):
            pretrain(full_recipe, shards, out)
    assert saved(out) == [3]  # one step after a row of metrics: the next row needs what was summed before
    assert [row["step"] for row in rows(out)] == [2, 4]
    pretrain(full_recipe, shards, out)
    assert_same_run(uninterrupted, out, 7)


def test_a_crash_before_the_first_checkpoint_starts_again(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        before_step(patch, 3, crash)
        with pytest.raises(RuntimeError, match="went down"):
            pretrain(full_recipe, shards, out)
    assert saved(out) == []
    pretrain(full_recipe, shards, out)
    assert_same_run(uninterrupted, out, 7)


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_a_checkpoint_to_resume_from(
    kind: signal.Signals, full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        before_step(patch, 5, lambda: signal.raise_signal(kind))
        with pytest.raises(Interrupted, match=r"run: stopped at step 5 of 7\. .* Run the same command to resume\."):
            pretrain(full_recipe, shards, out)
    assert saved(out) == [3, 5]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    pretrain(full_recipe, shards, out)
    assert_same_run(uninterrupted, out, 7)


def test_a_signal_in_the_last_step_changes_nothing(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_step(monkeypatch, 7, lambda: signal.raise_signal(signal.SIGTERM))
    pretrain(full_recipe, shards, tmp_path / "run")
    assert_same_run(uninterrupted, tmp_path / "run", 7)


def test_a_finished_run_is_not_changed(full_recipe: Recipe, shards: Shards, uninterrupted: Path) -> None:
    before = (uninterrupted / "metrics.jsonl").read_bytes()
    net = pretrain(full_recipe, shards, uninterrupted)
    assert (uninterrupted / "metrics.jsonl").read_bytes() == before
    assert torch.equal(net.encoder.embeddings.tokens.weight, next(
        value for name, value in tensors(uninterrupted, 7).items() if name.endswith("embeddings.tokens.weight")
    ))  # fmt: skip


def test_a_truncated_row_is_written_again(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        before_step(patch, 5, lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(Interrupted):
            pretrain(full_recipe, shards, out)
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "mlm": 5.1, "ml')
    pretrain(full_recipe, shards, out)
    assert_same_run(uninterrupted, out, 7)


def test_loader_workers_change_nothing(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    pretrain(full_recipe, shards, tmp_path / "run", workers=2)
    assert_same_run(uninterrupted, tmp_path / "run", 7)


def test_a_signal_to_every_process_of_a_job_saves_a_checkpoint(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"

    def scheduler(_: Network) -> dict[str, float]:
        loaders = multiprocessing.active_children()
        if not loaders:  # before the first step
            return {}
        assert len(loaders) == 2
        # From outside: a loader obeys the process that started it.
        subprocess.run(["kill", "-TERM", *(str(process.pid) for process in loaders)], check=True)
        loaders[0].join(0.3)  # a loader that dies of it would be noticed by now
        signal.raise_signal(signal.SIGTERM)
        return {}

    with pytest.raises(Interrupted):
        pretrain(full_recipe, shards, out, probe=scheduler, probe_every=2, workers=2)
    assert saved(out) == [3]  # a signal during a step takes effect in the next one
    pretrain(full_recipe, shards, out)
    assert_same_run(uninterrupted, out, 7)


def test_a_full_disk_keeps_the_earlier_checkpoint(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        before_step(patch, 6, lambda: patch.setattr(stored, "write_tensors", full))
        with pytest.raises(OSError, match="No space"):
            pretrain(full_recipe, shards, out)
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["0000003"]
    pretrain(full_recipe, shards, out)
    assert_same_run(uninterrupted, out, 7)
