"""Sequences equal those that the tokenizer builds itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from crossling.finetune import features
from crossling.finetune.features import SequenceBuilder
from crossling.vocabulary.vocabulary import Vocabulary

from .tiny_tasks import LETTERS, WORDS, make_tokenizer

TEXT = st.lists(st.one_of(st.sampled_from(WORDS), st.text(LETTERS + "é好", min_size=1, max_size=5)), max_size=8).map(
    " ".join
)


@pytest.fixture(params=["plain", "doubled", "ours"])
def tokenizer(request: pytest.FixtureRequest, vocabulary_folder: Path) -> PreTrainedTokenizerFast:
    if request.param == "ours":
        return Vocabulary.load(vocabulary_folder).tokenizer()
    return make_tokenizer(doubled=request.param == "doubled")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=TEXT, second=TEXT.filter(bool))  # tokenizers ignore an empty second text
def test_special_tokens_of_texts_and_pairs_are_those_of_the_tokenizer(
    first: str, second: str, tokenizer: PreTrainedTokenizerFast
) -> None:
    builder = SequenceBuilder(tokenizer, has_token_types=True)
    one, two = builder.tokenize([first, second])
    single, pair = builder.build(one.ids), builder.build(one.ids, two.ids)
    expected = tokenizer(first, return_token_type_ids=True)
    assert (single.ids.tolist(), single.types.tolist()) == (expected["input_ids"], expected["token_type_ids"])
    expected = tokenizer(first, second, return_token_type_ids=True)
    assert (pair.ids.tolist(), pair.types.tolist()) == (expected["input_ids"], expected["token_type_ids"])
    assert single.ids[single.first : single.first + len(one.ids)].tolist() == one.ids.tolist()
    assert pair.ids[pair.first : pair.first + len(two.ids)].tolist() == two.ids.tolist()
    assert len(single.ids) == len(one.ids) + builder.special_token_count(1)
    assert len(pair.ids) == len(one.ids) + len(two.ids) + builder.special_token_count(2)


def test_width_is_a_multiple_of_eight_up_to_the_maximum_length() -> None:
    builder = SequenceBuilder(make_tokenizer(), has_token_types=False)
    sequences = [builder.build(np.full(length, 5)) for length in (9, 3)]
    assert builder.batch(sequences, max_length=64)["input_ids"].shape == (2, 16)
    batch = builder.batch(sequences, max_length=12)
    assert batch["input_ids"].shape == (2, 12)
    assert batch["attention_mask"].sum(1).tolist() == [11, 5]
    assert batch["input_ids"][1].tolist() == [0, 5, 5, 5, 2] + [1] * 7
    assert "token_type_ids" not in batch


def test_many_texts_are_tokenized_in_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = SequenceBuilder(make_tokenizer(), has_token_types=False)
    texts = ["red dog", "", "blue", "red dog", "green cat sings"] * 3
    whole = [text.ids.tolist() for text in builder.tokenize(texts)]
    monkeypatch.setattr(features, "TEXTS_PER_CALL", 4)
    assert [text.ids.tolist() for text in builder.tokenize(texts)] == whole
    assert [len(ids) for ids in whole[:5]] == [2, 0, 1, 2, 3]
    assert [*builder.tokenize([])] == []
