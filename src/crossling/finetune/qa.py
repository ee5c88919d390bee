"""Extractive question answering: the answer is a span of the context.

A long context is read in overlapping windows. Each token is scored in the window in which it has the most context, as
in SQuAD's script. The best start and end are searched among the tokens of the context alone. SQuAD's script takes the
best twenty of all positions first, and may find no span. The text of the answer is copied from the context.
"""
# B windows, L positions, P tokens of a context, V windows of a context, N candidate positions

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
from crossling.finetune.features import TokenizedText
from crossling.finetune.task_type import Confidence, Feature, Prediction, TaskType, missing_label_error
from crossling.tasks.examples import QAExample

FIRST_TOKEN = 0  # target of a window without the answer


@dataclass(frozen=True)
class QAFeature(Feature):
    """A window on the context of a question."""

    spans: np.ndarray  # [P, 2]: characters of each token of the window
    has_most_context: np.ndarray  # [P]: no other window has more context around the token
    target: tuple[int, int] = (FIRST_TOKEN, FIRST_TOKEN)  # positions of the first and the last token of the answer

    @property
    def first(self) -> int:
        """Position of the first token of the window."""
        return self.sequences[0].first


class QATaskType(TaskType):
    """Span prediction for questions on a context."""

    loss_name = "qa"

    def extract_features(self, examples: Sequence[QAExample], with_targets: bool) -> list[QAFeature]:
        questions = [text.ids for text in self.builder.tokenize([example.question for example in examples])]
        contexts = self.builder.tokenize([example.context for example in examples])
        max_tokens = self.config.length - self.builder.special_token_count(2)
        max_query = min(self.config.query, max_tokens // 2)  # leaves half of a short input to the context
        truncated = sum(len(ids) > max_query for ids in questions)
        record_truncation(
            truncated, len(examples), f"questions are longer than {max_query} tokens; truncated at the end"
        )
        features = []
        for index, (example, question, context) in enumerate(zip(examples, questions, contexts, strict=True)):
            query = question[:max_query]
            size = max_tokens - len(query)
            starts = _window_starts(len(context.ids), size, self.config.stride)
            answer = _answer_tokens(example, context) if with_targets else None
            most_context_VP = _most_context(starts, size, len(context.ids))
            for window, start in enumerate(starts):
                end = min(start + size, len(context.ids))
                sequence = self.builder.build(query, context.ids[start:end])
                target = (FIRST_TOKEN, FIRST_TOKEN)
                if answer is not None and start <= answer[0] and answer[1] < end:
                    target = sequence.first + answer[0] - start, sequence.first + answer[1] - start
                most_context_P = most_context_VP[window, start:end].copy()
                features.append(QAFeature(index, (sequence,), context.spans[start:end], most_context_P, target=target))
        return features

    def target_tensors(self, features: Sequence[QAFeature], width: int) -> Batch:  # noqa: ARG002
        return {"targets": torch.tensor([feature.target for feature in features])}

    def loss(self, output: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the mean of the losses of start and end. A prediction is correct if both are."""
        logits = [output.start_logits.float(), output.end_logits.float()]
        targets = batch["targets"].unbind(1)
        losses = [F.cross_entropy(*pair, reduction="sum") for pair in zip(logits, targets, strict=True)]
        correct = [logits_BL.argmax(1) == targets_B for logits_BL, targets_B in zip(logits, targets, strict=True)]
        return (losses[0] + losses[1]) / 2, (correct[0] & correct[1]).sum()

    def feature_scores(self, output: Any) -> list[np.ndarray]:
        return list(torch.stack([output.start_logits, output.end_logits], 1).float().cpu().numpy())

    def decode_predictions(
        self, examples: Sequence[QAExample], features: Sequence[QAFeature], scores: Sequence[np.ndarray]
    ) -> list[Prediction]:
        best = [(-np.inf, "")] * len(examples)
        no_answer = [np.inf] * len(examples)
        for feature, (start_L, end_L) in zip(features, scores, strict=True):
            index = feature.example_index
            no_answer[index] = min(no_answer[index], float(start_L[FIRST_TOKEN] + end_L[FIRST_TOKEN]))
            score, (start, end) = self._best_span(feature, start_L, end_L)
            text = examples[index].context[start:end].strip()
            if text and score > best[index][0]:
                best[index] = score, text
        if self.config.has_unanswerable:
            return ["" if no_answer[index] > score else text for index, (score, text) in enumerate(best)]
        return [text for _, text in best]

    def confidences(
        self,
        examples: Sequence[QAExample],
        features: Sequence[QAFeature],
        scores: Sequence[np.ndarray],
    ) -> list[Confidence]:
        """Return the sum of the start and end logits of the best span, which is no probability."""
        best = [-np.inf] * len(examples)
        for feature, (start_L, end_L) in zip(features, scores, strict=True):
            best[feature.example_index] = max(best[feature.example_index], self._best_span(feature, start_L, end_L)[0])
        return [float(score) if np.isfinite(score) else None for score in best]

    def _best_span(self, feature: QAFeature, start_L: np.ndarray, end_L: np.ndarray) -> tuple[float, tuple[int, int]]:
        """Return the score and the characters of the best span of a window."""
        window = slice(feature.first, feature.first + len(feature.spans))
        start_P, end_P = np.where(feature.has_most_context, start_L[window], -np.inf), end_L[window]
        starts_N, ends_N = (np.argsort(-scores_P, kind="stable")[: self.config.n_best] for scores_P in (start_P, end_P))
        if not len(starts_N):
            return -np.inf, (0, 0)
        length_NN = ends_N[None, :] - starts_N[:, None]
        score_NN = np.where(
            (length_NN >= 0) & (length_NN < self.config.answer),
            start_P[starts_N][:, None] + end_P[ends_N][None, :],
            -np.inf,
        )
        row, column = np.unravel_index(score_NN.argmax(), score_NN.shape)
        return float(score_NN[row, column]), (feature.spans[starts_N[row], 0], feature.spans[ends_N[column], 1])


def _window_starts(tokens: int, size: int, stride: int) -> list[int]:
    """Return the starts of windows of `size` tokens, each `stride` after the last, that cover the context."""
    stride = min(stride, size)
    return [stride * window for window in range(1 + max(0, -(-(tokens - size) // stride)))]


def _most_context(starts: Sequence[int], size: int, tokens: int) -> np.ndarray:
    """Return the window that scores each token as a mask [V, P]: the one whose shorter side of context is longest."""
    position_P = np.arange(tokens)
    context_VP = np.full((len(starts), tokens), -1.0)
    for window, start in enumerate(starts):
        end = min(start + size, tokens)
        shorter_P = np.minimum(position_P - start, end - 1 - position_P) + 0.01 * (end - start)
        context_VP[window, start:end] = shorter_P[start:end]
    mask_VP = np.zeros(context_VP.shape, dtype=np.bool_)
    mask_VP[context_VP.argmax(0), position_P] = True
    return mask_VP


def _answer_tokens(example: QAExample, context: TokenizedText) -> tuple[int, int] | None:
    """Return the first and the last token of the first answer with a known position, or None without one."""
    if example.impossible:
        return None
    if not example.answers:
        raise missing_label_error(example)
    answer = next((answer for answer in example.answers if answer.start >= 0), None)  # -1: the position is unknown
    if answer is None:
        return None
    start, end = answer.start, answer.start + len(answer.text)
    inside = np.flatnonzero((context.spans[:, 0] < end) & (context.spans[:, 1] > start))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None
