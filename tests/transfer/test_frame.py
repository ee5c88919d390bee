"""Framing by hand is what the tokenizer does itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from crossling.transfer.frame import Frame
from crossling.vocabulary.vocabulary import Vocabulary

from .toys import LETTERS, WORDS, make_tokenizer

TEXT = st.lists(st.one_of(st.sampled_from(WORDS), st.text(LETTERS + "é好", min_size=1, max_size=5)), max_size=8).map(
    " ".join
)


@pytest.fixture(params=["plain", "doubled", "ours"])
def tokenizer(request: pytest.FixtureRequest, vocabulary_folder: Path) -> PreTrainedTokenizerFast:
    if request.param == "ours":
        return Vocabulary.load(vocabulary_folder).tokenizer()
    return make_tokenizer(doubled=request.param == "doubled")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=TEXT, second=TEXT.filter(bool))  # an empty second text is none to them
def test_one_and_two_texts_are_framed_as_the_tokenizer_does(
    first: str, second: str, tokenizer: PreTrainedTokenizerFast
) -> None:
    frame = Frame(tokenizer, typed=True)
    one, two = frame.split([first, second])
    alone, pair = frame.one(one.ids), frame.two(one.ids, two.ids)
    theirs = tokenizer(first, return_token_type_ids=True)
    assert (alone.ids.tolist(), alone.types.tolist()) == (theirs["input_ids"], theirs["token_type_ids"])
    theirs = tokenizer(first, second, return_token_type_ids=True)
    assert (pair.ids.tolist(), pair.types.tolist()) == (theirs["input_ids"], theirs["token_type_ids"])
    assert alone.ids[alone.first : alone.first + len(one.ids)].tolist() == one.ids.tolist()
    assert pair.ids[pair.first : pair.first + len(two.ids)].tolist() == two.ids.tolist()
    assert len(alone.ids) == len(one.ids) + frame.room(1)
    assert len(pair.ids) == len(one.ids) + len(two.ids) + frame.room(2)


def test_rows_are_padded_to_a_multiple_of_eight_but_not_beyond_the_model() -> None:
    frame = Frame(make_tokenizer(), typed=False)
    inputs = [frame.one(np.full(length, 5)) for length in (9, 3)]
    assert frame.batch(inputs, most=64)["input_ids"].shape == (2, 16)
    batch = frame.batch(inputs, most=12)
    assert batch["input_ids"].shape == (2, 12)
    assert batch["attention_mask"].sum(1).tolist() == [11, 5]
    assert batch["input_ids"][1].tolist() == [0, 5, 5, 5, 2] + [1] * 7
    assert "token_type_ids" not in batch


def test_many_texts_are_split_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = Frame(make_tokenizer(), typed=False)
    texts = ["red dog", "", "blue", "red dog", "green cat sings"] * 3
    whole = [each.ids.tolist() for each in frame.split(texts)]
    monkeypatch.setattr("crossling.transfer.frame.AT_ONCE", 4)
    assert [each.ids.tolist() for each in frame.split(texts)] == whole
    assert [len(ids) for ids in whole[:5]] == [2, 0, 1, 2, 3]
    assert [*frame.split([])] == []
