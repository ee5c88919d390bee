"""Fine-tuning of one model: from an encoder to the folder of a seed, in a run of the training engine.

The selection names the checkpoint that becomes the model:

    english-dev   best on the dev set of the source language (XTREME)
    all-dev       best mean over the dev sets of all languages: one model for all, #M=1 (InfoXLM, VECO)
    each-dev      for each language the best on its own dev set: #M=N; other languages use the all-dev model
    last          the last checkpoint
"""
# N features of the training set

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from crossling.core.distributed import is_main_process
from crossling.core.errors import BadInput
from crossling.core.progress import Progress, count_truncations
from crossling.data.packing import Batch
from crossling.finetune.finetune_settings import FinetuneSettings
from crossling.finetune.supervised_training import (
    ORDER,
    PROBE,
    ModelTraining,
    SupervisedBatches,
    SupervisedObjective,
    fit_model,
    link_files,
    load_mean_weights,
    write_model_folder,
)
from crossling.finetune.task_type import Feature, TaskConfig, TaskType
from crossling.finetune.training_data import Setting, TrainingData
from crossling.finetune.tuned_model import LANGUAGES_FOLDER, TUNED_INFO, TunedInfo, TunedModel, add_head
from crossling.inference.sentence_encoder import Encoder
from crossling.recipes.run_checkpoints import pretraining_cost
from crossling.tasks.metrics import METRICS
from crossling.train import checkpoint
from crossling.train.optimizer import OptimizerSettings

Selection = Literal["english-dev", "all-dev", "each-dev", "last"]

SELECTIONS: tuple[Selection, ...] = ("english-dev", "all-dev", "each-dev", "last")
DEV_MEAN = "dev"  # metric that selects the checkpoint; dev/LL is the metric of one language


@dataclass(eq=False)
class FeatureBatches(SupervisedBatches[list[Feature]]):
    """`batches[step]` are the micro-batches of a step in one process.

    Args:
        task_type: Task type that makes tensors of features.
        features: Features of the training set.
        batch: Features per step over all processes.
    """

    task_type: TaskType
    features: Sequence[Feature]
    batch: int

    def __post_init__(self) -> None:
        if self.batch < self.world_size:
            raise BadInput(
                f"a batch of {self.batch} is too small for {self.world_size} processes. Set a larger batch, or start"
                " fewer processes."
            )
        self._order = lru_cache(maxsize=2)(self._shuffle)

    @property
    def loss_name(self) -> str:
        return self.task_type.loss_name

    def split_step(self, step: int) -> list[list[Feature]]:
        """Return the features of a step, the longest first, split into micro-batches."""
        index = np.arange(step * self.batch, (step + 1) * self.batch)
        epoch, row = np.divmod(index, len(self.features))
        features = [self.features[self._order(int(e))[r]] for e, r in zip(epoch, row, strict=True)]
        features.sort(key=lambda feature: -feature.length)
        return self.split(features, self.batch * features[0].padded_tokens)

    def micro_batch(self, items: list[Feature]) -> tuple[Batch, int, int]:
        tokens = sum(len(sequence.ids) for feature in items for sequence in feature.all_sequences)
        return self.task_type.batch(items, with_targets=True), self.task_type.count_targets(items), tokens

    def _shuffle(self, epoch: int) -> np.ndarray:
        return np.random.default_rng([self.seed, ORDER, epoch]).permutation(len(self.features))


