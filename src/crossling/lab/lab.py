"""Train and evaluate the runs of a plan, and check its claims.

Files in the folder of a lab:

    `plan.json`        The plan, the fingerprints of the shards, and the sizes of the benchmark files.
    `runs/NAME-SEED/`  Run folders with their scores, and fine-tuned models in them.
    `lab.json`         Scores, costs, learning curves and claims.
    `results.md`       The same for readers, with `curves.svg`.
    `report.html`      Comparison of the runs, once all are finished.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crossling.core.errors import BadInput, Failed, Interrupted
from crossling.core.files import write_json
from crossling.core.locks import OutputInUse, lock_file, output_lock
from crossling.core.progress import print_status
from crossling.lab.comparison import compare_runs, write_results
from crossling.lab.lab_plan import LabPlan, read_plan
from crossling.lab.lab_run import LabRun
from crossling.lab.shared_inputs import RUNS, prepare_inputs
from crossling.report.report import report


def lab(
    plan: str | os.PathLike[str],
    out: str | os.PathLike[str],
    shards: str | os.PathLike[str] | None = None,
    data: str | os.PathLike[str] | None = None,
    *,
    only: Sequence[str] | None = None,
    minutes: float | None = None,
) -> dict[str, Any]:
    """Train the runs of a plan under one budget, evaluate them, and check the papers' claims.

    A finished run is never repeated, and an interrupted one resumes. Several processes can use the same folder: each
    works on the runs that no other process is working on.

    Args:
        plan: Name of a plan that ships (architecture, papers, rosetta, synthetic, synthetic-all), or a plan file.
        out: Folder of the lab.
        shards: Shards to train on. Omit it for a plan with synthetic languages.
        data: Folder of benchmark data. Omit it for a plan with synthetic languages.
        only: Names of the runs to work on. All if None.
        minutes: Stop after this time. The same call resumes.

    Returns:
        The content of `lab.json`: runs with costs and scores, and the status of every claim.

    Raises:
        BadInput: If the plan is invalid, or the folder belongs to another plan or other data.
        Failed: If a run failed. The others are finished.
        Interrupted: If the time is over or the process was stopped.

    Example:
        >>> results = crossling.lab("synthetic", "lab", minutes=25)
        >>> [claim["views"] for claim in results["claims"]]
    """
    lab_plan, out = read_plan(plan), Path(out)
    _check_arguments(lab_plan, only, minutes)
    with time_limit(minutes) as check_time:
        try:
            inputs = prepare_inputs(out, lab_plan, shards, data)
            runs = [
                LabRun(
                    *(lab_plan, name, seed),
                    shards=inputs.shards[run_plan.vocab],
                    data=inputs.data,
                    folder=out / RUNS / f"{name}-{seed}",
                )
                for name, run_plan in lab_plan.runs.items()
                for seed in lab_plan.seeds_of(name)
            ]
            for run in runs:
                run.check()
            failures = []
            # The first seed of every run comes before the second seed of any run.
            in_order = sorted(runs, key=lambda run: lab_plan.seeds_of(run.run).index(run.seed))
            try:
                for run in in_order:
                    if not run.is_finished and (not only or run.run in only):
                        failures += _work(run, check_time)
                        _write_results(out, lab_plan, runs)
            finally:
                results = _write_results(out, lab_plan, runs)
            if all(run.is_finished for run in runs):  # slow: it compares every two runs
                report([run.folder for run in runs], out / "report.html")
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted. Finished work is in {out}. The same command resumes.") from None
    if failures:
        others = f"The results of the other runs are in {out / 'results.md'}."
        raise Failed(f"{'; '.join(failures)} {others} The same command tries again.")
    return results


def _check_arguments(plan: LabPlan, only: Sequence[str] | None, minutes: float | None) -> None:
    plan.check_names(only or ())
    if minutes is not None and not minutes > 0:
        raise BadInput(f"minutes={minutes:g}: expected more than 0.")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise BadInput("lab: cannot run under torchrun. Start one plain process for each device.")


def _work(run: LabRun, check_time: Callable[[], None]) -> list[str]:
    """Finish a run. Return the error message of a run that failed, so that the other runs can follow."""
    try:
        with output_lock(run.folder):
            print_status(run.name)
            try:
                run.work(check_time)
            except (BadInput, Failed) as error:
                print_status(f"{run.name}: {error}")
                return [f"{run.name}: {error}"]
    except OutputInUse as error:
        print_status(f"{run.name}: another process is working on it. {error}")
    return []


def _write_results(out: Path, plan: LabPlan, runs: Sequence[LabRun]) -> dict[str, Any]:
    with lock_file(out / ".lab.json.lock"):  # read and write under one lock: no older state overwrites a newer one
        results = compare_runs(plan, runs)
        write_json(out / "lab.json", results)
        write_results(out, plan, results)
    return results


@contextmanager
def time_limit(minutes: float | None) -> Iterator[Callable[[], None]]:
    """Yield a function to call between jobs: it raises Interrupted when the minutes are over.

    A job that is running then gets SIGTERM: training saves a checkpoint first, and other work stops as by Ctrl-C.
    """
    end = None if minutes is None else time.monotonic() + 60 * minutes

    def check_time() -> None:
        if end is not None and time.monotonic() >= end:
            raise Interrupted(f"{minutes:g} minutes are over. The same command resumes.")

    # Only the main thread gets signals, and Windows has no timer: the time is then checked between jobs alone.
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield check_time
        return
    earlier = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, _interrupt),
        signal.SIGALRM: signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGTERM)),
    }
    if minutes is not None:
        signal.setitimer(signal.ITIMER_REAL, max(60 * minutes, 1e-3))
    try:
        yield check_time
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for kind, handler in earlier.items():
            signal.signal(kind, handler)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
