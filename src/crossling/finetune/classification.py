"""Classification: the class of a text or a text pair, the right one of several choices, or a number (regression)."""
# B features, K classes or choices

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from crossling.core.progress import record_truncation
from crossling.data.packing import Batch
from crossling.finetune.task_type import Confidence, Feature, Prediction, TaskType, missing_label_error
from crossling.tasks.examples import ClassificationExample


@dataclass(frozen=True)
class ClassificationFeature(Feature):
    target: float  # class index, or the number to predict


class ClassificationTaskType(TaskType):
    """Classification, multiple choice and regression of texts and text pairs."""

    loss_name = "classification"

    def extract_features(
        self, examples: Sequence[ClassificationExample], with_targets: bool
    ) -> list[ClassificationFeature]:
        rows = [texts for example in examples for texts in _input_texts(example)]
        tokenized = self.builder.tokenize([text for texts in rows for text in texts])
        sequences, truncated = [], 0
        for texts in rows:
            ids = [next(tokenized).ids for _ in texts]
            lengths = [len(own) for own in ids]
            kept = truncated_lengths(lengths, self.config.length - self.builder.special_token_count(len(texts)))
            truncated += kept != lengths
            ids = [own[:length] for own, length in zip(ids, kept, strict=True)]
            sequences.append(self.builder.build(*ids))
        record_truncation(
            truncated, len(rows), f"inputs are longer than {self.config.length} tokens; truncated the longer text"
        )
        remaining = iter(sequences)
        return [
            ClassificationFeature(
                index,
                tuple(next(remaining) for _ in _input_texts(example)),
                self._target(example) if with_targets else 0.0,
            )
            for index, example in enumerate(examples)
        ]

    def target_tensors(self, features: Sequence[ClassificationFeature], width: int) -> Batch:  # noqa: ARG002
        dtype = torch.float32 if self.config.head_type == "regression" else torch.long
        return {"targets": torch.tensor([feature.target for feature in features], dtype=dtype)}

    def loss(self, output: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        logits_BK, targets_B = output.logits.float(), batch["targets"]
        if self.config.head_type == "regression":
            error_B = logits_BK[:, 0] - targets_B
            return error_B.square().sum(), (error_B.detach().abs() < 0.5).sum()
        return F.cross_entropy(logits_BK, targets_B, reduction="sum"), (logits_BK.argmax(1) == targets_B).sum()

    def feature_scores(self, output: Any) -> list[np.ndarray]:
        return list(output.logits.float().cpu().numpy())

    def decode_predictions(
        self,
        examples: Sequence[ClassificationExample],  # noqa: ARG002
        features: Sequence[ClassificationFeature],  # noqa: ARG002
        scores: Sequence[np.ndarray],
    ) -> list[Prediction]:
        if self.config.head_type == "regression":
            return [float(scores_K[0]) for scores_K in scores]
        if self.config.head_type == "choice":
            return [str(scores_K.argmax()) for scores_K in scores]
        return [self.config.labels[scores_K.argmax()] for scores_K in scores]

    def confidences(
        self,
        examples: Sequence[ClassificationExample],  # noqa: ARG002
        features: Sequence[ClassificationFeature],  # noqa: ARG002
        scores: Sequence[np.ndarray],
    ) -> list[Confidence]:
        """Return the probability of the predicted class. A number has none."""
        if self.config.head_type == "regression":
            return [None] * len(scores)
        return [float(1 / np.exp(scores_K - scores_K.max()).sum()) for scores_K in scores]

    def _target(self, example: ClassificationExample) -> float:
        if example.label is None:
            raise missing_label_error(example)
        if self.config.head_type == "regression":
            return float(example.label)
        return int(example.label) if self.config.head_type == "choice" else self.label_id(str(example.label), example)


def _input_texts(example: ClassificationExample) -> list[tuple[str, ...]]:
    """Return the texts of each input: those of the example, or the premise with each choice."""
    if not example.choices:
        return [example.texts]
    premise = " ".join(example.texts)
    return [(premise, choice) for choice in example.choices]


def truncated_lengths(lengths: Sequence[int], max_tokens: int) -> list[int]:
    """Return how many tokens of one or two texts are kept.

    Tokens are removed one by one from the longer text until both fit; of two equal texts, from the second.
    """
    if len(lengths) == 1:
        return [min(lengths[0], max_tokens)]
    first, second = lengths
    if first + second <= max_tokens:
        return [first, second]
    if min(first, second) * 2 > max_tokens:
        return [max_tokens - max_tokens // 2, max_tokens // 2]
    return [first, max_tokens - first] if first < second else [max_tokens - second, second]
