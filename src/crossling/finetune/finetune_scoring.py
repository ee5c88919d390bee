"""Scores of fine-tuned models: every seed of a TUNED folder on every language of its task."""
# N examples, S statistics of a metric

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from crossling.core.distributed import is_main_process
from crossling.core.errors import BadInput, suggestion
from crossling.core.progress import Progress, count_truncations
from crossling.finetune.model_info import InfoFile
from crossling.finetune.supervised_training import SCORES_FILE
from crossling.finetune.task_type import Prediction
from crossling.finetune.tuned_model import TUNED_INFO, TunedInfo, TunedModel, model_folder
from crossling.tasks import predictions, scores
from crossling.tasks.bootstrap import bootstrap_interval
from crossling.tasks.dataset import BenchmarkDataset
from crossling.tasks.examples import Example
from crossling.tasks.metrics import METRICS, Metric
from crossling.tasks.parallel_examples import languages_with_translations, read_test_translations
from crossling.tasks.predictions import ExamplePrediction, PartialResults
from crossling.tasks.registry import get_dataset
from crossling.tasks.scores import Score, ScoreRow


def evaluate_tuned(
    folder: str | os.PathLike[str],
    data: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    task: str | None = None,
    recompute: bool = False,
    languages: Sequence[str] | None = None,
) -> list[ScoreRow]:
    """Score every seed of a TUNED folder.

    Args:
        folder: TUNED folder, or the folder of one seed.
        data: Folder of benchmark data.
        out: Add the scores to `out`/scores.jsonl, and write the predictions to `out`/seed-N.
        task: Another dataset with the same labels. [default: the task it was fine-tuned for]
        recompute: Score the predictions stored with the model, without running it.
        languages: Languages to score. [default: all with test data]
    """
    folder, data = Path(folder), Path(data)
    check_tuned(folder, [task or "this task"], data)

    def score_seed(seed: Path, seed_out: Path | None) -> list[ScoreRow]:
        out = None if recompute else seed_out
        return score_tuned_seed(seed, data, task=task, recompute=recompute, languages=languages, out=out)

    return score_seeds(TUNED_INFO, folder, out, score_seed)


def score_seeds(
    info_file: InfoFile[Any],
    folder: Path,
    out: str | os.PathLike[str] | None,
    score_seed: Callable[[Path, Path | None], list[ScoreRow]],
) -> list[ScoreRow]:
    """Return the scores of every seed of a folder. With `out`, add them to its scores.jsonl after each seed.

    `score_seed` gets the folder of a seed, and the folder for its predictions.
    """
    if out is not None:
        scores.check_scores_folder(Path(out))
    rows: list[ScoreRow] = []
    for seed in info_file.seed_folders(folder):
        rows += score_seed(seed, None if out is None else Path(out) / f"seed-{info_file.read(seed).seed}")
        if out is not None and is_main_process():
            scores.add_scores(Path(out) / SCORES_FILE, rows)
    return rows


def check_tuned(model: str | os.PathLike[str], tasks: Sequence[str], data: Path) -> None:
    """Refuse an encoder without a head for tasks that need a fine-tuned model."""
    if tasks and not TUNED_INFO.exists(Path(model)):
        raise BadInput(
            f"{model}: {tasks[0]} needs a fine-tuned model. Fine-tune and score one with"
            f" crossling finetune {model} --task {tasks[0]} --data {data} -o TUNED"
        )


