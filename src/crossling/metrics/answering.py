"""Scores of answers: F1 of their words and exact match, the best over the right answers.

- SQuAD 1.1's scorer, which XTREME also uses for XQuAD and TyDiQA: English articles and ASCII punctuation go, words are
  what stands between spaces. Chinese and Thai have none, so F1 is little more than exact match there.
- MLQA's, by the language of the text: all punctuation, and the articles of five languages; Chinese by the character.
- SQuAD 2.0's: as 1.1's, and an empty answer is right where there is none.
- `characters`: MLQA's for every language, with each character of a script without spaces a word of its own.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

Words = Callable[[str, str], list[str]]  # of an answer, in a language

_ASCII = str.maketrans("", "", string.punctuation)
_ENGLISH = re.compile(r"\b(a|an|the)\b")
_ARTICLES = {
    "en": _ENGLISH,
    "es": re.compile(r"\b(un|una|unos|unas|el|la|los|las)\b"),
    "vi": re.compile(r"\b(của|là|cái|chiếc|những)\b"),
    "de": re.compile(r"\b(ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b"),
    "ar": re.compile("ال"),  # anywhere, also inside a word: the script's other alternative can never match
}
_CHINESE = re.compile("[\u4e00-\u9fa5]")
# Han, kana, Thai, Lao, Myanmar, Khmer.
_WITHOUT_SPACES = re.compile(
    "[\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff]"
)


def squad_words(text: str, language: str) -> list[str]:  # noqa: ARG001
    return _ENGLISH.sub(" ", text.lower().translate(_ASCII)).split()


def mlqa_words(text: str, language: str) -> list[str]:
    """The language of a pair (`de-en`) is that of the text, which comes first."""
    language = language.split("-")[0]
    words = _without_articles(_without_punctuation(text.lower()), language)
    return _CHINESE.sub(r" \g<0> ", words).split() if language == "zh" else words.split()


def character_words(text: str, language: str) -> list[str]:
    language = language.split("-")[0]
    words = _without_articles(_without_punctuation(text.lower()), "" if language == "ar" else language)
    return _WITHOUT_SPACES.sub(r" \g<0> ", words).split()


def f1_by(words: Words) -> Callable[[Sequence[Sequence[str]], Sequence[str], str], np.ndarray]:
    def each(gold: Sequence[Sequence[str]], predicted: Sequence[str], language: str) -> np.ndarray:
        """[F1, 1]"""
        return _best(lambda told, said: overlap(words(told, language), words(said, language)), gold, predicted)

    return each


def exact_by(words: Words) -> Callable[[Sequence[Sequence[str]], Sequence[str], str], np.ndarray]:
    def each(gold: Sequence[Sequence[str]], predicted: Sequence[str], language: str) -> np.ndarray:
        """[same, 1]"""
        return _best(lambda told, said: float(words(told, language) == words(said, language)), gold, predicted)

    return each


def squad2_f1(gold: Sequence[Sequence[str]], predicted: Sequence[str], language: str) -> np.ndarray:
    """[F1, 1]; of two empty answers it is 1."""

    def score(told: str, said: str) -> float:
        left, right = squad_words(told, language), squad_words(said, language)
        return overlap(left, right) if left and right else float(left == right)

    return _best(score, _possible(gold), predicted)


def squad2_exact(gold: Sequence[Sequence[str]], predicted: Sequence[str], language: str) -> np.ndarray:
    """[same, 1]"""
    return exact_by(squad_words)(_possible(gold), predicted, language)


def overlap(told: list[str], said: list[str]) -> float:
    """F1 of words with their counts; 0 where one is empty, even where both are."""
    same = sum((Counter(told) & Counter(said)).values())
    return 2 * same / (len(told) + len(said)) if same else 0.0


def _best(score: Callable[[str, str], float], gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> np.ndarray:
    rows = [
        (max((score(told, said) for told in right), default=0.0), 1)
        for right, said in zip(gold, predicted, strict=True)
    ]
    return np.array(rows, dtype=float).reshape(-1, 2)


def _possible(gold: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """SQuAD 2.0: answers with no word in them do not count, and where none is left the empty one is right."""
    return [[text for text in right if squad_words(text, "en")] or [""] for right in gold]


def _without_articles(text: str, language: str) -> str:
    return _ARTICLES[language].sub(" ", text) if language in _ARTICLES else text


def _without_punctuation(text: str) -> str:
    return "".join(character for character in text if not _is_punctuation(character))


@lru_cache(maxsize=1 << 16)
def _is_punctuation(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(character).startswith("P")
