"""Judging the units of a group together: which rows have which reasons against them.

`check` applies every rule to all rows. When rows are dropped, each rule sees only what those before it have left: so a
row has one reason, and what is left at the end gives no rule a reason any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from crossling.disk import new_folder, write_json
from crossling.quality.duplicates import equal, many_to_one, near
from crossling.quality.look import ENTRY, array, entry, is_done, key_of
from crossling.quality.overlap import Index
from crossling.quality.rules import (
    BIT,
    BLANK,
    COPY,
    DUPLICATE,
    HELD_ELSEWHERE,
    IN_BENCHMARK,
    LENGTH_RATIO,
    MANY_TO_ONE,
    NEAR_BENCHMARK,
    NEAR_COPY,
    NEAR_DUPLICATE,
    REASONS,
    TOO_LONG,
    TOO_SHORT,
    WRONG_LANGUAGE,
    Rules,
    length_ratio,
)
from crossling.quality.units import Unit

OF_ONE_ROW = (TOO_SHORT, TOO_LONG, WRONG_LANGUAGE, COPY, NEAR_COPY, IN_BENCHMARK, NEAR_BENCHMARK)
EXAMPLES = 2  # of each reason
SHOWN = 200  # characters


def judge(
    units: Sequence[Unit], looks: Sequence[Path], rules: Rules, drop: bool, folder: Path, index_folder: Path | None
) -> None:
    """Writes the reasons of every row of every unit, unless they are there already."""
    key = key_of(drop, [entry(look)["key"] for look in looks])
    if is_done(folder, key):
        return
    bench = _Bench(looks, drop)
    bench.judge(rules)
    index = Index(index_folder) if index_folder else None
    with new_folder(folder) as new:
        found = {}
        for number, unit in enumerate(units):
            reasons = bench.reasons[bench.part(number)]
            np.save(new / f"{number}.npy", reasons)
            found[unit.name] = {
                "kept": int((reasons == 0).sum()),
                "reasons": {reason: int(n) for reason in REASONS if (n := ((reasons & BIT[reason]) != 0).sum())},
                "also in": {units[other].name: int(n) for other, n in sorted(bench.held[number].items())},
                "examples": _examples(units, bench, number, looks, index),
            }
        write_json(new / ENTRY, {"key": key, "units": found})


class _Bench:
    """The rows of all units of a group, numbered through."""

    def __init__(self, looks: Sequence[Path], drop: bool) -> None:
        self.looks, self.drop = looks, drop
        flags = [array(look, "flags") for look in looks]
        self.starts = np.cumsum([0, *map(len, flags)])
        self.flags = np.concatenate(flags)
        self.reasons = self.flags & BLANK
        self.there = self.reasons == 0
        self.origins: dict[int, int] = {}  # rows that others repeat, for examples
        self.held: list[Counter[int]] = [Counter() for _ in looks]  # rows that an earlier unit has, by that unit

    def part(self, number: int) -> slice:
        return slice(int(self.starts[number]), int(self.starts[number + 1]))

    def place(self, row: int) -> tuple[int, int]:
        """Unit and row in it."""
        number = int(np.searchsorted(self.starts, row, side="right")) - 1
        return number, row - int(self.starts[number])

    def judge(self, rules: Rules) -> None:
        for reason in OF_ONE_ROW:
            self._mark(reason, np.flatnonzero(self.there & ((self.flags & BIT[reason]) != 0)))
        hashes, signatures = ([array(look, name) for look in self.looks] for name in ("hashes", "signatures"))
        if rules.duplicates and len(hashes[0]):
            self._mark_duplicates(*equal(hashes, self.there))
        if rules.near_duplicates and len(signatures[0]):
            repeated = (self.reasons & (BIT[DUPLICATE] | BIT[HELD_ELSEWHERE])) != 0
            self._mark(NEAR_DUPLICATE, *near(signatures, self.there & ~repeated))
        for number, look in enumerate(self.looks):
            rows = self.part(number)
            sides, proportions = array(look, "sides"), array(look, "proportions")
            if rules.many_to_one and len(sides):
                found = many_to_one(sides[:, 0], sides[:, 1], self.there[rows], rules.many_to_one)
                self._mark(MANY_TO_ONE, np.flatnonzero(found) + rows.start)
            if rules.ratio and len(proportions):
                there = self.there[rows] & ~np.isnan(proportions)
                found = length_ratio(proportions, there, rules.ratio, self.drop)
                self._mark(LENGTH_RATIO, np.flatnonzero(found) + rows.start)

    def _mark_duplicates(self, rows: np.ndarray, origins: np.ndarray) -> None:
        unit, origin = (np.searchsorted(self.starts, places, side="right") - 1 for places in (rows, origins))
        elsewhere = unit != origin
        self._mark(DUPLICATE, rows[~elsewhere], origins[~elsewhere])
        self._mark(HELD_ELSEWHERE, rows[elsewhere], origins[elsewhere])
        pairs, counts = np.unique(np.stack([unit, origin])[:, elsewhere], axis=1, return_counts=True)
        for here, other, count in zip(*pairs, counts, strict=True):
            self.held[int(here)][int(other)] += int(count)

    def _mark(self, reason: str, rows: np.ndarray, origins: np.ndarray | None = None) -> None:
        self.reasons[rows] |= BIT[reason]
        if self.drop:
            self.there[rows] = False
        if origins is not None:
            for number in range(len(self.looks)):
                first = np.searchsorted(rows, self.starts[number])
                shown = slice(first, first + EXAMPLES)
                self.origins |= dict(zip(rows[shown].tolist(), origins[shown].tolist(), strict=True))


def _examples(
    units: Sequence[Unit], bench: _Bench, number: int, looks: Sequence[Path], index: Index | None
) -> dict[str, list[dict[str, Any]]]:
    """The first rows with each reason. Rows count from 1, blank and malformed lines left out."""
    reasons = bench.reasons[bench.part(number)]
    chosen = {reason: np.flatnonzero(reasons & BIT[reason])[:EXAMPLES].tolist() for reason in REASONS}
    texts = _texts(units[number], {row for rows in chosen.values() for row in rows})
    hits = array(looks[number], "hits")
    found: dict[str, list[dict[str, Any]]] = {}
    for reason, rows in chosen.items():
        for row in rows:
            example: dict[str, Any] = {"row": row + 1, "text": [text[:SHOWN] for text in texts[row] if text]}
            origin = bench.origins.get(row + int(bench.starts[number]))
            if reason in (DUPLICATE, HELD_ELSEWHERE, NEAR_DUPLICATE) and origin is not None:
                unit, place = bench.place(origin)
                example |= {"first in": units[unit].name, "first row": place + 1}
            if reason in (IN_BENCHMARK, NEAR_BENCHMARK) and index:
                example["benchmark"] = index.text(int(hits[np.searchsorted(hits[:, 0], row), 1]))[:SHOWN]
            found.setdefault(reason, []).append(example)
    return found


def _texts(unit: Unit, wanted: set[int]) -> dict[int, tuple[str, str]]:
    """Rows read again, no further than is needed."""
    if not wanted:
        return {}
    return {row: texts for row, texts in enumerate(islice(unit.rows(), max(wanted) + 1)) if row in wanted}
