"""Measure an encoder on the tasks that need no training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from crossling.errors import BadInput, nearest
from crossling.evaluate import scores
from crossling.evaluate.alignment import word_alignment
from crossling.evaluate.encode import Encoder
from crossling.evaluate.retrieval import tatoeba
from crossling.evaluate.scores import Row

TASKS: dict[str, Callable[[Encoder, Path], list[Row]]] = {"tatoeba": tatoeba, "word-alignment": word_alignment}


def evaluate(model: Encoder, tasks: Sequence[str], data: Path | str, out: Path | str | None = None) -> list[Row]:
    """Score rows of all tasks, every layer; with `out` they are added to `out`/scores.jsonl."""
    data = Path(data)
    for task in tasks:
        if task not in TASKS:
            raise BadInput(f"task {task!r} is unknown{nearest(task, TASKS)}")
    if not data.is_dir():
        raise BadInput(f"{data}: no such folder; give the folder that holds tatoeba/ and word-alignment/")
    if out is not None:  # before the long part: what cannot be kept need not be measured
        scores.check_place(Path(out))
    rows = [row for task in tasks for row in TASKS[task](model, data)]
    if out is not None:
        scores.add(Path(out) / "scores.jsonl", rows)
    return rows
