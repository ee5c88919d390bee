"""A tag for every word, told by its first piece. A sentence that is too long is split between words, as XTREME does."""
# W words of a batch, L positions, K tags

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from crossling.benchmarks.examples import Tagged
from crossling.data.packing import Batch
from crossling.transfer import cuts
from crossling.transfer.family import Family, Feature, Prediction, unlabelled


@dataclass(frozen=True)
class Words(Feature):
    """Some words of a sentence that follow each other."""

    first: int  # the number of the first word
    places: tuple[int, ...]  # where each word begins
    tags: tuple[int, ...]  # of each word; none where they are not to be learned


class Tagging(Family):
    term = "tagging"

    def read(self, examples: Sequence[Tagged], targets: bool) -> list[Words]:
        split = self.frame.split([word for example in examples for word in example.words])
        unknown = np.array([self.frame.tokenizer.unk_token_id], dtype=np.int32)
        room = self.form.length - self.frame.room(1)
        features, cut = [], 0
        for number, example in enumerate(examples):
            # A word that the tokenizer makes nothing of is a word all the same.
            found = [next(split).ids for _ in example.words]
            pieces = [ids if len(ids) else unknown for ids in found]
            cut += sum(len(ids) > room for ids in pieces)
            tags = self._tags(example) if targets else ()
            for first, last in _parts([min(len(ids), room) for ids in pieces], room):
                own = [ids[:room] for ids in pieces[first:last]]
                read = self.frame.one(np.concatenate(own))
                begins = np.cumsum([read.first, *(len(ids) for ids in own[:-1])])
                features.append(Words(number, (read,), first, tuple(begins.tolist()), tags[first:last]))
        words = sum(len(example.words) for example in examples)
        cuts.note(cut, words, f"words are longer than {self.form.length} tokens; their ends were left out")
        return features

    def targets(self, features: Sequence[Words], width: int) -> Batch:
        """`at` [W]: where the words begin in the flattened rows."""
        at = [row * width + place for row, feature in enumerate(features) for place in feature.places]
        return {"at": torch.tensor(at), "targets": torch.tensor([tag for feature in features for tag in feature.tags])}

    def count(self, features: Sequence[Words]) -> int:
        return sum(len(feature.places) for feature in features)

    def loss(self, output: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        logits_WK = output.logits.flatten(0, 1).index_select(0, batch["at"]).float()
        targets_W = batch["targets"]
        return F.cross_entropy(logits_WK, targets_W, reduction="sum"), (logits_WK.argmax(1) == targets_W).sum()

    def scores(self, output: Any) -> list[np.ndarray]:
        return list(output.logits.argmax(-1).cpu().numpy())

    def predictions(
        self, examples: Sequence[Tagged], features: Sequence[Words], scores: Sequence[np.ndarray]
    ) -> list[Prediction]:
        tags: list[list[str]] = [[""] * len(example.words) for example in examples]
        for feature, tags_L in zip(features, scores, strict=True):
            for word, place in enumerate(feature.places, start=feature.first):
                tags[feature.example][word] = self.form.labels[tags_L[place]]
        return [tuple(each) for each in tags]

    def _tags(self, example: Tagged) -> tuple[int, ...]:
        if example.tags is None:
            raise unlabelled(example)
        return tuple(self.number(tag, example) for tag in example.tags)


def _parts(lengths: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    """From which word to which: as many as fit, each time."""
    first, used = 0, 0
    for word, length in enumerate(lengths):
        if used + length > room:
            yield first, word
            first, used = word, 0
        used += length
    if first < len(lengths):
        yield first, len(lengths)
