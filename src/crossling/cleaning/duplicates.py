"""Find rows that are equal, nearly equal, or share one side with too many others. The first of equal rows is kept.

All functions sort 64-bit hashes, and give the same result on any number of machines. A hash of 0 excludes a row.
Equal rows are sorted in slices of up to 33 million rows, with about 50 bytes for each row. Near duplicates take about
110 bytes for each compared row, and many-to-one rows about 50.
"""
# N texts, P permutations, R rows of a band

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

from crossling.core.errors import BadInput

# A Han character, kana or Hangul syllable carries about as much text as two or three letters. A Thai letter does not.
_DENSE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
LETTERS_PER_DENSE = 2.5

_CLOSING = "[\"'”’»›」』）)\\]]*"
_END = re.compile(rf"(?<=[.!?…।॥۔؟։]){_CLOSING}\s+|(?<=[。！？｡።။។]){_CLOSING}\s*")


class _CategoryFilter(dict[int, int | None]):
    """Table for str.translate that removes characters by the first letter of their Unicode category."""

    def __init__(self, removed: str) -> None:
        super().__init__()
        self.removed = removed

    def __missing__(self, code: int) -> int | None:
        self[code] = None if unicodedata.category(chr(code))[0] in self.removed else code
        return self[code]


_PLAIN = _CategoryFilter("PSZC")  # punctuation, symbols, separators, control and format characters
_DIGITS = _CategoryFilter("N")


def plain_form(text: str) -> str:
    """Return the letters, marks and digits of a text, case-folded and NFKC-normalized."""
    folded = text.casefold() if text.isascii() else unicodedata.normalize("NFKC", text.casefold())
    return folded.translate(_PLAIN)


def remove_digits(form: str) -> str:
    """Remove the digits of a plain form."""
    return form if form.isalpha() else form.translate(_DIGITS)


def text_weight(text: str) -> float:
    """Length of a text in letters of an alphabet, with dense characters counted as 2.5."""
    return len(text) if text.isascii() else len(text) + (LETTERS_PER_DENSE - 1) * len(_DENSE.findall(text))


def split_sentences(text: str) -> Iterator[str]:
    """Split a text after marks that end sentences.

    Abbreviations are split as well. Only the consistency of both compared texts matters.
    """
    if "&" in text:
        text = html.unescape(text)
    return (part for part in _END.split(text) if part)


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
    signatures_NP = np.array(digests.to_rows(), dtype=np.uint32).reshape(len(texts), PERMUTATIONS).astype(np.uint16)
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


SLICE_ROWS = 1 << 25  # sorted together
ROWS_PER_READ = 1 << 20
ROWS_PER_COMPARISON = 1 << 16

Repetitions = tuple[np.ndarray, np.ndarray]  # rows, and an earlier row that each of them repeats


def find_duplicates(hashes: Sequence[np.ndarray], mask: np.ndarray, slice_size: int = SLICE_ROWS) -> Repetitions:
    """Find rows with the hash of an earlier one. Rows are numbered through all arrays."""
    slices = len(mask) // slice_size + 1
    repetitions = []
    for number in range(slices):
        rows, values = _slice(hashes, mask, number, slices)
        order = np.argsort(values, kind="stable")
        rows, values = rows[order], values[order]
        first = _first_of_run(values)
        later = first != np.arange(len(rows))
        repetitions.append((rows[later], rows[first[later]]))
    return _merge(repetitions)


def find_near_duplicates(signatures: Sequence[np.ndarray], mask: np.ndarray) -> Repetitions:
    """Find rows whose MinHash signature is similar to that of an earlier one.

    In each band, a row is compared with the first and the last earlier row that agree with it. This is repeated without
    the rows found so far until no more are found: then no row is similar to an earlier one.
    """
    rows = np.flatnonzero(mask & np.concatenate([has_signature(part) for part in signatures]))
    starts = np.cumsum([0, *map(len, signatures)])
    repetitions: list[Repetitions] = []
    before = -1
    while len(repetitions) != before:
        before = len(repetitions)
        for band in range(BANDS):
            later, earlier = _find_similar(signatures, starts, rows, band)
            if len(later):
                repetitions.append((later, earlier))
                rows = rows[np.isin(rows, later, assume_unique=True, invert=True)]
    return _merge(repetitions)


