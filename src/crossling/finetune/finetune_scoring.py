"""Scores of fine-tuned models: every seed of a TUNED folder on every language of its task."""
# N examples, S statistics of a metric

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from crossling.core.distributed import is_main_process
from crossling.core.errors import BadInput, suggestion
from crossling.core.progress import Progress, count_truncations
from crossling.finetune.supervised_training import SCORES_FILE
from crossling.finetune.task_type import Prediction
from crossling.finetune.tuned_model import LANGUAGES_FOLDER, TUNED_INFO, InfoFile, TunedInfo, TunedModel, model_folder
from crossling.model.fingerprint import stored_fingerprint
from crossling.tasks import predictions, scores
from crossling.tasks.bootstrap import bootstrap_interval
from crossling.tasks.dataset import BenchmarkDataset
from crossling.tasks.examples import Example
from crossling.tasks.metrics import METRICS, Metric
from crossling.tasks.parallel_examples import languages_with_translations, read_test_translations
from crossling.tasks.predictions import ExamplePrediction, PartialResults
from crossling.tasks.registry import get_dataset
from crossling.tasks.scores import SUPERVISED, ZERO_SHOT, Score, ScoreRow


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
        task: Another data set with the same labels. [default: the task it was fine-tuned for]
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
    scoring = _TunedScoring(folder=folder, data=data, info=info, dataset=dataset, recompute=recompute)
    scoring.check_compatible()
    languages = scoring.select_languages(languages)
    description = {"tuned": asdict(info), "weights": [] if out is None else _weight_fingerprints(folder)}
    results = ResumableScores(out, dataset.name, description)
    with (
        count_truncations(f"{dataset.name}, {folder.name}") as counter,
        Progress(f"score {dataset.name} {folder.name}", len(languages), enabled=is_main_process()) as progress,
    ):
        for done, language in enumerate(languages, start=1):
            counter.language = language
            test_set = scoring.read_test_set(language)
            inputs = xxhash.xxh3_64_hexdigest(repr([test_set.examples, test_set.translations]).encode())
            results.add(language, inputs, partial(scoring.score, test_set))
            progress.update(done, language)
    if any("selected_on_test" in row for row in results.rows):
        warnings.warn(
            f"{dataset.name}: some languages are scored on the dev set that selected the model, so their scores are"
            " optimistic (selected_on_test)",
            stacklevel=2,
        )
    if not results.rows:
        raise BadInput(f"{folder}: no stored predictions of {dataset.name}. Run once without recompute.")
    if results.partial:
        results.partial.finish()
    return results.rows


def _weight_fingerprints(folder: Path) -> list[str]:
    """Return the fingerprints of the common model and of the models of single languages."""
    return [stored_fingerprint(place) for place in (folder, *sorted((folder / LANGUAGES_FOLDER).glob("*")))]


class ResumableScores:
    """Scores of the test sets of one model. With a folder for predictions, an interrupted evaluation resumes.

    Args:
        out: Folder for predictions.
        task: Name of the task.
        description: Model and settings. Scores of another description are not used again.
    """

    def __init__(self, out: Path | None, task: str, description: Mapping[str, Any]) -> None:
        self.partial = PartialResults(out, task, description) if out is not None and is_main_process() else None
        self.rows: list[ScoreRow] = []

    def add(self, name: str, inputs: str, score: Callable[[Path | None], list[ScoreRow]]) -> None:
        """Add the stored scores of a test set with this fingerprint, or compute and store them.

        `score` gets the folder for the predictions.
        """
        rows = self.partial.done(name, inputs) if self.partial else None
        if rows is None:
            rows = score(self.partial.folder if self.partial else None)
            if self.partial:
                self.partial.record(name, rows, inputs)
        self.rows += rows


class _TestSet(NamedTuple):
    split: str
    language: str
    examples: list[Example]
    paired: str | None  # language of the translations that a model with plug-in reads
    translations: list[Example] | None


