"""A run that is killed at any moment resumes to exactly the weights of the run that was not.

The command line runs in processes forked from one that has imported everything, so that kills do not hit imports.
`make soak` runs fifty rounds instead of three. test_elastic.py kills processes of torchrun.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from crossling.data.shards import Shards
from crossling.train import checkpoint

from .kill_helpers import CRASHES, LAST, MINUTE, Command, Uninterrupted, assert_same_run, half_saved


@dataclass
class Count:
    rounds: int = 0
    kills: int = 0
    while_saving: int = 0
    equal: int = 0
    reached: Counter[int] = field(default_factory=Counter)  # number of kills by the latest checkpoint

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds: {self.kills} kills, {self.while_saving} of them in the middle of a save;"
            f" {self.equal} rounds ended equal; kills by newest checkpoint: {dict(sorted(self.reached.items()))}"
        )


def kill_at_random(command: Command, seed: int, count: Count, whole: Path, ranks: int = 1) -> None:
    """Kill a run one to three times, at a random moment or when a save starts, then run it to the end."""
    rng = random.Random(seed)
    seconds = (whole / "checkpoints" / f"{LAST:07d}").stat().st_mtime - (whole / "recipe.json").stat().st_mtime
    count.rounds += 1
    for number in range(rng.randint(1, 3)):
        left = set(half_saved(command.out))  # by the last kill
        while not killed(command, rng, seconds, ranks, left):
            if number:  # the run had finished
                break
            shutil.rmtree(command.out)  # it finished too early
        else:
            count.kills += 1
            count.while_saving += bool({*half_saved(command.out)} - left)
            count.reached[
                max([0, *(int(path.name) for path in checkpoint.list_checkpoints(command.out / "checkpoints"))])
            ] += 1
    command.finish(ranks)


def killed(command: Command, rng: random.Random, seconds: float, ranks: int, left: set[Path]) -> bool:
    """Start a run and kill it. Return False if it finished first."""
    running = command.start(ranks)
    first = running[0]
    while not (command.out / "recipe.json").exists() and first.is_alive():
        first.join(0.001)
    first.join(rng.uniform(0, seconds))
    if rng.random() < 0.6:
        while first.is_alive() and not {*half_saved(command.out)} - left:
            pass  # the moment is short
        first.join(rng.choice([0, 0, 0.001, 0.003]))
    in_time = all(process.is_alive() for process in running)
    for process in rng.sample(running, len(running)):
        process.kill()
    for process in running:
        process.join(MINUTE)
    return in_time


@pytest.mark.parametrize("seed", range(3))
def test_a_run_killed_at_a_random_moment_gives_the_same_result(
    seed: int, command: Command, uninterrupted_runs: Uninterrupted
) -> None:
    count = Count()
    kill_at_random(command, seed, count, uninterrupted_runs(1))
    assert count.kills > 0
    assert_same_run(uninterrupted_runs(1), command.out)


def test_two_processes_killed_at_a_random_moment_give_the_same_result(
    command: Command, uninterrupted_runs: Uninterrupted
) -> None:
    count = Count()
    kill_at_random(command, 0, count, uninterrupted_runs(2), ranks=2)
    assert count.kills > 0
    assert_same_run(uninterrupted_runs(2), command.out)


@pytest.mark.soak
@pytest.mark.parametrize(("ranks", "parallel", "rounds"), [(1, "ddp", 50), (2, "ddp", 10), (2, "fsdp", 10)])
def test_many_kills(
    ranks: int,
    parallel: str,
    rounds: int,
    context: ForkServerContext,
    shards: Shards,
    uninterrupted_runs: Uninterrupted,
    tmp_path: Path,
) -> None:
    count = Count()
    for seed in range(100, 100 + rounds):
        command = Command(context, shards.path, tmp_path / str(seed), parallel)
        kill_at_random(command, seed, count, uninterrupted_runs(ranks, parallel), ranks)
        assert_same_run(uninterrupted_runs(ranks, parallel), command.out)
        count.equal += 1
    print(f"\n{'one process' if ranks == 1 else f'{ranks} processes, {parallel}'}: {count}")
    assert count.equal == rounds
    assert count.kills >= rounds
    assert count.while_saving >= rounds // 5


@pytest.mark.parametrize("name", CRASHES)
def test_a_run_killed_while_it_writes_gives_the_same_result(
    name: str, command: Command, uninterrupted_runs: Uninterrupted
) -> None:
    [process] = command.start(crash=name)
    process.join(MINUTE)
    assert process.exitcode == -signal.SIGKILL, command.log.read_text()
    left = [int(path.name) for path in checkpoint.list_checkpoints(command.out / "checkpoints")]
    assert (left, bool(half_saved(command.out))) == (CRASHES[name].saved, CRASHES[name].half)
    command.finish()
    assert half_saved(command.out) == []
    assert_same_run(uninterrupted_runs(1), command.out)


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_saves_a_checkpoint_to_resume_from(
    kind: signal.Signals, command: Command, uninterrupted_runs: Uninterrupted
) -> None:
    [process] = command.start()
    while not (command.out / "metrics.jsonl").exists() and process.is_alive():
        process.join(0.005)
    os.kill(process.pid, kind)  # type: ignore[arg-type]
    process.join(MINUTE)
    assert process.exitcode == 130, command.log.read_text()
    stopped = re.search(r"stopped at step (\d+) of 12\. ", command.log.read_text())
    assert stopped is not None
    assert [int(path.name) for path in checkpoint.list_checkpoints(command.out / "checkpoints")][-1] == int(stopped[1])
    command.finish()
    assert_same_run(uninterrupted_runs(1), command.out)
