from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.tasks.examples import Answer, QAExample, get_gold
from crossling.tasks.readers import NOT_IN_CONTEXT, read_squad

Put = Callable[[str, str], Path]


def paragraph(context: str, *questions: dict[str, Any]) -> dict[str, Any]:
    return {"context": context, "qas": list(questions)}


def question(name: str, *answers: tuple[str, int], **more: Any) -> dict[str, Any]:
    given = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": f"{name}?", "answers": given, **more}


def write(put: Put, *paragraphs: dict[str, Any]) -> Path:
    return put("a.json", json.dumps({"data": [{"paragraphs": list(paragraphs)}]}))


@st.composite
def contexts_with_answers(draw: st.DrawFn) -> tuple[str, list[Answer]]:
    context = draw(st.text(min_size=1))
    start = draw(st.integers(0, len(context) - 1))
    end = draw(st.integers(start + 1, len(context)))
    return context, [Answer(context[start:end], start)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=st.lists(contexts_with_answers(), min_size=1))
def test_questions_round_trip(put: Put, written: list[tuple[str, list[Answer]]]) -> None:
    path = write(
        put,
        *(
            paragraph(context, question(f"q{row}", *((answer.text, answer.start) for answer in answers)))
            for row, (context, answers) in enumerate(written)
        ),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read_squad(path, ())
    assert found == [
        QAExample(f"q{row}", f"q{row}?", context, tuple(answers)) for row, (context, answers) in enumerate(written)
    ]


def test_misplaced_answers_are_searched_nearby_with_a_warning(put: Put) -> None:
    path = write(put, paragraph("ab ab ab", question("near", ("ab", 5)), question("gone", ("xy", 0), ("ab", 3))))
    with pytest.warns(UserWarning, match="2 answers are not at their answer_start; 1 were found nearby, 1 are not"):
        near, gone = read_squad(path, ())
    assert near.answers == (Answer("ab", 6),)
    assert gone.answers == (Answer("xy", NOT_IN_CONTEXT), Answer("ab", 3))


def test_squad_2_questions_may_be_impossible(put: Put) -> None:
    path = write(
        put,
        paragraph("a b", question("no", is_impossible=True, plausible_answers=[]), question("yes", ("b", 2))),
    )
    no, yes = read_squad(path, ())
    assert (no.impossible, no.answers, get_gold(no)) == (True, (), ())
    assert (yes.impossible, get_gold(yes)) == (False, ("b",))


def test_a_file_with_empty_answers_only_is_unlabeled(put: Put) -> None:
    stripped = read_squad(write(put, paragraph("a b", question("q", ("", 0)))), ())
    assert [get_gold(example) for example in stripped] == [None]
    with pytest.warns(UserWarning, match="1 are not in the context"):
        mixed = read_squad(write(put, paragraph("a b", question("q", ("", 0)), question("r", ("a", 0)))), ())
    assert [get_gold(example) for example in mixed] == [("",), ("a",)]


def test_repeated_ids_become_unique(put: Put) -> None:
    path = write(put, paragraph("a b", question("1", ("a", 0)), question("1", ("b", 2)), question("1", ("a", 0))))
    assert len({example.id for example in read_squad(path, ())}) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "no 'data'"),
        ('{"data": [{}]}', "article 1: no 'paragraphs'"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', "article 1: no 'context'"),
        ('{"data": [{"paragraphs": [{"context": "c", "qas": [{"id": "x"}]}]}]}', "question x: no 'answers'"),
        ('{"data": [{"paragraphs": [{"context": "c", "qas": [1]}]}]}', "question not an object: no 'id'"),
    ],
)
def test_errors_name_the_missing_field(put: Put, text: str, message: str) -> None:
    path = put("bad.json", text)
    with pytest.raises(BadInput, match=message) as error:
        read_squad(path, ())
    assert str(path) in str(error.value)
