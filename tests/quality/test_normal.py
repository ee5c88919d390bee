"""Texts that say the same have the same plain form and the same sentences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.quality.normal import plain, sentences, weight, without_digits


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("Don't PANIC!", "dontpanic"),
        ("Ｆｕｌｌ　ｗｉｄｔｈ １２", "fullwidth12"),
        ("Straße", "strasse"),
        ("می‌خواهم", "میخواهم"),  # a joiner that is not seen
        ("हिन्दी।", "हिन्दी"),  # vowel signs are no punctuation
        ("你好，世界。", "你好世界"),
        ("— … « »", ""),
    ],
)
def test_plain_form(text: str, form: str) -> None:
    assert plain(text) == form


@given(st.lists(st.text("abcäß'-é你12", min_size=1), max_size=6))
def test_a_sentence_and_its_tokens_are_alike(tokens: list[str]) -> None:
    assert plain(" ".join(tokens)) == plain("".join(tokens)) == plain(" , ".join(tokens))


def test_digits_go_where_they_say_nothing() -> None:
    assert without_digits(plain("Chapter 12, verse ३")) == "chapterverse"


def test_a_han_character_says_more_than_a_letter() -> None:
    assert weight("abc") == 3
    assert weight("你好") == weight("あい") == weight("안녕") == 5
    assert weight("สวัสดี") == 6  # Thai letters are letters


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ('He said "yes." Then he left.', ['He said "yes.', "Then he left."]),
        ("Pi is 3.14 here.", ["Pi is 3.14 here."]),
        ("一。二！三", ["一。", "二！", "三"]),
        ("पहला। दूसरा।", ["पहला।", "दूसरा।"]),
        ("A &quot;b&quot; .", ['A "b" .']),
        ("", []),
    ],
)
def test_sentences(text: str, parts: list[str]) -> None:
    assert list(sentences(text)) == parts


@given(st.text("ab .!?。\"'”", max_size=40))
def test_nothing_is_lost_between_sentences(text: str) -> None:
    assert plain("".join(sentences(text))) == plain(text)
