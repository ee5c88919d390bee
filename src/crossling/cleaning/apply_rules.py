"""Apply the rules to all corpus parts of a group: which rows have which reasons against them.

`check` applies every rule to all rows. `clean` drops rows, and each rule sees only the rows that those before it keep.
So a row has one reason, and no rule finds anything in the rows that are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from crossling.cleaning.contamination import BenchmarkIndex
from crossling.cleaning.duplicates import find_duplicates, find_many_to_one, find_near_duplicates
from crossling.cleaning.rules import BIT, BLANK, Reason, Rules, TextRow, find_length_outliers
from crossling.cleaning.scan import CorpusPart, cleaning_key, open_array, stored_entry
from crossling.core.resumable import is_finished, write_finished_folder

EXAMPLES = 2  # for each reason
EXAMPLE_CHARACTERS = 200


def apply_rules(
    parts: Sequence[CorpusPart],
    scans: Sequence[Path],
    folder: Path,
    *,
    rules: Rules,
    drop: bool,
    index_folder: Path | None,
) -> None:
    """Write the reasons of every row of every part, unless they are there already."""
    key = cleaning_key(drop, [stored_entry(scan)["key"] for scan in scans])
    if is_finished(folder, key):
        return
    group = _Group(scans, drop)
    group.apply(rules)
    index = BenchmarkIndex(index_folder) if index_folder else None
    with write_finished_folder(folder, key) as (new, entry):
        entry["parts"] = {}
        for number, part in enumerate(parts):
            reasons = group.reasons[group.rows_of(number)]
            np.save(new / f"{number}.npy", reasons)
            entry["parts"][part.name] = {
                "kept": int((reasons == 0).sum()),
                "reasons": {reason: int(n) for reason in Reason if (n := ((reasons & BIT[reason]) != 0).sum())},
                "also in": {parts[other].name: int(n) for other, n in sorted(group.repeated[number].items())},
                "examples": _find_examples(parts, group, number, index),
            }


class _Group:
    """Rows of all parts of a group, numbered through."""

    def __init__(self, scans: Sequence[Path], drop: bool) -> None:
        self.scans, self.drop = scans, drop
        flags = [open_array(scan, "flags") for scan in scans]
        self.starts = np.cumsum([0, *map(len, flags)])
        self.flags = np.concatenate(flags)
        self.reasons = self.flags & BLANK
        self.mask = self.reasons == 0  # rows that the next rule sees
        self.origins: dict[int, int] = {}  # earlier rows that the examples repeat
        self.repeated: list[Counter[int]] = [Counter() for _ in scans]  # rows that an earlier part has, by that part

    def rows_of(self, number: int) -> slice:
        """Rows of a part."""
        return slice(int(self.starts[number]), int(self.starts[number + 1]))

    def part_numbers(self, rows: np.ndarray | int) -> np.ndarray:
        """Number of the part of each row."""
        return np.asarray(np.searchsorted(self.starts, rows, side="right") - 1)

    def apply(self, rules: Rules) -> None:
        """Apply all rules in their order."""
        for reason in Reason:  # flags are set for those that need one row alone
            self._mark(reason, np.flatnonzero(self.mask & ((self.flags & BIT[reason]) != 0)))
        hashes, signatures = ([open_array(scan, name) for scan in self.scans] for name in ("hashes", "signatures"))
        if rules.duplicates and len(hashes[0]):
            self._mark_duplicates(*find_duplicates(hashes, self.mask))
        if rules.near_duplicates and len(signatures[0]):
            is_repeated = (self.reasons & (BIT[Reason.DUPLICATE] | BIT[Reason.IN_OTHER_CORPUS])) != 0
            self._mark(Reason.NEAR_DUPLICATE, *find_near_duplicates(signatures, self.mask & ~is_repeated))
        for number, scan in enumerate(self.scans):
            rows = self.rows_of(number)
            sides, log_ratios = open_array(scan, "sides"), open_array(scan, "proportions")
            if rules.many_to_one and len(sides):
                is_many = find_many_to_one(sides[:, 0], sides[:, 1], self.mask[rows], rules.many_to_one)
                self._mark(Reason.MANY_TO_ONE, np.flatnonzero(is_many) + rows.start)
            if rules.ratio and len(log_ratios):
                mask = self.mask[rows] & ~np.isnan(log_ratios)
                is_outlier = find_length_outliers(log_ratios, mask, rules.ratio, self.drop)
                self._mark(Reason.LENGTH_RATIO, np.flatnonzero(is_outlier) + rows.start)

    def _mark_duplicates(self, rows: np.ndarray, origins: np.ndarray) -> None:
        part, origin = self.part_numbers(rows), self.part_numbers(origins)
        is_other = part != origin
        self._mark(Reason.DUPLICATE, rows[~is_other], origins[~is_other])
        self._mark(Reason.IN_OTHER_CORPUS, rows[is_other], origins[is_other])
        pairs, counts = np.unique(np.stack([part, origin])[:, is_other], axis=1, return_counts=True)
        for number, other, count in zip(*pairs, counts, strict=True):
            self.repeated[int(number)][int(other)] += int(count)

    def _mark(self, reason: Reason, rows: np.ndarray, origins: np.ndarray | None = None) -> None:
        self.reasons[rows] |= BIT[reason]
        if self.drop:
            self.mask[rows] = False
        if origins is not None:
            for number in range(len(self.scans)):
                first = np.searchsorted(rows, self.starts[number])
                examples = slice(first, first + EXAMPLES)
                self.origins |= dict(zip(rows[examples].tolist(), origins[examples].tolist(), strict=True))


def _find_examples(
    parts: Sequence[CorpusPart], group: _Group, number: int, index: BenchmarkIndex | None
) -> dict[str, list[dict[str, Any]]]:
    """Return the first rows with each reason. Rows count from 1, without blank and malformed lines."""
    reasons = group.reasons[group.rows_of(number)]
    rows_by_reason = {reason: np.flatnonzero(reasons & BIT[reason])[:EXAMPLES].tolist() for reason in Reason}
    texts = _read_rows(parts[number], {row for rows in rows_by_reason.values() for row in rows})
    hits = open_array(group.scans[number], "hits")
    examples: dict[str, list[dict[str, Any]]] = {}
    for reason, rows in rows_by_reason.items():
        for row in rows:
            sides = [text[:EXAMPLE_CHARACTERS] for text in texts[row] if text]
            example: dict[str, Any] = {"row": row + 1, "text": sides}
            origin = group.origins.get(row + int(group.starts[number]))
            if reason in (Reason.DUPLICATE, Reason.IN_OTHER_CORPUS, Reason.NEAR_DUPLICATE) and origin is not None:
                other = int(group.part_numbers(origin))
                example |= {"first in": parts[other].name, "first row": origin - int(group.starts[other]) + 1}
            if reason in (Reason.IN_BENCHMARK, Reason.NEAR_BENCHMARK) and index:
                sentence = int(hits[np.searchsorted(hits[:, 0], row), 1])
                example["benchmark"] = index.text(sentence)[:EXAMPLE_CHARACTERS]
            examples.setdefault(reason, []).append(example)
    return examples


def _read_rows(part: CorpusPart, wanted: set[int]) -> dict[int, TextRow]:
    """Read these rows again, and no row after the last of them."""
    if not wanted:
        return {}
    return {row: texts for row, texts in enumerate(islice(part.rows(), max(wanted) + 1)) if row in wanted}