def score_tuned_seed(
    folder: Path,
    data: Path,
    *,
    task: str | None = None,
    recompute: bool = False,
    languages: Sequence[str] | None = None,
    out: Path | None = None,
) -> list[ScoreRow]:
    """Score one model in the given languages, or in all languages with test data. See `evaluate_tuned`.

    With `out`, predictions are written there, and an interrupted evaluation resumes.
    """
    info = TUNED_INFO.read(folder)
    dataset = get_dataset(task or info.task)
    _check_compatible(info, dataset)
    languages = _select_languages(info, dataset, data, languages)
    # The info file identifies the model: no two models have the same dev scores to the last digit.
    description = {"tuned": (folder / TUNED_INFO.name).read_text(encoding="utf-8")}
    partial = PartialResults(out, dataset.name, description) if out is not None and is_main_process() else None
    models = _LanguageModels(folder)
    rows: list[ScoreRow] = []
    with (
        count_truncations(f"{dataset.name}, {folder.name}") as counter,
        Progress(f"score {dataset.name} {folder.name}", len(languages), enabled=is_main_process()) as progress,
    ):
        for done, language in enumerate(languages, start=1):
            counter.language = language
            split, examples = dataset.read_test(data, language)
            paired, translations = _read_translations(info, dataset, data, split, language)
            inputs = xxhash.xxh3_64_hexdigest(repr([examples, translations]).encode())
            new = partial.done(language, inputs) if partial else None
            if new is None:
                if recompute:
                    predicted = _stored_predictions(folder, dataset.name, split, language, examples)
                else:
                    predicted = models.load(language).predict(examples, translations=translations)
                if predicted is None:
                    continue
                place = partial.folder if partial else None
                new = score_language(info, dataset, split, language, examples, predicted, out=place, paired=paired)
                if partial:
                    partial.record(language, new, inputs)
            rows += new
            progress.update(done, language)
    if any("selected_on_test" in row for row in rows):
        warnings.warn(
            f"{dataset.name}: some languages are scored on the dev set that selected the model, so their scores are"
            " optimistic (selected_on_test)",
            stacklevel=2,
        )
    if not rows:
        raise BadInput(f"{folder}: no stored predictions of {dataset.name}. Run once without --recompute.")
    if partial:
        partial.finish()
    return rows


