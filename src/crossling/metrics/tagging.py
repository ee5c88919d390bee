"""Scores of tags: seqeval's F1 of chunks, as XTREME computes it for names and parts of speech alike, and accuracy.

Chunks are those of seqeval 0.0.12, the release of XTREME's time: the first letter of a tag is its place (B, I, E, S or
something else), and what follows its last hyphen its kind. A part of speech has no hyphen, so NOUN has the place N and
the kind NOUN, and a run of equal tags is one chunk, but for SCONJ and SYM, whose S makes each a chunk of its own.
(Releases since 1.0 cut the first letter off the kind: CCONJ and SCONJ are the same there, and X is never found.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

OUTSIDE = "O"

Chunk = tuple[str, int, int]  # kind, first word, last word


def chunks(tags: Sequence[str]) -> set[Chunk]:
    found = set()
    start, place, kind = 0, OUTSIDE, ""
    for word, tag in enumerate([*tags, OUTSIDE]):
        following = tag[0], tag.rpartition("-")[2]
        if _ends(place, kind, *following):
            found.add((kind, start, word - 1))
        if _begins(place, kind, *following):
            start = word
        place, kind = following
    return found


def _ends(place: str, kind: str, next_place: str, next_kind: str) -> bool:
    """Whether a chunk ends before the next word."""
    if place in "ES":
        return True
    if place in "BI" and next_place in "BSO":
        return True
    return place not in "O." and kind != next_kind


def _begins(place: str, kind: str, next_place: str, next_kind: str) -> bool:
    """Whether a chunk begins with the next word."""
    if next_place in "BS":
        return True
    if place in "ESO" and next_place in "EI":
        return True
    return next_place not in "O." and kind != next_kind


def chunked(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], language: str) -> np.ndarray:  # noqa: ARG001
    """[right, predicted, gold] chunks"""
    rows = []
    for told, said in zip(gold, predicted, strict=True):
        _same_length(told, said)
        right, wrong = chunks(told), chunks(said)
        rows.append((len(right & wrong), len(wrong), len(right)))
    return np.array(rows, dtype=float).reshape(-1, 3)


def tokens(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], language: str) -> np.ndarray:  # noqa: ARG001
    """[right, all] words"""
    rows = []
    for told, said in zip(gold, predicted, strict=True):
        _same_length(told, said)
        rows.append((sum(a == b for a, b in zip(told, said, strict=True)), len(told)))
    return np.array(rows, dtype=float).reshape(-1, 2)


def _same_length(told: Sequence[str], said: Sequence[str]) -> None:
    if len(told) != len(said):
        raise ValueError(f"{len(said)} tags for {len(told)} words")
