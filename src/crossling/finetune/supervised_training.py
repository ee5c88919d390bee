"""Supervised training on the engine of pre-training: batches, objective and run that tasks and translators share."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from crossling.core.distributed import all_reduce_sum, is_main_process, main_process_first, process_group
from crossling.core.errors import BadInput, Failed
from crossling.core.files import atomic_file, link_or_copy
from crossling.data.batches import StepDataset, StepWork, count_micro_batches
from crossling.data.packing import Batch
from crossling.finetune.finetune_settings import TrainingSettings
from crossling.objectives.objective import Network, Objective
from crossling.recipes.pretrain import describe_machine
from crossling.tasks import scores
from crossling.tasks.scores import ScoreRow
from crossling.train.meters import TrainingCost
from crossling.train.optimizer import OptimizerSettings
from crossling.train.run_folder import RunFolder, same_setting
from crossling.train.step import Schedule
from crossling.train.trainer import Trainer

Items = TypeVar("Items")  # list or array of the examples of a micro-batch

ORDER, DROPOUT = 0, 1  # purposes of random numbers, part of their key
CHECKPOINTS_PER_RUN = 10
PROBE = "probe/"  # prefix that the engine puts before the metrics of a probe


class SupervisedBatches(StepDataset, ABC, Generic[Items]):
    """Training examples of each step. Order and dropout seeds depend on seed and step alone, so runs resume exactly."""

    def __init__(self, *, loss_name: str, seed: int, micro_tokens: int, rank: int, world_size: int) -> None:
        self.loss_name, self.seed, self.micro_tokens = loss_name, seed, micro_tokens
        self.rank, self.world_size = rank, world_size

    @abstractmethod
    def split_step(self, step: int) -> list[Items]:
        """Return the examples of a step over all processes, split into micro-batches."""

    @abstractmethod
    def micro_batch(self, items: Items) -> tuple[Batch, int, int]:
        """Return the tensors of a micro-batch, its number of targets and its number of tokens without padding."""

    def __getitem__(self, step: int) -> StepWork:
        parts = self.split_step(step)
        numbers = range(self.rank, len(parts), self.world_size)
        batches, targets, tokens = zip(*(self.micro_batch(parts[number]) for number in numbers), strict=True)
        return StepWork(
            [(self.loss_name, batch) for batch in batches],
            dict.fromkeys(metric_names(self.loss_name), sum(targets)),
            sum(tokens),
            [self._dropout_seed(step, number) for number in numbers],
        )

    def split(self, items: Any, padded_tokens: float) -> list[Items]:
        """Split the examples of a step into equal micro-batches, as many as their tokens need."""
        number = count_micro_batches(padded_tokens, self.micro_tokens, len(items), self.world_size)
        bounds = np.linspace(0, len(items), number + 1).round().astype(int)
        return [items[start:end] for start, end in pairwise(bounds)]

    def _dropout_seed(self, step: int, number: int) -> int:
        key = [self.seed, DROPOUT, step, number]
        return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])


def metric_names(loss_name: str) -> tuple[str, str]:
    """Return the names of the sums of an objective: its loss, and its number of correct predictions."""
    return loss_name, f"{loss_name}_accuracy"


class SupervisedObjective(Objective):
    """Objective with a single loss."""

    loss_name: str

    @property
    def loss_weights(self) -> dict[str, float]:
        return {self.loss_name: 1.0}

    @abstractmethod
    def loss_and_correct(self, model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the summed loss and the number of correct predictions."""

    def loss(self, net: Any, batch: Batch) -> dict[str, Tensor]:
        sums = self.loss_and_correct(net.encoder, batch)  # the network's name for the model that it trains
        return dict(zip(metric_names(self.loss_name), sums, strict=True))