class FinetuneObjective(SupervisedObjective):
    """Loss of a task type."""

    def __init__(self, task_type: TaskType) -> None:
        self.task_type, self.loss_name = task_type, task_type.loss_name

    def loss_and_correct(self, model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        return self.task_type.loss(self.task_type.output(model, batch), batch)


def selection_score(info: TunedInfo) -> float:
    """Return the dev score that compares models of different settings and seeds."""
    score = info.dev.get("all-dev" if info.selection in ("all-dev", "each-dev") else "english-dev")
    return float("-inf") if score is None else score


@dataclass
class FinetuneRun(ModelTraining[TunedInfo, FinetuneSettings]):
    """Fine-tuning of an encoder on some data."""

    encoder: Encoder
    data: TrainingData
    setting: Setting
    selection: Selection
    dev_features: dict[str, list[Feature]] = field(init=False, default_factory=dict)  # by language, built once

    info_file = TUNED_INFO

    @cached_property
    def info(self) -> TunedInfo:
        settings, data = self.settings, self.data
        config = TaskConfig(
            head_type=data.head_type,
            labels=data.dataset.labels,
            length=min(settings.length, self.encoder.max_length),
            stride=settings.stride,
            query=settings.query,
            answer=settings.answer,
            n_best=settings.n_best,
            has_unanswerable=data.has_unanswerable,
            plug_in=data.plug_in,
            columns=data.columns,
        )
        return TunedInfo(
            task=data.dataset.name,
            model=self.encoder.name,
            pretraining=pretraining_cost(Path(self.encoder.name)),
            setting=self.setting,
            trained_on=data.trained_on,
            selection=self.selection,
            seed=settings.seed,
            config=config,
            hyperparameters=settings.hyperparameters,
            source_language=data.source_language,
            data=data.fingerprint,
            steps=0,
            step=0,
            examples=len(data.train),
        )

    def build(self, device: torch.device) -> None:
        length, max_length = self.settings.length, self.encoder.max_length
        if length > max_length:
            warnings.warn(f"length {length}: {self.encoder.name} reads at most {max_length} tokens", stacklevel=4)
        self.device = device
        self.tuned = self._load()
        self.task_type = self.tuned.task_type

    def fit(self, work: Path) -> int:
        settings, data, info = self.settings, self.data, self.info
        with count_truncations(f"{data.trained_on}, training set"):
            features = self.task_type.build_features(data.train, True, data.train_translations)
        steps = settings.total_steps(len(features))
        monitored = {"last": [], "english-dev": [*data.dev][:1]}.get(self.selection, [*data.dev])
        metrics = [DEV_MEAN] if monitored else []
        if self.selection == "each-dev":
            metrics += [f"{DEV_MEAN}/{language}" for language in monitored]
        task = {"task": info.task, "setting": info.setting, "selection": info.selection}
        return fit_model(
            self.tuned.model,
            settings,
            work,
            objective=FinetuneObjective(self.task_type),
            batches=FeatureBatches(
                self.task_type, features, settings.batch, seed=settings.seed, micro_tokens=settings.micro_tokens
            ),
            optimizer=self._optimizer(steps),
            steps=steps,
            recipe={"name": "finetune", "model": info.model, **task, "data": info.data},
            probe=(lambda: self._probe(monitored)) if monitored else None,
            selection_metrics=metrics,
        )

    def save_model(self, out: Path, work: Path, steps: int) -> TunedInfo:
        """Write the selected checkpoints, with their scores on every dev set."""
        saved = checkpoint.list_checkpoints(work / "checkpoints")
        best = {name.removeprefix(PROBE): path for name, path in checkpoint.best_checkpoints(saved).items()}
        common = saved[-1] if self.selection == "last" else best[DEV_MEAN]
        languages_by_state: dict[Path, list[str]] = {common: []}
        for language in self.data.dev:
            state = best[f"{DEV_MEAN}/{language}"] if self.selection == "each-dev" else common
            languages_by_state.setdefault(state, []).append(language)
        dev: dict[str, float] = {}
        self._build_dev_features([*self.data.dev])
        title = f"dev {self.data.dataset.name} {out.name}"
        with (
            write_model_folder(out, work) as new,
            Progress(title, len(self.data.dev), enabled=is_main_process()) as progress,
        ):
            for state, languages in languages_by_state.items():
                tuned = self._load(state)
                for language in languages:
                    dev |= self._score_dev(tuned, [language])
                    progress.update(len(dev), language)
                if new is not None:
                    folders = [new / LANGUAGES_FOLDER / language for language in languages]
                    _save(tuned, [new] if state == common else folders)
            info = replace(self.info, steps=steps, step=int(common.name), dev=self._summarize(dev))
            if new is not None:
                TUNED_INFO.write(new, info)
        return info

    def _load(self, state: Path | None = None) -> TunedModel:
        """Return the initial model, or that of a checkpoint."""
        assert isinstance(self.encoder.model, PreTrainedModel)
        model = add_head(self.encoder.model, self.info.config, name=self.encoder.name, seed=self.settings.seed)
        if state is not None:
            load_mean_weights(model, [state])
        return TunedModel(model.to(self.device), self.encoder.tokenizer, self.info.config)  # type: ignore[arg-type]

    def _probe(self, languages: Sequence[str]) -> dict[str, float]:
        dev = self._score_dev(self.tuned, languages)
        return {DEV_MEAN: fmean(dev.values()), **{f"{DEV_MEAN}/{language}": value for language, value in dev.items()}}

    def _summarize(self, dev: Mapping[str, float]) -> dict[str, float | None]:
        return {
            "english-dev": dev.get(self.data.source_language),
            "all-dev": fmean(dev.values()) if dev else None,
            **{f"{DEV_MEAN}/{language}": value for language, value in dev.items()},
        }

    def _score_dev(self, tuned: TunedModel, languages: Sequence[str]) -> dict[str, float]:
        scores, dev, metric = {}, self.data.dev, METRICS[self.data.dataset.metrics[0]]
        self._build_dev_features(languages)
        for language in languages:
            predictions = tuned.predict(dev[language], features=self.dev_features[language])
            gold = self.data.dataset.gold_labels(dev[language], "dev", language)
            value = metric.score(gold, predictions, language)
            scores[language] = 0.0 if math.isnan(value) else value  # constant predictions: no correlation
        return scores

    def _build_dev_features(self, languages: Sequence[str]) -> None:
        with count_truncations(f"{self.data.dataset.name}, dev set") as counter:
            for language in languages:
                if language not in self.dev_features:
                    counter.language = language
                    translations = self.data.dev_translations.get(language)
                    features = self.task_type.build_features(self.data.dev[language], False, translations)
                    self.dev_features[language] = features

    def _optimizer(self, steps: int) -> OptimizerSettings:
        """Return XTREME's optimizer settings, with a shorter warm-up if it would not end before the run does."""
        warmup = self.settings.warmup
        if round(warmup) >= steps > 1:
            warnings.warn(
                f"warmup {warmup:g}: the run has {steps} steps only. Uses a tenth of the steps.", stacklevel=4
            )
            warmup = 0.1
        decay = self.settings.weight_decay
        return OptimizerSettings(warmup=warmup, beta2=0.999, epsilon=1e-8, decay=decay, clip=1.0)


def _save(tuned: TunedModel, folders: Sequence[Path]) -> None:
    """Write the model into the first folder, and link its files into the others."""
    folders[0].mkdir(parents=True, exist_ok=True)
    tuned.save(folders[0])
    for folder in folders[1:]:
        link_files(folders[0], folder)
