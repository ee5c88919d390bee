"""Runs of the command line in processes that can be killed, at random or at a given moment."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import torch

from crossling.core import files
from crossling.train import checkpoint
from crossling.train import checkpoint_storage as stored
from crossling.train import run_folder as run

TIMES = {"seconds", "tokens_per_second", "loader_wait", "machines", "eta"}
LAST = 12
SETTINGS = [
    *("model.layers=1", "model.width=16", "model.heads=2", "model.feed_forward=32", "model.generator_layers=1"),
    *("model.max_length=64", "mrtd.tokens=128", "mrtd.length=32", "trtd.tokens=128", "trtd.length=40"),
    *("xlco=on", "xlco.pairs=4", "xlco.length=40", "xlco.layer=1", "xlco.queue=8", "optimizer.warmup=2", "lr=0.01"),
    *(f"steps={LAST}", "log_every=3", "checkpoint_every=2"),
]
MINUTE = 60.0

Uninterrupted = Callable[..., Path]


@dataclass(frozen=True)
class Command:
    """`crossling pretrain` into a folder."""

    context: ForkServerContext
    shards: Path
    out: Path
    parallel: str = "ddp"
    options: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        options = [word for setting in (*SETTINGS, f"parallel={self.parallel}") for word in ("--set", setting)]
        return [
            "pretrain",
            "xlm_e",
            "--size",
            "tiny",
            "--shards",
            str(self.shards),
            "-o",
            str(self.out),
            *options,
            *self.options,
        ]

    @property
    def log(self) -> Path:
        return self.out.with_suffix(".log")

    def start(self, ranks: int = 1, crash: str | None = None) -> list[ForkServerProcess]:
        """Start one process, or several as torchrun does."""
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
        """Run to the end."""
        started = self.start(ranks)
        for process in started:
            process.join(MINUTE)
        codes = [process.exitcode for process in started]
        for process in started:
            process.kill()
        assert codes == [0] * ranks, self.log.read_text()


def crossling(arguments: Sequence[str], log: Path, place: dict[str, str], crash: str | None) -> None:
    """Run the command line with its output in a file."""
    from crossling import cli

    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ.update(place)
    if crash is not None:
        CRASHES[crash].install()
    sys.argv = ["crossling", *arguments]
    cli.main()


@contextmanager
def torchrun(command: Command, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run the launcher with its options, and end it with its workers."""
    running = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *options, "-m", "crossling", *command.arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield running
    finally:
        running.terminate()
        running.wait(MINUTE)


def kill_worker(launcher: subprocess.Popen[str], command: Command, local_rank: int = -1) -> None:
    """Kill a worker [default: the last one] as soon as there is a checkpoint."""
    while not checkpoint.list_checkpoints(command.out / "checkpoints") and launcher.poll() is None:
        time.sleep(0.005)
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(launcher.pid)], capture_output=True, text=True)
    os.kill(sorted(int(line) for line in listed.stdout.split())[local_rank], signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def half_saved(out: Path) -> list[Path]:
    return list((out / "checkpoints").glob(".[0-9]*"))


def assert_same_run(one: Path, other: Path) -> None:
    """Compare weights, optimizer state, the state of the run and every row of metrics without times, exactly."""
    left, right = (stored.read_tensors(out / "checkpoints" / f"{LAST:07d}") for out in (one, other))
    assert left.keys() == right.keys()
    assert {name.rpartition("/")[2] for name in left} > {"exp_avg", "exp_avg_sq", "step"}
    assert [name for name in left if not torch.equal(left[name], right[name])] == []
    assert described(one) == described(other)
    found = [path.name for path in checkpoint.list_checkpoints(other / "checkpoints")]
    assert found[-1] == f"{LAST:07d}"
    assert all(checkpoint._find_damage(path) is None for path in checkpoint.list_checkpoints(other / "checkpoints"))


def described(out: Path) -> list[dict[str, Any]]:
    """Return the metrics and the final state without times."""
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    rows.append(json.loads((out / "checkpoints" / f"{LAST:07d}" / "state.json").read_text()))
    return [{name: value for name, value in row.items() if name not in {*TIMES, "metrics"}} for row in rows]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def replace(module: Any, name: str, act: Callable[[Callable[..., Any], int], Callable[..., Any]]) -> None:
    """Replace a function by one that counts its calls."""
    original, calls = getattr(module, name), iter(range(1, 10**9))
    setattr(module, name, lambda *arguments, **more: act(original, next(calls))(*arguments, **more))


def with_half_a_file() -> None:
    def act(original: Callable[..., Any], call: int) -> Callable[..., Any]:
        def half(tensors: object, file: Path, *more: object) -> None:
            original(tensors, file, *more)
            if call == 3:
                os.truncate(file, file.stat().st_size // 2)
                die()

        return half

    replace(stored, "save_file", act)


def before(module: Any, name: str, number: int) -> Callable[[], None]:
    return lambda: replace(module, name, lambda original, call: die() if call == number else original)  # type: ignore


def after(module: Any, name: str, number: int) -> Callable[[], None]:
    def act(original: Callable[..., Any], call: int) -> Callable[..., Any]:
        def and_die(*arguments: object, **more: object) -> object:
            result = original(*arguments, **more)
            return die() if call == number else result

        return and_die

    return lambda: replace(module, name, act)


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
    """Truncate the row of step 9, when the checkpoint of step 8 is on disk and that of step 4 is removed."""
    original = run.RunFolder.log

    def half(self: run.RunFolder, row: dict[str, Any]) -> None:
        original(self, row)
        if row["step"] == 9:
            while half_saved(self.path) or [path.name for path in checkpoint.list_checkpoints(self.checkpoints)] != [
                "0000006",
                "0000008",
            ]:
                time.sleep(0.001)
            os.truncate(self.metrics, self.metrics.stat().st_size - 20)
            die()

    run.RunFolder.log = half  # type: ignore[method-assign]


@dataclass(frozen=True)
class Crash:
    install: Callable[[], None]
    saved: list[int]  # remaining checkpoints
    half: bool = False  # hidden leftovers remain


CRASHES = {
    "with half a file of tensors": Crash(with_half_a_file, [2, 4], half=True),
    "before the manifest": Crash(before(checkpoint, "write_json", 6), [2, 4], half=True),
    "before it has its name": Crash(
        before(files, "_replace_folder", 4), [2, 4], half=True
    ),  # the first is the vocabulary
    "before an old one is removed": Crash(after(files, "_replace_folder", 4), [2, 4, 6]),
    "while an old one is removed": Crash(while_an_old_one_is_removed, [6, 8], half=True),
    "in a row of metrics": Crash(in_a_row_of_metrics, [6, 8]),
    "before the recipe is written": Crash(before(run, "write_json", 1), []),
    "after the vocabulary": Crash(after(files, "_replace_folder", 1), []),
}
