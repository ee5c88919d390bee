from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crossling.finetune.features import SequenceBuilder
from crossling.finetune.tagging import TaggingTaskType
from crossling.finetune.task_type import TaskConfig
from crossling.tasks.examples import TaggingExample

from .tiny_tasks import LETTERS, WORDS, make_tokenizer

TOKENIZER = make_tokenizer()
LABELS = ("A", "B", "C")
WORD = st.one_of(
    st.sampled_from(WORDS), st.text(LETTERS, min_size=1, max_size=9), st.sampled_from(["\u200b", "é", "好"])
)
SENTENCE = st.lists(st.tuples(WORD, st.sampled_from(LABELS)), min_size=1, max_size=12)


def make_task(length: int = 12) -> TaggingTaskType:
    return TaggingTaskType(
        TaskConfig(head_type="tagging", labels=LABELS, length=length), SequenceBuilder(TOKENIZER, has_token_types=False)
    )


def tagged(sentences: list[list[tuple[str, str]]]) -> list[TaggingExample]:
    return [TaggingExample(str(row), *zip(*sentence, strict=True)) for row, sentence in enumerate(sentences)]  # type: ignore[arg-type]


@given(st.lists(SENTENCE, min_size=1, max_size=4))
def test_every_word_is_read_and_predicted_once(sentences: list[list[tuple[str, str]]]) -> None:
    task, examples = make_task(), tagged(sentences)
    features = task.build_features(examples, with_targets=True)
    seen = [
        (f.example_index, word) for f in features for word in range(f.first_word, f.first_word + len(f.word_positions))
    ]
    assert seen == [(row, word) for row, example in enumerate(examples) for word in range(len(example.words))]
    assert all(feature.length <= 12 for feature in features)
    # A model that predicts the gold tag at each first token, and nonsense elsewhere, has no errors.
    scores = []
    for feature in features:
        tags_L = np.full(feature.length, 2)
        tags_L[list(feature.word_positions)] = feature.tags
        scores.append(np.stack([tags_L, np.arange(feature.length)]))  # and the position as the probability
    assert task.decode_predictions(examples, features, scores) == [example.tags for example in examples]
    confidences = task.confidences(examples, features, scores)
    positions: list[float] = [float(position) for feature in features for position in feature.word_positions]
    assert [each for sentence in confidences for each in sentence] == positions  # type: ignore[union-attr]


@given(st.lists(SENTENCE, min_size=1, max_size=3))
def test_tokens_are_those_of_the_words(sentences: list[list[tuple[str, str]]]) -> None:
    for feature in make_task(64).build_features(tagged(sentences), with_targets=False):
        words = sentences[feature.example_index][feature.first_word : feature.first_word + len(feature.word_positions)]
        word_ids = [TOKENIZER(word, add_special_tokens=False)["input_ids"] or [3] for word, _ in words]
        ids = feature.sequences[0].ids.tolist()
        assert ids == [0, *(token for own in word_ids for token in own), 2]
        assert [ids[position] for position in feature.word_positions] == [own[0] for own in word_ids]


def test_a_word_longer_than_the_model_is_truncated_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"^1 of \d+ words are longer than 12 tokens"):
        features = make_task().build_features(
            [TaggingExample("0", ("red", "abcdefghijklmnop", "dog"), None)], with_targets=False
        )
    assert [len(feature.word_positions) for feature in features] == [1, 1, 1]


def test_the_loss_is_computed_at_first_tokens_only() -> None:
    task = make_task(16)
    examples = [TaggingExample("0", ("red", "abc", "dog"), ("A", "B", "C")), TaggingExample("1", ("xy",), ("C",))]
    batch = task.batch(task.build_features(examples, with_targets=True), with_targets=True)
    logits = torch.randn(2, batch["input_ids"].shape[1], 3, generator=torch.Generator().manual_seed(0))
    loss, correct = task.loss(SimpleNamespace(logits=logits), batch)
    targets = [((0, 1), 0), ((0, 2), 1), ((0, 5), 2), ((1, 1), 2)]  # <s> red a ##b ##c dog </s>
    slow = sum(float(logits[place].exp().sum().log() - logits[place][tag]) for place, tag in targets)
    assert float(loss) == pytest.approx(slow, rel=1e-5)
    assert int(correct) == sum(int(logits[place].argmax()) == tag for place, tag in targets)
    assert task.count_targets(task.build_features(examples, with_targets=True)) == 4
