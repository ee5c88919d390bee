from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from crossling.benchmarks.examples import Answer, Question
from crossling.transfer.answering import Answering, View
from crossling.transfer.family import Form
from crossling.transfer.frame import Frame
from crossling.vocabulary.vocabulary import Vocabulary

from .toys import LETTERS, WORDS, make_tokenizer

WORD = st.one_of(st.sampled_from(WORDS), st.text(LETTERS, min_size=1, max_size=6))


@st.composite
def questions(draw: st.DrawFn) -> Question:
    """With an answer of whole words somewhere in the text."""
    words = draw(st.lists(WORD, min_size=1, max_size=40))
    first = draw(st.integers(0, len(words) - 1))
    last = draw(st.integers(first, min(first + 3, len(words) - 1)))
    start = len(" ".join(words[:first])) + (first > 0)
    answer = Answer(" ".join(words[first : last + 1]), start)
    return Question("0", " ".join(draw(st.lists(WORD, min_size=1, max_size=10))), " ".join(words), (answer,))


def family(length: int = 24, tokenizer: PreTrainedTokenizerFast | None = None, **more: object) -> Answering:
    form = Form("answering", (), length, **{"stride": 5, "query": 6, "answer": 30, **more})  # type: ignore[arg-type]
    return Answering(form, Frame(tokenizer or make_tokenizer(), typed=True))


@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(questions())
@pytest.mark.filterwarnings("ignore:.* questions are longer")
def test_windows_cover_the_text_and_each_piece_is_judged_once(question: Question) -> None:
    tasks = family()
    [context] = tasks.frame.split([question.context])
    judged: list[list[int]] = []
    for feature in tasks.features([question], targets=False):
        assert feature.length <= 24
        ids = feature.inputs[0].ids[feature.first : feature.first + len(feature.spans)]
        start = context.spans.tolist().index(feature.spans[0].tolist())
        assert ids.tolist() == context.ids[start : start + len(ids)].tolist()
        judged += feature.spans[feature.widest].tolist()
    assert sorted(judged) == context.spans.tolist()


@given(questions())
@pytest.mark.filterwarnings("ignore:.* questions are longer")
def test_what_is_learned_is_the_answer_in_the_text(question: Question) -> None:
    tasks = family()
    features = tasks.features([question], targets=True)
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
def test_the_best_span_is_found(question: Question, seed: int) -> None:
    tasks = family(n_best=50, answer=4)
    features = tasks.features([question], targets=False)
    rng = np.random.default_rng(seed)
    scores = [rng.normal(size=(2, feature.length)) for feature in features]
    assert tasks.predictions([question], features, scores) == [slow(question, features, scores, 4)]


def slow(question: Question, features: list[View], scores: list[np.ndarray], most: int) -> str:
    found = []
    for feature, (start_L, end_L) in zip(features, scores, strict=True):
        for begin in range(len(feature.spans)):
            for end in range(begin, min(begin + most, len(feature.spans))):
                if feature.widest[begin]:
                    score = start_L[feature.first + begin] + end_L[feature.first + end]
                    found.append((score, feature.spans[begin][0], feature.spans[end][1]))
    _, begin, end = max(found)
    return question.context[begin:end]


def test_no_answer_is_said_where_it_scores_higher_in_every_window() -> None:
    question = Question("0", "what", "the old red dog", (), impossible=True)
    for null, expected in ((True, ""), (False, "red")):
        tasks = family(null=null)
        [feature] = tasks.features([question], targets=True)
        assert feature.target == (0, 0)
        scores = np.zeros((2, feature.length))
        scores[:, 0] = 5.0
        scores[:, feature.first + 2] = 4.0
        assert tasks.predictions([question], [feature], [scores]) == [expected]
        scores[:, feature.first + 2] = 6.0
        assert tasks.predictions([question], [feature], [scores]) == ["red"]


def test_the_loss_is_the_mean_of_start_and_end() -> None:
    tasks = family()
    asked = [Question(str(n), "what", "the old dog", (Answer("dog", 8),)) for n in range(2)]
    batch = tasks.batch(tasks.features(asked, targets=True), targets=True)
    width = batch["input_ids"].shape[1]
    start, end = torch.randn(2, 2, width, generator=torch.Generator().manual_seed(0))
    loss, _ = tasks.loss(SimpleNamespace(start_logits=start, end_logits=end), batch)
    place = 5  # <s> what </s> the old dog </s>
    slow_loss = (
        sum(float(each[row].exp().sum().log() - each[row, place]) for each in (start, end) for row in (0, 1)) / 2
    )
    assert float(loss) == pytest.approx(slow_loss, rel=1e-5)


def test_long_questions_are_told_of_and_leave_room_for_the_text() -> None:
    with pytest.warns(UserWarning, match=r"^1 of 1 questions are longer than 6 tokens"):
        [feature] = family().features([Question("0", "red " * 9, "the dog", ())], targets=False)
    assert feature.first == 8
    [feature] = family(length=13, query=64).features([Question("0", "red " * 5, "the dog", ())], targets=False)
    assert len(feature.spans) == 2


def test_spans_of_our_own_vocabulary_are_characters_of_the_text(vocabulary_folder: Path, corpora_folder: Path) -> None:
    tokenizer = Vocabulary.load(vocabulary_folder).tokenizer()
    file = next((corpora_folder / "text").glob("qaa*"))
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if len(line.split()) > 6][:30]
    context = "  ".join(lines[:3])  # two spaces: pieces know of one
    tasks = family(64, tokenizer, stride=20)
    for line in lines[:3]:
        word = line.split()[3]
        answer = Answer(word, context.index(f" {word} ") + 1)
        found = tasks.features([Question("0", line.split()[0], context, (answer,))], targets=True)
        held = [feature for feature in found if feature.target != (0, 0)]
        assert held
        for feature in held:
            begin, end = (feature.spans[place - feature.first] for place in feature.target)
            assert word in context[begin[0] : end[1]]
            assert len(context[begin[0] : end[1]].strip()) <= len(word) + 1  # a piece may hold more than the word
