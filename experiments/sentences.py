"""Split parallel rows of several sentences into one sentence per row. bundled_text.py uses it.

Verses and paragraphs are longer than typical queries, and a few words are enough to recognize their translation. If a
row has as many sentences in a language as in the pivot, of about the same relative lengths, they are translations of
each other. The cost: a language that is split and one that is not no longer share a row, and the pivot has it twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from crossling.core.errors import BadInput

MAX_DIFFERENCE = 0.15  # of the relative lengths of a sentence in its two rows
MIN_LETTERS = 6  # of a sentence; half of it for scripts with one or two characters per word
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_CLOSING = "\"»”’')\\]」』）"
_END = re.compile(rf"[.!?…]+[{_CLOSING}]*\s+|[。！？]+[{_CLOSING}]*\s*|[।؟۔׃]+[{_CLOSING}]*\s+")
_GREEK_QUESTION = re.compile(rf"[.!?;…]+[{_CLOSING}]*\s+")
# A full stop after initials, numbers and common abbreviations ends no sentence.
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"“„«'’.])(?:\w|\d+|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Capt|Gen|Lt|Col|Sgt|Rev|Gov|Sen|Rep|No|Nr|Fig|vs|etc|cf|al|ca|bzw|usw|art|p|pp|Co|Inc|Ltd|Corp"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec)\.$",
    re.IGNORECASE,
)


def split_sentences(text: str, language: str = "") -> list[str]:
    """Split after punctuation, but not after abbreviations and numbers or before a lower-case letter."""
    ends = _GREEK_QUESTION if language == "el" else _END
    borders = [mark.end() for mark in ends.finditer(text) if _is_end(text[: mark.end()].rstrip(), text[mark.end() :])]
    parts = (text[start:end].strip() for start, end in pairwise([0, *borders, len(text)]))
    return [part for part in parts if part]


def _is_end(before: str, after: str) -> bool:
    is_continued = after.lstrip("\"«„“‘'(-—– ")[:1].islower()
    return not is_continued and not _ABBREVIATION.search(before)


def split_rows(rows: Mapping[str, Sequence[str]], pivot: str) -> dict[str, list[str]]:
    """Return a multi-way corpus (language -> rows) with one row per sentence where possible.

    Languages that cannot be aligned with the pivot keep the row as it is, with the text of the pivot beside them.
    """
    if len({len(own) for own in rows.values()}) > 1:
        raise BadInput(f"{', '.join(rows)}: different numbers of lines. Line n must be the same sentence in all.")
    result: dict[str, list[str]] = {language: [] for language in rows}
    for number, text in enumerate(rows[pivot]):
        parts = split_sentences(text, pivot)
        whole = {language: own[number] for language, own in rows.items() if own[number]}
        split = {}
        if len(parts) > 1:
            split = {code: own for code, row in whole.items() if (own := _align(parts, row, code))}
        rest = {code: row for code, row in whole.items() if code not in split}
        if len(split) < 2:  # only the pivot
            split, rest = {}, whole
        elif rest:
            rest[pivot] = text
        for position in range(len(parts) if split else 0):
            _append(result, {code: own[position] for code, own in split.items()})
        if rest or not split:
            _append(result, rest)
    return result


def _align(parts: Sequence[str], text: str, language: str) -> list[str]:
    """Return the sentences of a text if they correspond to `parts` one to one, else an empty list."""
    own = split_sentences(text, language)
    if len(own) != len(parts) or not all(_is_long_enough(sentence) for sentence in (*own, *parts)):
        return []
    own_length, length = (sum(map(len, each)) for each in (own, parts))
    differences = (abs(len(a) / own_length - len(b) / length) for a, b in zip(own, parts, strict=True))
    return own if all(difference <= MAX_DIFFERENCE for difference in differences) else []


def _is_long_enough(sentence: str) -> bool:
    letters = sum(map(str.isalpha, sentence))
    return letters >= MIN_LETTERS or len(_WIDE.findall(sentence)) >= MIN_LETTERS // 2


def _append(result: Mapping[str, list[str]], row: Mapping[str, str]) -> None:
    for language, rows in result.items():
        rows.append(row.get(language, ""))
