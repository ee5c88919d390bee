"""Questions: answers that stand where they should, and that only reading finds."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from crossling.babel import Examples, babel
from crossling.babel.answering import ROLES, Answering, Text, span
from crossling.babel.domain import DOMAINS
from crossling.babel.family import Family
from crossling.babel.frame import ASKED, Frame
from crossling.babel.language import found_languages, text
from crossling.babel.world import World

SEED = 4


@pytest.fixture(scope="module", params=list(DOMAINS))
def texts(request: pytest.FixtureRequest) -> list[Text]:
    world = World(400, SEED, DOMAINS[request.param])
    family = Family(world, found_languages(8, world, SEED), SEED)
    return list(islice(filter(None, Answering(family).draw("test")), 60))


def events(one: Text) -> list[Frame]:
    told = [sentence.frame for sentence in one.sentences]
    return [event for frame in told for event in (frame, frame.clause) if event]


def said(frame: Frame) -> dict[str, str]:
    """Concepts by part, with who is meant by pronouns, without kinds and numbers."""
    parts = {"verb": frame.verb, "time": frame.time, "manner": frame.manner}
    parts |= {role: entity.concept for role, entity in frame.entities()}
    return {part: concept for part, concept in parts.items() if concept}


def test_answers_are_exact_spans_in_every_language(texts: list[Text]) -> None:
    for one in texts:
        for code in one.sentences[0].renderings:
            paragraph = one.to_json(code, "any")
            lines = paragraph["context"].split("\n")
            assert lines == [text(sentence.renderings[code]) for sentence in one.sentences]
            for question, written in zip(one.questions, paragraph["qas"], strict=True):
                (answer,) = written["answers"]
                start, end = answer["answer_start"], answer["answer_start"] + len(answer["text"])
                assert paragraph["context"][start:end] == answer["text"]
                assert paragraph["context"][:start].count("\n") == question.sentence
                assert f" {answer['text']} " in f" {lines[question.sentence]} "
                words = one.sentences[question.sentence].renderings[code]
                nodes = [question.role, f"{question.role}.modifier", f"{question.role}.count"]
                meant = [word.text for word in words if word.node in nodes and not word.feature]
                assert answer["text"].split() == meant, "all of the part, and nothing else"


def test_a_span_at_the_very_beginning_starts_at_nothing(texts: list[Text]) -> None:
    words = texts[0].sentences[0].renderings["qaa"]
    first = next(word for word in words if not word.feature)
    start, answer = span(words, first.node.removesuffix(".modifier").removesuffix(".count"))
    assert text(words)[start:].startswith(answer)


def test_a_question_fits_one_event_of_its_text(texts: list[Text]) -> None:
    for one in texts:
        for question in one.questions:
            asked = {part: concept for part, concept in said(question.asked.frame).items() if concept not in ASKED}
            assert question.role not in asked
            fitting = [
                event for event in events(one) if asked.items() <= said(event).items() and question.role in said(event)
            ]
            assert fitting == [one.sentences[question.sentence].frame]


def test_the_text_has_another_candidate_for_every_answer(texts: list[Text]) -> None:
    for one in texts:
        for question in one.questions:
            answer = said(one.sentences[question.sentence].frame)[question.role]
            assert {said(event).get(question.role) for event in events(one)} - {None, answer}


def test_neither_the_first_nor_the_most_usual_candidate_is_the_answer_too_often(texts: list[Text]) -> None:
    first = usual = every = 0
    for one in texts:
        for question in one.questions:
            answer = said(one.sentences[question.sentence].frame)[question.role]
            candidates = [said(event)[question.role] for event in events(one) if question.role in said(event)]
            first += candidates[0] == answer
            usual += Counter(candidates).most_common(1)[0][0] == answer
            every += 1
    assert max(first, usual) / every < 0.55


def test_all_parts_are_asked_for_by_words_that_text_has_too(texts: list[Text]) -> None:
    asked = Counter(question.role for one in texts for question in one.questions)
    assert asked.keys() == {*ROLES}
    assert all(asked[role] > 0.1 * asked.total() for role in ("agent", "patient", "place", "time"))
    world = World(400, SEED)
    for language in found_languages(8, world, SEED):
        words = {kind: language.inflect(language.lexicon.features[feature], ()) for kind, feature in ASKED.items()}
        for one in texts:
            for question in one.questions:
                kind = "when" if question.role == "time" else "what"
                said_by = [word for word in question.asked.renderings[language.code] if word.node == question.role]
                assert len([word for word in said_by if not word.feature]) == 1
                if question.role in ("agent", "time"):  # without case
                    assert said_by[0].text == words[kind]


def test_texts_are_sentences_of_one_story_in_its_order(texts: list[Text]) -> None:
    for one in texts:
        assert 4 <= len(one.sentences) <= 6
        assert len({sentence.frame.tense for sentence in one.sentences}) == 1
        assert len({(question.sentence, question.role) for question in one.questions}) == 3


def test_files_are_squad(tmp_path: Path) -> None:
    folder = babel(
        tmp_path / "out", 2, 50, 0, 300, test_sentences=5, alignment_sentences=5, examples=Examples(48, 24, 30)
    )
    for name in ("train-qaa.json", "translated/qab/train.json", "dev-qab.json", "xquad.qab.json"):
        content = json.loads((folder / "data" / "xquad" / name).read_text(encoding="utf-8"))
        assert content["version"] == "1.1"
        questions = [one for article in content["data"] for part in article["paragraphs"] for one in part["qas"]]
        assert len({one["id"] for one in questions}) == len(questions) == {"t": 48, "d": 24, "x": 30}[name[0]]
        assert all(article["title"] for article in content["data"])


def test_a_question_is_said_with_what_is_asked_for_in_its_place() -> None:
    world = World(400, SEED)
    language = found_languages(1, world, SEED)[0]
    family = Family(world, [language], SEED)
    one = next(filter(None, Answering(family).draw("test")))
    question = next(question for question in one.questions if question.role != "time")
    words = language.render(question.asked.frame, random.Random(0))
    assert [word.text for word in words if word.node == question.role and not word.feature] == [
        language.inflect(language.lexicon.features["that"], ())
    ]
