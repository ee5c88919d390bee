"""A plan becomes runs, scores, verdicts and a report.

LAB/ plan.json            the plan as it was begun, the fingerprint of the shards, and the sizes of the data's files
     runs/NAME-SEED/      ordinary runs with their scores, and fine-tuned models below them
     lab.json             the board, for programs
     results.md           the same for readers, with curves.svg
     report.html          the runs side by side, when all are finished
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from crossling.disk import write_json
from crossling.errors import BadInput, Failed, Interrupted, nearest
from crossling.evaluate.report import report
from crossling.laboratory.board import board
from crossling.laboratory.material import RUNS, held, prepare
from crossling.laboratory.plan import Plan, read
from crossling.laboratory.results import write_results
from crossling.laboratory.slot import slot
from crossling.laboratory.unit import Unit
from crossling.progress import say


def lab(
    plan: Path | str,
    out: Path | str,
    shards: Path | str | None = None,
    data: Path | str | None = None,
    *,
    only: Sequence[str] | None = None,  # these runs, for a process of its own
    minutes: float | None = None,  # then it stops in good order
) -> dict[str, Any]:
    """Trains the runs of a plan, measures them, judges the claims, and returns the board, which is `out`/lab.json too.

    A finished run is never repeated and one that was stopped goes on. Several processes may work in one `out`: each
    takes the runs that no other is at.
    """
    known, out = read(plan), Path(out)
    _check(known, only, minutes)
    with slot(minutes) as check:
        try:
            material = prepare(out, known, shards, data)
            units = [
                Unit(known, trial, seed, material.shards[trial.vocab], material.data, out / RUNS / f"{name}-{seed}")
                for name, trial in known.runs.items()
                for seed in trial.seeds
            ]
            for unit in units:
                unit.check()
            failed = []
            # The first seed of every run comes before the second of any.
            in_turn = sorted(units, key=lambda unit: unit.trial.seeds.index(unit.seed))
            try:
                for unit in in_turn:
                    if not unit.finished and (not only or unit.trial.name in only):
                        failed += _work(unit, check)
                        _tell(out, known, units)
            finally:
                found = _tell(out, known, units)
            if all(unit.finished for unit in units):  # it compares every two runs, which takes its time
                report([unit.folder for unit in units], out / "report.html")
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; what is finished is kept in {out}, and the same command goes on") from None
    if failed:
        told = f"what there is of the others is in {out / 'results.md'}"
        raise Failed(f"{'; '.join(failed)}; {told}, and the same command tries again")
    return found


def _check(plan: Plan, only: Sequence[str] | None, minutes: float | None) -> None:
    for name in only or ():
        if name not in plan.runs:
            raise BadInput(f"--only {name}: there is no such run in plan {plan.name}{nearest(name, plan.runs)}")
    if minutes is not None and not minutes > 0:
        raise BadInput(f"--minutes {minutes:g}: expected more than 0")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise BadInput("a laboratory is shared by plain processes, not by torchrun; start one for each device")


def _work(unit: Unit, check: Callable[[], None]) -> list[str]:
    """Does what is left of a run. One that fails does not keep the others from their turn: what went wrong is
    returned."""
    with held(unit.folder, wait=False) as mine:
        if not mine:
            say(f"{unit.name}: another process is at it")
            return []
        say(unit.name)
        try:
            unit.work(check)
        except (BadInput, Failed) as error:
            say(f"{unit.name}: {error}")
            return [f"{unit.name}: {error}"]
    return []


def _tell(out: Path, plan: Plan, units: Sequence[Unit]) -> dict[str, Any]:
    with held(out / "lab.json"):  # what was seen later is written later, whichever process saw it
        found = board(plan, units)
        write_json(out / "lab.json", found)
        write_results(out, plan, found)
    return found
