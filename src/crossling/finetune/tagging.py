"""Tagging: a tag for every word, predicted at its first token (POS, NER).

A sentence that is too long is split between words, as XTREME does.
"""
# W words of a batch, L positions, K tags

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from crossling.core.progress import record_truncation
from crossling.data.packing import Batch
from crossling.finetune.task_type import Confidence, Feature, Prediction, TaskType, missing_label_error
from crossling.tasks.examples import TaggingExample


@dataclass(frozen=True)
class TaggingFeature(Feature):
    """Consecutive words of a sentence."""

    first_word: int  # index in the sentence
    word_positions: tuple[int, ...]  # position of the first token of each word
    tags: tuple[int, ...]  # label of each word; empty without targets


class TaggingTaskType(TaskType):
    """Token classification of sentences that are split into words."""

    loss_name = "tagging"

    def extract_features(self, examples: Sequence[TaggingExample], with_targets: bool) -> list[TaggingFeature]:
        tokenized = self.builder.tokenize([word for example in examples for word in example.words])
        unknown = np.array([self.builder.tokenizer.unk_token_id], dtype=np.int32)
        max_tokens = self.config.length - self.builder.special_token_count(1)
        features, truncated = [], 0
        for index, example in enumerate(examples):
            # A word without tokens still needs a tag.
            found = [next(tokenized).ids for _ in example.words]
            word_ids = [ids if len(ids) else unknown for ids in found]
            truncated += sum(len(ids) > max_tokens for ids in word_ids)
            tags = self._tags(example) if with_targets else ()
            for first, last in _split_words([min(len(ids), max_tokens) for ids in word_ids], max_tokens):
                ids = [own[:max_tokens] for own in word_ids[first:last]]
                sequence = self.builder.build(np.concatenate(ids))
                positions = np.cumsum([sequence.first, *(len(own) for own in ids[:-1])])
                word_positions = tuple(positions.tolist())
                features.append(TaggingFeature(index, (sequence,), first, word_positions, tags=tags[first:last]))
        words = sum(len(example.words) for example in examples)
        record_truncation(truncated, words, f"words are longer than {self.config.length} tokens; truncated at the end")
        return features

    def target_tensors(self, features: Sequence[TaggingFeature], width: int) -> Batch:
        """Return the tags and their positions `at` [W] in the flattened rows."""
        at = [row * width + position for row, feature in enumerate(features) for position in feature.word_positions]
        return {"at": torch.tensor(at), "targets": torch.tensor([tag for feature in features for tag in feature.tags])}

    def count_targets(self, features: Sequence[TaggingFeature]) -> int:
        return sum(len(feature.word_positions) for feature in features)

    def loss(self, output: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        logits_WK = output.logits.flatten(0, 1).index_select(0, batch["at"]).float()
        targets_W = batch["targets"]
        return F.cross_entropy(logits_WK, targets_W, reduction="sum"), (logits_WK.argmax(1) == targets_W).sum()

    def feature_scores(self, output: Any) -> list[np.ndarray]:
        """Return the tag of every position and its probability, [2, L] for each feature."""
        best_BL, tags_BL = output.logits.float().softmax(-1).max(-1)
        return list(torch.stack([tags_BL.float(), best_BL], 1).cpu().numpy())

    def decode_predictions(
        self, examples: Sequence[TaggingExample], features: Sequence[TaggingFeature], scores: Sequence[np.ndarray]
    ) -> list[Prediction]:
        tags: list[list[str]] = [[""] * len(example.words) for example in examples]
        for feature, (tags_L, _) in zip(features, scores, strict=True):
            for word, position in enumerate(feature.word_positions, start=feature.first_word):
                tags[feature.example_index][word] = self.config.labels[int(tags_L[position])]
        return [tuple(sentence) for sentence in tags]

    def confidences(
        self, examples: Sequence[TaggingExample], features: Sequence[TaggingFeature], scores: Sequence[np.ndarray]
    ) -> list[Confidence]:
        """Return the probability of every tag."""
        found: list[list[float]] = [[0.0] * len(example.words) for example in examples]
        for feature, (_, best_L) in zip(features, scores, strict=True):
            for word, position in enumerate(feature.word_positions, start=feature.first_word):
                found[feature.example_index][word] = float(best_L[position])
        return [tuple(sentence) for sentence in found]

    def _tags(self, example: TaggingExample) -> tuple[int, ...]:
        if example.tags is None:
            raise missing_label_error(example)
        return tuple(self.label_id(tag, example) for tag in example.tags)


def _split_words(lengths: Sequence[int], max_tokens: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of words, each with as many words as fit into `max_tokens`."""
    first, used = 0, 0
    for word, length in enumerate(lengths):
        if used + length > max_tokens:
            yield first, word
            first, used = word, 0
        used += length
    if first < len(lengths):
        yield first, len(lengths)
