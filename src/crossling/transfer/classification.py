"""The class of a text or a pair, the right one of several choices, or a number."""
# B features, K classes or choices

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from crossling.benchmarks.examples import Classified
from crossling.data.packing import Batch
from crossling.transfer import cuts
from crossling.transfer.family import Family, Feature, Prediction, unlabelled


@dataclass(frozen=True)
class Labelled(Feature):
    target: float  # the number of a class, or the number itself


class Classification(Family):
    term = "classification"

    def read(self, examples: Sequence[Classified], targets: bool) -> list[Labelled]:
        rows = [texts for example in examples for texts in _rows(example)]
        pieces = self.frame.split([text for texts in rows for text in texts])
        inputs, cut = [], 0
        for texts in rows:
            parts = [next(pieces).ids for _ in texts]
            kept = shortened([len(ids) for ids in parts], self.form.length - self.frame.room(len(texts)))
            cut += kept != [len(ids) for ids in parts]
            parts = [ids[:length] for ids, length in zip(parts, kept, strict=True)]
            inputs.append(self.frame.one(*parts) if len(parts) == 1 else self.frame.two(*parts))
        told = f"inputs are longer than {self.form.length} tokens; the end of the longer text was left out"
        cuts.note(cut, len(rows), told)
        remaining = iter(inputs)
        return [
            Labelled(
                number,
                tuple(next(remaining) for _ in _rows(example)),
                self._target(example) if targets else 0.0,
            )
            for number, example in enumerate(examples)
        ]

    def targets(self, features: Sequence[Labelled], width: int) -> Batch:  # noqa: ARG002
        kind = torch.float32 if self.form.kind == "regression" else torch.long
        return {"targets": torch.tensor([feature.target for feature in features], dtype=kind)}

    def count(self, features: Sequence[Labelled]) -> int:
        return len(features)

    def loss(self, output: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        logits_BK, targets_B = output.logits.float(), batch["targets"]
        if self.form.kind == "regression":
            error_B = logits_BK[:, 0] - targets_B
            return error_B.square().sum(), (error_B.detach().abs() < 0.5).sum()
        return F.cross_entropy(logits_BK, targets_B, reduction="sum"), (logits_BK.argmax(1) == targets_B).sum()

    def scores(self, output: Any) -> list[np.ndarray]:
        return list(output.logits.float().cpu().numpy())

    def predictions(
        self,
        examples: Sequence[Classified],  # noqa: ARG002
        features: Sequence[Labelled],  # noqa: ARG002
        scores: Sequence[np.ndarray],
    ) -> list[Prediction]:
        if self.form.kind == "regression":
            return [float(scores_K[0]) for scores_K in scores]
        if self.form.kind == "choice":
            return [str(scores_K.argmax()) for scores_K in scores]
        return [self.form.labels[scores_K.argmax()] for scores_K in scores]

    def _target(self, example: Classified) -> float:
        if example.label is None:
            raise unlabelled(example)
        if self.form.kind == "regression":
            return float(example.label)
        return int(example.label) if self.form.kind == "choice" else self.number(str(example.label), example)


def _rows(example: Classified) -> list[tuple[str, ...]]:
    """What is read: the texts, or with each choice what it is to follow."""
    if not example.choices:
        return [example.texts]
    before = " ".join(example.texts)
    return [(before, choice) for choice in example.choices]


def shortened(lengths: Sequence[int], room: int) -> list[int]:
    """How many pieces stay of each text: of the longest one is taken off until all fit; of two equal ones, of the
    second."""
    kept = list(lengths)
    if len(kept) == 1:
        return [min(kept[0], room)]
    first, second = kept
    if first + second > room:
        # What is left of the longer after it is as short as the other is shared.
        if min(first, second) * 2 > room:
            return [room - room // 2, room // 2]
        return [first, room - first] if first < second else [room - second, second]
    return kept
