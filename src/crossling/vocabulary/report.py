"""What a vocabulary makes of each language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from crossling.vocabulary.vocabulary import UNK, Vocabulary


def describe(vocabulary: Vocabulary, excerpts: Mapping[str, Sequence[str]]) -> dict[str, dict[str, float]]:
    """Per language, on lines of it: distinct pieces used, share of pieces known, pieces per word and per character.

    A word is what stands between white space, which says little of languages that write without it.
    """
    return {language: _one(vocabulary, lines) for language, lines in excerpts.items()}


def _one(vocabulary: Vocabulary, lines: Sequence[str]) -> dict[str, float]:
    ids = np.fromiter(chain.from_iterable(vocabulary.encode(lines)), dtype=np.int64)
    words = [word for line in lines for word in line.split()]
    return {
        "pieces": int(np.unique(ids).size),
        "coverage": round(float(np.count_nonzero(ids != UNK)) / max(1, ids.size), 5),
        "fertility": round(ids.size / max(1, len(words)), 3),
        "per_character": round(ids.size / max(1, sum(map(len, words))), 3),
    }
