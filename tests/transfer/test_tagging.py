from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crossling.benchmarks.examples import Tagged
from crossling.transfer.family import Form
from crossling.transfer.frame import Frame
from crossling.transfer.tagging import Tagging

from .toys import LETTERS, WORDS, make_tokenizer

TOKENIZER = make_tokenizer()
LABELS = ("A", "B", "C")
WORD = st.one_of(
    st.sampled_from(WORDS), st.text(LETTERS, min_size=1, max_size=9), st.sampled_from(["\u200b", "é", "好"])
)
SENTENCE = st.lists(st.tuples(WORD, st.sampled_from(LABELS)), min_size=1, max_size=12)


def family(length: int = 12) -> Tagging:
    return Tagging(Form("tagging", LABELS, length), Frame(TOKENIZER, typed=False))


def tagged(sentences: list[list[tuple[str, str]]]) -> list[Tagged]:
    return [Tagged(str(row), *zip(*sentence, strict=True)) for row, sentence in enumerate(sentences)]  # type: ignore[arg-type]


@given(st.lists(SENTENCE, min_size=1, max_size=4))
def test_every_word_is_read_and_predicted_once(sentences: list[list[tuple[str, str]]]) -> None:
    tasks, examples = family(), tagged(sentences)
    features = tasks.features(examples, targets=True)
    seen = [(f.example, word) for f in features for word in range(f.first, f.first + len(f.places))]
    assert seen == [(row, word) for row, example in enumerate(examples) for word in range(len(example.words))]
    assert all(feature.length <= 12 for feature in features)
    # A model that says at each first piece what stands there, and nonsense elsewhere, is right everywhere.
    scores = []
    for feature in features:
        said = np.full(feature.length, 2)
        said[list(feature.places)] = feature.tags
        scores.append(said)
    assert tasks.predictions(examples, features, scores) == [example.tags for example in examples]


@given(st.lists(SENTENCE, min_size=1, max_size=3))
def test_the_pieces_are_those_of_the_words(sentences: list[list[tuple[str, str]]]) -> None:
    for feature in family(64).features(tagged(sentences), targets=False):
        words = sentences[feature.example][feature.first : feature.first + len(feature.places)]
        pieces = [TOKENIZER(word, add_special_tokens=False)["input_ids"] or [3] for word, _ in words]
        ids = feature.inputs[0].ids.tolist()
        assert ids == [0, *(piece for own in pieces for piece in own), 2]
        assert [ids[place] for place in feature.places] == [own[0] for own in pieces]


def test_a_word_longer_than_the_model_is_told_of() -> None:
    with pytest.warns(UserWarning, match=r"^1 of \d+ words are longer than 12 tokens"):
        features = family().features([Tagged("0", ("red", "abcdefghijklmnop", "dog"), None)], targets=False)
    assert [len(feature.places) for feature in features] == [1, 1, 1]


def test_the_loss_is_that_of_first_pieces_alone() -> None:
    tasks = family(16)
    examples = [Tagged("0", ("red", "abc", "dog"), ("A", "B", "C")), Tagged("1", ("xy",), ("C",))]
    batch = tasks.batch(tasks.features(examples, targets=True), targets=True)
    logits = torch.randn(2, batch["input_ids"].shape[1], 3, generator=torch.Generator().manual_seed(0))
    loss, right = tasks.loss(SimpleNamespace(logits=logits), batch)
    places = [((0, 1), 0), ((0, 2), 1), ((0, 5), 2), ((1, 1), 2)]  # <s> red a ##b ##c dog </s>
    slow = sum(float(logits[place].exp().sum().log() - logits[place][tag]) for place, tag in places)
    assert float(loss) == pytest.approx(slow, rel=1e-5)
    assert int(right) == sum(int(logits[place].argmax()) == tag for place, tag in places)
    assert tasks.count(tasks.features(examples, targets=True)) == 4
