"""torchrun restarts a run of which a process was killed, and the run resumes from its checkpoint with the same losses.

Workers of different machines are those of two launchers here.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import replace

import pytest

from crossling.data.shards import Shards
from crossling.recipes import get_recipe
from crossling.recipes.pretrain import pretrain

from .kill_helpers import (
    LAST,
    MINUTE,
    SETTINGS,
    Command,
    Uninterrupted,
    assert_same_run,
    free_port,
    kill_worker,
    torchrun,
)
from .worlds import apart

MESSAGE = "crossling: another process of this run has stopped or does not respond. "
ALONE = ("--standalone", "--nproc-per-node=2")
WITHOUT_DROPOUT = ("--set", "model.dropout=0")


def machines(number: str) -> tuple[str, ...]:
    """Return the options of torchrun for each of some machines, with one process."""
    rendezvous = ("--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{free_port()}", "--rdzv-conf=last_call_timeout=1")
    return (f"--nnodes={number}", "--nproc-per-node=1", "--max-restarts=2", *rendezvous)


@pytest.mark.soak
def test_a_killed_process_ends_the_others_with_a_message(command: Command, uninterrupted_runs: Uninterrupted) -> None:
    with torchrun(command, *ALONE) as launcher:
        kill_worker(launcher, command)
        output, _ = launcher.communicate(timeout=MINUTE)
    assert launcher.returncode != 0
    assert "SIGKILL" in output
    assert MESSAGE in output
    assert not (command.out / "checkpoints" / f"{LAST:07d}").exists()
    command.finish(ranks=2)
    assert_same_run(uninterrupted_runs(2), command.out)


@pytest.mark.soak
@pytest.mark.parametrize("killed", [0, 1])
def test_torchrun_restarts_the_run(killed: int, command: Command, uninterrupted_runs: Uninterrupted) -> None:
    """The other process prints a message before it is restarted. A killed main process held the lock of the run."""
    with torchrun(replace(command, options=("--share-device",)), *ALONE, "--max-restarts=2") as launcher:
        kill_worker(launcher, command, killed)
        output, _ = launcher.communicate(timeout=2 * MINUTE)
    assert launcher.returncode == 0, output
    assert "exitcode: -9" in output
    assert MESSAGE in output
    assert len(re.findall(r"resumed from step \d+", output)) == 1
    assert_same_run(uninterrupted_runs(2), command.out)


@pytest.mark.soak
def test_two_machines_restart_although_only_one_counts_the_failure(
    command: Command, uninterrupted_runs: Uninterrupted
) -> None:
    options = machines("2")
    with torchrun(command, *options) as launcher, torchrun(command, *options) as other:
        kill_worker(launcher, command)
        outputs = [each.communicate(timeout=2 * MINUTE)[0] for each in (launcher, other)]
    assert (launcher.returncode, other.returncode) == (0, 0), outputs
    assert "resumed from step" in "".join(outputs)
    assert_same_run(uninterrupted_runs(2), command.out)


@pytest.mark.soak
def test_a_run_resumes_with_a_machine_that_joins(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's default store does not let a machine join: its launchers wait for each other."""
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    steps = 600
    settings = ("--set", f"steps={steps}", "--set", "checkpoint_every=20", "--set", "log_every=100")
    command, options = replace(command, options=(*WITHOUT_DROPOUT, *settings)), machines("1:2")
    with torchrun(command, *options) as launcher, ExitStack() as later:
        while not (command.out / "checkpoints" / "0000020").exists() and launcher.poll() is None:
            pass
        other = later.enter_context(torchrun(command, *options))
        outputs = [each.communicate(timeout=2 * MINUTE)[0] for each in (launcher, other)]
    assert (launcher.returncode, other.returncode) == (0, 0), outputs
    assert re.search(r"2 processes \(ddp\); resumed from step \d+", "".join(outputs))
    assert (command.out / "checkpoints" / f"{steps:07d}").exists()


@pytest.mark.soak
def test_a_killed_run_resumes_with_one_process(command: Command, shards: Shards) -> None:
    command = replace(command, options=WITHOUT_DROPOUT)
    with torchrun(command, *ALONE) as launcher:
        kill_worker(launcher, command)
        launcher.communicate(timeout=MINUTE)
    with torchrun(command, "--standalone", "--nproc-per-node=1") as launcher:
        output, _ = launcher.communicate(timeout=MINUTE)
    assert launcher.returncode == 0
    assert re.search(r"1 process \(ddp\); resumed from step \d+", output), output
    recipe = get_recipe("xlm_e", "tiny").set([*SETTINGS, "model.dropout=0"])
    alone = command.out.with_name("alone")
    pretrain(recipe, shards, alone)
    assert max(apart(alone, command.out).values()) < 1e-5
