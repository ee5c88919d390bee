"""Settings of fine-tuning: the defaults of a data set with the overrides of the user, and the grids of the papers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from crossling.core.errors import BadInput, suggestion
from crossling.core.settings import (
    AT_LEAST_0,
    AT_LEAST_1,
    FRACTION,
    POSITIVE,
    PROBABILITY,
    Bounds,
    assign,
    check_bounds,
    conventional_aliases,
)
from crossling.tasks.benchmark_files import TRANSLATION
from crossling.tasks.dataset import BenchmarkDataset
from crossling.tasks.registry import get_dataset

DEFAULT = "default"  # grid of one point: the default settings
ALIASES = conventional_aliases()


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Settings that fine-tuning for a task and training of a translator have in common.

    Args:
        lr: Peak learning rate.
        epochs: Passes over the training data.
        steps: Number of optimizer steps, instead of epochs.
        seed: Seed of the first model. Each further one adds 1.
        checkpoint_every: Steps between two checkpoints, each of which is scored on dev. [default: steps / 10]
        log_every: Steps between two rows of metrics.
        micro_tokens: Tokens of a micro-batch with padding. It bounds memory.
    """

    lr: Annotated[float, POSITIVE]
    epochs: Annotated[float, POSITIVE]
    steps: Annotated[int | None, AT_LEAST_1] = None
    seed: Annotated[int, AT_LEAST_0] = 0
    checkpoint_every: Annotated[int | None, AT_LEAST_1] = None
    log_every: Annotated[int, AT_LEAST_1] = 50
    micro_tokens: Annotated[int, AT_LEAST_1] = 16_384

    # Settings that change neither what is learned nor how the model is selected.
    changeable: ClassVar[tuple[str, ...]] = ()

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The settings that determine the model, except for the seed."""
        return {name: value for name, value in asdict(self).items() if name not in self.changeable}


Settings = TypeVar("Settings", bound=TrainingSettings)


def override(
    settings: Settings, assignments: Iterable[str], where: str, aliases: Mapping[str, str] = ALIASES
) -> Settings:
    """Return settings with `key=value` assignments applied, and check their bounds."""
    for assignment in assignments:
        settings = assign(settings, assignment, aliases)
    check_bounds(settings, where)
    return settings


def format_overrides(overrides: Mapping[str, Any]) -> list[str]:
    """Return keyword arguments as `key=value` assignments. The command line writes True and None in lower case."""
    return [f"{key}={str(value).lower()}" for key, value in overrides.items()]


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(TrainingSettings):
    """Settings of fine-tuning for a task.

    Args:
        batch: Batch size in features: texts, parts of sentences, or windows of a context.
        length: Longest sequence in tokens.
        warmup: Warm-up steps. Below 1, a fraction of all steps.
        weight_decay: Weight decay of AdamW.
        stride: QA: tokens between the starts of two windows.
        query: QA: longest question in tokens.
        answer: QA: longest answer in tokens.
        n_best: QA: number of best start and end positions that are combined.
    """

    batch: Annotated[int, AT_LEAST_1]
    length: Annotated[int, Bounds(at_least=8)]
    warmup: Annotated[float, AT_LEAST_0]
    weight_decay: Annotated[float, AT_LEAST_0]
    stride: Annotated[int, AT_LEAST_1]
    query: Annotated[int, AT_LEAST_1]
    answer: Annotated[int, AT_LEAST_1]
    n_best: Annotated[int, AT_LEAST_1]

    changeable: ClassVar[tuple[str, ...]] = ("seed", "checkpoint_every", "log_every", "micro_tokens")

    def total_steps(self, features: int) -> int:
        """Return the number of training steps on this many features."""
        return self.steps or max(1, round(self.epochs * features / self.batch))


@dataclass(frozen=True, kw_only=True)
class EmbeddingSettings(TrainingSettings):
    """Settings of sentence vectors (`--type embedding`).

    Args:
        lr: Peak learning rate.
        epochs: Passes over the training pairs.
        batch: Pairs of a step. With the ranking loss they are each other's negatives.
        micro_tokens: Tokens of a chunk of texts with padding. It bounds memory and changes no loss.
        length: Longest text in tokens while training.
        warmup: Warm-up steps. Below 1, a fraction of all steps.
        weight_decay: Weight decay of AdamW.
        loss: Multiple negatives ranking loss (`ranking`), or with scores `cosent` or `cosine`. [default: `ranking`,
            with scores `cosent`]
        temperature: Divisor of the cosines in `ranking` and `cosent`.
        symmetric: Average the ranking loss with that from positives to anchors.
        hard_negatives: Hard negatives to mine for each pair, with the ranking loss.
        margin: Fraction by which a mined negative must be less similar to the anchor than the positive.
        remine: Mine again before each epoch, with the model in training.
        pooling: Pooling of an encoder whose folder declares none.
        query_prompt: Text before each anchor. [default: the prompt `query` of the model]
        document_prompt: Text before each positive and negative. [default: the prompt `document` or `passage`]
    """

    lr: Annotated[float, POSITIVE] = 2e-5
    epochs: Annotated[float, POSITIVE] = 3
    batch: Annotated[int, Bounds(at_least=2)] = 64
    length: Annotated[int, Bounds(at_least=8)] = 128
    warmup: Annotated[float, AT_LEAST_0] = 0.1
    weight_decay: Annotated[float, AT_LEAST_0] = 0.0
    loss: Literal["auto", "ranking", "cosent", "cosine"] = "auto"
    temperature: Annotated[float, POSITIVE] = 0.05
    symmetric: bool = False
    hard_negatives: Annotated[int, AT_LEAST_0] = 1
    margin: Annotated[float, PROBABILITY] = 0.05
    remine: bool = False
    pooling: Literal["mean", "cls"] = "mean"
    query_prompt: str | None = None
    document_prompt: str | None = None

    changeable: ClassVar[tuple[str, ...]] = ("seed", "checkpoint_every", "log_every", "micro_tokens")

    def total_steps(self, pairs: int) -> int:
        """Return the number of training steps on this many pairs."""
        return self.steps or max(1, round(self.epochs * pairs / self.batch))


def embedding_settings(assignments: Iterable[str]) -> EmbeddingSettings:
    """Return the settings of sentence vectors, with `key=value` overrides."""
    return override(EmbeddingSettings(), assignments, "fine-tuning settings")


def finetune_grid(
    dataset: BenchmarkDataset, grid: str | None, assignments: Sequence[str]
) -> dict[str, FinetuneSettings]:
    """Return the settings to try, by name.

    Args:
        dataset: Data set with default hyperparameters and the grids of the papers.
        grid: Name of a paper's grid, such as `xlm-e` or `xlm_e`. Without one there is a single point, the defaults.
        assignments: `key=value` overrides, applied to every point.
    """
    name, names = (grid or DEFAULT).lower().replace("_", "-"), [DEFAULT, *dataset.grids]
    if name not in names:
        raise BadInput(f"grid={grid}: {dataset.name} has no such grid{suggestion(name, names)}")
    base = dataset.hyperparameters
    candidates = [base] if name == DEFAULT else dataset.grids[name].points(base)
    points = dict.fromkeys(
        override(FinetuneSettings(**asdict(point)), assignments, "fine-tuning settings") for point in candidates
    )
    axes = [field.name for field in fields(FinetuneSettings) if len({getattr(p, field.name) for p in points}) > 1]
    return {"_".join(f"{axis}-{getattr(point, axis):g}" for axis in axes) or DEFAULT: point for point in points}


_BATCH = "The batch size is given in tokens. Set for instance tokens=8192."
TRANSLATION_ALIASES = conventional_aliases(batch=_BATCH) | {
    "num_beams": "beam",
    "early_stopping_patience": "patience",
    "label_smoothing_factor": "label_smoothing",
}


@dataclass(frozen=True, kw_only=True)
class TranslationSettings(TrainingSettings):
    """Settings of a translator.

    Args:
        lr: Peak learning rate.
        epochs: Passes over the training pairs.
        tokens: Batch size: tokens per step over all processes, counting the longer side of each pair.
        pair_alpha: Exponent of the sampling probability of a direction. 1 follows the data, 0 is uniform.
        length: Maximum tokens of a sentence. Longer pairs are not trained on.
        warmup: Warm-up steps. Below 1, a fraction of all steps.
        weight_decay: Weight decay of AdamW.
        clip: Maximum gradient norm.
        label_smoothing: Label smoothing of the loss. VECO's released script uses 0.2.
        dropout: Dropout of the translator. VECO's released script uses 0.3. [default: as in the model]
        decoder_layers: Layers of the decoder. [default: all]
        take: Layers that initialize a shallow decoder. [default: last]
        tied: Decoder and encoder layers share their weights. [default: true]
        average: Number of last checkpoints to average. The best one is used if it is better on dev.
        patience: Evaluations without a better dev score that end the training.
        dev_rows: Sentence pairs of each direction that are scored during training.
        dev_beam: Beam size on dev.
        beam: Beam size on the test sets.
        length_penalty: Exponent of the length in the beam search.
    """

    lr: Annotated[float, POSITIVE] = 5e-4
    epochs: Annotated[float, POSITIVE] = 10
    tokens: Annotated[int, AT_LEAST_1] = 8192
    pair_alpha: Annotated[float, PROBABILITY] = 1.0
    length: Annotated[int, Bounds(at_least=8)] = 256
    warmup: Annotated[float, AT_LEAST_0] = 0.1
    weight_decay: Annotated[float, AT_LEAST_0] = 0.01
    clip: Annotated[float, POSITIVE] = 1.0
    label_smoothing: Annotated[float, FRACTION] = 0.1
    dropout: Annotated[float | None, FRACTION] = None
    decoder_layers: Annotated[int | None, AT_LEAST_1] = None
    take: Literal["first", "last"] | None = None
    tied: bool | None = None
    average: Annotated[int, AT_LEAST_1] = 5
    patience: Annotated[int | None, AT_LEAST_1] = None
    dev_rows: Annotated[int, AT_LEAST_1] = 200
    dev_beam: Annotated[int, AT_LEAST_1] = 1
    beam: Annotated[int, AT_LEAST_1] = 5
    length_penalty: float = 1.0

    changeable: ClassVar[tuple[str, ...]] = ("seed", "log_every", "micro_tokens", "beam", "length_penalty")


# VECO, section 6.1. Dropout, label smoothing and clipping are from its released script for En-De. The paper averages
# the last 10 checkpoints and gives no interval. Here it is about an epoch of En-De, 35 of which are 100k updates.
_VECO_WMT14 = TranslationSettings(
    steps=100_000,
    warmup=16_000,
    clip=0.1,
    label_smoothing=0.2,
    dropout=0.3,
    average=10,
    checkpoint_every=2_500,
    beam=5,
)
TRANSLATION_PRESETS = {
    "veco-wmt14-en-de": replace(_VECO_WMT14, lr=1e-4, tokens=65_536),
    "veco-wmt14-en-fr": replace(_VECO_WMT14, lr=2e-4, tokens=262_144),
}


def translation_settings(preset: str | None, assignments: Iterable[str]) -> TranslationSettings:
    """Return the settings of a translator: the defaults or those of a paper, with `key=value` overrides."""
    if preset is not None and preset not in TRANSLATION_PRESETS:
        raise BadInput(f"preset={preset}: no such preset{suggestion(preset, TRANSLATION_PRESETS)}")
    base = TranslationSettings() if preset is None else TRANSLATION_PRESETS[preset]
    assignments = [*assignments]
    keys = {assignment.partition("=")[0] for assignment in assignments}
    if preset is not None and "epochs" in keys - {"steps"} and "steps" not in keys:
        base = replace(base, steps=None)  # otherwise those of the preset would win
    return override(base, assignments, "translation settings", TRANSLATION_ALIASES)


def check_overrides(task: str, grid: str | None, preset: str | None, overrides: Mapping[str, Any]) -> None:
    """Raise BadInput if a setting is unknown, has the wrong type or is out of its bounds."""
    assignments = format_overrides(overrides)
    if task == TRANSLATION:
        translation_settings(preset, assignments)
    else:
        finetune_grid(get_dataset(task), grid, assignments)
