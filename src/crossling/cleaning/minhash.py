"""MinHash signatures of texts, their bands, and the similarity that they estimate."""
# N texts, P permutations, R rows of a band

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from crossling.core.errors import BadInput

SHINGLE = 4  # characters
MIN_SHINGLES = 16  # shorter texts have no signature (zeros) and are similar to nothing
PERMUTATIONS = 128
SIMILARITY_THRESHOLD = 0.8
# Two texts are compared if all values of a band agree. The probability that this happens in at least one band is 0.9999
# at a similarity of 0.8, 0.5 at a similarity of 0.5, and 0.01 at a similarity of 0.2.
BANDS, ROWS = 25, 5
_SEED = 20230716  # any fixed number
_MIX = np.uint64(0x9E3779B97F4A7C15)


def compute_signatures(texts: Sequence[str]) -> np.ndarray:
    """Return one row of 128 16-bit values for each text, [N, P]."""
    try:
        from rensa import RMinHash
    except ImportError:
        raise BadInput("near duplicates need the package rensa. Install it with pip install crossling[data].") from None
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint64)
    windows = np.zeros(max(0, len(codes) - SHINGLE + 1), dtype=np.uint64)
    for offset in range(SHINGLE):
        windows = (windows ^ codes[offset : offset + len(windows)]) * _MIX
        windows ^= windows >> np.uint64(29)
    counts = np.maximum(lengths - SHINGLE + 1, 0)
    counts[counts < MIN_SHINGLES] = 0
    offsets = np.concatenate([[0], np.cumsum(counts)])
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]) if len(texts) else np.empty(0, dtype=np.int64)
    inside = np.repeat(starts - offsets[:-1], counts) + np.arange(offsets[-1])  # windows inside one text
    digests = RMinHash.digest_matrix_from_flat_token_hashes(
        windows[inside], offsets.astype(np.uint64), PERMUTATIONS, _SEED
    )
    values = array("I")
    for row in digests.to_rows():
        values.fromlist(row)  # less than half the time of np.array
    signatures_NP = np.frombuffer(values, dtype=np.uint32).reshape(len(texts), PERMUTATIONS).astype(np.uint16)
    signatures_NP[counts == 0] = 0
    return signatures_NP


def has_signature(signature_NP: np.ndarray) -> np.ndarray:
    """Mask of the texts that are long enough, [N]."""
    return np.asarray(signature_NP.any(axis=1))


def band_slice(band: int) -> slice:
    """Columns of a band in a signature."""
    return slice(band * ROWS, (band + 1) * ROWS)


def hash_band(values_NR: np.ndarray) -> np.ndarray:
    """Hash the values of a band into one 64-bit value for each signature, [N]."""
    value = np.zeros(len(values_NR), dtype=np.uint64)
    for column in range(ROWS):
        value = (value ^ values_NR[:, column].astype(np.uint64)) * _MIX
        value ^= value >> np.uint64(29)
    return value


def similarity(left_NP: np.ndarray, right_NP: np.ndarray) -> np.ndarray:
    """Estimated Jaccard similarity of the texts of each row, [N]."""
    return np.asarray((left_NP == right_NP).mean(axis=1))
