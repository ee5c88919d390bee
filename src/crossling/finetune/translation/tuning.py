"""A model and parallel text become an MT folder.

MT/ config.json  model.safetensors  tokenizer.json  translator.json    the seed with the best score on dev
    seed-N/                                              the translator of each seed, its metrics and its translations
    scores.jsonl                                         rows of all seeds
    training/                                            what is under way

Each translator is a unit: a finished one is not made again, one that was stopped goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from crossling.distributed import speaks, together
from crossling.errors import BadInput
from crossling.evaluate import scores
from crossling.evaluate.scores import Row
from crossling.evaluate.translated import score_seed, tested
from crossling.finetune import unit
from crossling.finetune.translation.plan import Plan
from crossling.finetune.translation.start import begin
from crossling.finetune.translation.training import Job, train
from crossling.metrics.translation import check_installed
from crossling.translation.directions import directions, targets
from crossling.translation.parallel import Parallel, read
from crossling.translation.translator import Facts


def translators(
    model: Path | str,
    data: Path,
    out: Path,
    pairs: str | Sequence[str] | None,
    seeds: int,
    random: bool,
    overrides: dict[str, Any],
) -> list[Row]:
    """Trains one translator for each seed and scores it in every direction; the rows are also in `out`/scores.jsonl."""
    if pairs is None:
        raise BadInput("--task translation: from which language to which? give --pairs, as in --pairs en-de,de-en")
    known = directions(pairs)
    check_installed(targets(known))
    # From Python, True and None are what the command line writes as true and none.
    plan = Plan.of([f"{key}={str(value).lower()}" for key, value in overrides.items()])
    with together():
        text = read(data, known)
        if plan.patience is not None and not text.dev:
            raise BadInput(f"{data}: --set patience={plan.patience} needs a dev part (dev.LL) to look at")
        start = begin(model, known, random)
        tested(data, known, text)  # that there is nothing to score is told before the long part
        plan, job = start.settled(plan), Job(start, known, text)
        made = [_seed(job, replace(plan, seed=plan.seed + number), out) for number in range(seeds)]
        best = max(made, key=lambda each: fmean(each.dev.values()) if each.dev else 0.0)  # the first of equals
        rows = [row for each in made for row in _scored(out, each, plan, text, data)]
        unit.finish(out, best.seed, rows)
        return rows


def _seed(job: Job, plan: Plan, out: Path) -> Facts:
    return train(job, plan, *unit.place(out, plan.seed))


def _scored(out: Path, known: Facts, plan: Plan, text: Parallel, data: Path) -> list[Row]:
    """Rows of one seed; what it has said of these very texts, looked for in this way, is not looked for again."""
    folder, _ = unit.place(out, known.seed)
    rows = score_seed(
        folder, data, keep=folder, beam=plan.beam, length_penalty=plan.length_penalty, reuse=True, text=text
    )
    if speaks():
        scores.add(out / unit.SCORES, rows)
    return rows
