"""Rows of several sentences, one sentence a row.

Verses and paragraphs are longer than what people say and look for, and in each of them a few words are enough to know
its translation. Where a language has as many sentences in a row as the pivot, and each takes about the same share of
it, these are translations of each other too. The price: a language that is cut and one that is not no longer meet in a
row, and the pivot says such a row twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from crossling.errors import BadInput

APART = 0.15  # by how much the shares of a sentence in its two rows may differ
LEAST = 6  # letters of a sentence, or 3 of a script that writes words in one or two
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_CLOSING = "\"»”’')\\]」』）"
_END = re.compile(rf"[.!?…]+[{_CLOSING}]*\s+|[。！？]+[{_CLOSING}]*\s*|[।؟۔׃]+[{_CLOSING}]*\s+")
_GREEK_QUESTION = re.compile(rf"[.!?;…]+[{_CLOSING}]*\s+")
# What stands before a full stop and ends no sentence: initials, numbers, and what is often shortened.
_SHORTENED = re.compile(
    r"(?:^|[\s(\"“„«'’.])(?:\w|\d+|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Capt|Gen|Lt|Col|Sgt|Rev|Gov|Sen|Rep|No|Nr|Fig|vs|etc|cf|al|ca|bzw|usw|art|p|pp|Co|Inc|Ltd|Corp"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec)\.$",
    re.IGNORECASE,
)


def sentences(text: str, language: str = "") -> list[str]:
    """Cut after what ends a sentence: not after shortened words and numbers, nor before a small letter."""
    ends = _GREEK_QUESTION if language == "el" else _END
    found = [mark.end() for mark in ends.finditer(text) if _is_end(text[: mark.end()].rstrip(), text[mark.end() :])]
    parts = (text[start:end].strip() for start, end in pairwise([0, *found, len(text)]))
    return [part for part in parts if part]


def _is_end(before: str, after: str) -> bool:
    goes_on = after.lstrip("\"«„“‘'(-—– ")[:1].islower()
    return not goes_on and not _SHORTENED.search(before)


def one_by_one(rows: Mapping[str, Sequence[str]], pivot: str) -> dict[str, list[str]]:
    """A multi-way set, language -> rows, with each row of several sentences as a row for each of them.

    A language goes with the pivot or not. Those that do not keep the row as it is, and the pivot its text beside them.
    """
    if len({len(own) for own in rows.values()}) > 1:
        raise BadInput(f"{', '.join(rows)}: expected as many lines in each; line n of one is line n of all")
    found: dict[str, list[str]] = {language: [] for language in rows}
    for number, text in enumerate(rows[pivot]):
        parts = sentences(text, pivot)
        whole = {language: own[number] for language, own in rows.items() if own[number]}
        cut = {} if len(parts) < 2 else {code: own for code, one in whole.items() if (own := _like(parts, one, code))}
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


def _like(parts: Sequence[str], text: str, language: str) -> list[str]:
    """The sentences of a text if they go with these one by one, else none."""
    own = sentences(text, language)
    if len(own) != len(parts) or not all(_enough(one) for one in (*own, *parts)):
        return []
    all_own, all_parts = (sum(map(len, each)) for each in (own, parts))
    shares = (abs(len(a) / all_own - len(b) / all_parts) for a, b in zip(own, parts, strict=True))
    return own if all(share <= APART for share in shares) else []


def _enough(sentence: str) -> bool:
    letters = sum(map(str.isalpha, sentence))
    return letters >= LEAST or len(_WIDE.findall(sentence)) >= LEAST // 2


def _append(found: Mapping[str, list[str]], row: Mapping[str, str]) -> None:
    for language, rows in found.items():
        rows.append(row.get(language, ""))
