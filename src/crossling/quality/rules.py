"""The rules: what may be wrong with a line, or with a line beside its translation. `check` counts what they find,
`clean` drops it.

Some look at one row alone (`RowJudge`), some at all rows of a corpus: `length_ratio` here, repetition in duplicates.py.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from crossling.errors import BadInput
from crossling.quality.identify import Identifier, are_kin
from crossling.quality.normal import weight, without_digits
from crossling.quality.units import Row, Unit

TOO_SHORT = "too short"
TOO_LONG = "too long"
WRONG_LANGUAGE = "wrong language"
COPY = "copy"
NEAR_COPY = "near copy"
IN_BENCHMARK = "in a benchmark"
NEAR_BENCHMARK = "nearly in a benchmark"
DUPLICATE = "duplicate"
HELD_ELSEWHERE = "held by another corpus"
NEAR_DUPLICATE = "near duplicate"
MANY_TO_ONE = "many to one"
LENGTH_RATIO = "length ratio"
TOO_FEW_PAIRS = "too few pairs"  # of a language, not of a row

# In the order in which rows are dropped: a row has the first reason that applies.
REASONS = (
    *(TOO_SHORT, TOO_LONG, WRONG_LANGUAGE, COPY, NEAR_COPY, IN_BENCHMARK, NEAR_BENCHMARK),
    *(DUPLICATE, HELD_ELSEWHERE, NEAR_DUPLICATE, MANY_TO_ONE, LENGTH_RATIO),
)
BIT = {reason: 1 << place for place, reason in enumerate(REASONS)}
BLANK = 1 << 15  # no row: a multi-way set has no translation here

SHORTEST_COPY = 25  # letters; names and titles are the same in many languages
SHORTEST_NEAR_COPY = 40  # and lists of names nearly so
NEAR = 0.8  # share of trigrams in common
SHORT_SIDE = 15  # characters added to both lengths before they are compared: short texts vary more
FEWEST_ROWS = 20  # for a corpus to have a usual proportion


@dataclass(frozen=True)
class Rules:
    """Which rules apply, and where they draw the line."""

    length: tuple[int, int] | None = None  # fewest and most characters; a Han character, kana or syllable counts 2.5
    language: bool = False
    copies: bool = False
    near_copies: bool = False
    duplicates: bool = False
    near_duplicates: bool = False
    many_to_one: int | None = None  # most different translations of one text
    ratio: float | None = None  # most that lengths may differ from the corpus' usual proportion
    min_pairs: int | None = None  # fewest pairs of a language
    against: Path | None = None  # a folder of benchmarks

    def __post_init__(self) -> None:
        if self.length and not 0 <= self.length[0] <= self.length[1]:
            raise BadInput(
                f"length {self.length[0]}:{self.length[1]}: expected MIN:MAX with MIN up to MAX, such as 2:10000"
            )
        if self.ratio is not None and not (math.isfinite(self.ratio) and self.ratio > 1):
            raise BadInput(f"ratio {self.ratio}: expected a number above 1, such as 4 for lengths up to 1:4")
        if self.many_to_one is not None and self.many_to_one < 1:
            raise BadInput(f"many-to-one {self.many_to_one}: expected at least 1 translation of a text")
        if self.min_pairs is not None and self.min_pairs < 1:
            raise BadInput(f"min-pairs {self.min_pairs}: expected at least 1 pair of a language")

    def __bool__(self) -> bool:
        return self != Rules()

    def to_json(self) -> dict[str, Any]:
        """As it comes back from a file."""
        known: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        return known


ALL = Rules(
    length=(2, 10_000),
    language=True,
    copies=True,
    near_copies=True,
    duplicates=True,
    near_duplicates=True,
    many_to_one=6,
    ratio=4.0,
)
MIN_PAIRS = 50_000  # XY-LENT's


def chosen(everything: bool, length: str | None = None, **asked: Any) -> Rules:
    """As a command line says it: all rules or none, but for those asked for."""
    if length is not None:
        fewest, _, most = length.partition(":")
        if not (fewest.isdecimal() and most.isdecimal()):
            raise BadInput(f"--length {length}: expected MIN:MAX, such as 2:10000")
        asked["length"] = int(fewest), int(most)
    given = {name: value for name, value in asked.items() if value is not None and value is not False}
    return replace(ALL if everything else Rules(), **given)


class RowJudge:
    """The rules that need no more than the row."""

    def __init__(self, rules: Rules, unit: Unit) -> None:
        self.rules = rules
        self.identifiers = [Identifier(language) for language in unit.languages] if rules.language else []
        self.instead: dict[str, Counter[str]] = {language: Counter() for language in unit.languages}
        self.both_sides = len(unit.languages) == 2
        # Bosnian is no copy of Croatian.
        self.may_copy = unit.pair is not None and are_kin(*unit.pair)

    @property
    def unknown(self) -> list[str]:
        """Languages that cannot be judged."""
        return [language for language, one in zip(self.instead, self.identifiers, strict=False) if not one.judges]

    def faults(self, row: Row, forms: Row) -> int:
        """Bits of the reasons against a row, given the plain forms of its sides too."""
        if not row[0]:
            return BLANK
        sides = 2 if self.both_sides else 1
        found = self._length(row[:sides]) | self._language(row[:sides], forms[:sides])
        return found | self._copy(*forms) if row[1] else found

    def _length(self, judged: tuple[str, ...]) -> int:
        if self.rules.length is None:
            return 0
        fewest, most = self.rules.length
        lengths = [weight(line) for line in judged]
        short, long = min(lengths) < fewest, max(lengths) > most
        return short * BIT[TOO_SHORT] | long * BIT[TOO_LONG]

    def _language(self, judged: tuple[str, ...], forms: tuple[str, ...]) -> int:
        found = 0
        for line, form, one, counter in zip(judged, forms, self.identifiers, self.instead.values(), strict=False):
            seen = one.instead(line, form)
            if seen:
                counter[seen] += 1
                found = BIT[WRONG_LANGUAGE]
        return found

    def _copy(self, form: str, other: str) -> int:
        if self.may_copy or not (self.rules.copies or self.rules.near_copies):
            return 0
        left, right = without_digits(form), without_digits(other)
        if min(len(left), len(right)) < NEAR / 2 * max(len(left), len(right)) or weight(left) < SHORTEST_COPY:
            return 0
        if left == right:
            return BIT[COPY] if self.rules.copies else 0
        if not self.rules.near_copies or weight(left) < SHORTEST_NEAR_COPY:
            return 0
        return BIT[NEAR_COPY] if _in_common(left, right) >= NEAR else 0


def _in_common(left: str, right: str) -> float:
    """Share of trigrams, counted once each, that two texts have in common."""
    a = {left[i : i + 3] for i in range(len(left) - 2)}
    b = {right[i : i + 3] for i in range(len(right) - 2)}
    return 2 * len(a & b) / max(1, len(a) + len(b))


def proportion(line: str, other: str) -> float:
    """Logarithm of the ratio of two lengths."""
    return math.log((len(line) + SHORT_SIDE) / (len(other) + SHORT_SIDE))


def length_ratio(proportions: np.ndarray, there: np.ndarray, most: float, drop: bool) -> np.ndarray:
    """Rows whose lengths are out of proportion: a Chinese text may be a third as long as the English one, if most are.

    What is usual is the median of the rows that are there. With `drop` those found no longer count, until no more are
    found: so that of what is left, nothing is out of proportion to the rest.
    """
    found = np.zeros(len(proportions), dtype=bool)
    while True:
        counted = there & ~found
        if counted.sum() < FEWEST_ROWS:
            return found
        new = counted & (np.abs(proportions - np.median(proportions[counted])) > math.log(most))
        found |= new
        if not drop or not new.any():
            return found
