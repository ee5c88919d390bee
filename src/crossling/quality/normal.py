"""What a text says, apart from how it is written down: the forms in which texts are compared.

Spaces go with the punctuation, so that a sentence and its tokens (`don ' t`) come out alike.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator

# Han characters, kana and Hangul syllables say about as much as two or three letters; Thai letters, say, do not.
_DENSE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
DENSITY = 2.5

_CLOSING = "[\"'”’»›」』）)\\]]*"
_END = re.compile(rf"(?<=[.!?…।॥۔؟։]){_CLOSING}\s+|(?<=[。！？｡።။។]){_CLOSING}\s*")


class _Table(dict[int, int | None]):
    """For str.translate: leaves out characters by the first letter of their Unicode category."""

    def __init__(self, left_out: str) -> None:
        super().__init__()
        self.left_out = left_out

    def __missing__(self, code: int) -> int | None:
        self[code] = None if unicodedata.category(chr(code))[0] in self.left_out else code
        return self[code]


_PLAIN = _Table("PSZC")  # punctuation, symbols, separators, control and format characters
_DIGITS = _Table("N")


def plain(text: str) -> str:
    """Letters, marks and digits alone, in one case and one encoding (NFKC)."""
    folded = text.casefold() if text.isascii() else unicodedata.normalize("NFKC", text.casefold())
    return folded.translate(_PLAIN)


def without_digits(form: str) -> str:
    return form if form.isalpha() else form.translate(_DIGITS)


def weight(text: str) -> float:
    """How much a text says, in letters of an alphabet."""
    return len(text) if text.isascii() else len(text) + (DENSITY - 1) * len(_DENSE.findall(text))


def sentences(text: str) -> Iterator[str]:
    """Parts of a text, each up to a mark that ends sentences. Abbreviations are cut as well: it matters only that two
    texts which say the same are cut alike."""
    if "&" in text:
        text = html.unescape(text)
    return (part for part in _END.split(text) if part)
