"""Different spellings of a text have the same plain form and the same sentences."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.cleaning.plain_text import plain_form, plain_forms, remove_digits, split_sentences, text_weight


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("Don't PANIC!", "dontpanic"),
        ("Ｆｕｌｌ　ｗｉｄｔｈ １２", "fullwidth12"),
        ("Straße", "strasse"),
        ("می‌خواهم", "میخواهم"),  # zero-width joiner
        ("हिन्दी।", "हिन्दी"),  # vowel signs stay
        ("你好，世界。", "你好世界"),
        ("— … « »", ""),
    ],
)
def test_plain_form_keeps_letters_and_digits(text: str, form: str) -> None:
    assert plain_form(text) == form


@given(st.lists(st.text(st.characters(codec=None), max_size=20), max_size=6))
def test_forms_of_many_texts_equal_those_of_each_character(texts: list[str]) -> None:
    folded = [unicodedata.normalize("NFKC", text.casefold()) for text in texts]
    kept = ["".join(c for c in text if unicodedata.category(c)[0] in "LMN") for text in folded]
    assert plain_forms(texts) == kept


@given(st.lists(st.text("abcäß'-é你12", min_size=1), max_size=6))
def test_a_sentence_and_its_tokens_have_the_same_form(tokens: list[str]) -> None:
    assert plain_form(" ".join(tokens)) == plain_form("".join(tokens)) == plain_form(" , ".join(tokens))


def test_digits_of_all_scripts_are_removed() -> None:
    assert remove_digits(plain_form("Chapter 12, verse ३")) == "chapterverse"


def test_a_han_character_weighs_more_than_a_letter() -> None:
    assert text_weight("abc") == 3
    assert text_weight("你好") == text_weight("あい") == text_weight("안녕") == 5
    assert text_weight("สวัสดี") == 6  # Thai letters count 1


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ('He wrote "yes." Then he left.', ['He wrote "yes.', "Then he left."]),
        ("Pi is 3.14 here.", ["Pi is 3.14 here."]),
        ("一。二！三", ["一。", "二！", "三"]),
        ("पहला। दूसरा।", ["पहला।", "दूसरा।"]),
        ("A &quot;b&quot; .", ['A "b" .']),
        ("", []),
    ],
)
def test_text_is_split_into_sentences(text: str, parts: list[str]) -> None:
    assert list(split_sentences(text)) == parts


@given(st.text("ab .!?。\"'”", max_size=40))
def test_no_text_is_lost_between_sentences(text: str) -> None:
    assert plain_form("".join(split_sentences(text))) == plain_form(text)
