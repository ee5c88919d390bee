"""Scores of fine-tuned models: every seed of a TUNED folder on every language of its task."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import xxhash

from crossling.benchmarks.dataset import DataSet
from crossling.benchmarks.examples import Example
from crossling.benchmarks.pairs import scored_in_pairs, translations
from crossling.benchmarks.sets import find
from crossling.distributed import speaks
from crossling.errors import BadInput, nearest
from crossling.evaluate import predictions, scores
from crossling.evaluate.predictions import Predicted
from crossling.evaluate.scores import Row, Score
from crossling.evaluate.underway import UnderWay
from crossling.metrics import METRICS
from crossling.metrics.bootstrap import interval
from crossling.progress import Progress
from crossling.transfer.cuts import gathered
from crossling.transfer.family import Prediction
from crossling.transfer.tuned import FACTS, LANGUAGES, Facts, Tuned, facts, is_tuned, seeds


def evaluate_tuned(
    folder: Path | str,
    data: Path | str,
    out: Path | str | None = None,
    task: str | None = None,
    recompute: bool = False,
    languages: Sequence[str] | None = None,
) -> list[Row]:
    """Rows of every seed; with `out` they are added to `out`/scores.jsonl, and predictions are kept in `out`/seed-N.
    `recompute` scores those that lie with the model anew, without it. `task` may be another data set of the same labels
    than it was made for; `languages` are all there are, if not said."""
    folder, data = Path(folder), Path(data)
    check_tuned(folder, [task or "this task"], data)
    if out is not None:
        scores.check_place(Path(out))
    rows = []
    for seed in seeds(folder):
        keep = None if out is None or recompute else Path(out) / f"seed-{facts(seed).seed}"
        rows += score_seed(seed, data, task, recompute, languages, keep)
        if out is not None and speaks():
            scores.add(Path(out) / "scores.jsonl", rows)
    return rows


def check_tuned(model: Path | str, tasks: Sequence[str], data: Path) -> None:
    """Refuses a model that was not fine-tuned for tasks that need it."""
    if tasks and not is_tuned(Path(model)):
        raise BadInput(
            f"{model}: {tasks[0]} takes a fine-tuned model; make one, scored at once, with"
            f" crossling finetune {model} --task {tasks[0]} --data {data} -o TUNED"
        )


def score_seed(
    folder: Path,
    data: Path,
    task: str | None = None,
    recompute: bool = False,
    languages: Sequence[str] | None = None,
    keep: Path | None = None,  # predictions
) -> list[Row]:
    """Rows of one model, in the languages asked for, or in every one there is something to score it on. With `keep`,
    what was begun is gone on with."""
    known = facts(folder)
    data_set = _fitting(known, find(task or known.task))
    plug_in = known.form.plug_in
    there = []
    if data.is_dir():
        there = scored_in_pairs(data_set, data, known.pivot) if plug_in else data_set.tested(data, languages)
    if not there and languages is None:
        raise BadInput(f"{data}: nothing of {data_set.name} to score here; give the folder with the benchmarks in it")
    for language in languages or ():
        if language not in there:
            told = nearest(language, data_set.scorable(data))
            raise BadInput(f"{data}: {data_set.name} has nothing to score in {language!r}{told}")
    languages = languages or there
    work = UnderWay(keep, data_set.name, _what(folder)) if keep is not None and speaks() else None
    rows, place, tuned = [], None, None
    with (
        gathered(f"{data_set.name}, {folder.name}") as cuts,
        Progress(f"score {data_set.name} {folder.name}", len(languages), shown=speaks()) as progress,
    ):
        for done, language in enumerate(languages, start=1):
            cuts.part = language
            split, examples = data_set.test(data, language)
            paired, read_with = (plug_in and translations(data_set, data, split, language, known.pivot)) or (None, None)
            of = xxhash.xxh3_64_hexdigest(repr([examples, read_with]).encode())
            before = work.rows(language, of) if work else None
            if before is not None:
                rows += before
                continue
            if recompute:
                found = _stored(folder, data_set.name, split, language, examples)
                if found is None:
                    continue
            else:
                if tuned is None or place != _place(folder, language):
                    place, tuned = _place(folder, language), Tuned.load(folder, language)
                found = tuned.predict(examples, translations=read_with)
            own = score(known, data_set, split, language, examples, found, work.place if work else None, paired)
            rows += own
            if work:
                work.add(language, of, own)
            progress.update(done, language)
    if any("selected_on_test" in row for row in rows):
        warnings.warn(
            f"{data_set.name}: some languages have no other labelled part than the one the model was chosen by; their"
            " scores are a little too good (selected_on_test)",
            stacklevel=2,
        )
    if not rows:
        raise BadInput(f"{folder}: no stored predictions of {data_set.name}; leave --recompute out once")
    if work:
        work.finish()
    return rows


def score(
    known: Facts,
    data_set: DataSet,
    split: str,
    language: str,
    examples: Sequence[Example],
    predicted: Sequence[Prediction],
    keep: Path | None = None,
    paired: str | None = None,  # the language of the translations it was read with
) -> list[Row]:
    """Rows of one language; what was predicted is stored where it is to be kept."""
    gold = data_set.golds(examples, split, language)
    metrics = [METRICS[name] for name in data_set.metrics]
    statistics = {metric.label: metric.each(gold, predicted, language) for metric in metrics}
    if keep is not None:
        each = (
            Predicted(
                example.id,
                list(said) if isinstance(said, tuple) else said,
                {label: predictions.plain(statistics_NS[row]) for label, statistics_NS in statistics.items()},
            )
            for row, (example, said) in enumerate(zip(examples, predicted, strict=True))
        )
        predictions.write(keep, data_set.name, split, language, each)
    rows = []
    for metric in metrics:
        statistics_NS = statistics[metric.label]
        low, high = interval(metric.value, statistics_NS)
        context, _, questions = language.partition("-") if data_set.family == "answering" else (language, "", "")
        row = Score(
            model=known.model,
            task=data_set.name,
            protocol=metric.protocol,
            metric=metric.name,
            language=language,
            examples=len(examples),
            value=float(metric.value(statistics_NS.sum(axis=0))),
            setting=known.setting,
            seed=known.seed,
            split=split,
            trained_on=known.trained_on,
            selection=known.selection,
            selected_on_test=_selected_on(known, data_set, split, language) or None,
            tuned=known.mark,
            plug="in" if known.form.plug_in else None,
            paired=paired,
            questions=questions if questions and questions != context else None,
            low=low,
            high=high,
        )
        rows.append(row.row())
    return rows


def _selected_on(known: Facts, data_set: DataSet, split: str, language: str) -> bool:
    """Whether the model was chosen by the very part that it is scored on."""
    seen = known.selection in ("all-dev", "each-dev") or (known.selection == "english-dev" and language == known.pivot)
    return split == "dev" and data_set.name == known.task and seen


def _what(folder: Path) -> dict[str, str]:
    """Which model it is: no two are alike in all that is told of them, down to the digits of their dev scores."""
    return {"tuned": (folder / FACTS).read_text(encoding="utf-8")}


def _place(folder: Path, language: str) -> Path:
    own = folder / LANGUAGES / language
    return own if own.is_dir() else folder


def _fitting(known: Facts, data_set: DataSet) -> DataSet:
    """A data set that the model has the right head for."""
    form = known.form
    family = form.kind if form.kind in ("tagging", "answering") else "classification"
    if data_set.family != family or (form.labels and not {*data_set.labels} <= {*form.labels}):
        raise BadInput(
            f"this model was fine-tuned for {known.task}, and {data_set.name} has other labels; fine-tune one for it:"
            f" crossling finetune {known.model} --task {data_set.name} --data DATA -o TUNED"
        )
    return data_set


def _stored(folder: Path, task: str, split: str, language: str, examples: Sequence[Example]) -> list[Prediction] | None:
    """What was predicted earlier, in the order of the examples; none where nothing was."""
    path = folder / predictions.FOLDER / task / f"{split}-{language}.jsonl"
    if not path.is_file():
        warnings.warn(f"{folder}: no stored predictions of {task} in {language!r} ({split}); left out", stacklevel=3)
        return None
    rows = predictions.read(path)
    if [row.id for row in rows] != [example.id for example in examples]:
        raise BadInput(f"{path}: these predictions are of other examples than {task} has; leave --recompute out")
    return [tuple(row.prediction) if isinstance(row.prediction, list) else row.prediction for row in rows]
