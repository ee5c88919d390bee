"""Measure an encoder on the tasks that need no training, and a fine-tuned one on its own."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from crossling.errors import BadInput, Interrupted
from crossling.evaluate import predictions, scores
from crossling.evaluate.alignment import word_alignment
from crossling.evaluate.asked import TASKS, TRANSLATION, Asked, Languages
from crossling.evaluate.bucc import bucc
from crossling.evaluate.encode import Encoder
from crossling.evaluate.files import Files, choose
from crossling.evaluate.measured import Measured
from crossling.evaluate.retrieval import tatoeba, translated_files
from crossling.evaluate.scores import Row
from crossling.evaluate.translated import evaluate_translator
from crossling.evaluate.tuned import check_tuned, evaluate_tuned
from crossling.evaluate.underway import UnderWay


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
    plug_in: bool = False,  # of tatoeba: every sentence is read with its translation (VECO)
) -> list[Row]:
    """Score rows of all tasks; with `out` they are added to `out`/scores.jsonl, and what was found for every example is
    kept in `out`/predictions, if the folder is for this model alone."""
    asked = Asked(
        [tasks] if isinstance(tasks, str) else tasks,
        Path(data),
        Path(out) if out is not None else None,
        languages,
        pooling,
        methods,
        layers,
        recompute,
        plug_in,
    )
    shared = asked.check()
    name = model.name if isinstance(model, Encoder) else str(model)
    if TRANSLATION not in asked.tasks:
        check_tuned(name, asked.tuned, asked.data)
        for task in asked.tasks:
            lacking = [language for language in languages or () if language not in (shared.get(task) or ())]
            if lacking:
                warnings.warn(f"{task}: nothing to score in {', '.join(lacking)}; left out there", stacklevel=2)
    try:
        if TRANSLATION in asked.tasks:
            return evaluate_translator(name, asked.data, asked.out, recompute, shared[TRANSLATION])
        rows = _training_free(model, asked, shared)
        for task in asked.tuned:
            if task in shared:
                rows += evaluate_tuned(name, asked.data, asked.out, task, recompute, shared[task])
    except KeyboardInterrupt:
        goes_on = f"what was scored by then is kept in {out}, and the same command goes on with the rest"
        raise Interrupted(f"interrupted; {goes_on if out else 'nothing is kept without -o'}") from None
    return rows


def _training_free(model: Encoder | Path | str, asked: Asked, shared: Mapping[str, Languages]) -> list[Row]:
    tasks = [task for task in asked.free if task in shared]
    if not tasks:
        return []
    if not isinstance(model, Encoder):
        raise BadInput(f"{model}: {tasks[0]} takes a loaded model; give xl.load(...) of it")
    chosen = [model.layer(layer) for layer in asked.layers] if asked.layers else [model.universal_layer]
    measures: dict[str, Callable[[Languages], Iterator[Measured]]] = {
        "tatoeba": lambda left: tatoeba(model, asked.data, left, asked.pooling, asked.plug_in),
        "bucc2018": lambda left: bucc(model, asked.data, chosen, left, asked.pooling),
        "word-alignment": lambda left: word_alignment(model, asked.data, left, asked.methods),
    }
    keep = asked.out is not None and _alone(asked.out, model.name)
    ways = {"pooling": asked.pooling, "methods": [*asked.methods], "layers": chosen, "plug_in": asked.plug_in}
    what = {"model": model.name, "weights": model.fingerprint(), **ways} if asked.out else {}
    rows: list[Row] = []
    for task in tasks:
        there = choose(TASKS[task](asked.data), shared[task], asked.data / task)
        if asked.out is None:
            rows += [row for found in measures[task](shared[task]) for row in found.rows]
            continue
        if asked.plug_in:
            there = {name: [*files, *translated_files(files)] for name, files in there.items()}
        work = UnderWay(asked.out, task, what)
        rows += _gone_on_with(work, there, measures[task], keep)
        scores.add(asked.out / "scores.jsonl", rows)
        work.finish()
    return rows


def _gone_on_with(
    work: UnderWay, there: Files, measure: Callable[[Languages], Iterator[Measured]], keep: bool
) -> list[Row]:
    """Rows of all sets of a task; what was measured before is not measured again."""
    state = {name: _state(files) for name, files in there.items()}
    rows = {name: before for name in there if (before := work.rows(name, state[name])) is not None}
    left = [name for name in there if name not in rows]
    parts: Counter[str] = Counter()
    for found in measure(left) if left else ():
        rows.setdefault(found.set, []).extend(found.rows)
        if keep:
            predictions.write(work.place, work.task, found.split, found.language, found.examples, found.variant)
        parts[found.set] += 1
        if parts[found.set] == found.parts:
            work.add(found.set, state[found.set], rows[found.set])
    return [row for name in there for row in rows[name]]


def _state(files: Sequence[Path]) -> str:
    """Another one as soon as a file has changed."""
    told = ((file.name, stat.st_size, stat.st_mtime_ns) for file in files for stat in [file.stat()])
    return " ".join(map(str, chain.from_iterable(told)))


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
