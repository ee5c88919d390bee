"""Features of examples with their translations: which part is read with which, and what a model is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crossling.benchmarks.examples import Answer, Classified, Example, Question, Tagged
from crossling.errors import BadInput
from crossling.transfer.family import Family, Form, Kind
from crossling.transfer.frame import Frame
from crossling.transfer.heads import FAMILIES

from .toys import LETTERS, make_tokenizer


def family(kind: Kind, length: int = 32) -> Family:
    labels = () if kind == "answering" else ("0", "1")
    return FAMILIES[kind](Form(kind, labels, length, stride=2, query=4, plug_in=True), Frame(make_tokenizer(), False))


def question(words: int) -> Question:
    return Question("0", "what", " ".join(LETTERS[:words]), (Answer("a", 0),))


def windows(found: Sequence[Any]) -> list[list[list[int]]]:
    return [[each.ids.tolist() for each in feature.paired] for feature in found]


@given(st.integers(1, 26), st.integers(1, 26))
def test_a_window_is_read_with_the_window_at_the_same_relative_place(words: int, others: int) -> None:
    tasks = family("answering", 12)
    own, other = question(words), question(others)
    plain = tasks.features([own], targets=True)
    theirs = [each.inputs[0].ids.tolist() for each in tasks.features([other], targets=False)]
    found = tasks.features([own], True, [other])
    assert [each.inputs[0].ids.tolist() for each in found] == [each.inputs[0].ids.tolist() for each in plain]
    assert [each.target for each in found] == [each.target for each in plain]
    places = [theirs.index(ids) for [ids] in windows(found)]
    for number, place in enumerate(places):  # its middle lies in the other
        middle = (number + 0.5) / len(found)
        assert place / len(theirs) <= middle <= (place + 1) / len(theirs)


def test_windows_of_texts_of_unequal_length() -> None:
    tasks = family("answering", 12)
    long, short = question(17), question(9)
    many, few = (len(tasks.features([each], targets=False)) for each in (long, short))
    assert (many, few) == (6, 2)
    first, last = (each.inputs[0].ids.tolist() for each in tasks.features([short], targets=False))
    assert windows(tasks.features([long], False, [short])) == [[first]] * 3 + [[last]] * 3


def test_parts_of_a_long_sentence_too() -> None:
    tasks = family("tagging", 6)
    own = Tagged("0", ("red", "dog") * 4, ("0", "1") * 4)
    other = Tagged("0", ("cat", "blue", "cat", "green"), None)
    found = tasks.features([own], True, [other])
    assert len(found) == 2
    assert [feature.tags for feature in found] == [(0, 1) * 2] * 2
    short = Tagged("0", ("cat",), None)
    assert windows(tasks.features([own], True, [short])) == [windows(tasks.features([short], False, [short]))[0]] * 2


def test_each_has_its_own_label_and_its_number() -> None:
    tasks = family("classification")
    one, other = Classified("7", ("red",), "0"), Classified("8", ("blue",), "1")
    found = tasks.features([one, one, other], True, [other, one, one])
    assert [(feature.example, feature.target) for feature in found] == [(0, 0), (1, 0), (2, 1)]
    red, blue = (tasks.features([each], targets=False)[0].inputs[0].ids.tolist() for each in (one, other))
    assert [each.inputs[0].ids.tolist() for each in found] == [red, red, blue]
    assert windows(found) == [[blue], [red], [red]]


def test_a_translation_needs_no_label() -> None:
    bare: list[tuple[Kind, Example, Example]] = [
        ("classification", Classified("0", ("red",), "0"), Classified("0", ("blue",), None)),
        ("tagging", Tagged("0", ("red",), ("0",)), Tagged("0", ("blue", "dog"), None)),
        ("answering", question(3), Question("0", "what", "blue", ())),
    ]
    for kind, example, translation in bare:
        assert len(family(kind).features([example], True, [translation])) == 1


@pytest.mark.parametrize("kind", ["classification", "choice"])
def test_a_model_is_given_both_in_the_same_shape(kind: Kind) -> None:
    tasks = family(kind)
    choices = {"choices": ("dog", "cat runs")} if kind == "choice" else {}
    one = Classified("0", ("red",), "0", **choices)
    long = Classified("1", ("blue dog sleeps the old green bird sings the cat",), "1", **choices)
    features = tasks.features([one, long], True, [long, one])
    assert all(feature.length == features[0].length for feature in features)
    assert features[0].positions == features[0].length * (4 if choices else 2)
    batch = tasks.batch(features, targets=True)
    assert {"input_ids", "attention_mask", "paired_input_ids", "paired_attention_mask", "targets"} == {*batch}
    assert torch.equal(batch["paired_input_ids"], batch["input_ids"].flip(0))
    assert torch.equal(batch["paired_attention_mask"], batch["attention_mask"].flip(0))
    assert batch["targets"].tolist() == [0, 1]

    given: dict[str, Any] = {}
    tasks.output(lambda **inputs: given.update(inputs), batch)  # type: ignore[arg-type]
    assert {*given} == {*batch} - {"targets"}


def test_as_many_choices_as_in_the_translation() -> None:
    two, three = (Classified("3", ("red",), "0", choices=("dog",) * many) for many in (2, 3))
    with pytest.raises(BadInput, match="example 3: 2 choices, but 3 in its translation"):
        family("choice").features([two], True, [three])
