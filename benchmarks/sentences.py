"""Rows of several sentences, one sentence a row.

Verses and paragraphs are longer than what people say and look for, and in each of them a few words are enough to know
its translation. Where two languages have as many sentences in a row, and each takes about the same share of it, these
are translations of each other too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

APART = 0.15  # by how much the shares of a sentence in its two rows may differ
_END = re.compile(r"[.!?…]+[\"»”’')\]]*\s+|[。！？]+[」』”’）]*\s*|[।؟۔]+[\"»”’]*\s*")


def sentences(text: str) -> list[str]:
    """Cut after what ends a sentence; the marks of Latin, Greek and Cyrillic only where a space follows."""
    ends = [0, *(mark.end() for mark in _END.finditer(text)), len(text)]
    parts = (text[start:end].strip() for start, end in pairwise(ends))
    return [part for part in parts if part]


def one_by_one(rows: Mapping[str, Sequence[str]], pivot: str) -> dict[str, list[str]]:
    """A multi-way set, language -> rows, with each row of several sentences as a row for each of them.

    A language goes with the pivot or not. Those that do not keep the row as it is, and the pivot its text beside them.
    """
    found: dict[str, list[str]] = {language: [] for language in rows}
    for number, text in enumerate(rows[pivot]):
        parts = sentences(text)
        whole = {language: own[number] for language, own in rows.items() if own[number]}
        cut = {} if len(parts) < 2 else {code: own for code, one in whole.items() if (own := _like(parts, one))}
        left = {code: one for code, one in whole.items() if code not in cut}
        if len(cut) < 2:  # the pivot by itself
            cut, left = {}, whole
        elif left:
            left[pivot] = text
        for place in range(len(parts) if cut else 0):
            _append(found, {code: own[place] for code, own in cut.items()})
        if left or not cut:
            _append(found, left)
    return found


def _like(parts: Sequence[str], text: str) -> list[str]:
    """The sentences of a text if they go with these one by one, else none."""
    own = sentences(text)
    if len(own) != len(parts):
        return []
    all_own, all_parts = (sum(map(len, each)) for each in (own, parts))
    shares = (abs(len(a) / all_own - len(b) / all_parts) for a, b in zip(own, parts, strict=True))
    return own if all(share <= APART for share in shares) else []


def _append(found: Mapping[str, list[str]], row: Mapping[str, str]) -> None:
    for language, rows in found.items():
        rows.append(row.get(language, ""))