@dataclass(kw_only=True)
class _TunedScoring:
    """One fine-tuned model, and the data set that it is scored on."""

    folder: Path
    data: Path
    info: TunedInfo
    dataset: BenchmarkDataset
    recompute: bool  # from stored predictions
    _loaded: tuple[Path, TunedModel] | None = None  # the last model, since most languages have the same one

    def check_compatible(self) -> None:
        """Refuse a data set that the head of the model does not fit."""
        info, dataset, config = self.info, self.dataset, self.info.config
        task_type = config.head_type if config.head_type in ("tagging", "qa") else "classification"
        if dataset.task_type != task_type or (config.labels and not {*dataset.labels} <= {*config.labels}):
            raise BadInput(
                f"{dataset.name}: it has other labels than {info.task}, for which this model was fine-tuned. Fine-tune"
                f" a model for it with crossling finetune {info.model} --task {dataset.name} --data DATA -o TUNED"
            )

    def select_languages(self, languages: Sequence[str] | None) -> Sequence[str]:
        """Return the languages to score, and refuse those without test data."""
        data, dataset = self.data, self.dataset
        available: Sequence[str] = []
        if data.is_dir() and self.info.config.plug_in:
            available = languages_with_translations(dataset, data, self.info.source_language)
        elif data.is_dir():
            available = dataset.scorable_languages(data, languages)
        if not available and languages is None:
            raise BadInput(f"{data}: no test data of {dataset.name}. Use the folder of the benchmark data.")
        for language in languages or ():
            if language not in available:
                hint = suggestion(language, dataset.languages_with_test_files(data))
                raise BadInput(f"{data}: {dataset.name} has no test data in {language!r}{hint}")
        return languages or available

    def read_test_set(self, language: str) -> _TestSet:
        split, examples = self.dataset.read_test(self.data, language)
        found = None
        if self.info.config.plug_in:
            found = read_test_translations(self.dataset, self.data, split, language, self.info.source_language)
        return _TestSet(split, language, examples, *(found or (None, None)))

    def _predict(self, test_set: _TestSet) -> list[Prediction]:
        place = model_folder(self.folder, test_set.language)
        if self._loaded is None or self._loaded[0] != place:
            self._loaded = place, TunedModel.load(self.folder, test_set.language)
        return self._loaded[1].predict(test_set.examples, translations=test_set.translations)

    def _stored_predictions(self, test_set: _TestSet) -> list[Prediction] | None:
        """Return the predictions stored with the model, in the order of the examples, or None without any."""
        task, split, language = self.dataset.name, test_set.split, test_set.language
        path = predictions_file(self.folder, task, f"{split}-{language}")
        if not path.is_file():
            message = f"{self.folder}: no stored predictions of {task} in {language!r} ({split}); skipped"
            warnings.warn(message, stacklevel=3)
            return None
        rows = predictions.read_predictions(path)
        if [row.id for row in rows] != [example.id for example in test_set.examples]:
            raise BadInput(f"{path}: these predictions belong to other examples of {task}. Run without recompute.")
        return [tuple(row.prediction) if isinstance(row.prediction, list) else row.prediction for row in rows]

    def score(self, test_set: _TestSet, out: Path | None) -> list[ScoreRow]:
        """Return the scores of one language, and write the predictions to `out`."""
        predicted = self._stored_predictions(test_set) if self.recompute else self._predict(test_set)
        if predicted is None:
            return []
        info, dataset, (split, language, examples, paired, _) = self.info, self.dataset, test_set
        context, _, questions = language.partition("-") if dataset.task_type == "qa" else (language, "", "")
        monitored = ("all-dev", "each-dev", *(["english-dev"] if language == info.source_language else []))
        is_selection_set = split == "dev" and dataset.name == info.task and info.selection in monitored
        return score_predictions(
            [METRICS[name] for name in dataset.metrics],
            dataset.gold_labels(examples, split, language),
            predicted,
            ids=[example.id for example in examples],
            text_language=language,
            out=out,
            model=info.model,
            task=dataset.name,
            language=language,
            setting=SUPERVISED if info.setting == ZERO_SHOT and language == info.source_language else info.setting,
            seed=info.seed,
            split=split,
            trained_on=info.trained_on,
            selection=info.selection,
            selected_on_test=is_selection_set or None,
            tuned=info.description,
            plug="in" if info.config.plug_in else None,
            paired=paired,
            questions=questions if questions and questions != context else None,
            **info.pretraining,
        )


def score_predictions(
    metrics: Sequence[Metric],
    gold: Sequence[Any],
    predicted: Sequence[Prediction],
    *,
    ids: Sequence[str],
    text_language: str,
    out: Path | None,
    **fields: Any,
) -> list[ScoreRow]:
    """Return one row per metric, with its bootstrap interval.

    Args:
        metrics: Metrics to compute.
        gold: Label of each example.
        predicted: Prediction of each example.
        ids: Name of each example.
        text_language: Language whose rules the metrics use.
        out: Write the predictions and their statistics to this folder.
        **fields: Other fields of `Score`. A callable is called with the metric.
    """
    statistics = {metric.label: metric.statistics(gold, predicted, text_language) for metric in metrics}
    if out is not None:
        examples = (
            ExamplePrediction(
                ids[row],
                list(prediction) if isinstance(prediction, tuple) else prediction,
                {label: predictions.compact_numbers(statistics_NS[row]) for label, statistics_NS in statistics.items()},
            )
            for row, prediction in enumerate(predicted)
        )
        place = {name: fields[name] for name in ("task", "split", "language")}
        predictions.write_predictions(out, **place, rows=examples)
    rows = []
    for metric in metrics:
        statistics_NS = statistics[metric.label]
        value = float(metric.value(statistics_NS.sum(axis=0)))
        low, high = (None, None) if math.isnan(value) else bootstrap_interval(metric.value, statistics_NS)
        score = Score(
            protocol=metric.protocol,
            metric=metric.name,
            examples=len(statistics_NS),
            value=None if math.isnan(value) else value,
            low=low,
            high=high,
            **{name: value(metric) if callable(value) else value for name, value in fields.items()},
        )
        rows.append(score.row())
    return rows


def predictions_file(folder: Path, task: str, name: str) -> Path:
    """Return the file of the predictions that are stored with a model. The name is SPLIT-LANGUAGE."""
    return folder / predictions.PREDICTIONS_FOLDER / task / f"{name}.jsonl"