def find_many_to_one(left: np.ndarray, right: np.ndarray, mask: np.ndarray, most: int) -> np.ndarray:
    """Return a mask of the rows one side of which has more than `most` different translations."""
    is_many = np.zeros(len(mask), dtype=bool)
    for one, many in ((left, right), (right, left)):
        rows = np.flatnonzero(mask & (one != 0))
        rows = rows[np.lexsort((many[rows], one[rows]))]
        new_one = _changes(one[rows])
        new_many = new_one | _changes(many[rows])
        run = np.cumsum(new_one) - 1
        different = np.bincount(run, weights=new_many)
        is_many[rows[different[run] > most]] = True
    return is_many


def _slice(hashes: Sequence[np.ndarray], mask: np.ndarray, number: int, slices: int) -> Repetitions:
    """Rows, in order, whose hash is in one of the equal ranges, and their hashes."""
    found = [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64))]
    start = 0
    for part in hashes:
        for begin in range(0, len(part), ROWS_PER_READ):
            here = part[begin : begin + ROWS_PER_READ]
            place = (here >> np.uint64(32)) * np.uint64(slices) >> np.uint64(32)
            is_included = mask[start + begin : start + begin + len(here)]
            inside = np.flatnonzero((place == number) & is_included & (here != 0))
            found.append((inside + (start + begin), here[inside]))
        start += len(part)
    return concatenate_columns(found)


def _find_similar(signatures: Sequence[np.ndarray], starts: np.ndarray, rows: np.ndarray, band: int) -> Repetitions:
    bands = [part[:, band_slice(band)] for part in signatures]
    values = np.concatenate([hash_band(_select(bands, starts, part)) for part in _chunks(rows)] or [rows])
    order = np.argsort(values, kind="stable")
    rows = rows[order]
    first = _first_of_run(values[order])
    place = np.arange(len(rows))
    second, third = place[place - first > 0], place[place - first > 1]  # and all after it in the run
    repetitions = []
    for later, earlier in ((second, first[second]), (third, third - 1)):
        for part in _chunks(np.arange(len(later))):
            row, origin = rows[later[part]], rows[earlier[part]]
            estimates = similarity(_select(signatures, starts, row), _select(signatures, starts, origin))
            is_similar = estimates >= SIMILARITY_THRESHOLD
            repetitions.append((row[is_similar], origin[is_similar]))
    return _merge(repetitions)


def _select(signatures: Sequence[np.ndarray], starts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Select signatures of rows that are numbered through all arrays."""
    picked = np.empty((len(rows), signatures[0].shape[1]), dtype=signatures[0].dtype)
    part = np.searchsorted(starts, rows, side="right") - 1
    for number in np.unique(part):
        here = part == number
        picked[here] = signatures[number][rows[here] - starts[number]]
    return picked


def _chunks(array: np.ndarray) -> Iterator[np.ndarray]:
    return (array[start : start + ROWS_PER_COMPARISON] for start in range(0, len(array), ROWS_PER_COMPARISON))


def _changes(values: np.ndarray) -> np.ndarray:
    """Mask of the positions of a sorted array where the value changes."""
    return np.concatenate([[True], values[1:] != values[:-1]])[: len(values)]


def _first_of_run(values: np.ndarray) -> np.ndarray:
    """For each position of a sorted array, the first position with the same value."""
    return np.maximum.accumulate(np.where(_changes(values), np.arange(len(values)), 0))


def _merge(repetitions: Sequence[Repetitions]) -> Repetitions:
    """Sort by row, without rows that were found twice."""
    nothing = np.empty(0, dtype=np.int64)
    rows, origins = concatenate_columns([(nothing, nothing), *repetitions])
    rows, positions = np.unique(rows, return_index=True)
    return rows, origins[positions]


def concatenate_columns(rows: Sequence[Repetitions]) -> Repetitions:
    """Concatenate the first arrays, and the second ones."""
    first, second = map(np.concatenate, zip(*rows, strict=True))
    return first, second
