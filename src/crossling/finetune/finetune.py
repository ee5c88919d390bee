"""Fine-tune an encoder for a task into a TUNED folder.

    TUNED/ config.json  model.safetensors  tokenizer.json  tuned.json    the seed with the best dev score
           seed-N/                                                       the model of each seed, and its predictions
           scores.jsonl                                                  scores of all seeds
           grid/POINT/                                                   every setting of a grid
           teacher/                                                      model that tagged the translations, if needed
           training/                                                     unfinished runs

Finished models are kept, and interrupted runs resume.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from crossling.core.distributed import is_main_process, lock_run_output, main_process_first, process_group
from crossling.core.errors import BadInput, suggestion
from crossling.core.files import atomic_folder
from crossling.core.progress import print_status
from crossling.core.resumable import check_output_folder
from crossling.finetune.finetune_scoring import score_tuned_seed
from crossling.finetune.finetune_settings import FinetuneSettings, finetune_grid, format_overrides
from crossling.finetune.finetune_training import SELECTIONS, FinetuneRun, Selection, selection_score
from crossling.finetune.own_labels import OwnLabels, finetune_own
from crossling.finetune.sentence_vectors.finetune_vectors import EMBEDDING, finetune_vectors
from crossling.finetune.supervised_training import (
    SCORES_FILE,
    WORK_FOLDER,
    link_files,
    seed_paths,
    train_model,
    train_seeds,
)
from crossling.finetune.training_data import SETTINGS, Setting, load_training_data
from crossling.finetune.translation.translation_training import train_translators
from crossling.finetune.tuned_model import LANGUAGES_FOLDER, TUNED_INFO, TunedInfo, TunedModel
from crossling.inference.load import load
from crossling.recipes.run_checkpoints import select_checkpoints
from crossling.tasks import scores
from crossling.tasks.benchmark_files import TRANSLATION, check_finetuning_task
from crossling.tasks.dataset import BenchmarkDataset
from crossling.tasks.examples import Example
from crossling.tasks.parallel_examples import languages_with_translations
from crossling.tasks.registry import get_dataset
from crossling.tasks.scores import ScoreRow

CONTENTS = ("seed-*", "grid", "teacher", WORK_FOLDER)  # a folder with one of these is a TUNED folder


def finetune(
    model: str | os.PathLike[str],
    task: str | None = None,
    data: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    type: str | None = None,
    train: str | os.PathLike[str] | None = None,
    dev: str | os.PathLike[str] | None = None,
    columns: Sequence[str | int] = (),
    language: str | None = None,
    setting: Setting = "zero-shot",
    seeds: int = 1,
    selection: Selection = "english-dev",
    grid: str | None = None,
    plug_in: bool = False,
    directions: str | Sequence[str] | None = None,
    from_scratch: bool = False,
    checkpoints: str | None = None,
    preset: str | None = None,
    shards: str | os.PathLike[str] | None = None,
    **overrides: Any,
) -> list[ScoreRow]:
    """Fine-tune a model once per seed and score it in every language.

    The model with the best dev score is written to `out`, the model of each seed to `out`/seed-N, and the scores to
    `out`/scores.jsonl. Calling it again resumes an interrupted run and keeps finished models.

    Args:
        model: Run folder, exported folder, Hugging Face encoder, or a translator to continue training.
        task: Name of a data set, such as `xnli`, `panx` or `xquad`, or `translation`.
        data: Folder of benchmark data, or of parallel text for `translation`.
        out: Folder to write.
        type: Train on own labels in place of `task` and `data`: `tagging`, `classification`, `pair-classification` or
            `qa`. Labels are those of the training file, and the scores are those of the dev set. `embedding` trains
            sentence vectors on own pairs.
        train: File with own labels: CoNLL, a table with the label in the last column, or the JSON of SQuAD. For
            `embedding` a table or JSON Lines with anchor, positive, and negatives or a score.
        dev: File like `train` that selects the checkpoint. [default: every tenth example of `train`]
        columns: Names or numbers (from 1) of the columns of texts, then of the label, score or negatives.
        language: Language of the own examples. [default: by the file name, or und]
        setting: `zero-shot` trains on one language, `translate-train` on its translations too.
        seeds: Number of models. Their seeds are consecutive.
        selection: Dev scores that select the checkpoint: `english-dev`, `all-dev`, `each-dev` or `last`.
        grid: Paper whose hyperparameter grid is searched with the first seed, such as `xlm-e`.
        plug_in: Read every example with its translation through cross-attention, as VECO does.
        directions: Of `translation`: `en-de,de-en`, or a list of directions.
        from_scratch: Of `translation`: use the shape of the model, and random weights.
        checkpoints: Fine-tune these checkpoints of the run `model`, each into `out`/step-STEP: `all`, or steps such as
            `1000,2000`. Rows have `step` and `flops`, and a report shows them as a curve.
        preset: Of `translation`: settings of a paper, `veco-wmt14-en-de` or `veco-wmt14-en-fr`.
        shards: Of `translation`: train on the pairs of these shards of `tokenize`. `data` has dev and test sets only.
            [default: train on the text of `data`]
        **overrides: Settings that replace the defaults or those of a preset, such as `lr=1e-5` or `steps=500`.

    Returns:
        The rows of scores.jsonl.

    Raises:
        BadInput: An option, a setting, the data or the output folder cannot be used, or another process writes there.

    Example:
        >>> rows = finetune("runs/xlm_e", "xnli", "data", "tuned", seeds=5, lr=2e-5)
        >>> finetune("runs/veco", "translation", "multi30k", "mt", directions="en-de,de-en")
    """
    if out is None:
        raise BadInput("out: missing. Give the folder to write.")
    model, out = os.fspath(model), Path(out)
    if type is not None:
        if train is None or (task, data, directions, checkpoints, grid, preset) != (None,) * 6 or plug_in:
            raise BadInput(f"type={type}: needs train, and no task, data or options of benchmarks. Change these.")
        check_output_folder(out, holds=CONTENTS, command="crossling finetune")
        dev = Path(dev) if dev is not None else None
        own = OwnLabels(type, Path(train), dev, columns=tuple(columns), language=language)
        if type == EMBEDDING:
            return finetune_vectors(model, own, out, seeds=seeds, overrides=overrides)
        return finetune_own(model, own, out, seeds=seeds, overrides=overrides)
    if task is None or data is None:
        raise BadInput("task and data: one is missing. Give both, or type and train for own labels.")
    data = Path(data)
    if task != TRANSLATION and (directions is not None or from_scratch or preset is not None or shards is not None):
        raise BadInput(f"task={task}: directions, from_scratch, preset and shards belong to {TRANSLATION}. Omit them.")
    _check_options(task, seeds, setting=setting, selection=selection, grid=grid, plug_in=plug_in)
    if checkpoints is not None:
        if task == TRANSLATION:
            raise BadInput(f"task={task}: it has no checkpoints. Omit them.")
        options = {"setting": setting, "seeds": seeds, "selection": selection, "grid": grid, "plug_in": plug_in}
        return _finetune_checkpoints(select_checkpoints(Path(model), checkpoints), task, data, out, options | overrides)
    check_output_folder(out, holds=CONTENTS, command="crossling finetune")
    if out.is_dir():
        scores.check_scores_folder(out)
    if task == TRANSLATION:
        translation = partial(train_translators, from_scratch=from_scratch, preset=preset, shards=shards)
        return translation(model, data, out, directions=directions, seeds=seeds, overrides=overrides)
    check_finetuning_task(task)
    dataset = get_dataset(task)
    points = finetune_grid(dataset, grid, format_overrides(overrides))
    _languages_to_score(dataset, data, plug_in)  # finds a damaged file before training

    def tag(examples: Sequence[Example]) -> Sequence[tuple[str, ...]]:
        """Fine-tune a zero-shot model that tags the translations (VECO)."""
        finetune(model, task, data, out / "teacher", selection=selection, **overrides)
        return TunedModel.load(out / "teacher").predict(examples)  # type: ignore[return-value]  # of sentences

    with process_group(), lock_run_output(out):
        torch.manual_seed(0)  # for a pooler that the encoder does not have
        encoder = load(model)
        if plug_in:
            encoder.check_cross_attention()
        training_data = load_training_data(
            dataset, data, setting, teacher=tag, needs_dev=selection != "last" or len(points) > 1, plug_in=plug_in
        )
        if training_data.trained_on != task and is_main_process():
            warnings.warn(f"{task}: no training files found; trains on {training_data.trained_on}", stacklevel=2)
        training = partial(FinetuneRun, encoder=encoder, data=training_data, setting=setting, selection=selection)
        return train_seeds(
            out,
            _search_grid(training, points, out) if len(points) > 1 else next(iter(points.values())),
            seeds,
            training=training,
            dev_score=selection_score,
            score=lambda info, folder: _score_seed(out, folder, info, dataset, data),
        )


def _finetune_checkpoints(
    checkpoints: Sequence[Path], task: str, data: Path, out: Path, options: Mapping[str, Any]
) -> list[ScoreRow]:
    """Fine-tune each checkpoint into a folder of its own."""
    check_output_folder(out, holds=["step-*"], command="crossling finetune --checkpoints")
    return [row for path in checkpoints for row in finetune(path, task, data, out / f"step-{path.name}", **options)]


def _check_options(task: str, seeds: int, *, setting: str, selection: str, grid: str | None, plug_in: bool) -> None:
    for name, value, valid in (("setting", setting, SETTINGS), ("selection", selection, SELECTIONS)):
        if value not in valid:
            raise BadInput(f"{name}={value}: no such {name}{suggestion(value, valid)}")
    if seeds < 1:
        raise BadInput(f"seeds={seeds}: expected at least 1.")
    if task == TRANSLATION and (setting, selection, grid, plug_in) != ("zero-shot", "english-dev", None, False):
        raise BadInput(f"task={TRANSLATION}: it has no setting, selection, grid or plug_in. Omit these.")
    if plug_in and setting == "zero-shot":
        raise BadInput(
            "plug_in=true: the zero-shot setting has no translated pairs (x, y) for cross-attention. Use the setting"
            " translate-train, or omit plug_in."
        )


def _search_grid(
    training: Callable[[FinetuneSettings], FinetuneRun], points: dict[str, FinetuneSettings], out: Path
) -> FinetuneSettings:
    """Train every point of a grid and return the best one. Its model becomes that of the first seed."""
    results: dict[str, float] = {}
    for number, (name, settings) in enumerate(points.items(), start=1):
        info = train_model(training(settings), out / "grid" / name, out / WORK_FOLDER / f"grid-{name}")
        results[name] = selection_score(info)
        best = max(results, key=lambda point: results[point])
        if is_main_process():
            print_status(f"grid {number}/{len(points)}: {name} {results[name]:.2f} (best: {best} {results[best]:.2f})")
            for other in results:
                if other != best:
                    _remove_weights(out / "grid" / other)
    settings = points[best]
    seed_folder, _ = seed_paths(out, settings.seed)
    with main_process_first():
        if is_main_process() and not TUNED_INFO.exists(seed_folder):
            with atomic_folder(seed_folder) as new:
                link_files(out / "grid" / best, new)
    return settings


def _remove_weights(folder: Path) -> None:
    """Remove the weights of a grid point. Its scores stay."""
    shutil.rmtree(folder / LANGUAGES_FOLDER, ignore_errors=True)
    for file in folder.glob("*.safetensors"):
        file.unlink()


def _score_seed(out: Path, folder: Path, info: TunedInfo, dataset: BenchmarkDataset, data: Path) -> list[ScoreRow]:
    """Return the scores of one seed: stored ones if they cover all languages, or new ones."""
    stored = scores.read_scores(out / SCORES_FILE) if (out / SCORES_FILE).is_file() else []
    rows = [row for row in stored if row.get("seed") == info.seed and row["task"] == info.task]
    if rows and {row["language"] for row in rows} == {*_languages_to_score(dataset, data, info.config.plug_in)}:
        return rows
    return score_tuned_seed(folder, data, out=folder)


def _languages_to_score(dataset: BenchmarkDataset, data: Path, plug_in: bool) -> list[str]:
    if plug_in:
        return languages_with_translations(dataset, data, dataset.training_source(data)[1])
    return dataset.scorable_languages(data)