class _LanguageModels:
    """Models of a folder. Keeps the last one that was loaded, since most languages have the same model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._loaded: tuple[Path, TunedModel] | None = None

    def load(self, language: str) -> TunedModel:
        place = model_folder(self.folder, language)
        if self._loaded is None or self._loaded[0] != place:
            self._loaded = place, TunedModel.load(self.folder, language)
        return self._loaded[1]


def score_language(
    info: TunedInfo,
    dataset: BenchmarkDataset,
    split: str,
    language: str,
    examples: Sequence[Example],
    predicted: Sequence[Prediction],
    *,
    out: Path | None = None,
    paired: str | None = None,
) -> list[ScoreRow]:
    """Return the scores of one language.

    Args:
        info: Description of the model.
        dataset: Dataset that is scored.
        split: Split of the examples.
        language: Language of the examples.
        examples: Examples with labels.
        predicted: Prediction of each example.
        out: Write the predictions to this folder.
        paired: Language of the translations that the examples were read with.
    """
    gold = dataset.gold_labels(examples, split, language)
    metrics = [METRICS[name] for name in dataset.metrics]
    statistics = {metric.label: metric.statistics(gold, predicted, language) for metric in metrics}
    if out is not None:
        ids = [example.id for example in examples]
        write_prediction_file(out, dataset.name, split, language, ids=ids, predicted=predicted, statistics=statistics)
    context, _, questions = language.partition("-") if dataset.task_type == "qa" else (language, "", "")
    return build_score_rows(
        metrics,
        statistics,
        model=info.model,
        task=dataset.name,
        language=language,
        setting=info.setting,
        seed=info.seed,
        split=split,
        trained_on=info.trained_on,
        selection=info.selection,
        selected_on_test=_is_selection_set(info, dataset, split, language) or None,
        tuned=info.description,
        plug="in" if info.config.plug_in else None,
        paired=paired,
        questions=questions if questions and questions != context else None,
    )


def build_score_rows(metrics: Sequence[Metric], statistics: Mapping[str, np.ndarray], **fields: Any) -> list[ScoreRow]:
    """Return one row per metric, with its bootstrap interval.

    Args:
        metrics: Metrics to compute.
        statistics: Statistics [N, S] by label of the metric.
        **fields: Other fields of `Score`. A callable is called with the metric.
    """
    rows = []
    for metric in metrics:
        statistics_NS = statistics[metric.label]
        low, high = bootstrap_interval(metric.value, statistics_NS)
        score = Score(
            protocol=metric.protocol,
            metric=metric.name,
            examples=len(statistics_NS),
            value=float(metric.value(statistics_NS.sum(axis=0))),
            low=low,
            high=high,
            **{name: value(metric) if callable(value) else value for name, value in fields.items()},
        )
        rows.append(score.row())
    return rows


def write_prediction_file(
    folder: Path,
    task: str,
    split: str,
    language: str,
    *,
    ids: Sequence[str],
    predicted: Sequence[Prediction],
    statistics: Mapping[str, np.ndarray],
) -> None:
    """Write predictions with their statistics by metric."""
    rows = (
        ExamplePrediction(
            ids[row],
            list(prediction) if isinstance(prediction, tuple) else prediction,
            {label: predictions.compact_numbers(statistics_NS[row]) for label, statistics_NS in statistics.items()},
        )
        for row, prediction in enumerate(predicted)
    )
    predictions.write_predictions(folder, task=task, split=split, language=language, rows=rows)


def _select_languages(
    info: TunedInfo, dataset: BenchmarkDataset, data: Path, languages: Sequence[str] | None
) -> Sequence[str]:
    """Return the languages to score, and refuse those without test data."""
    available: Sequence[str] = []
    if data.is_dir() and info.config.plug_in:
        available = languages_with_translations(dataset, data, info.source_language)
    elif data.is_dir():
        available = dataset.scorable_languages(data, languages)
    if not available and languages is None:
        raise BadInput(f"{data}: no test data of {dataset.name}. Use the folder of the benchmark data.")
    for language in languages or ():
        if language not in available:
            hint = suggestion(language, dataset.languages_with_test_files(data))
            raise BadInput(f"{data}: {dataset.name} has no test data in {language!r}{hint}")
    return languages or available


def _read_translations(
    info: TunedInfo, dataset: BenchmarkDataset, data: Path, split: str, language: str
) -> tuple[str | None, list[Example] | None]:
    """Return language and text of the translations that a model with plug-in reads."""
    if not info.config.plug_in:
        return None, None
    return read_test_translations(dataset, data, split, language, info.source_language) or (None, None)


def _is_selection_set(info: TunedInfo, dataset: BenchmarkDataset, split: str, language: str) -> bool:
    """Return True if the model was selected on the examples that it is scored on."""
    is_monitored = info.selection in ("all-dev", "each-dev") or (
        info.selection == "english-dev" and language == info.source_language
    )
    return split == "dev" and dataset.name == info.task and is_monitored


def _check_compatible(info: TunedInfo, dataset: BenchmarkDataset) -> None:
    """Refuse a dataset that the head of the model does not fit."""
    config = info.config
    task_type = config.head_type if config.head_type in ("tagging", "qa") else "classification"
    if dataset.task_type != task_type or (config.labels and not {*dataset.labels} <= {*config.labels}):
        raise BadInput(
            f"{dataset.name}: it has other labels than {info.task}, for which this model was fine-tuned. Fine-tune a"
            f" model for it with crossling finetune {info.model} --task {dataset.name} --data DATA -o TUNED"
        )


def _stored_predictions(
    folder: Path, task: str, split: str, language: str, examples: Sequence[Example]
) -> list[Prediction] | None:
    """Return the predictions stored with a model, in the order of the examples, or None without any."""
    path = folder / predictions.PREDICTIONS_FOLDER / task / f"{split}-{language}.jsonl"
    if not path.is_file():
        warnings.warn(f"{folder}: no stored predictions of {task} in {language!r} ({split}); skipped", stacklevel=3)
        return None
    rows = predictions.read_predictions(path)
    if [row.id for row in rows] != [example.id for example in examples]:
        raise BadInput(f"{path}: these predictions belong to other examples of {task}. Run without --recompute.")
    return [tuple(row.prediction) if isinstance(row.prediction, list) else row.prediction for row in rows]
