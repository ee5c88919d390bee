"""What the rows of a bitext show by themselves: copies and repeats, by equal ids, and a few lines to read.

No model is needed for these. What only a model notices, such as lines that are not each other's translation, is what
the losses are for.
"""
# N rows that both sides have, U different ones

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import xxhash

from crossling.data.shards import Bitext, Sentences
from crossling.vocabulary.vocabulary import Vocabulary

AT_ONCE = 1 << 16  # rows whose ids are in memory; of all others there are 64 bits for each side
LINES = 3  # to read


@dataclass(frozen=True)
class Look:
    copies: float  # share of the rows whose two sides are the same
    repeats: float  # share of the rows one of whose sides is also that of another row
    lines: list[tuple[str, str]]  # a few rows, as the pieces of the vocabulary spell them


def look(bitext: Bitext, vocabulary: Vocabulary) -> Look:
    """At every row: those that repeat each other may lie anywhere."""
    source_N, target_N = _hashes(bitext)
    lines = []
    for index in range(0, bitext.pairs, -(-bitext.pairs // LINES)):
        row = bitext.row(index)
        source, target = (vocabulary.pieces.decode(side[row][:-1].tolist()) for side in bitext.sides)  # without </s>
        lines.append((source, target))
    copies, repeats = source_N == target_N, _repeated(source_N) | _repeated(target_N)
    return Look(float(copies.mean()), float(repeats.mean()), lines)


def _hashes(bitext: Bitext) -> np.ndarray:
    """Of each side, [2, N]."""
    found = []
    for start in range(0, len(bitext.sides[0]), AT_ONCE):
        end = min(start + AT_ONCE, len(bitext.sides[0]))
        source, target = bitext.sides
        both = source.filled(start, end) & target.filled(start, end)
        found.append(np.stack([_hashed(side, start, end)[both] for side in bitext.sides]))
    return np.concatenate(found, 1)


def _hashed(side: Sentences, start: int, end: int) -> np.ndarray:
    offsets = side.offsets[start : end + 1].tolist()
    ids = side.tokens[offsets[0] : offsets[-1]].data
    places = pairwise([offset - offsets[0] for offset in offsets])
    return np.fromiter((xxhash.xxh3_64_intdigest(ids[a:b]) for a, b in places), np.uint64, end - start)


def _repeated(hash_N: np.ndarray) -> np.ndarray:
    _, place_N, count_U = np.unique(hash_N, return_inverse=True, return_counts=True)
    return count_U[place_N] > 1
