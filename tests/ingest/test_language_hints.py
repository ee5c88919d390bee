"""Tests of the languages in file names and headers."""

from __future__ import annotations

import pytest

from crossling.core.errors import BadInput
from crossling.corpora.languages import canonical_code
from crossling.ingest import language_hints
from crossling.ingest.language_hints import guess_header, guess_language, header_role, match_header, read_name


@pytest.mark.parametrize(
    ("word", "language"),
    [
        *[("en", "en"), ("EN", "en"), ("eng", "en"), ("eng_Latn", "en"), ("English", "en"), ("Kiswahili", "sw")],
        *[("zho_Hant", "zh-Hant"), ("pt_BR", "pt-BR"), ("pt-BR", "pt-BR"), ("Deutsch", "de"), ("qab", "qab")],
        *[("url", None), ("the", None), ("src", None), ("text", None), ("", None), ("xx", None), ("x" * 99, None)],
    ],
)
def test_a_word_is_a_language_only_if_that_is_certain(word: str, language: str | None) -> None:
    assert guess_language(word) == language


@pytest.mark.parametrize(
    ("header", "language"),
    [
        *[("text_en", "en"), ("English translation", "en"), ("sentence_eng_Latn", "en"), ("source (sw)", "sw")],
        *[("English (UK) notes", None), ("Comment", None), ("source", None), ("\ufeffen", "en")],
    ],
)
def test_headers_may_have_other_words(header: str, language: str | None) -> None:
    assert guess_header(header) == language


def test_roles_of_headers() -> None:
    assert [header_role(cell) for cell in ("Source text", "target", "Sentence", "source_en", "")] == [
        *("source", "target", "text"),
        *(None, None),
    ]


def test_a_named_language_is_matched_by_any_of_its_codes() -> None:
    assert match_header(["ID", "Swahili", "en-US"], ("en", "sw")) == [2, 1]
    assert match_header(["ckb", "English"], ("ckb", "fr")) == [0, None]


@pytest.mark.parametrize(
    ("stem", "name", "languages"),
    [
        *[("en-sw", "", ("en", "sw")), ("news.en-sw", "news", ("en", "sw")), ("news_en_sw", "news", ("en", "sw"))],
        *[
            ("train.en", "train", ("en",)),
            ("data-sw", "data", ("sw",)),
            ("Swahili", "", ("sw",)),
            ("ckb", "", ("ckb",)),
        ],
        *[("en-ckb", "", ("en", "ckb")), ("my corpus", "my corpus", ()), ("the-new", "the-new", ())],
        *[("flores.eng_Latn-swh_Latn", "flores", ("en", "sw")), ("news.eng_Latn", "news", ("en",))],
    ],
)
def test_languages_at_the_end_of_a_name(stem: str, name: str, languages: tuple[str, ...]) -> None:
    assert read_name(stem) == (name, languages)


def test_every_name_belongs_to_a_canonical_code() -> None:
    for name, code in language_hints._names().items():
        assert canonical_code(code) == code
        assert name == name.casefold()
        with pytest.raises(BadInput):
            canonical_code("" if len(name) <= 3 else name)
