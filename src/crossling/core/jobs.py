"""Independent jobs, run one after the other, by several processes, or on several machines.

A job writes its result atomically and does nothing if that result exists already (see resumable.py). So a killed job is
simply run again, and the result on disk does not depend on which process ran which job.

Several processes use datatrove if it is installed (`pip install crossling[data]`), else the standard library.
"""

from __future__ import annotations

import builtins
import importlib.util
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

from crossling.core import errors
from crossling.core.errors import BadInput
from crossling.core.files import read_json, write_json
from crossling.core.progress import Progress

POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Job:
    """Work of one process, with a name for the progress bar."""

    name: str
    run: Callable[[], object]  # picklable; the returned value is ignored


@dataclass(frozen=True)
class Share:
    """One of several equal parts of the jobs, for one of several machines: every 16th job for `--share 3/16`.

    Args:
        number: Number of the part, from 1.
        of: Number of parts.

    Example:
        >>> Share.parse("3/16")
        Share(number=3, of=16)
    """

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Share:
        """Parse `I/N`, such as 3/16.

        Args:
            text: Number of the share, and how many there are.

        Raises:
            BadInput: If it is not `I/N` with I from 1 to N.

        Example:
            >>> crossling.Share.parse("3/16")
        """
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise BadInput(f"share={text}: expected I/N with I from 1 to N, such as 3/16.")
        return cls(int(match[1]), int(match[2]))

    @property
    def label(self) -> str:
        """The share in file names, such as `3-16`."""
        return f"{self.number}-{self.of}"

    def select(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the jobs of this share.

        Args:
            jobs: All jobs, in the same order in every share.

        Example:
            >>> crossling.Share.parse("1/2").select(jobs)
        """
        return list(jobs[self.number - 1 :: self.of])


def run_jobs(title: str, jobs: Sequence[Job], workers: int = 1, share: Share | None = None) -> None:
    """Run jobs with a progress bar. The first error stops them.

    Args:
        title: Label of the progress bar.
        jobs: Jobs in the order to run them.
        workers: Worker processes.
        share: Run only this share of the jobs.
    """
    jobs = share.select(jobs) if share else jobs
    workers = min(workers, len(jobs))
    with Progress(title, len(jobs)) as progress:
        if workers <= 1:
            for done, job in enumerate(jobs, start=1):
                job.run()
                progress.update(done, job.name)
        elif importlib.util.find_spec("datatrove"):
            _run_on_datatrove(jobs, workers, progress)
        else:
            with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
                try:
                    names = {pool.submit(_run, job): job.name for job in jobs}
                    for done, future in enumerate(as_completed(names), start=1):
                        future.result()
                        progress.update(done, names[future])
                except BaseException:
                    pool.shutdown(cancel_futures=True)  # otherwise it runs all waiting jobs first
                    raise


def _run(job: Job) -> None:
    job.run()


def _run_on_datatrove(jobs: Sequence[Job], workers: int, progress: Progress) -> None:
    """Run each job as one datatrove task.

    Its completion marks are used for the progress bar only: a job itself checks if its result is up to date.
    """
    import multiprocess
    from datatrove.executor import LocalPipelineExecutor

    # The executor starts a manager process with the default method. A fork beside the progress thread may deadlock.
    multiprocess.set_start_method("spawn", force=True)
    with tempfile.TemporaryDirectory(prefix="crossling-") as logs:
        error = Path(logs) / "error"
        with _show_progress(Path(logs), jobs, progress):
            LocalPipelineExecutor(
                pipeline=[_PipelineStep(jobs, error)],
                tasks=len(jobs),
                workers=workers,
                logging_dir=logs,
                skip_completed=False,
                start_method="spawn",
            ).run()
        if error.exists():
            raise _read_error(error)


class _PipelineStep:
    """Datatrove pipeline step that runs the job of its rank, unless a job has failed.

    Errors are written to a file. A raised error would terminate the pool, and a worker that is just returning its
    result would die while it holds the lock of the queue: a deadlock.
    """

    def __init__(self, jobs: Sequence[Job], error: Path) -> None:
        from loguru import logger

        logger.disable("datatrove")  # the progress bar and the error message are enough
        self.jobs, self.error = jobs, error

    def __reduce__(self) -> tuple[Any, ...]:
        return _PipelineStep, (self.jobs, self.error)  # so that the logger is disabled in every process

    def __call__(self, data: Any, rank: int, world_size: int) -> None:  # noqa: ARG002
        if self.error.exists():
            return
        try:
            self.jobs[rank].run()
        except Exception as error:
            _write_error(error, self.error)


def _write_error(error: Exception, file: Path) -> None:
    arguments = [value if isinstance(value, int | None) else str(value) for value in error.args]
    if isinstance(error, OSError) and error.filename is not None:
        arguments.append(str(error.filename))
    write_json(file, {"type": type(error).__name__, "arguments": arguments, "traceback": traceback.format_exc()})


def _read_error(file: Path) -> Exception:
    """Restore an error of crossling or of Python, else return a RuntimeError. Nothing is unpickled."""
    stored = read_json(file)
    error_type = getattr(errors, stored["type"], None) or getattr(builtins, stored["type"], None)
    if not (isinstance(error_type, type) and issubclass(error_type, Exception)):
        error_type = RuntimeError
    try:
        error: Exception = error_type(*stored["arguments"])
    except TypeError:  # needs arguments of other types, as UnicodeDecodeError does
        error = RuntimeError(stored["type"])
    error.add_note(stored["traceback"])
    return error


@contextmanager
def _show_progress(logs: Path, jobs: Sequence[Job], progress: Progress) -> Iterator[None]:
    """Update the bar from datatrove's completion marks while the jobs run."""
    ended = Event()

    def watch() -> None:
        is_last = False
        while not is_last:
            is_last = ended.wait(POLL_SECONDS)  # one more update after the end
            marks = sorted((logs / "completions").glob("*"), key=lambda mark: mark.stat().st_mtime)
            if marks and not (logs / "error").exists():
                progress.update(len(marks), jobs[int(marks[-1].name)].name)

    thread = Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
