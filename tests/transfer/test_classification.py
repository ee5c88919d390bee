from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crossling.benchmarks.examples import Classified
from crossling.errors import BadInput
from crossling.transfer.classification import Classification, shortened
from crossling.transfer.family import Form, Kind
from crossling.transfer.frame import Frame

from .toys import make_tokenizer

LABELS = ("no", "yes", "maybe")


def family(kind: Kind = "classification", length: int = 16, labels: tuple[str, ...] = LABELS) -> Classification:
    return Classification(Form(kind, labels, length), Frame(make_tokenizer(), typed=True))


def one_by_one(lengths: list[int], room: int) -> list[int]:
    kept = list(lengths)
    while sum(kept) > room:
        kept[0 if len(kept) == 1 or kept[0] > kept[1] else 1] -= 1
    return kept


@given(st.lists(st.integers(0, 40), min_size=1, max_size=2), st.integers(1, 60))
def test_the_longest_is_shortened_first(lengths: list[int], room: int) -> None:
    assert shortened(lengths, room) == one_by_one(lengths, room)


def test_what_is_cut_is_told() -> None:
    long = Classified("0", ("red " * 20, "blue dog"), "no")
    short = Classified("1", ("red", "blue"), "yes")
    with pytest.warns(UserWarning, match=r"^1 of 2 inputs are longer than 16 tokens"):
        features = family().features([long, short], targets=True)
    assert [feature.length for feature in features] == [16, 5]
    tokenizer = make_tokenizer()
    assert tokenizer.decode(features[0].inputs[0].ids).endswith("</s> blue dog </s>")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        family().features([short], targets=True)


def test_losses_are_those_of_a_slow_loop() -> None:
    examples = [Classified(str(row), ("red",), label) for row, label in enumerate(["yes", "no", "maybe"])]
    tasks = family()
    batch = tasks.batch(tasks.features(examples, targets=True), targets=True)
    logits = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    loss, right = tasks.loss(SimpleNamespace(logits=logits), batch)
    by_hand = sum(float(row.exp().sum().log() - row[target]) for row, target in zip(logits, [1, 0, 2], strict=True))
    assert float(loss) == pytest.approx(by_hand, rel=1e-5)
    assert int(right) == sum(int(row.argmax()) == target for row, target in zip(logits, [1, 0, 2], strict=True))


def test_a_number_is_learned_by_its_square() -> None:
    examples = [Classified("0", ("red", "dog"), 2.5), Classified("1", ("red", "cat"), 0.0)]
    tasks = family("regression", labels=())
    batch = tasks.batch(tasks.features(examples, targets=True), targets=True)
    loss, _ = tasks.loss(SimpleNamespace(logits=torch.tensor([[2.0], [1.0]])), batch)
    assert float(loss) == pytest.approx(0.25 + 1.0)
    assert tasks.predictions(examples, [], [np.array([2.0]), np.array([1.0])]) == [2.0, 1.0]


def test_choices_are_read_side_by_side() -> None:
    example = Classified("0", ("the dog runs", "what"), "1", choices=("red", "blue cat"))
    tasks = family("choice", labels=("0", "1"))
    [feature] = tasks.features([example], targets=True)
    batch = tasks.batch([feature], targets=True)
    assert batch["input_ids"].shape[:2] == (1, 2)
    decoded = [make_tokenizer().decode(row, skip_special_tokens=True) for row in batch["input_ids"][0]]
    assert decoded == ["the dog runs what red", "the dog runs what blue cat"]
    assert batch["targets"].tolist() == [1]
    assert tasks.predictions([example], [feature], [np.array([0.3, 0.1])]) == ["0"]


def test_predictions_are_labels() -> None:
    assert family().predictions([], [], [np.array([0.0, 2.0, 1.0]), np.array([3.0, 2.0, 1.0])]) == ["yes", "no"]


@pytest.mark.parametrize(
    ("label", "told"),
    [
        ("yse", "example 7: the label 'yse' is none of this task; did you mean 'yes'"),
        (None, "example 7: it has no label"),
    ],
)
def test_labels_that_are_none_are_refused(label: str | None, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        family().features([Classified("7", ("red",), label)], targets=True)
