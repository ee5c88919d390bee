"""Fine-tuning of one model: from an encoder to the folder of a seed, in a run of the training engine.

The selection names the checkpoint that becomes the model:

    english-dev   best on the dev set of the source language (XTREME)
    all-dev       best mean over the dev sets of all languages: one model for all, #M=1 (InfoXLM, VECO)
    each-dev      for each language the best on its own dev set: #M=N; other languages use the all-dev model
    last          the last checkpoint
"""
# N features of the training set

from __future__ import annotations

import shutil
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from crossling.core.distributed import is_main_process, rank, world_size
from crossling.core.errors import BadInput
from crossling.core.files import atomic_folder
from crossling.core.progress import Progress, count_truncations
from crossling.data.packing import Batch
from crossling.finetune.finetune_settings import FinetuneSettings
from crossling.finetune.supervised_training import (
    ORDER,
    PROBE,
    SupervisedBatches,
    SupervisedObjective,
    check_same_training,
    fit_model,
    link_files,
    train_model,
)
from crossling.finetune.task_type import Feature, TaskConfig, TaskType
from crossling.finetune.training_data import Setting, TrainingData
from crossling.finetune.tuned_model import (
    LANGUAGES_FOLDER,
    TUNED_INFO,
    TunedInfo,
    TunedModel,
    add_head,
    build_task_type,
)
from crossling.inference.sentence_encoder import Encoder
from crossling.objectives.objective import Network
from crossling.tasks.metrics import METRICS
from crossling.train import checkpoint
from crossling.train.optimizer import OptimizerSettings


