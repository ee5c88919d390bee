"""Languages in file names and in the headers of columns, as people write them: `en`, `eng_Latn`, `English`.

Nearly every word of two or three letters is the code of a language: `the`, `url` and `src` are. So a guess accepts
two-letter codes, three-letter codes of the same languages, codes with a script, and the names in language_names.txt. A
language that the user names is matched by any of its codes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib import resources
from typing import NamedTuple

from crossling.corpora.languages import MAX_CODE_LENGTH, find_code, match_codes

MAX_NAME = 60  # characters of a header with the name of a language

# Words beside a language in the header of a column: `text_en`, `English translation`, `source (en)`.
SOURCE_WORDS = {"source", "src"}
TARGET_WORDS = {"target", "tgt", "trg", "translation"}
TEXT_WORDS = {"text", "sentence", "sentences", "segment", "content", "line", "lines", "phrase"}
_ROLES = SOURCE_WORDS | TARGET_WORDS | TEXT_WORDS | {"language", "lang", "seg", "txt"}
_SEPARATORS = re.compile(r"[\s_:/()\[\].,-]+")
_SPELLED_OUT = re.compile(r"([A-Za-z]{2,3})[_-]([A-Z][a-z]{3})(?:[_-]([A-Z]{2}))?")  # eng_Latn, zh-Hant, zh-Hant-TW
_REGIONAL = re.compile(r"([a-z]{2})[_-]([A-Z]{2})")  # pt_BR
_PAIR_AT_END = re.compile(
    r"(?:(?P<name>.*?)[._\s-])??(?P<a>[A-Za-z]{2,3}(?:_[A-Za-z]{4})?)[-_](?P<b>[A-Za-z]{2,3}(?:_[A-Za-z]{4})?)"
)
_CODE_AT_END = re.compile(r"(?:(?P<name>.*?)[._\s-])??(?P<code>[^._\s-]+|[A-Za-z]{2,3}[_-][A-Z][A-Za-z]{1,3})")


class NameHint(NamedTuple):
    """Collection and languages by a file name without its ending."""

    name: str  # of the collection; empty if there is nothing but languages
    languages: tuple[str, ...]  # none, one or two


@lru_cache(maxsize=4096)
def guess_language(word: str) -> str | None:
    """Return the canonical code of a language that a word certainly means, or None.

    Args:
        word: Code or name, in any case.

    Example:
        >>> guess_language("Kiswahili"), guess_language("swh_Latn"), guess_language("url")
        ('sw', 'sw', None)
    """
    word = word.strip()
    if not word or len(word) > MAX_NAME:
        return None
    named = _names().get(word.casefold())
    if named or word.casefold() in _ROLES:
        return named
    if _SPELLED_OUT.fullmatch(word) or _REGIONAL.fullmatch(word):
        return find_code(word)
    code = find_code(word) if len(word) in (2, 3) and word.isalpha() else None
    is_synthetic = code is not None and "qaa" <= code <= "qtz"
    return code if code and (len(code) == 2 or is_synthetic or code in _names().values()) else None


def guess_header(cell: str) -> str | None:
    """Return the language of a column by its header, or None."""
    cell = cell.strip().lstrip("\ufeff")
    if len(cell) > MAX_NAME:
        return None
    words = [word for word in _SEPARATORS.split(cell) if word and word.casefold() not in _ROLES]
    return guess_language(cell) or guess_language(" ".join(words)) or guess_language("_".join(words))


def header_role(cell: str) -> str | None:
    """Return "source", "target" or "text" if the header of a column states that and no language, else None."""
    words = {word.casefold() for word in _SEPARATORS.split(cell.strip().lstrip("\ufeff")) if word}
    if not words or not words <= _ROLES:
        return None
    for role, names in (("source", SOURCE_WORDS), ("target", TARGET_WORDS), ("text", TEXT_WORDS)):
        if words & names:
            return role
    return None


def match_header(cells: Sequence[str], pair: Sequence[str]) -> list[int | None]:
    """Return the position of the column of each language: by any of its codes, or by its name.

    Raises nothing: a language without a column has None.
    """
    codes = [
        guess_header(cell) or (find_code(cell.strip()) if len(cell) <= MAX_CODE_LENGTH else None) for cell in cells
    ]
    found: list[int | None] = []
    for language in pair:
        match, _ = match_codes([code for code in codes if code], (language, ""))
        found.append(None if match is None else codes.index(match))
    return found


def read_name(stem: str) -> NameHint:
    """Return the languages at the end of a file name without its ending.

    Args:
        stem: `news.en-sw`, `en_sw`, `train.en`, `Swahili`.

    Example:
        >>> read_name("news.en-sw")
        NameHint(name='news', languages=('en', 'sw'))
    """
    whole = _exact_codes(stem)
    if whole:
        return NameHint("", whole)
    if match := _PAIR_AT_END.fullmatch(stem):
        pair = guess_language(match["a"]), guess_language(match["b"])
        if pair[0] and pair[1] and pair[0] != pair[1]:
            return NameHint(match["name"] or "", (pair[0], pair[1]))
    if match := _CODE_AT_END.fullmatch(stem):
        language = guess_language(match["code"])
        if language:
            return NameHint(match["name"] or "", (language,))
    return NameHint(stem, ())


def _exact_codes(stem: str) -> tuple[str, ...]:
    """Return the languages of a name that is one code or two, of any language: `ckb`, `en-ckb`."""
    code = guess_language(stem) or (find_code(stem) if len(stem) == 3 and stem.islower() else None)
    if code:
        return (code,)
    match = re.fullmatch(r"([a-z]{2,3})-([a-z]{2,3})", stem)
    codes = tuple(filter(None, map(find_code, match.groups()))) if match else ()
    is_certain = any(map(guess_language, match.groups())) if match else False
    return codes if is_certain and len(set(codes)) == 2 else ()


@cache
def _names() -> dict[str, str]:
    table = resources.files("crossling.ingest").joinpath("language_names.txt").read_text(encoding="utf-8")
    rows = (line.split(" ", 1) for line in table.splitlines())
    return {name: code for code, names in rows for name in names.split(", ")}
