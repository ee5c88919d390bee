from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from crossling.finetune.features import SequenceBuilder
from crossling.finetune.qa import QAFeature, QATaskType
from crossling.finetune.task_type import TaskConfig
from crossling.tasks.examples import Answer, QAExample
from crossling.vocabulary.vocabulary import Vocabulary

from .tiny_tasks import LETTERS, WORDS, make_tokenizer

WORD = st.one_of(st.sampled_from(WORDS), st.text(LETTERS, min_size=1, max_size=6))


@st.composite
def questions(draw: st.DrawFn) -> QAExample:
    """Generate questions whose answer is a span of whole words of the context."""
    words = draw(st.lists(WORD, min_size=1, max_size=40))
    first = draw(st.integers(0, len(words) - 1))
    last = draw(st.integers(first, min(first + 3, len(words) - 1)))
    start = len(" ".join(words[:first])) + (first > 0)
    answer = Answer(" ".join(words[first : last + 1]), start)
    return QAExample("0", " ".join(draw(st.lists(WORD, min_size=1, max_size=10))), " ".join(words), (answer,))


def make_task(length: int = 24, tokenizer: PreTrainedTokenizerFast | None = None, **more: object) -> QATaskType:
    config = TaskConfig(head_type="qa", labels=(), length=length, **{"stride": 5, "query": 6, "answer": 30, **more})  # type: ignore[arg-type]
    return QATaskType(config, SequenceBuilder(tokenizer or make_tokenizer(), has_token_types=True))


@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(questions())
@pytest.mark.filterwarnings("ignore:.* questions are longer")
def test_windows_cover_the_context_and_each_token_is_scored_once(question: QAExample) -> None:
    task = make_task()
    [context] = task.builder.tokenize([question.context])
    scored: list[list[int]] = []
    for feature in task.build_features([question], with_targets=False):
        assert feature.length <= 24
        ids = feature.sequences[0].ids[feature.first : feature.first + len(feature.spans)]
        start = context.spans.tolist().index(feature.spans[0].tolist())
        assert ids.tolist() == context.ids[start : start + len(ids)].tolist()
        scored += feature.spans[feature.has_most_context].tolist()
    assert sorted(scored) == context.spans.tolist()


@given(questions())
@pytest.mark.filterwarnings("ignore:.* questions are longer")
def test_targets_are_the_answer_in_the_context(question: QAExample) -> None:
    task = make_task()
    features = task.build_features([question], with_targets=True)
    answer = question.answers[0]
    for feature in features:
        begin, end = feature.target
        inside = feature.spans[0][0] <= answer.start and answer.start + len(answer.text) <= feature.spans[-1][1]
        assert (begin > 0) == inside
        if inside:
            spans = feature.spans[begin - feature.first][0], feature.spans[end - feature.first][1]
            assert question.context[slice(*spans)] == answer.text


@given(questions(), st.integers(0, 2**32 - 1))
@pytest.mark.filterwarnings("ignore:.* questions are longer")
def test_the_best_span_is_found(question: QAExample, seed: int) -> None:
    task = make_task(n_best=50, answer=4)
    features = task.build_features([question], with_targets=False)
    rng = np.random.default_rng(seed)
    scores = [rng.normal(size=(2, feature.length)) for feature in features]
    assert task.decode_predictions([question], features, scores) == [best_span_by_loop(question, features, scores, 4)]


def best_span_by_loop(question: QAExample, features: list[QAFeature], scores: list[np.ndarray], max_tokens: int) -> str:
    found = []
    for feature, (start_L, end_L) in zip(features, scores, strict=True):
        for begin in range(len(feature.spans)):
            for end in range(begin, min(begin + max_tokens, len(feature.spans))):
                if feature.has_most_context[begin]:
                    score = start_L[feature.first + begin] + end_L[feature.first + end]
                    found.append((score, feature.spans[begin][0], feature.spans[end][1]))
    _, begin, end = max(found)
    return question.context[begin:end]


def test_no_answer_is_predicted_if_it_scores_higher_in_every_window() -> None:
    question = QAExample("0", "what", "the old red dog", (), impossible=True)
    for unanswerable, expected in ((True, ""), (False, "red")):
        task = make_task(has_unanswerable=unanswerable)
        [feature] = task.build_features([question], with_targets=True)
        assert feature.target == (0, 0)
        scores = np.zeros((2, feature.length))
        scores[:, 0] = 5.0
        scores[:, feature.first + 2] = 4.0
        assert task.decode_predictions([question], [feature], [scores]) == [expected]
        scores[:, feature.first + 2] = 6.0
        assert task.decode_predictions([question], [feature], [scores]) == ["red"]


def test_the_loss_is_the_mean_of_start_and_end() -> None:
    task = make_task()
    questions = [QAExample(str(n), "what", "the old dog", (Answer("dog", 8),)) for n in range(2)]
    batch = task.batch(task.build_features(questions, with_targets=True), with_targets=True)
    width = batch["input_ids"].shape[1]
    start, end = torch.randn(2, 2, width, generator=torch.Generator().manual_seed(0))
    loss, _ = task.loss(SimpleNamespace(start_logits=start, end_logits=end), batch)
    position = 5  # <s> what </s> the old dog </s>
    expected = (
        sum(float(each[row].exp().sum().log() - each[row, position]) for each in (start, end) for row in (0, 1)) / 2
    )
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_long_questions_are_truncated_and_leave_half_to_the_context() -> None:
    with pytest.warns(UserWarning, match=r"^1 of 1 questions are longer than 6 tokens"):
        [feature] = make_task().build_features([QAExample("0", "red " * 9, "the dog", ())], with_targets=False)
    assert feature.first == 8
    [feature] = make_task(length=13, query=64).build_features(
        [QAExample("0", "red " * 5, "the dog", ())], with_targets=False
    )
    assert len(feature.spans) == 2


def test_spans_of_our_own_vocabulary_are_characters_of_the_text(vocabulary_folder: Path, corpora_folder: Path) -> None:
    tokenizer = Vocabulary.load(vocabulary_folder).tokenizer()
    file = next((corpora_folder / "text").glob("qaa*"))
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if len(line.split()) > 6][:30]
    context = "  ".join(lines[:3])  # two spaces, of which tokens hold one
    task = make_task(64, tokenizer, stride=20)
    for line in lines[:3]:
        word = line.split()[3]
        answer = Answer(word, context.index(f" {word} ") + 1)
        found = task.build_features([QAExample("0", line.split()[0], context, (answer,))], with_targets=True)
        windows = [feature for feature in found if feature.target != (0, 0)]
        assert windows
        for feature in windows:
            begin, end = (feature.spans[position - feature.first] for position in feature.target)
            assert word in context[begin[0] : end[1]]
            assert len(context[begin[0] : end[1]].strip()) <= len(word) + 1  # a token may hold more than the word
