"""What the families of tasks have in common: examples become features, features become batches, and what the model
says of them becomes predictions."""
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

from crossling.benchmarks.examples import Example
from crossling.data.packing import Batch
from crossling.errors import BadInput, nearest
from crossling.transfer.frame import Frame, Input

Kind = Literal["classification", "regression", "choice", "tagging", "answering"]
Prediction = str | float | tuple[str, ...]

PAIRED = "paired_"  # before the name of what is of a translation
# What of a batch a model is called with.
INPUTS = ("input_ids", "attention_mask", "token_type_ids", f"{PAIRED}input_ids", f"{PAIRED}attention_mask")


@dataclass(frozen=True)
class Form:
    """What decides how examples are read and predictions are made; it is stored with the model."""

    kind: Kind
    labels: tuple[str, ...]  # of classification and tagging
    length: int  # tokens of a sequence at most
    stride: int = 128  # of answering: tokens between the starts of two windows on a long text
    query: int = 64  # tokens of a question at most
    answer: int = 30  # tokens of an answer at most
    n_best: int = 20  # starts and ends that are looked at
    null: bool = False  # whether a question may have no answer (SQuAD 2.0)
    plug_in: bool = False  # whether every example is read with its translation (VECO)


@dataclass(frozen=True)
class Feature:
    """What a model reads at once, of one example or a part of it."""

    example: int  # its number
    inputs: tuple[Input, ...]  # one; where one is to be chosen, all
    paired: tuple[Input, ...] = field(default=(), kw_only=True)  # the translation of each, where it is read too

    @property
    def sequences(self) -> tuple[Input, ...]:
        return *self.inputs, *self.paired

    @property
    def length(self) -> int:
        return max(len(each.ids) for each in self.sequences)

    @property
    def positions(self) -> int:
        """That it takes up in a batch of its length."""
        return self.length * len(self.sequences)


class Family(ABC):
    """One kind of task with its settings."""

    term: ClassVar[str]  # the name of its loss

    def __init__(self, form: Form, frame: Frame) -> None:
        self.form, self.frame = form, frame

    def features(self, examples: Sequence[Any], targets: bool, translations: Sequence[Any] | None = None) -> list[Any]:
        """In the order of the examples; with `targets`, ready to be learned from.

        With `translations`, row by row, each part of an example is read with the part of its translation at the same
        relative place: windows on a long text, and the parts of a long sentence, need not be equally many.
        """
        if translations is None:
            return self.read(examples, targets)
        paired = []
        rows = zip(self._parts(examples, targets), self._parts(translations, targets=False), strict=True)
        for number, (parts, others) in enumerate(rows):
            for place, part in enumerate(parts):
                other = others[(2 * place + 1) * len(others) // (2 * len(parts))]
                if len(other.inputs) != len(part.inputs):
                    raise BadInput(
                        f"example {examples[number].id}: {len(part.inputs)} choices, but {len(other.inputs)} in its"
                        " translation; give translated data that is the same row by row"
                    )
                paired.append(replace(part, example=number, paired=other.inputs))
        return paired

    def _parts(self, examples: Sequence[Any], targets: bool) -> list[list[Any]]:
        """The features of each example. One that is met often, as that of the pivot with each translation, is read
        once."""
        distinct = {id(example): example for example in examples}
        keys = [*distinct]
        found: dict[int, list[Any]] = {key: [] for key in keys}
        for feature in self.read([*distinct.values()], targets):
            found[keys[feature.example]].append(feature)
        return [found[id(example)] for example in examples]

    @abstractmethod
    def read(self, examples: Sequence[Any], targets: bool) -> list[Any]:
        """The features of examples by themselves, in their order. Says how much was cut off, if so."""

    @abstractmethod
    def targets(self, features: Sequence[Any], width: int) -> Batch:
        """What is to be learned, for rows of this width."""

    @abstractmethod
    def count(self, features: Sequence[Any]) -> int:
        """How many decisions there are: what the sums of `loss` are divided by."""

    @abstractmethod
    def loss(self, output: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        """The sum of the loss of each decision, and how many are right."""

    @abstractmethod
    def scores(self, output: Any) -> list[np.ndarray]:
        """What the model says of each feature, on the host."""

    @abstractmethod
    def predictions(
        self, examples: Sequence[Any], features: Sequence[Any], scores: Sequence[np.ndarray]
    ) -> list[Prediction]:
        """One for each example."""

    def batch(self, features: Sequence[Feature], targets: bool = False) -> Batch:
        inputs = [each for feature in features for each in feature.inputs]
        paired = [each for feature in features for each in feature.paired]
        # Of one width, so that a model can read both at once.
        batch = self.frame.batch([*inputs, *paired], self.form.length)
        if paired:
            halves = {name: values.split(len(inputs)) for name, values in batch.items()}
            batch = {
                f"{side}{name}": half
                for name, both in halves.items()
                for side, half in zip(("", PAIRED), both, strict=True)
            }
        if self.form.kind == "choice":
            batch = {name: values.unflatten(0, (len(features), -1)) for name, values in batch.items()}
        return batch | (self.targets(features, batch["input_ids"].shape[-1]) if targets else {})

    def output(self, model: PreTrainedModel, batch: Batch) -> Any:
        return model(**{name: batch[name] for name in INPUTS if name in batch})

    def number(self, label: str, example: Example) -> int:
        """Of a label."""
        if label not in self._numbers:
            raise BadInput(
                f"example {example.id}: the label {label!r} is none of this task{nearest(label, self.form.labels)}"
            )
        return self._numbers[label]

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {label: number for number, label in enumerate(self.form.labels)}


def unlabelled(example: Example) -> BadInput:
    return BadInput(f"example {example.id}: it has no label to learn from; give a labelled training file")
