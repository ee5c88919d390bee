"""QA data: exact answer spans in every language, and no shortcuts to the answer."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from crossling.synthetic import synth
from crossling.synthetic.frames import QUESTION_WORDS, Frame
from crossling.synthetic.language import LanguageFamily, create_languages, join_words
from crossling.synthetic.qa_data import ROLES, Paragraph, QATask, span
from crossling.synthetic.task_folders import ExampleCounts
from crossling.synthetic.world import DOMAINS, World

SEED = 4


@pytest.fixture(scope="module", params=list(DOMAINS))
def paragraphs(request: pytest.FixtureRequest) -> list[Paragraph]:
    world = World(400, SEED, DOMAINS[request.param])
    family = LanguageFamily(world, create_languages(8, world, SEED), SEED)
    return list(islice(filter(None, QATask(family).sample_groups("test")), 60))


def events(paragraph: Paragraph) -> list[Frame]:
    main = [sentence.frame for sentence in paragraph.sentences]
    return [event for frame in main for event in (frame, frame.clause) if event]


def concepts_by_role(frame: Frame) -> dict[str, str]:
    """Return the concepts by role, with the referents of pronouns, without modifiers and numbers."""
    parts = {"verb": frame.verb, "time": frame.time, "manner": frame.manner}
    parts |= {role: entity.concept for role, entity in frame.entities()}
    return {part: concept for part, concept in parts.items() if concept}


def test_answers_are_exact_spans_in_every_language(paragraphs: list[Paragraph]) -> None:
    for one in paragraphs:
        for code in one.sentences[0].renderings:
            paragraph = one.to_json(code, "any")
            lines = paragraph["context"].split("\n")
            assert lines == [join_words(sentence.renderings[code]) for sentence in one.sentences]
            for question, written in zip(one.questions, paragraph["qas"], strict=True):
                (answer,) = written["answers"]
                start, end = answer["answer_start"], answer["answer_start"] + len(answer["text"])
                assert paragraph["context"][start:end] == answer["text"]
                assert paragraph["context"][:start].count("\n") == question.sentence
                assert f" {answer['text']} " in f" {lines[question.sentence]} "
                words = one.sentences[question.sentence].renderings[code]
                nodes = [question.role, f"{question.role}.modifier", f"{question.role}.count"]
                meant = [word.text for word in words if word.node in nodes and not word.feature]
                assert answer["text"].split() == meant, "the whole phrase, and nothing else"


def test_span_of_the_first_word_is_found(paragraphs: list[Paragraph]) -> None:
    words = paragraphs[0].sentences[0].renderings["qaa"]
    first = next(word for word in words if not word.feature)
    start, answer = span(words, first.node.removesuffix(".modifier").removesuffix(".count"))
    assert join_words(words)[start:].startswith(answer)


def test_question_matches_one_event_of_its_paragraph(paragraphs: list[Paragraph]) -> None:
    for one in paragraphs:
        for question in one.questions:
            given = {
                part: concept
                for part, concept in concepts_by_role(question.question.frame).items()
                if concept not in QUESTION_WORDS
            }
            assert question.role not in given
            fitting = [
                event
                for event in events(one)
                if given.items() <= concepts_by_role(event).items() and question.role in concepts_by_role(event)
            ]
            assert fitting == [one.sentences[question.sentence].frame]


def test_paragraph_has_another_candidate_for_every_answer(paragraphs: list[Paragraph]) -> None:
    for one in paragraphs:
        for question in one.questions:
            answer = concepts_by_role(one.sentences[question.sentence].frame)[question.role]
            assert {concepts_by_role(event).get(question.role) for event in events(one)} - {None, answer}


def test_first_and_most_frequent_candidates_are_not_often_the_answer(paragraphs: list[Paragraph]) -> None:
    first = frequent = total = 0
    for one in paragraphs:
        for question in one.questions:
            answer = concepts_by_role(one.sentences[question.sentence].frame)[question.role]
            candidates = [
                concepts_by_role(event)[question.role]
                for event in events(one)
                if question.role in concepts_by_role(event)
            ]
            first += candidates[0] == answer
            frequent += Counter(candidates).most_common(1)[0][0] == answer
            total += 1
    assert max(first, frequent) / total < 0.55


def test_questions_cover_all_roles_with_words_that_occur_in_text(paragraphs: list[Paragraph]) -> None:
    roles = Counter(question.role for one in paragraphs for question in one.questions)
    assert roles.keys() == {*ROLES}
    assert all(roles[role] > 0.1 * roles.total() for role in ("agent", "patient", "place", "time"))
    world = World(400, SEED)
    for language in create_languages(8, world, SEED):
        words = {
            kind: language.inflect(language.lexicon.features[feature], ()) for kind, feature in QUESTION_WORDS.items()
        }
        for one in paragraphs:
            for question in one.questions:
                kind = "when" if question.role == "time" else "what"
                question_words = [
                    word for word in question.question.renderings[language.code] if word.node == question.role
                ]
                assert len([word for word in question_words if not word.feature]) == 1
                if question.role in ("agent", "time"):  # without case
                    assert question_words[0].text == words[kind]


def test_paragraphs_have_one_tense_and_three_questions(paragraphs: list[Paragraph]) -> None:
    for one in paragraphs:
        assert 4 <= len(one.sentences) <= 6
        assert len({sentence.frame.tense for sentence in one.sentences}) == 1
        assert len({(question.sentence, question.role) for question in one.questions}) == 3


def test_files_have_the_squad_format(tmp_path: Path) -> None:
    folder = synth(
        tmp_path / "out", 2, 50, lemmas=300, test_sentences=5, alignment_sentences=5, examples=ExampleCounts(48, 24, 30)
    )
    for name in ("train-qaa.json", "translated/qab/train.json", "dev-qab.json", "xquad.qab.json"):
        content = json.loads((folder / "data" / "xquad" / name).read_text(encoding="utf-8"))
        assert content["version"] == "1.1"
        questions = [one for article in content["data"] for part in article["paragraphs"] for one in part["qas"]]
        assert len({one["id"] for one in questions}) == len(questions) == {"t": 48, "d": 24, "x": 30}[name[0]]
        assert all(article["title"] for article in content["data"])


def test_question_word_replaces_the_answer() -> None:
    world = World(400, SEED)
    language = create_languages(1, world, SEED)[0]
    family = LanguageFamily(world, [language], SEED)
    one = next(filter(None, QATask(family).sample_groups("test")))
    question = next(question for question in one.questions if question.role != "time")
    words = language.render(question.question.frame, random.Random(0))
    assert [word.text for word in words if word.node == question.role and not word.feature] == [
        language.inflect(language.lexicon.features["that"], ())
    ]
