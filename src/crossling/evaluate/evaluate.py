"""Measure an encoder on the tasks that need no training, and a fine-tuned one on its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from crossling.benchmarks.sets import SETS
from crossling.errors import BadInput, nearest
from crossling.evaluate import predictions, scores
from crossling.evaluate.alignment import word_alignment
from crossling.evaluate.bucc import bucc
from crossling.evaluate.encode import Encoder, check_pooling
from crossling.evaluate.links import check_methods
from crossling.evaluate.measured import Measured
from crossling.evaluate.retrieval import tatoeba
from crossling.evaluate.scores import Row
from crossling.evaluate.tuned import check_tuned, evaluate_tuned

TASKS = ("tatoeba", "bucc2018", "word-alignment")


def evaluate(
    model: Encoder | Path | str,  # a fine-tuned one by its folder, if no other tasks are asked for
    tasks: Sequence[str],
    data: Path | str,
    out: Path | str | None = None,
    *,
    languages: Sequence[str] | None = None,  # `sw`, `de-en`; all that are there if not said
    pooling: str = "mean",  # of positions to a sentence vector
    methods: Sequence[str] = ("ot",),  # of word alignment
    layers: Sequence[int] | None = None,  # to mine at, the universal one if not said; the others measure every layer
    recompute: bool = False,  # of a fine-tuned model: its stored predictions are scored anew
) -> list[Row]:
    """Score rows of all tasks; with `out` they are added to `out`/scores.jsonl, and what was found for every example is
    kept in `out`/predictions, if the folder is for this model alone."""
    data, tasks = Path(data), [tasks] if isinstance(tasks, str) else tasks
    for task in tasks:
        if task not in TASKS and task not in SETS:
            raise BadInput(f"task {task!r} is unknown{nearest(task, [*TASKS, *SETS])}")
    tuned, tasks = [task for task in tasks if task in SETS], [task for task in tasks if task not in SETS]
    name = model.name if isinstance(model, Encoder) else str(model)
    check_tuned(name, tuned, data)
    if tuned and not tasks and (layers or pooling != "mean" or [*methods] != ["ot"]):
        raise BadInput(f"{tuned[0]}: layers, pooling and methods are for tasks without training; leave them out")
    if tasks and recompute:
        raise BadInput(f"{tasks[0]}: only predictions of fine-tuned models are scored anew; leave --recompute out")
    check_pooling(pooling)
    check_methods(methods)
    if not data.is_dir():
        raise BadInput(f"{data}: no such folder; give the folder that holds tatoeba/ and word-alignment/")
    if out is not None:  # before the long part: what cannot be kept need not be measured
        scores.check_place(Path(out))
    rows = _training_free(model, tasks, data, out, languages, pooling, methods, layers) if tasks else []
    return [*rows, *(row for task in tuned for row in evaluate_tuned(name, data, out, task, recompute, languages))]


def _training_free(
    model: Encoder | Path | str,
    tasks: Sequence[str],
    data: Path,
    out: Path | str | None,
    languages: Sequence[str] | None,
    pooling: str,
    methods: Sequence[str],
    layers: Sequence[int] | None,
) -> list[Row]:
    if not isinstance(model, Encoder):
        raise BadInput(f"{model}: {tasks[0]} takes a loaded model; give xl.load(...) of it")
    chosen = [model.layer(layer) for layer in layers] if layers else [model.universal_layer]
    measures: dict[str, Callable[[], Iterator[Measured]]] = {
        "tatoeba": partial(tatoeba, model, data, languages, pooling),
        "bucc2018": partial(bucc, model, data, chosen, languages, pooling),
        "word-alignment": partial(word_alignment, model, data, languages, methods),
    }
    kept = Path(out) if out is not None and _alone(Path(out), model.name) else None
    rows: list[Row] = []
    for task in tasks:
        for found in measures[task]():
            rows += found.rows
            if kept is not None:
                predictions.write(kept, task, found.split, found.language, found.examples, found.variant)
        if out is not None:
            scores.add(Path(out) / "scores.jsonl", rows)
    return rows


def _alone(out: Path, model: str) -> bool:
    """Whether predictions, which do not say whose they are, can be kept there."""
    file = out / "scores.jsonl"
    rows = scores.read(file) if file.exists() else []
    others = {row["model"] for row in rows if row["task"] in TASKS} - {model}
    if others:
        warnings.warn(
            f"{out}: has scores of {min(others)} too, so no predictions of {model} are kept there; give each model a"
            " folder of its own",
            stacklevel=3,
        )
    return not others
