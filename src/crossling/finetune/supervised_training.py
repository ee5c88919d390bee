"""Supervised training on the engine of pre-training: batches, objective and run that tasks and translators share."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from crossling.core.distributed import (
    all_reduce_sum,
    is_main_process,
    main_process_first,
    process_group,
    rank,
    world_size,
)
from crossling.core.errors import BadInput, Failed
from crossling.core.files import atomic_file, atomic_folder, link_or_copy
from crossling.data.balanced_parts import count_micro_batches
from crossling.data.batches import StepDataset, StepWork
from crossling.data.packing import Batch
from crossling.finetune.finetune_settings import Settings, TrainingSettings
from crossling.finetune.tuned_model import Info, InfoFile
from crossling.objectives.objective import Objective
from crossling.objectives.training_network import Network
from crossling.tasks import scores
from crossling.tasks.scores import ScoreRow
from crossling.train import checkpoint
from crossling.train.meters import TrainingCost, describe_machine
from crossling.train.optimizer import OptimizerSettings
from crossling.train.run_folder import RunFolder, same_setting
from crossling.train.step import Schedule
from crossling.train.trainer import Trainer

Items = TypeVar("Items")  # list or array of the examples of a micro-batch

ORDER, DROPOUT = 0, 1  # purposes of random numbers, part of their key
CHECKPOINTS_PER_RUN = 10
PROBE = "probe/"  # prefix that the engine puts before the metrics of a probe


@dataclass(kw_only=True, eq=False)
class SupervisedBatches(StepDataset, ABC, Generic[Items]):
    """Training examples of each step. Order and dropout seeds depend on seed and step alone, so runs resume exactly.

    Args:
        seed: Seed of order and dropout.
        micro_tokens: Tokens per micro-batch, padding included.
        rank: Rank of this process.
        world_size: World size of the run.
    """

    seed: int
    micro_tokens: int
    rank: int = field(default_factory=rank)
    world_size: int = field(default_factory=world_size)

    @property
    @abstractmethod
    def loss_name(self) -> str:
        """Name of the objective that the batches belong to."""

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


# Training of the models of a folder. Finished models are kept, and interrupted runs resume.
#
# The run of a model has its own folder, which is removed when the model is finished. Its checkpoints store progress,
# so there is no journal of `crossling.core.resumable` here. A finished model is a folder that appears as a whole.


SCORES_FILE = "scores.jsonl"
WORK_FOLDER = "training"  # folder of unfinished runs


@dataclass
class ModelTraining(ABC, Generic[Info, Settings]):
    """Training of one model, in every process of the run."""

    info_file: ClassVar[InfoFile[Any]]  # in the folder of a finished model
    settings: Settings

    @property
    @abstractmethod
    def info(self) -> Info:
        """Info of the requested model, without the results of its training."""

    @abstractmethod
    def build(self, device: torch.device) -> None:
        """Build the initial model on the device of this process."""

    @abstractmethod
    def fit(self, work: Path) -> int:
        """Train to the end, or resume, and return the number of steps."""

    @abstractmethod
    def save_model(self, out: Path, work: Path, steps: int) -> Info:
        """Write the selected model to `out` and return its info."""


def fit_model(
    model: Any,
    settings: TrainingSettings,
    work: Path,
    *,
    objective: SupervisedObjective,
    batches: SupervisedBatches[Any],
    optimizer: OptimizerSettings,
    steps: int,
    recipe: Mapping[str, Any],
    probe: Callable[[], dict[str, float]] | None = None,
    selection_metrics: Sequence[str] = (),
    keep: int = 2,
    patience: int | None = None,
) -> int:
    """Train a model in the run folder `work`, or resume it, and return the number of steps trained.

    Args:
        model: Encoder with a task head, or encoder-decoder, on the device of this process.
        settings: Learning rate, seed and intervals.
        work: Run folder.
        objective: Loss of the training.
        batches: Training examples of each step.
        optimizer: Settings of AdamW.
        steps: Number of training steps.
        recipe: Description of the run beside its settings. A run resumes only if it is the same.
        probe: Scores the model on dev at every checkpoint.
        selection_metrics: Metrics of the probe whose best checkpoints are kept.
        keep: Number of last checkpoints to keep.
        patience: Number of evaluations without a better score that end the training.
    """
    device = model.device
    every = settings.checkpoint_every or -(-steps // CHECKPOINTS_PER_RUN)
    with main_process_first():
        changeable = {*settings.changeable} - {"seed"}
        run = RunFolder(work, {**recipe, **asdict(settings)}, shards="", changeable=changeable)
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
        retention=checkpoint.Retention(keep),
        patience=patience,
    )
    trainer.fit()
    if is_main_process():
        run.write_cost(cost.summary(trainer.step))
    return trainer.step


def train_model(training: ModelTraining[Info, Any], out: Path, work: Path) -> Info:
    """Train a model in the run folder `work` and write it to `out`, or return the info of a finished model.

    Args:
        training: Training of the model.
        out: Folder of the finished model.
        work: Run folder, removed at the end.

    Raises:
        BadInput: The finished model was trained with other settings or data.
    """
    if training.info_file.exists(out):
        info: Info = training.info_file.read(out)
        _check_same_training(out, info, training.info)
        return info
    with process_group() as device:
        training.build(device)
        try:
            steps = training.fit(work)
        except torch.OutOfMemoryError:
            raise Failed(
                f"{device.type}: out of memory with micro_tokens={training.settings.micro_tokens}. Set a smaller value"
                " and run the same command again to resume."
            ) from None
        info = training.save_model(out, work, steps)
        all_reduce_sum(torch.zeros(1))  # waits until all processes have read the run
        if is_main_process():
            shutil.rmtree(work)
        return info


def _check_same_training(folder: Path, stored: Info, requested: Info) -> None:
    for name, value in stored.identity.items():
        found = requested.identity.get(name)
        if not same_setting(found, value):
            raise BadInput(
                f"{folder}: this model was trained with {name} {value}, not {found}. Use the same value,"
                " or another output folder."
            )
    if stored.data != requested.data:
        raise BadInput(
            f"{folder}: this model was trained or selected on other data. Use the same data, or another output folder."
        )


@contextmanager
def write_model_folder(out: Path, work: Path) -> Iterator[Path | None]:
    """Yield the folder to write a model to, or None in processes that only score. Adds metrics and cost of the run."""
    if not is_main_process():
        yield None
        return
    with atomic_folder(out) as new:
        yield new
        for name in ("metrics.jsonl", "cost.json"):
            shutil.copy(work / name, new / name)


def load_mean_weights(model: Any, states: Sequence[Path]) -> None:
    """Load the mean of the weights of some checkpoints, also if the run sharded them over processes."""
    total: dict[str, Tensor] = {}
    for state in states:
        checkpoint.load_weights(state, Network(model, {}))
        for name, values in model.named_parameters():
            total[name] = total[name] + values.detach().double() if name in total else values.detach().double()
    with torch.no_grad():
        for name, values in model.named_parameters():
            values.copy_(total[name] / len(states))


def seed_paths(out: Path, seed: int) -> tuple[Path, Path]:
    """Return the folder of the model of a seed, and its run folder."""
    name = f"seed-{seed}"
    return out / name, out / WORK_FOLDER / name


def train_seeds(
    out: Path,
    settings: Settings,
    seeds: int,
    *,
    training: Callable[[Settings], ModelTraining[Info, Settings]],
    dev_score: Callable[[Info], float],
    score: Callable[[Info, Path], list[ScoreRow]],
) -> list[ScoreRow]:
    """Train one model per seed, score all, and link the best one into `out`. Return all scores.

    Args:
        out: Folder of all seeds.
        settings: Settings of the first seed. Seeds are consecutive.
        seeds: Number of models.
        training: Returns the training of a model with some settings.
        dev_score: Score that selects the best seed.
        score: Scores the model in a folder on the test sets.
    """
    seeded = (replace(settings, seed=settings.seed + number) for number in range(seeds))
    models = [train_model(training(each), *seed_paths(out, each.seed)) for each in seeded]
    best = max(models, key=dev_score)  # the first of equals
    rows: list[ScoreRow] = []
    for info in models:
        rows += score(info, seed_paths(out, info.seed)[0])
        if is_main_process():
            scores.add_scores(out / SCORES_FILE, rows)
    if is_main_process():
        link_files(seed_paths(out, best.seed)[0], out, recursive=False)
        shutil.rmtree(out / WORK_FOLDER, ignore_errors=True)
    return rows


def link_files(source: Path, target: Path, recursive: bool = True) -> None:
    """Link the files of a folder into another one, replacing files of the same name. Copies if links fail.

    Without `recursive`, of its folders only those of the modules of Sentence Transformers (`1_Pooling`).
    """
    for file in sorted(source.rglob("*") if recursive else [*source.glob("*"), *source.glob("[0-9]_*/*")]):
        if file.is_file():
            with atomic_file(target / file.relative_to(source)) as new:
                new.unlink()
                link_or_copy(file, new)
