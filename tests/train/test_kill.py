"""Whenever a run is killed, the same command goes on to the very weights of the run that was not.

The command line runs in processes of its own, forked from one that has imported everything already, so that a kill
meets the run and not its imports. `make soak` makes fifty rounds of what is three here, and the same with torchrun.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from crossling import disk
from crossling.data.shards import Shards
from crossling.train import checkpoint, run, stored

TIMES = {"seconds", "tokens_per_second", "loader_wait", "machines", "pace"}
LAST = 12
SETTINGS = [
    *("model.layers=1", "model.width=16", "model.heads=2", "model.feed_forward=32", "model.generator_layers=1"),
    *("model.max_length=64", "mrtd.tokens=128", "mrtd.length=32", "trtd.tokens=128", "trtd.length=40"),
    *("xlco=on", "xlco.pairs=4", "xlco.length=40", "xlco.layer=1", "xlco.queue=8", "optimizer.warmup=2", "lr=0.01"),
    *(f"steps={LAST}", "log_every=3", "checkpoint_every=2"),
]
MINUTE = 60.0

Uninterrupted = Callable[..., Path]


# ---- a run that can be killed ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    """`crossling pretrain` into a folder."""

    context: ForkServerContext
    shards: Path
    out: Path
    parallel: str = "ddp"

    @property
    def arguments(self) -> list[str]:
        options = [word for setting in (*SETTINGS, f"parallel={self.parallel}") for word in ("--set", setting)]
        return ["pretrain", "xlm_e", "--size", "tiny", "--shards", str(self.shards), "-o", str(self.out), *options]

    @property
    def log(self) -> Path:
        return self.out.with_suffix(".log")

    def start(self, ranks: int = 1, crash: str | None = None) -> list[ForkServerProcess]:
        """In one process, or in several as torchrun starts them."""
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
        places = [{**meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
        started = [
            self.context.Process(target=crossling, args=(self.arguments, self.log, place if ranks > 1 else {}, crash))
            for place in places
        ]
        for process in started:
            process.start()
        return started

    def finish(self, ranks: int = 1) -> None:
        """To the end, whatever happened before."""
        started = self.start(ranks)
        for process in started:
            process.join(MINUTE)
        codes = [process.exitcode for process in started]
        for process in started:
            process.kill()
        assert codes == [0] * ranks, self.log.read_text()


def crossling(arguments: Sequence[str], log: Path, place: dict[str, str], crash: str | None) -> None:
    """The command line; what it prints goes to a file."""
    from crossling import cli

    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ.update(place)
    if crash is not None:
        CRASHES[crash].begin()
    sys.argv = ["crossling", *arguments]
    cli.main()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def half_saved(out: Path) -> list[Path]:
    return list((out / "checkpoints").glob(".[0-9]*"))


def assert_same_run(one: Path, other: Path) -> None:
    """Weights, optimizer and what else goes on to the bit; and every row of metrics but for the times."""
    left, right = (stored.tensors(out / "checkpoints" / f"{LAST:07d}") for out in (one, other))
    assert left.keys() == right.keys()
    assert {name.rpartition("/")[2] for name in left} > {"exp_avg", "exp_avg_sq", "step"}
    assert [name for name in left if not torch.equal(left[name], right[name])] == []
    assert told(one) == told(other)
    found = [path.name for path in checkpoint.all_steps(other / "checkpoints")]
    assert found[-1] == f"{LAST:07d}"
    assert all(checkpoint._damage(path) is None for path in checkpoint.all_steps(other / "checkpoints"))


def told(out: Path) -> list[dict[str, Any]]:
    """Metrics, and the state at the end."""
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    rows.append(json.loads((out / "checkpoints" / f"{LAST:07d}" / "state.json").read_text()))
    return [{name: value for name, value in row.items() if name not in {*TIMES, "window"}} for row in rows]


@pytest.fixture(scope="module")
def context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    rooms = ("cli.app", "data.shards", "recipe", "recipes", "probes", "train.trainer", "train.stored")
    context.set_forkserver_preload([__name__, *(f"crossling.{room}" for room in rooms)])
    return context


@pytest.fixture
def command(context: ForkServerContext, shards: Shards, tmp_path: Path) -> Command:
    return Command(context, shards.path, tmp_path / "run")


@pytest.fixture(scope="module")
def uninterrupted(
    context: ForkServerContext, shards: Shards, tmp_path_factory: pytest.TempPathFactory
) -> Uninterrupted:
    """The run of so many processes that nobody kills."""

    @cache
    def of(ranks: int, parallel: str = "ddp") -> Path:
        out = tmp_path_factory.mktemp("runs") / f"{parallel}-of-{ranks}"
        Command(context, shards.path, out, parallel).finish(ranks)
        return out

    return of


# ---- at random moments ----------------------------------------------------------------------------------------


@dataclass
class Count:
    rounds: int = 0
    kills: int = 0
    while_saving: int = 0
    equal: int = 0
    reached: Counter[int] = field(default_factory=Counter)  # how often which checkpoint was the newest

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds: {self.kills} kills, {self.while_saving} of them in the middle of a save;"
            f" {self.equal} rounds ended equal; kills by newest checkpoint: {dict(sorted(self.reached.items()))}"
        )


def kill_at_random(command: Command, seed: int, count: Count, whole: Path, ranks: int = 1) -> None:
    """One to three times, at any moment of such a run as `whole` or when a save begins; then to the end."""
    drawn = random.Random(seed)
    seconds = (whole / "checkpoints" / f"{LAST:07d}").stat().st_mtime - (whole / "recipe.json").stat().st_mtime
    count.rounds += 1
    for number in range(drawn.randint(1, 3)):
        left = set(half_saved(command.out))  # by the kill before
        while not killed(command, drawn, seconds, ranks, left):
            if number:  # nothing was left to kill
                break
            shutil.rmtree(command.out)  # it was too quick
        else:
            count.kills += 1
            count.while_saving += bool({*half_saved(command.out)} - left)
            count.reached[
                max([0, *(int(path.name) for path in checkpoint.all_steps(command.out / "checkpoints"))])
            ] += 1
    command.finish(ranks)


def killed(command: Command, drawn: random.Random, seconds: float, ranks: int, left: set[Path]) -> bool:
    """Whether it was, before it came to its end."""
    running = command.start(ranks)
    first = running[0]
    while not (command.out / "recipe.json").exists() and first.is_alive():
        first.join(0.001)
    first.join(drawn.uniform(0, seconds))
    if drawn.random() < 0.6:
        while first.is_alive() and not {*half_saved(command.out)} - left:
            pass  # the moment is short
        first.join(drawn.choice([0, 0, 0.001, 0.003]))
    in_time = all(process.is_alive() for process in running)
    for process in drawn.sample(running, len(running)):
        process.kill()
    for process in running:
        process.join(MINUTE)
    return in_time


@pytest.mark.parametrize("seed", range(3))
def test_a_run_killed_at_any_moment_ends_as_the_one_that_was_not(
    seed: int, command: Command, uninterrupted: Uninterrupted
) -> None:
    count = Count()
    kill_at_random(command, seed, count, uninterrupted(1))
    assert count.kills > 0
    assert_same_run(uninterrupted(1), command.out)


def test_two_processes_killed_at_any_moment_end_as_those_that_were_not(
    command: Command, uninterrupted: Uninterrupted
) -> None:
    count = Count()
    kill_at_random(command, 0, count, uninterrupted(2), ranks=2)
    assert count.kills > 0
    assert_same_run(uninterrupted(2), command.out)


@pytest.mark.soak
@pytest.mark.parametrize(("ranks", "parallel", "rounds"), [(1, "ddp", 50), (2, "ddp", 10), (2, "fsdp", 10)])
def test_many_kills(
    ranks: int,
    parallel: str,
    rounds: int,
    context: ForkServerContext,
    shards: Shards,
    uninterrupted: Uninterrupted,
    tmp_path: Path,
) -> None:
    count = Count()
    for seed in range(100, 100 + rounds):
        command = Command(context, shards.path, tmp_path / str(seed), parallel)
        kill_at_random(command, seed, count, uninterrupted(ranks, parallel), ranks)
        assert_same_run(uninterrupted(ranks, parallel), command.out)
        count.equal += 1
    print(f"\n{'one process' if ranks == 1 else f'{ranks} processes, {parallel}'}: {count}")
    assert count.equal == rounds
    assert count.kills >= rounds
    assert count.while_saving >= rounds // 5


# ---- at the worst moments -------------------------------------------------------------------------------------


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def replace(room: Any, name: str, act: Callable[[Callable[..., Any], int], Callable[..., Any]]) -> None:
    """A function by one that knows how often it was called."""
    original, calls = getattr(room, name), iter(range(1, 10**9))
    setattr(room, name, lambda *told, **more: act(original, next(calls))(*told, **more))


def with_half_a_file() -> None:
    def act(original: Callable[..., Any], call: int) -> Callable[..., Any]:
        def half(tensors: object, file: Path, *more: object) -> None:
            original(tensors, file, *more)
            if call == 3:
                os.truncate(file, file.stat().st_size // 2)
                die()

        return half

    replace(stored, "save_file", act)


def before(room: Any, name: str, number: int) -> Callable[[], None]:
    return lambda: replace(room, name, lambda original, call: die() if call == number else original)  # type: ignore


def after(room: Any, name: str, number: int) -> Callable[[], None]:
    def act(original: Callable[..., Any], call: int) -> Callable[..., Any]:
        def and_die(*told: object, **more: object) -> object:
            result = original(*told, **more)
            return die() if call == number else result

        return and_die

    return lambda: replace(room, name, act)


def while_an_old_one_is_removed() -> None:
    def act(original: Callable[..., Any], _: int) -> Callable[..., Any]:
        def half(path: Path, **more: object) -> None:
            if path.name == ".0000004.old":
                next(path.iterdir()).unlink()
                die()
            original(path, **more)

        return half

    replace(checkpoint.shutil, "rmtree", act)


def in_a_row_of_metrics() -> None:
    """Of step 9, when what was saved at step 8 is on disk."""
    original = run.Run.log

    def half(self: run.Run, row: dict[str, Any]) -> None:
        original(self, row)
        if row["step"] == 9:
            while half_saved(self.path) or not (self.checkpoints / "0000008").exists():
                time.sleep(0.001)
            os.truncate(self.metrics, self.metrics.stat().st_size - 20)
            die()

    run.Run.log = half  # type: ignore[method-assign]


@dataclass(frozen=True)
class Crash:
    begin: Callable[[], None]
    saved: list[int]  # the checkpoints it leaves
    half: bool = False  # and whether there is more that is hidden


CRASHES = {
    "with half a file of tensors": Crash(with_half_a_file, [2, 4], half=True),
    "before the manifest": Crash(before(checkpoint, "write_json", 6), [2, 4], half=True),
    "before it has its name": Crash(before(disk, "_put", 4), [2, 4], half=True),  # the vocabulary is the first
    "before an old one is removed": Crash(after(disk, "_put", 4), [2, 4, 6]),
    "while an old one is removed": Crash(while_an_old_one_is_removed, [6, 8], half=True),
    "in a row of metrics": Crash(in_a_row_of_metrics, [6, 8]),
    "before the recipe is written": Crash(before(run, "write_json", 1), []),
    "after the vocabulary": Crash(after(disk, "_put", 1), []),
}


@pytest.mark.parametrize("name", CRASHES)
def test_a_run_killed_at_a_bad_moment_ends_as_the_one_that_was_not(
    name: str, command: Command, uninterrupted: Uninterrupted
) -> None:
    [process] = command.start(crash=name)
    process.join(MINUTE)
    assert process.exitcode == -signal.SIGKILL, command.log.read_text()
    left = [int(path.name) for path in checkpoint.all_steps(command.out / "checkpoints")]
    assert (left, bool(half_saved(command.out))) == (CRASHES[name].saved, CRASHES[name].half)
    command.finish()
    assert half_saved(command.out) == []
    assert_same_run(uninterrupted(1), command.out)


# ---- asked to stop --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_asked_to_stop_saves_and_goes_on(
    kind: signal.Signals, command: Command, uninterrupted: Uninterrupted
) -> None:
    [process] = command.start()
    while not (command.out / "metrics.jsonl").exists() and process.is_alive():
        process.join(0.005)
    os.kill(process.pid, kind)  # type: ignore[arg-type]
    process.join(MINUTE)
    assert process.exitcode == 130, command.log.read_text()
    stopped = re.search(r"stopped at step (\d+) of 12, saved in", command.log.read_text())
    assert stopped is not None
    assert [int(path.name) for path in checkpoint.all_steps(command.out / "checkpoints")][-1] == int(stopped[1])
    command.finish()
    assert_same_run(uninterrupted(1), command.out)


# ---- torchrun -------------------------------------------------------------------------------------------------


@contextmanager
def torchrun(command: Command, *options: str) -> Iterator[subprocess.Popen[str]]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *options]
    running = subprocess.Popen(
        [*launcher, "-m", "crossling", *command.arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield running
    finally:
        running.terminate()  # with its workers
        running.wait(MINUTE)


def kill_a_worker(launcher: subprocess.Popen[str], command: Command) -> None:
    """When there is something to go on from."""
    while not checkpoint.all_steps(command.out / "checkpoints") and launcher.poll() is None:
        time.sleep(0.005)
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(launcher.pid)], capture_output=True, text=True)
    os.kill(max(int(line) for line in listed.stdout.split()), signal.SIGKILL)


def test_a_dead_worker_ends_the_job_with_its_reason(command: Command, uninterrupted: Uninterrupted) -> None:
    with torchrun(command) as launcher:
        kill_a_worker(launcher, command)
        output, _ = launcher.communicate(timeout=MINUTE)
    assert launcher.returncode != 0
    assert "SIGKILL" in output
    assert not (command.out / "checkpoints" / f"{LAST:07d}").exists()
    command.finish(ranks=2)
    assert_same_run(uninterrupted(2), command.out)


@pytest.mark.soak
def test_torchrun_starts_it_again(command: Command, uninterrupted: Uninterrupted) -> None:
    with torchrun(command, "--max-restarts=1") as launcher:
        kill_a_worker(launcher, command)
        output, _ = launcher.communicate(timeout=2 * MINUTE)
    assert launcher.returncode == 0, output
    assert "exitcode: -9" in output
    assert_same_run(uninterrupted(2), command.out)