class FeatureBatches(SupervisedBatches[list[Feature]]):
    """`batches[step]` are the micro-batches of a step in one process."""

    def __init__(
        self,
        task_type: TaskType,
        features: Sequence[Feature],
        *,
        batch: int,
        seed: int,
        micro_tokens: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if batch < world_size:
            raise BadInput(
                f"a batch of {batch} is too small for {world_size} processes. Set a larger batch, or start fewer"
                " processes."
            )
        super().__init__(
            loss_name=task_type.loss_name, seed=seed, micro_tokens=micro_tokens, rank=rank, world_size=world_size
        )
        self.task_type, self.features, self.batch = task_type, features, batch
        self._order = lru_cache(maxsize=2)(self._shuffle)

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


Selection = Literal["english-dev", "all-dev", "each-dev", "last"]

SELECTIONS: tuple[Selection, ...] = ("english-dev", "all-dev", "each-dev", "last")
DEV_MEAN = "dev"  # metric that selects the checkpoint; dev/LL is the metric of one language


def monitored_languages(selection: Selection, languages: Sequence[str]) -> list[str]:
    """Return the languages whose dev sets are scored during training. The first one is the source language."""
    if selection == "last":
        return []
    return [*languages] if selection in ("all-dev", "each-dev") else [*languages[:1]]


def dev_metrics(values: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics to log for dev scores by language."""
    return {DEV_MEAN: fmean(values.values()), **{f"{DEV_MEAN}/{language}": value for language, value in values.items()}}


def checkpoint_metrics(selection: Selection, languages: Sequence[str]) -> list[str]:
    """Return the metrics whose best checkpoints are kept."""
    names = [] if selection == "last" else [DEV_MEAN]
    return names + ([f"{DEV_MEAN}/{language}" for language in languages] if selection == "each-dev" else [])


def selection_score(selection: Selection, dev: Mapping[str, float | None]) -> float:
    """Return the score that compares models of different settings and seeds."""
    score = dev.get("all-dev" if selection in ("all-dev", "each-dev") else "english-dev")
    return float("-inf") if score is None else score


@dataclass(frozen=True)
class FinetuneJob:
    """Encoder, data, setting and selection of all models of one TUNED folder."""

    encoder: Encoder
    training_data: TrainingData
    setting: Setting
    selection: Selection

    def task_config(self, settings: FinetuneSettings) -> TaskConfig:
        """Return the task settings that are stored with the model."""
        max_length, data = self.encoder.max_length, self.training_data
        if settings.length > max_length:
            warnings.warn(
                f"length {settings.length}: {self.encoder.name} reads at most {max_length} tokens", stacklevel=4
            )
        return TaskConfig(
            head_type=data.head_type,
            labels=data.dataset.labels,
            length=min(settings.length, max_length),
            stride=settings.stride,
            query=settings.query,
            answer=settings.answer,
            n_best=settings.n_best,
            has_unanswerable=data.has_unanswerable,
            plug_in=data.plug_in,
        )

    @cached_property
    def fingerprint(self) -> str:
        return self.training_data.fingerprint

    def check_finished(self, folder: Path, settings: FinetuneSettings) -> None:
        """Refuse a finished model that was trained with other settings or data."""
        info, data = TUNED_INFO.read(folder), self.training_data
        stored = {"task": info.task, "model": info.model, "setting": info.setting, "selection": info.selection}
        stored |= {"plug_in": str(info.config.plug_in), **info.hyperparameters}
        requested = {"task": data.dataset.name, "model": self.encoder.name, "setting": self.setting}
        requested |= {"selection": self.selection, "plug_in": str(data.plug_in), **settings.hyperparameters}
        check_same_training(folder, stored, requested, same_data=info.data == self.fingerprint)


def train_seed(job: FinetuneJob, settings: FinetuneSettings, out: Path, work: Path) -> TunedInfo:
    """Fine-tune the model of `settings.seed` into the folder `out`, with its run in `work`. Skip a finished model."""
    if TUNED_INFO.exists(out):
        job.check_finished(out, settings)
        return TUNED_INFO.read(out)
    return train_model(lambda device: _FinetuneRun(job, settings, device), settings.micro_tokens, out, work)


class _FinetuneRun:
    """Training of one model, in every process of the run."""

    def __init__(self, job: FinetuneJob, settings: FinetuneSettings, device: torch.device) -> None:
        self.job, self.data, self.settings, self.device = job, job.training_data, settings, device
        self.config = job.task_config(settings)
        self.model = self._initial_model()
        self.tuned = TunedModel(self.model, job.encoder.tokenizer, self.config)
        self.task_type = build_task_type(self.model, job.encoder.tokenizer, self.config)
        self.metric = METRICS[self.data.dataset.metrics[0]]
        self.dev_features: dict[str, list[Feature]] = {}  # by language, built once

    def fit(self, work: Path) -> int:
        """Train to the end, or resume, and return the number of steps."""
        settings, data = self.settings, self.data
        with count_truncations(f"{data.trained_on}, training set"):
            features = self.task_type.build_features(data.train, True, data.train_translations)
        steps = settings.total_steps(len(features))
        languages = monitored_languages(self.job.selection, [*data.dev])
        return fit_model(
            self.model,
            objective=FinetuneObjective(self.task_type),
            batches=FeatureBatches(
                self.task_type,
                features,
                batch=settings.batch,
                seed=settings.seed,
                micro_tokens=settings.micro_tokens,
                rank=rank(),
                world_size=world_size(),
            ),
            optimizer=self._optimizer(steps),
            settings=settings,
            steps=steps,
            recipe=self._recipe(),
            work=work,
            device=self.device,
            probe=(lambda: dev_metrics(self._score_dev(self.tuned, languages))) if languages else None,
            selection_metrics=checkpoint_metrics(self.job.selection, languages),
        )

    def save_model(self, out: Path, work: Path, steps: int) -> TunedInfo:
        """Write the selected checkpoints, with their scores on every dev set."""
        saved = checkpoint.list_checkpoints(work / "checkpoints")
        best = {name.removeprefix(PROBE): path for name, path in checkpoint.best_checkpoints(saved).items()}
        common = saved[-1] if self.job.selection == "last" else best[DEV_MEAN]
        languages_by_state: dict[Path, list[str]] = {common: []}
        for language in self.data.dev:
            state = best[f"{DEV_MEAN}/{language}"] if self.job.selection == "each-dev" else common
            languages_by_state.setdefault(state, []).append(language)
        dev: dict[str, float] = {}
        self._build_dev_features([*self.data.dev])
        title = f"dev {self.data.dataset.name} {out.name}"
        with (
            atomic_folder(out) if is_main_process() else nullcontext() as new,  # all processes score, one writes
            Progress(title, len(self.data.dev), enabled=is_main_process()) as progress,
        ):
            for state, languages in languages_by_state.items():
                tuned = self._load_checkpoint(state)
                for language in languages:
                    dev |= self._score_dev(tuned, [language])
                    progress.update(len(dev), language)
                if new is not None:
                    folders = [new / LANGUAGES_FOLDER / language for language in languages]
                    _save(tuned, [new] if state == common else folders)
            info = self._info(steps, int(common.name), dev)
            if new is not None:
                TUNED_INFO.write(new, info)
                for name in ("metrics.jsonl", "cost.json"):
                    shutil.copy(work / name, new / name)
        return info

    def _initial_model(self) -> PreTrainedModel:
        encoder = self.job.encoder
        return add_head(encoder.model, self.config, name=encoder.name, seed=self.settings.seed)

    def _load_checkpoint(self, state: Path) -> TunedModel:
        """Return the whole model of a checkpoint, also if the run shards it over processes."""
        model = self._initial_model()
        checkpoint.load_weights(state, Network(model, {}))  # type: ignore[arg-type]
        return TunedModel(model.to(self.device), self.job.encoder.tokenizer, self.config)  # type: ignore[arg-type]

    def _score_dev(self, tuned: TunedModel, languages: Sequence[str]) -> dict[str, float]:
        scores, dev = {}, self.data.dev
        self._build_dev_features(languages)
        for language in languages:
            predictions = tuned.predict(dev[language], features=self.dev_features[language])
            gold = self.data.dataset.gold_labels(dev[language], "dev", language)
            scores[language] = self.metric.score(gold, predictions, language)
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

    def _recipe(self) -> dict[str, object]:
        job = self.job
        task = {"task": self.data.dataset.name, "setting": job.setting, "selection": job.selection}
        return {"name": "finetune", "model": job.encoder.name, **task, "data": job.fingerprint, **asdict(self.settings)}

    def _info(self, steps: int, step: int, dev: Mapping[str, float]) -> TunedInfo:
        job, data = self.job, self.data
        return TunedInfo(
            task=data.dataset.name,
            model=job.encoder.name,
            setting=job.setting,
            trained_on=data.trained_on,
            selection=job.selection,
            seed=self.settings.seed,
            config=self.config,
            hyperparameters=self.settings.hyperparameters,
            source_language=data.source_language,
            data=job.fingerprint,
            steps=steps,
            step=step,
            examples=len(data.train),
            dev={
                "english-dev": dev.get(data.source_language),
                "all-dev": fmean(dev.values()) if dev else None,
                **{f"{DEV_MEAN}/{language}": value for language, value in dev.items()},
            },
        )


def _save(tuned: TunedModel, folders: Sequence[Path]) -> None:
    """Write the model into the first folder, and link its files into the others."""
    folders[0].mkdir(parents=True, exist_ok=True)
    tuned.save(folders[0])
    for folder in folders[1:]:
        link_files(folders[0], folder)
