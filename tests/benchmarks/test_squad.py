from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossling.benchmarks.examples import Answer, Question, gold
from crossling.benchmarks.squad import NOWHERE, read_squad
from crossling.errors import BadInput

Put = Callable[[str, str], Path]


def paragraph(context: str, *questions: dict[str, Any]) -> dict[str, Any]:
    return {"context": context, "qas": list(questions)}


def question(name: str, *answers: tuple[str, int], **more: Any) -> dict[str, Any]:
    given = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": f"{name}?", "answers": given, **more}


def write(put: Put, *paragraphs: dict[str, Any]) -> Path:
    return put("a.json", json.dumps({"data": [{"paragraphs": list(paragraphs)}]}))


@st.composite
def asked(draw: st.DrawFn) -> tuple[str, list[Answer]]:
    context = draw(st.text(min_size=1))
    start = draw(st.integers(0, len(context) - 1))
    end = draw(st.integers(start + 1, len(context)))
    return context, [Answer(context[start:end], start)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=st.lists(asked(), min_size=1))
def test_questions_are_read_back(put: Put, made: list[tuple[str, list[Answer]]]) -> None:
    path = write(
        put,
        *(
            paragraph(context, question(f"q{row}", *((answer.text, answer.start) for answer in answers)))
            for row, (context, answers) in enumerate(made)
        ),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read_squad(path, ())
    assert found == [
        Question(f"q{row}", f"q{row}?", context, tuple(answers)) for row, (context, answers) in enumerate(made)
    ]


def test_answers_out_of_place_are_found_nearby_or_kept_for_scoring_and_a_note_tells(put: Put) -> None:
    path = write(put, paragraph("ab ab ab", question("near", ("ab", 5)), question("gone", ("xy", 0), ("ab", 3))))
    with pytest.warns(UserWarning, match="2 answers do not stand where they should; 1 were found nearby, 1 are not"):
        near, gone = read_squad(path, ())
    assert near.answers == (Answer("ab", 6),)
    assert gone.answers == (Answer("xy", NOWHERE), Answer("ab", 3))


def test_squad_2_questions_without_an_answer(put: Put) -> None:
    path = write(
        put,
        paragraph("a b", question("no", is_impossible=True, plausible_answers=[]), question("yes", ("b", 2))),
    )
    no, yes = read_squad(path, ())
    assert (no.impossible, no.answers, gold(no)) == (True, (), ())
    assert (yes.impossible, gold(yes)) == (False, ("b",))


def test_a_file_of_empty_answers_is_unlabelled_but_one_empty_answer_is_not(put: Put) -> None:
    stripped = read_squad(write(put, paragraph("a b", question("q", ("", 0)))), ())
    assert [gold(example) for example in stripped] == [None]
    with pytest.warns(UserWarning, match="1 are not in the text"):
        mixed = read_squad(write(put, paragraph("a b", question("q", ("", 0)), question("r", ("a", 0)))), ())
    assert [gold(example) for example in mixed] == [("",), ("a",)]


def test_ids_are_unique(put: Put) -> None:
    path = write(put, paragraph("a b", question("1", ("a", 0)), question("1", ("b", 2)), question("1", ("a", 0))))
    assert len({example.id for example in read_squad(path, ())}) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "has no 'data'"),
        ('{"data": [{}]}', "article 1 has no 'paragraphs'"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', "article 1 has no 'context'"),
        ('{"data": [{"paragraphs": [{"context": "c", "qas": [{"id": "x"}]}]}]}', "question x has no 'answers'"),
        ('{"data": [{"paragraphs": [{"context": "c", "qas": [1]}]}]}', "question that is no object has no 'id'"),
    ],
)
def test_what_is_missing_is_named(put: Put, text: str, said: str) -> None:
    path = put("bad.json", text)
    with pytest.raises(BadInput, match=said) as error:
        read_squad(path, ())
    assert str(path) in str(error.value)
