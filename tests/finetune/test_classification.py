from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.finetune.classification import ClassificationTaskType, truncated_lengths
from crossling.finetune.features import SequenceBuilder
from crossling.finetune.task_type import HeadType, TaskConfig
from crossling.tasks.examples import ClassificationExample

from .tiny_tasks import make_tokenizer

LABELS = ("no", "yes", "maybe")


def make_task(
    head_type: HeadType = "classification", length: int = 16, labels: tuple[str, ...] = LABELS
) -> ClassificationTaskType:
    return ClassificationTaskType(
        TaskConfig(head_type=head_type, labels=labels, length=length),
        SequenceBuilder(make_tokenizer(), has_token_types=True),
    )


def truncate_one_by_one(lengths: list[int], max_tokens: int) -> list[int]:
    kept = list(lengths)
    while sum(kept) > max_tokens:
        kept[0 if len(kept) == 1 or kept[0] > kept[1] else 1] -= 1
    return kept


@given(st.lists(st.integers(0, 40), min_size=1, max_size=2), st.integers(1, 60))
def test_the_longer_text_is_truncated_first(lengths: list[int], max_tokens: int) -> None:
    assert truncated_lengths(lengths, max_tokens) == truncate_one_by_one(lengths, max_tokens)


def test_truncation_gives_a_warning() -> None:
    long = ClassificationExample("0", ("red " * 20, "blue dog"), "no")
    short = ClassificationExample("1", ("red", "blue"), "yes")
    with pytest.warns(UserWarning, match=r"^1 of 2 inputs are longer than 16 tokens"):
        features = make_task().build_features([long, short], with_targets=True)
    assert [feature.length for feature in features] == [16, 5]
    tokenizer = make_tokenizer()
    assert tokenizer.decode(features[0].sequences[0].ids).endswith("</s> blue dog </s>")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_task().build_features([short], with_targets=True)


def test_loss_equals_that_of_a_slow_loop() -> None:
    examples = [ClassificationExample(str(row), ("red",), label) for row, label in enumerate(["yes", "no", "maybe"])]
    task = make_task()
    batch = task.batch(task.build_features(examples, with_targets=True), with_targets=True)
    logits = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    loss, correct = task.loss(SimpleNamespace(logits=logits), batch)
    expected = sum(float(row.exp().sum().log() - row[target]) for row, target in zip(logits, [1, 0, 2], strict=True))
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert int(correct) == sum(int(row.argmax()) == target for row, target in zip(logits, [1, 0, 2], strict=True))


def test_regression_loss_is_the_squared_error() -> None:
    examples = [ClassificationExample("0", ("red", "dog"), 2.5), ClassificationExample("1", ("red", "cat"), 0.0)]
    task = make_task("regression", labels=())
    batch = task.batch(task.build_features(examples, with_targets=True), with_targets=True)
    loss, _ = task.loss(SimpleNamespace(logits=torch.tensor([[2.0], [1.0]])), batch)
    assert float(loss) == pytest.approx(0.25 + 1.0)
    assert task.decode_predictions(examples, [], [np.array([2.0]), np.array([1.0])]) == [2.0, 1.0]


def test_each_choice_is_read_with_the_premise() -> None:
    example = ClassificationExample("0", ("the dog runs", "what"), "1", choices=("red", "blue cat"))
    task = make_task("choice", labels=("0", "1"))
    [feature] = task.build_features([example], with_targets=True)
    batch = task.batch([feature], with_targets=True)
    assert batch["input_ids"].shape[:2] == (1, 2)
    decoded = [make_tokenizer().decode(row, skip_special_tokens=True) for row in batch["input_ids"][0]]
    assert decoded == ["the dog runs what red", "the dog runs what blue cat"]
    assert batch["targets"].tolist() == [1]
    assert task.decode_predictions([example], [feature], [np.array([0.3, 0.1])]) == ["0"]


def test_predictions_are_labels() -> None:
    assert make_task().decode_predictions([], [], [np.array([0.0, 2.0, 1.0]), np.array([3.0, 2.0, 1.0])]) == [
        "yes",
        "no",
    ]


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("yse", "example 7: the task has no label 'yse'; did you mean 'yes'"),
        (None, "example 7: it has no label"),
    ],
)
def test_unknown_and_missing_labels_are_refused(label: str | None, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make_task().build_features([ClassificationExample("7", ("red",), label)], with_targets=True)
