"""Seconds from a command to its first result: an alignment, an error message, the first optimizer step.

`pretrain` starts with an empty and with a filled compilation cache, and as two processes at once with an empty one.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from crossling.bench.workload import BenchRow, BenchSetup
from crossling.core.progress import print_status
from crossling.data.tokenize import tokenize
from crossling.synthetic import synth
from crossling.vocabulary.build_vocabulary import vocab

VOCABULARY_SIZE = 500
SENTENCES = 300  # of the corpus: two steps repeat them, which changes no time
TIMES = 3  # runs of `align`; the median counts
LIMIT = 150.0  # seconds of one command
PARTS = re.compile(r"\(([\d.]+) s before training, ([\d.]+) s loading data, ([\d.]+) s in the step")
# Small process between: the memory of a process that starts another would count as that of the other.
METER = """
import resource, subprocess, sys
subprocess.call(sys.argv[1:])
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
"""
FIRST_STEP = ["--set", "steps=2", "--set", "optimizer.warmup=1", "--set", "log_every=1"]
CPU_SHAPE = ("layers", "width", "heads", "feed_forward", "generator_layers")
CPU_STEP = ["mrtd.tokens=512", "trtd.tokens=512", "mrtd.length=64", "trtd.length=64"]


@dataclass(frozen=True)
class CommandStart:
    """Start of one command."""

    seconds: float  # to the line that was waited for
    line: str
    cpu_seconds: float  # of the whole command
    peak_gib: float  # memory of the host


def start_command(arguments: Sequence[str | Path], pattern: str, environment: dict[str, str]) -> CommandStart:
    """Run `crossling` with arguments, and measure the time to its first line of output with a pattern.

    Raises:
        RuntimeError: The command printed no such line.
    """
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", METER, sys.executable, "-u", "-m", "crossling", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | environment,
        start_new_session=True,
    )
    timer = threading.Timer(LIMIT, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    found, lines = None, []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line.strip())
        if found is None and re.search(pattern, line):
            found = time.perf_counter() - begin
    process.wait()
    timer.cancel()
    if found is None:
        raise RuntimeError(f"crossling {arguments[0]} printed no {pattern!r}, but: {' '.join(lines[-3:])}")
    [line, *_] = [line for line in lines if re.search(pattern, line)]
    cpu_seconds, kilobytes = map(float, lines[-1].split())
    return CommandStart(found, line, cpu_seconds, kilobytes / 2**20)


def start_rows(at: BenchSetup) -> Iterator[BenchRow]:
    with tempfile.TemporaryDirectory(prefix="crossling-bench-") as folder:
        here = Path(folder)
        yield from _align_rows(here, at.times)
        yield from _refusal_rows(here, at)
        yield from _first_step_rows(here, at)


def _align_rows(here: Path, times: int) -> Iterator[BenchRow]:
    pairs = here / "pairs.txt"
    pairs.write_text("the white house ||| la maison blanche\n", encoding="utf-8")
    starts = [start_command(["align", pairs], r"^\d+-\d+", {}) for _ in range(min(times, TIMES))]
    middle = sorted(starts, key=lambda start: start.seconds)[len(starts) // 2]
    yield BenchRow("align: first output", middle.seconds, None, "s")
    yield BenchRow("align: CPU time", middle.cpu_seconds, None, "s")
    yield BenchRow("align: memory of the host", 1024 * middle.peak_gib, None, "MiB")


def _refusal_rows(here: Path, at: BenchSetup) -> Iterator[BenchRow]:
    command: list[str | Path] = ["pretrain", "xlm_e", "--shards", here, "-o", here / "run", "--set", "stepps=1"]
    refused = at.try_measure("a misspelt setting", start_command, command, "there is no 'stepps'", {})
    if refused is not None:
        yield BenchRow("pretrain: refusal of a misspelt setting", refused.seconds, None, "s")


def _first_step_rows(here: Path, at: BenchSetup) -> Iterator[BenchRow]:
    corpora = synth(here / "synth", languages=2, sentences=SENTENCES, test_sentences=20) / "corpora"
    vocab(corpora, here / "vocab", size=VOCABULARY_SIZE)
    command: list[str | Path] = [
        "pretrain",
        "xlm_e",
        "--shards",
        tokenize(corpora, here / "vocab", here / "shards").path,
    ]
    command += ["--size", "small", *FIRST_STEP]
    if not at.on_gpu:
        shape = [f"model.{name}={getattr(at.shape, name)}" for name in CPU_SHAPE]
        command += [word for setting in (*CPU_STEP, *shape) for word in ("--set", setting)]
    for number, cache in ((1, "cold"), (1, "warm"), (2, "cold")):
        name = f"{'one process' if number == 1 else 'two at once'}, {cache} cache"
        starts = at.try_measure(name, _start_together, command, here, number, cache)
        if starts is None:
            return
        seconds = max(start.seconds for start in starts)
        yield BenchRow(f"first step, {name}", seconds, None, "s")
        cpu_seconds = sum(start.cpu_seconds for start in starts)
        yield BenchRow(f"CPU time, {name}", cpu_seconds, None, "s")
        if number == 1 and (parts := PARTS.search(starts[0].line)):
            for part, value in zip(("before training", "loading data", "in the step"), parts.groups(), strict=True):
                yield BenchRow(f"{part}, {name}", float(value), None, "s")


def _start_together(command: Sequence[str | Path], here: Path, number: int, cache: str) -> list[CommandStart]:
    """Start processes at the same time. Processes of the same number have one compilation cache."""
    folder = here / f"cache-of-{number}"
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TRITON_CACHE_DIR": str(folder / "triton")}
    commands = [[*command, "-o", here / f"{cache}-{number}-{each}"] for each in range(number)]
    with ThreadPoolExecutor(number) as pool:
        starts = list(pool.map(lambda each: start_command(each, "first step after", environment), commands))
    for start in starts:
        print_status(f"bench: {start.line}")
    return starts
