"""Contract of a task type: examples become features, features become batches, and model outputs become predictions."""
# B features of a batch

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from crossling.core.errors import BadInput, suggestion
from crossling.data.packing import Batch
from crossling.finetune.features import InputSequence, SequenceBuilder
from crossling.tasks.examples import Example

HeadType = Literal["classification", "regression", "choice", "tagging", "qa"]
Prediction = str | float | tuple[str, ...]
Confidence = float | tuple[float, ...] | None  # of a prediction, of each of its tags, or none

PAIRED = "paired_"  # prefix of the tensors of a translation
# Tensors of a batch that the model takes as arguments.
INPUTS = ("input_ids", "attention_mask", "token_type_ids", f"{PAIRED}input_ids", f"{PAIRED}attention_mask")


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """Settings that determine how examples are read and predictions are made. Stored with the model.

    Args:
        head_type: Kind of the task head.
        labels: Labels of classification and tagging.
        length: Maximum tokens per sequence.
        stride: Tokens between the starts of two windows on a long context (QA).
        query: Maximum tokens of a question (QA).
        answer: Maximum tokens of an answer (QA).
        n_best: Number of start and end positions that are considered (QA).
        has_unanswerable: Some questions have no answer (QA, as in SQuAD 2.0).
        plug_in: Every example is read with its translation (VECO).
        columns: Names of the columns of texts in the training file, if it was a table with a header.
    """

    head_type: HeadType
    labels: tuple[str, ...]
    length: int
    stride: int = 128
    query: int = 64
    answer: int = 30
    n_best: int = 20
    has_unanswerable: bool = False
    plug_in: bool = False
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Feature:
    """Model input made of one example or of a part of it."""

    example_index: int
    sequences: tuple[InputSequence, ...]  # one, or one per choice
    translations: tuple[InputSequence, ...] = field(default=(), kw_only=True)  # of each sequence, with plug-in

    @property
    def all_sequences(self) -> tuple[InputSequence, ...]:
        return *self.sequences, *self.translations

    @property
    def length(self) -> int:
        """Number of tokens of the longest sequence."""
        return max(len(sequence.ids) for sequence in self.all_sequences)

    @property
    def padded_tokens(self) -> int:
        """Number of tokens in a batch as wide as its longest sequence."""
        return self.length * len(self.all_sequences)


class TaskType(ABC):
    """Classification, tagging or question answering, with its settings."""

    loss_name: ClassVar[str]

    def __init__(self, config: TaskConfig, builder: SequenceBuilder) -> None:
        self.config, self.builder = config, builder

    def build_features(
        self, examples: Sequence[Any], with_targets: bool, translations: Sequence[Any] | None = None
    ) -> list[Any]:
        """Return the features of the examples, in their order.

        Windows on a long text and parts of a long sentence may be more or fewer in the translation. Each part is
        therefore paired with the part at the same relative position.

        Args:
            examples: Examples of this task type.
            with_targets: Add the targets of training. Every example then needs a label.
            translations: Translation of each example, for models with plug-in cross-attention.
        """
        if translations is None:
            return self.extract_features(examples, with_targets)
        paired = []
        rows = zip(
            self._features_by_example(examples, with_targets),
            self._features_by_example(translations, with_targets=False),
            strict=True,
        )
        for index, (parts, others) in enumerate(rows):
            for number, part in enumerate(parts):
                other = others[(2 * number + 1) * len(others) // (2 * len(parts))]
                if len(other.sequences) != len(part.sequences):
                    raise BadInput(
                        f"example {examples[index].id}: it has {len(part.sequences)} choices, but its translation has"
                        f" {len(other.sequences)}. Use translated data that matches row by row."
                    )
                paired.append(replace(part, example_index=index, translations=other.sequences))
        return paired

    def _features_by_example(self, examples: Sequence[Any], with_targets: bool) -> list[list[Any]]:
        """Return the features of each example. An example that is paired with many translations is read once."""
        distinct = {id(example): example for example in examples}
        keys = [*distinct]
        features: dict[int, list[Any]] = {key: [] for key in keys}
        for feature in self.extract_features([*distinct.values()], with_targets):
            features[keys[feature.example_index]].append(feature)
        return [features[id(example)] for example in examples]

    @abstractmethod
    def extract_features(self, examples: Sequence[Any], with_targets: bool) -> list[Any]:
        """Return the features of examples without translations, in their order, and record truncations."""

    @abstractmethod
    def target_tensors(self, features: Sequence[Any], width: int) -> Batch:
        """Return the targets of training, for padded rows of this width."""

    def count_targets(self, features: Sequence[Any]) -> int:
        """Return the number of predictions that the sums of `loss` are divided by."""
        return len(features)

    @abstractmethod
    def loss(self, output: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the summed loss and the number of correct predictions."""

    @abstractmethod
    def feature_scores(self, output: Any) -> list[np.ndarray]:
        """Return the model output of each feature as an array on the CPU."""

    @abstractmethod
    def decode_predictions(
        self, examples: Sequence[Any], features: Sequence[Any], scores: Sequence[np.ndarray]
    ) -> list[Prediction]:
        """Return one prediction per example from the scores of its features."""

    @abstractmethod
    def confidences(
        self, examples: Sequence[Any], features: Sequence[Any], scores: Sequence[np.ndarray]
    ) -> list[Confidence]:
        """Return the confidence of every prediction that `decode_predictions` returns."""

    def batch(self, features: Sequence[Feature], with_targets: bool = False) -> Batch:
        """Return the padded tensors of some features."""
        sequences = [sequence for feature in features for sequence in feature.sequences]
        translations = [sequence for feature in features for sequence in feature.translations]
        # One width for both, so that the model can read them in one call.
        batch = self.builder.batch([*sequences, *translations], self.config.length)
        if translations:
            halves = {name: values.split(len(sequences)) for name, values in batch.items()}
            batch = {
                f"{prefix}{name}": half
                for name, both in halves.items()
                for prefix, half in zip(("", PAIRED), both, strict=True)
            }
        if self.config.head_type == "choice":
            batch = {name: values.unflatten(0, (len(features), -1)) for name, values in batch.items()}
        return batch | (self.target_tensors(features, batch["input_ids"].shape[-1]) if with_targets else {})

    def output(self, model: PreTrainedModel, batch: Batch) -> Any:
        """Return the output of the model for a batch."""
        return model(**{name: batch[name] for name in INPUTS if name in batch})

    def label_id(self, label: str, example: Example) -> int:
        """Return the index of a label, or refuse one that the task does not have."""
        if label not in self._label_ids:
            raise BadInput(
                f"example {example.id}: the task has no label {label!r}{suggestion(label, self.config.labels)}"
            )
        return self._label_ids[label]

    @cached_property
    def _label_ids(self) -> Mapping[str, int]:
        return {label: index for index, label in enumerate(self.config.labels)}


def missing_label_error(example: Example) -> BadInput:
    return BadInput(f"example {example.id}: it has no label to learn from. Use a labeled training file.")