def fit_model(
    model: Any,
    *,
    objective: SupervisedObjective,
    batches: SupervisedBatches[Any],
    optimizer: OptimizerSettings,
    settings: TrainingSettings,
    steps: int,
    recipe: Mapping[str, Any],
    work: Path,
    device: torch.device,
    probe: Callable[[], dict[str, float]] | None = None,
    selection_metrics: Sequence[str] = (),
    keep: int | None = None,
    patience: int | None = None,
) -> int:
    """Train a model in the run folder `work`, or resume it, and return the number of steps trained.

    Args:
        model: Encoder with a task head, or encoder-decoder.
        objective: Loss of the training.
        batches: Training examples of each step.
        optimizer: Settings of AdamW.
        settings: Learning rate, seed and intervals.
        steps: Number of training steps.
        recipe: Description of the run. A run resumes only if it is the same.
        work: Run folder.
        device: Device of this process.
        probe: Scores the model on dev at every checkpoint.
        selection_metrics: Metrics of the probe whose best checkpoints are kept.
        keep: Number of last checkpoints to keep.
        patience: Number of evaluations without a better score that end the training.
    """
    every = settings.checkpoint_every or -(-steps // CHECKPOINTS_PER_RUN)
    with main_process_first():
        run = RunFolder(work, dict(recipe), shards="", changeable={*settings.changeable} - {"seed"})
    layers = sum(weight.numel() for name, weight in model.named_parameters() if "embeddings" not in name)
    cost = TrainingCost(dict.fromkeys(("full", "paper"), 6.0 * layers), describe_machine(device))
    trainer = Trainer(
        Network(model, {}),
        objectives={objective.loss_name: objective},
        batches=batches,
        optimizer=optimizer,
        schedule=Schedule(
            steps=steps,
            lr=settings.lr,
            log_every=settings.log_every,
            checkpoint_every=every,
            probe_every=every if probe is not None else 0,
            # A model that fits all but a few examples has gradients of any size.
            max_norm_ratio=float("inf"),
        ),
        run=run,
        device=device,
        cost=cost,
        probe=None if probe is None else lambda _: probe(),
        selection_metrics=[f"{PROBE}{name}" for name in selection_metrics],
        keep=keep,
        patience=patience,
    )
    trainer.fit()
    if is_main_process():
        run.write_cost(cost.summary(trainer.step))
    return trainer.step


# Training of the models of a folder. Finished models are kept, and interrupted runs resume.
#
# The run of a model has its own folder, which is removed when the model is finished. Its checkpoints store progress,
# so there is no journal of `crossling.core.resumable` here. A finished model is a folder that appears as a whole.


SCORES_FILE = "scores.jsonl"
WORK_FOLDER = "training"  # folder of unfinished runs

Info = TypeVar("Info", covariant=True)


class ModelTraining(Protocol[Info]):
    """Training of one model, in every process of the run."""

    def fit(self, work: Path) -> int:
        """Train to the end, or resume, and return the number of steps."""

    def save_model(self, out: Path, work: Path, steps: int) -> Info:
        """Write the selected model to `out` and return its description."""


def train_model(build: Callable[[torch.device], ModelTraining[Info]], micro_tokens: int, out: Path, work: Path) -> Info:
    """Train a model in the run folder `work` and write it to `out`.

    Args:
        build: Builds the training of this process on its device.
        micro_tokens: Tokens per micro-batch, named if the memory is too small.
        out: Folder of the finished model.
        work: Run folder, removed at the end.
    """
    with process_group() as device:
        training = build(device)
        try:
            steps = training.fit(work)
        except torch.OutOfMemoryError:
            raise Failed(
                f"{device.type}: out of memory with micro_tokens={micro_tokens}. Set a smaller value and run the same"
                " command again to resume."
            ) from None
        info = training.save_model(out, work, steps)
        all_reduce_sum(torch.zeros(1))  # waits until all processes have read the run
        if is_main_process():
            shutil.rmtree(work)
        return info


def check_same_training(
    folder: Path, stored: Mapping[str, Any], requested: Mapping[str, Any], *, same_data: bool
) -> None:
    """Refuse a finished model that was trained with other settings or data."""
    for name, value in stored.items():
        if not same_setting(requested.get(name), value):
            raise BadInput(
                f"{folder}: this model was trained with {name} {value}, not {requested.get(name)}. Use the same value,"
                " or another output folder."
            )
    if not same_data:
        raise BadInput(
            f"{folder}: this model was trained or selected on other data. Use the same data, or another output folder."
        )


def seed_paths(out: Path, seed: int) -> tuple[Path, Path]:
    """Return the folder of the model of a seed, and its run folder."""
    name = f"seed-{seed}"
    return out / name, out / WORK_FOLDER / name


def publish_best_seed(out: Path, best: int, rows: Sequence[ScoreRow]) -> None:
    """Link the model of the best seed into `out`, write the scores of all seeds, and remove unfinished runs."""
    if is_main_process():
        link_files(seed_paths(out, best)[0], out, recursive=False)
        scores.add_scores(out / SCORES_FILE, rows)
        shutil.rmtree(out / WORK_FOLDER, ignore_errors=True)


def link_files(source: Path, target: Path, recursive: bool = True) -> None:
    """Link the files of a folder into another one, replacing files of the same name. Copies if links fail."""
    for file in sorted(source.rglob("*") if recursive else source.glob("*")):
        if file.is_file():
            with atomic_file(target / file.relative_to(source)) as new:
                new.unlink()
                link_or_copy(file, new)
