"""Independent tasks: one after the other, by several processes, or one share of them on each of many machines.

A task leaves its result on disk, whole or not at all, and does nothing when that result is there already. So a task
that was killed is run again alone, and what lies on disk at the end is the same whoever ran what.

Several processes are datatrove's where it is installed (`pip install crossling[data]`), the standard library's else.
"""

from __future__ import annotations

import builtins
import importlib.util
import json
import re
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Thread
from typing import Any

from crossling import errors
from crossling.disk import write_json
from crossling.errors import BadInput
from crossling.progress import Progress

POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Task:
    name: str
    run: Callable[[], object]  # can be pickled; what it returns is not looked at


@dataclass(frozen=True)
class Share:
    """`--task 3/16`: every 16th task, from the third on, as the third of 16 machines would do."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Share:
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise BadInput(f"--task {text}: expected i/n with i from 1 to n, such as 3/16")
        return cls(int(match[1]), int(match[2]))

    def part(self, tasks: Sequence[Task]) -> list[Task]:
        return list(tasks[self.number - 1 :: self.of])


def run(title: str, tasks: Sequence[Task], workers: int = 1, share: Share | None = None) -> None:
    """Does the tasks (or a share of them) under a bar; the first error ends it."""
    tasks = share.part(tasks) if share else tasks
    workers = min(workers, len(tasks))
    with Progress(title, len(tasks)) as progress:
        if workers <= 1:
            for done, task in enumerate(tasks, start=1):
                task.run()
                progress.update(done, task.name)
        elif importlib.util.find_spec("datatrove"):
            _run_on_datatrove(tasks, workers, progress)
        else:
            with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
                try:
                    names = {pool.submit(_run, task): task.name for task in tasks}
                    for done, future in enumerate(as_completed(names), start=1):
                        future.result()
                        progress.update(done, names[future])
                except BaseException:
                    pool.shutdown(cancel_futures=True)  # or it would do everything that was not begun, first
                    raise


def _run(task: Task) -> None:
    task.run()


def _run_on_datatrove(tasks: Sequence[Task], workers: int, progress: Progress) -> None:
    """One datatrove task for each of ours. Its own marks of completion serve the bar only: whether a result on disk
    is still good, a task knows better."""
    from datatrove.executor import LocalPipelineExecutor

    with tempfile.TemporaryDirectory(prefix="crossling-") as logs:
        error = Path(logs) / "error"
        with _watched(Path(logs), tasks, progress):
            LocalPipelineExecutor(
                pipeline=[_pipeline(tasks, error)],
                tasks=len(tasks),
                workers=workers,
                logging_dir=logs,
                skip_completed=False,
                start_method="spawn",
            ).run()
        if error.exists():
            raise _read_error(error)


def _pipeline(tasks: Sequence[Task], error: Path) -> _Pipeline:
    from loguru import logger

    logger.disable("datatrove")  # the bar and the one sentence of an error say what there is to say
    return _Pipeline(tasks, error)


class _Pipeline:
    """A datatrove pipeline step: a task by its rank, unless one has failed.

    Its error is left in a file. Were it raised, the pool would be ended by force, and a process that is just handing
    in its result would die with the lock of the queue in its hands: the end would never come.
    """

    def __init__(self, tasks: Sequence[Task], error: Path) -> None:
        self.tasks, self.error = tasks, error

    def __reduce__(self) -> tuple[Any, ...]:
        return _pipeline, (self.tasks, self.error)  # made anew in every process, which then is quiet too

    def __call__(self, data: Any, rank: int, world_size: int) -> None:  # noqa: ARG002
        if self.error.exists():
            return
        try:
            self.tasks[rank].run()
        except Exception as error:
            _write_error(error, self.error)


def _write_error(error: Exception, file: Path) -> None:
    plain = [value if isinstance(value, int | None) else str(value) for value in error.args]
    if isinstance(error, OSError) and error.filename is not None:
        plain.append(str(error.filename))
    told = {"kind": type(error).__name__, "arguments": plain, "traceback": traceback.format_exc()}
    write_json(file, told)


def _read_error(file: Path) -> Exception:
    """The same again where its kind is one of ours or of Python's own, a RuntimeError else; nothing is unpickled."""
    told = json.loads(file.read_text(encoding="utf-8"))
    kind = getattr(errors, told["kind"], None) or getattr(builtins, told["kind"], None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        kind = RuntimeError
    try:
        error: Exception = kind(*told["arguments"])
    except TypeError:  # made of other things than its arguments, as UnicodeDecodeError is
        error = RuntimeError(told["kind"])
    error.add_note(told["traceback"])
    return error


@contextmanager
def _watched(logs: Path, tasks: Sequence[Task], progress: Progress) -> Iterator[None]:
    ended = Event()

    def watch() -> None:
        over = False
        while not over:
            over = ended.wait(POLL_SECONDS)  # and a last look after the end
            done = sorted((logs / "completions").glob("*"), key=lambda mark: mark.stat().st_mtime)
            if done and not (logs / "error").exists():
                progress.update(len(done), tasks[int(done[-1].name)].name)

    thread = Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
