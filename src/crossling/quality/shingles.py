"""MinHash signatures of texts: the share of places where two of them agree estimates how much the texts have in common
(the Jaccard similarity of their sets of short character sequences).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crossling.errors import BadInput

SHINGLE = 4  # characters
FEWEST = 16  # shingles; shorter texts have no signature (zeros) and are like nothing
PERMUTATIONS = 128
SIMILAR = 0.8
# Two texts are compared when all places of a band agree: at a similarity of 0.8 in one band at least with probability
# 0.9999, at 0.5 in half of the cases, at 0.2 in one of a hundred.
BANDS, ROWS = 25, 5
_SEED = 20230716  # any fixed number
_MIX = np.uint64(0x9E3779B97F4A7C15)


def signatures(texts: Sequence[str]) -> np.ndarray:
    """One row of 128 16-bit values for every text."""
    try:
        from rensa import RMinHash
    except ImportError:
        raise BadInput("finding near duplicates needs the package rensa: pip install crossling[data]") from None
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint64)
    windows = np.zeros(max(0, len(codes) - SHINGLE + 1), dtype=np.uint64)
    for place in range(SHINGLE):
        windows = (windows ^ codes[place : place + len(windows)]) * _MIX
        windows ^= windows >> np.uint64(29)
    counts = np.maximum(lengths - SHINGLE + 1, 0)
    counts[counts < FEWEST] = 0
    offsets = np.concatenate([[0], np.cumsum(counts)])
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]) if len(texts) else np.empty(0, dtype=np.int64)
    inside = np.repeat(starts - offsets[:-1], counts) + np.arange(offsets[-1])  # windows that cross no border
    digests = RMinHash.digest_matrix_from_flat_token_hashes(
        windows[inside], offsets.astype(np.uint64), PERMUTATIONS, _SEED
    )
    found = np.array(digests.to_rows(), dtype=np.uint32).reshape(len(texts), PERMUTATIONS).astype(np.uint16)
    found[counts == 0] = 0
    return found


def has_signature(signature_NP: np.ndarray) -> np.ndarray:
    return np.asarray(signature_NP.any(axis=1))


def places(band: int) -> slice:
    """Where a band lies in a signature."""
    return slice(band * ROWS, (band + 1) * ROWS)


def folded(places_NR: np.ndarray) -> np.ndarray:
    """One 64-bit value for the places of a band of every signature."""
    value = np.zeros(len(places_NR), dtype=np.uint64)
    for place in range(ROWS):
        value = (value ^ places_NR[:, place].astype(np.uint64)) * _MIX
        value ^= value >> np.uint64(29)
    return value


def similarity(left_NP: np.ndarray, right_NP: np.ndarray) -> np.ndarray:
    return np.asarray((left_NP == right_NP).mean(axis=1))
