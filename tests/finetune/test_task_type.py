"""Features of examples with their translations: which parts are paired, and the tensors that a model gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.finetune.features import SequenceBuilder
from crossling.finetune.task_type import HeadType, TaskConfig, TaskType
from crossling.finetune.tuned_model import TASK_TYPES
from crossling.tasks.examples import Answer, ClassificationExample, Example, QAExample, TaggingExample

from .tiny_tasks import LETTERS, make_tokenizer


def make_task(head_type: HeadType, length: int = 32) -> TaskType:
    labels = () if head_type == "qa" else ("0", "1")
    return TASK_TYPES[head_type](
        TaskConfig(head_type=head_type, labels=labels, length=length, stride=2, query=4, plug_in=True),
        SequenceBuilder(make_tokenizer(), False),
    )


def question(words: int) -> QAExample:
    return QAExample("0", "what", " ".join(LETTERS[:words]), (Answer("a", 0),))


def translation_ids(features: Sequence[Any]) -> list[list[list[int]]]:
    return [[each.ids.tolist() for each in feature.translations] for feature in features]


@given(st.integers(1, 26), st.integers(1, 26))
def test_a_window_is_paired_with_the_window_at_the_same_relative_position(words: int, others: int) -> None:
    task = make_task("qa", 12)
    own, other = question(words), question(others)
    plain = task.build_features([own], with_targets=True)
    theirs = [each.sequences[0].ids.tolist() for each in task.build_features([other], with_targets=False)]
    found = task.build_features([own], True, [other])
    assert [each.sequences[0].ids.tolist() for each in found] == [each.sequences[0].ids.tolist() for each in plain]
    assert [each.target for each in found] == [each.target for each in plain]
    places = [theirs.index(ids) for [ids] in translation_ids(found)]
    for number, place in enumerate(places):  # its middle is inside the other
        middle = (number + 0.5) / len(found)
        assert place / len(theirs) <= middle <= (place + 1) / len(theirs)


def test_windows_of_contexts_of_unequal_length() -> None:
    task = make_task("qa", 12)
    long, short = question(17), question(9)
    many, few = (len(task.build_features([each], with_targets=False)) for each in (long, short))
    assert (many, few) == (6, 2)
    first, last = (each.sequences[0].ids.tolist() for each in task.build_features([short], with_targets=False))
    assert translation_ids(task.build_features([long], False, [short])) == [[first]] * 3 + [[last]] * 3


def test_parts_of_a_long_sentence_are_paired() -> None:
    task = make_task("tagging", 6)
    own = TaggingExample("0", ("red", "dog") * 4, ("0", "1") * 4)
    other = TaggingExample("0", ("cat", "blue", "cat", "green"), None)
    found = task.build_features([own], True, [other])
    assert len(found) == 2
    assert [feature.tags for feature in found] == [(0, 1) * 2] * 2
    short = TaggingExample("0", ("cat",), None)
    assert (
        translation_ids(task.build_features([own], True, [short]))
        == [translation_ids(task.build_features([short], False, [short]))[0]] * 2
    )


def test_each_side_keeps_its_own_label_and_index() -> None:
    task = make_task("classification")
    one, other = ClassificationExample("7", ("red",), "0"), ClassificationExample("8", ("blue",), "1")
    found = task.build_features([one, one, other], True, [other, one, one])
    assert [(feature.example_index, feature.target) for feature in found] == [(0, 0), (1, 0), (2, 1)]
    red, blue = (task.build_features([each], with_targets=False)[0].sequences[0].ids.tolist() for each in (one, other))
    assert [each.sequences[0].ids.tolist() for each in found] == [red, red, blue]
    assert translation_ids(found) == [[blue], [red], [red]]


def test_a_translation_needs_no_label() -> None:
    examples: list[tuple[HeadType, Example, Example]] = [
        ("classification", ClassificationExample("0", ("red",), "0"), ClassificationExample("0", ("blue",), None)),
        ("tagging", TaggingExample("0", ("red",), ("0",)), TaggingExample("0", ("blue", "dog"), None)),
        ("qa", question(3), QAExample("0", "what", "blue", ())),
    ]
    for head_type, example, translation in examples:
        assert len(make_task(head_type).build_features([example], True, [translation])) == 1


@pytest.mark.parametrize("head_type", ["classification", "choice"])
def test_a_model_gets_both_in_the_same_shape(head_type: HeadType) -> None:
    task = make_task(head_type)
    choices = {"choices": ("dog", "cat runs")} if head_type == "choice" else {}
    one = ClassificationExample("0", ("red",), "0", **choices)
    long = ClassificationExample("1", ("blue dog sleeps the old green bird sings the cat",), "1", **choices)
    features = task.build_features([one, long], True, [long, one])
    assert all(feature.length == features[0].length for feature in features)
    assert features[0].padded_tokens == features[0].length * (4 if choices else 2)
    batch = task.batch(features, with_targets=True)
    assert {"input_ids", "attention_mask", "paired_input_ids", "paired_attention_mask", "targets"} == {*batch}
    assert torch.equal(batch["paired_input_ids"], batch["input_ids"].flip(0))
    assert torch.equal(batch["paired_attention_mask"], batch["attention_mask"].flip(0))
    assert batch["targets"].tolist() == [0, 1]

    given: dict[str, Any] = {}
    task.output(lambda **inputs: given.update(inputs), batch)  # type: ignore[arg-type]
    assert {*given} == {*batch} - {"targets"}


def test_another_number_of_choices_in_the_translation_is_refused() -> None:
    two, three = (ClassificationExample("3", ("red",), "0", choices=("dog",) * many) for many in (2, 3))
    with pytest.raises(BadInput, match="example 3: it has 2 choices, but its translation has 3"):
        make_task("choice").build_features([two], True, [three])
