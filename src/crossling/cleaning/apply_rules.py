"""Apply the rules to all corpus parts of a group: which rows have which reasons against them.

`check` applies every rule to all rows. `clean` drops rows, and each rule sees only the rows that those before it keep.
So a row has one reason, and no rule finds anything in the rows that are kept.

Reasons and masks of a group are mapped from disk. A group with many rows is searched by several processes, and what
each of them finds is kept on disk until all rules are applied.
"""

from __future__ import annotations

import shutil
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from crossling.cleaning import duplicates
from crossling.cleaning.contamination import BenchmarkIndex
from crossling.cleaning.corpus_parts import CorpusPart
from crossling.cleaning.minhash import BANDS
from crossling.cleaning.rules import BIT, BLANK, Reason, Rules, TextRow, find_length_outliers
from crossling.cleaning.sorted_keys import RowIndex
from crossling.cleaning.stored_arrays import create_values, open_array, stored_entry, stored_key
from crossling.core.files import atomic_file
from crossling.core.jobs import Job, run_jobs
from crossling.core.resumable import is_finished, write_finished_folder
from crossling.corpora.corpus import refuse_empty

EXAMPLES = 2  # for each reason
EXAMPLE_CHARACTERS = 200
ROWS_AT_ONCE = 1 << 20

REASONS_FILE = "reasons"  # 2 bytes a row
MASK_FILE = "mask"  # rows that the next rule sees
SIMILAR_FILE = "not-similar"  # rows of the mask without a near duplicate so far


def apply_rules(
    parts: Sequence[CorpusPart],
    scans: Sequence[Sequence[Path]],
    folder: Path,
    *,
    rules: Rules,
    drop: bool,
    plans: Path,
    index_folder: Path | None,
    workers: int = 1,
) -> None:
    """Write the reasons of every row of every part, unless they are there already.

    Args:
        parts: Parts of the group.
        scans: Folders of the scanned slices of each part.
        folder: Folder to write.
        rules: Rules to apply.
        drop: Each rule sees only the rows that those before it keep.
        plans: Folder of the plans of all parts.
        index_folder: Folder of the benchmark index.
        workers: Processes that search a group with many rows.
    """
    entries = [[stored_entry(scan) for scan in slices] for slices in scans]
    key = stored_key(drop, [entry["key"] for slices in entries for entry in slices])
    if is_finished(folder, key):
        return
    for part, slices in zip(parts, entries, strict=True):
        if len(slices) > 1 and not any(entry["rows"] for entry in slices):
            malformed = sum((Counter(entry["malformed"]) for entry in slices), Counter[str]())
            refuse_empty(part.sources, malformed)
    index = BenchmarkIndex(index_folder) if index_folder else None
    found = folder.with_name(f".{folder.name}.found") / key
    with write_finished_folder(folder, key) as (new, entry):
        group = _Group(scans, new, _Searches(found, workers), drop)
        group.apply(rules)
        entry["parts"] = {}
        for number, part in enumerate(parts):
            entry["parts"][part.name] = {
                "first": group.part_starts[number],
                "rows": group.part_starts[number + 1] - group.part_starts[number],
                **group.count(number),
                "also in": {parts[other].name: int(n) for other, n in sorted(group.repeated[number].items())},
                "examples": _find_examples(part, parts, group, number, plans, index),
            }
        for name in (MASK_FILE, SIMILAR_FILE):
            (new / name).unlink(missing_ok=True)
    shutil.rmtree(found.parent, ignore_errors=True)


class _Searches:
    """Runs searches of ranges of keys: one of them here, several in worker processes that write what they find."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder, self.workers = folder, workers

    def run(self, title: str, index: RowIndex, key: str, search: partial[np.ndarray]) -> Iterator[np.ndarray]:
        """Return what `search` finds in each range of a key."""
        ranges = index.ranges(key)
        if ranges == 1:
            return iter([search(index=index, number=0, of=1)])
        files = [self.folder / f"{title} {number}.npy" for number in range(ranges)]
        jobs = [
            Job(file.stem, partial(_save_found, partial(search, index=replace(index), number=number, of=ranges), file))
            for number, file in enumerate(files)
        ]
        run_jobs(title, jobs, self.workers)
        return map(np.load, files)


def _save_found(search: partial[np.ndarray], file: Path) -> None:
    if not file.is_file():
        with atomic_file(file) as temporary, temporary.open("wb") as handle:
            np.save(handle, search())


class _Group:
    """Rows of all parts of a group, numbered through."""

    def __init__(self, scans: Sequence[Sequence[Path]], folder: Path, searches: _Searches, drop: bool) -> None:
        self.scans, self.folder, self.searches, self.drop = scans, folder, searches, drop
        flat = [scan for slices in scans for scan in slices]
        self.starts: list[int] = np.cumsum([0, *(len(open_array(scan, "flags")) for scan in flat)]).tolist()
        self.part_starts = [self.starts[end] for end in np.cumsum([0, *map(len, scans)])]
        self.reasons = create_values(folder / REASONS_FILE, np.uint16, self.starts[-1])
        self.mask = create_values(folder / MASK_FILE, np.bool_, self.starts[-1])
        self.index = RowIndex(flat, folder / MASK_FILE)
        self.origins: dict[tuple[Reason, int], dict[int, int]] = {}  # first rows, and what they repeat, by part
        self.repeated: list[Counter[int]] = [Counter() for _ in scans]  # rows that an earlier part has, by that part

    def blocks(self, first: int, last: int) -> Iterator[slice]:
        """Yield the rows from one to another in blocks that fit into memory."""
        return (slice(start, min(start + ROWS_AT_ONCE, last)) for start in range(first, last, ROWS_AT_ONCE))

    def part_numbers(self, rows: np.ndarray | int) -> np.ndarray:
        """Number of the part of each row."""
        return np.asarray(np.searchsorted(self.part_starts, rows, side="right") - 1)

    def apply(self, rules: Rules) -> None:
        """Apply all rules in their order."""
        self._apply_flags()
        if rules.duplicates:
            for rows, origins in self.searches.run(
                "duplicates", self.index, duplicates.ROW_KEY, partial(duplicates.find_repeated)
            ):
                self._mark_duplicates(rows, origins)
        if rules.near_duplicates:
            self._mark_near_duplicates()
        for number in range(len(self.scans)):
            if rules.many_to_one:
                self._mark_many_to_one(number, rules.many_to_one)
            if rules.ratio:
                self._mark_length_ratios(number, rules.ratio)

    def _apply_flags(self) -> None:
        """Mark the rows with reasons that need one row alone."""
        for scan, start in zip(self.index.scans, self.starts, strict=False):
            flags = open_array(scan, "flags")
            for block in self.blocks(0, len(flags)):
                values, rows = flags[block], slice(start + block.start, start + block.stop)
                is_blank = (values & BLANK) != 0
                kept = values & -values if self.drop else values  # the lowest bit is the first reason
                self.reasons[rows] = np.where(is_blank, BLANK, kept)
                self.mask[rows] = ~is_blank & ((values == 0) | (not self.drop))

    def _mark_duplicates(self, rows: np.ndarray, origins: np.ndarray) -> None:
        part, origin = self.part_numbers(rows), self.part_numbers(origins)
        is_other = part != origin
        self._mark(Reason.DUPLICATE, rows[~is_other], origins[~is_other])
        self._mark(Reason.IN_OTHER_CORPUS, rows[is_other], origins[is_other])
        pairs, counts = np.unique(np.stack([part, origin])[:, is_other], axis=1, return_counts=True)
        for number, other, amount in zip(*pairs, counts, strict=True):
            self.repeated[int(number)][int(other)] += int(amount)

    def _mark_near_duplicates(self) -> None:
        """Find rows that are similar to an earlier one.

        The rows that a band finds are excluded from those after it. All bands are searched again without the rows found
        so far until no more are found.
        """
        is_left = create_values(self.folder / SIMILAR_FILE, np.bool_, len(self.mask))
        is_repeated = BIT[Reason.DUPLICATE] | BIT[Reason.IN_OTHER_CORPUS]
        for block in self.blocks(0, len(self.mask)):
            is_left[block] = self.mask[block] & ((self.reasons[block] & is_repeated) == 0)
        index = replace(self.index, mask=self.folder / SIMILAR_FILE)
        for repetition in count(1):
            has_found = False
            for band in range(BANDS):
                search = partial(duplicates.find_similar, band=band)
                title = f"near duplicates {repetition}.{band + 1}"
                for rows, origins in self.searches.run(title, index, duplicates.band_key(band), search):
                    is_left[rows] = False
                    self._mark(Reason.NEAR_DUPLICATE, rows, origins)
                    has_found |= len(rows) > 0
            if not has_found:
                return

    def _mark_many_to_one(self, number: int, most: int) -> None:
        index = RowIndex(self.scans[number], self.folder / MASK_FILE, self.part_starts[number])
        found = [
            self.searches.run(
                f"many to one {number} {key}", index, key, partial(duplicates.find_many_to_one, side=side, most=most)
            )
            for side, key in enumerate(duplicates.SIDE_KEYS)
        ]  # both before rows are dropped
        for results in found:
            for (rows,) in results:
                self._mark(Reason.MANY_TO_ONE, rows)

    def _mark_length_ratios(self, number: int, most: float) -> None:
        first = sum(map(len, self.scans[:number]))
        ratios = [open_array(scan, "proportions") for scan in self.scans[number]]
        starts = self.starts[first : first + len(ratios)]
        masks = [self.mask[start : start + len(values)] for start, values in zip(starts, ratios, strict=True)]
        for start, rows in zip(starts, find_length_outliers(ratios, masks, most, self.drop), strict=True):
            self._mark(Reason.LENGTH_RATIO, rows + start)

    def _mark(self, reason: Reason, rows: np.ndarray, origins: np.ndarray | None = None) -> None:
        self.reasons[rows] |= BIT[reason]
        if self.drop:
            self.mask[rows] = False
        if origins is None:
            return
        edges = np.searchsorted(rows, self.part_starts)
        for number, (start, end) in enumerate(pairwise(edges)):
            examples = slice(start, min(end, start + EXAMPLES))
            first = self.origins.setdefault((reason, number), {})
            first |= dict(zip(rows[examples].tolist(), origins[examples].tolist(), strict=True))
            self.origins[reason, number] = {row: first[row] for row in sorted(first)[:EXAMPLES]}

    # ---- results ----

    def count(self, number: int) -> dict[str, Any]:
        """Return how many rows of a part are kept, and how many have each reason."""
        kept, reasons = 0, Counter[str]()
        for block in self.blocks(*self.part_starts[number : number + 2]):
            values = self.reasons[block]
            kept += int((values == 0).sum())
            reasons.update({reason: int(((values & BIT[reason]) != 0).sum()) for reason in Reason})
        return {"kept": kept, "reasons": {reason: reasons[reason] for reason in Reason if reasons[reason]}}

    def first_rows(self, number: int, reason: Reason) -> list[int]:
        """Return the first rows of a part with a reason."""
        rows: list[int] = []
        for block in self.blocks(*self.part_starts[number : number + 2]):
            rows += (np.flatnonzero(self.reasons[block] & BIT[reason])[:EXAMPLES] + block.start).tolist()
            if len(rows) >= EXAMPLES:
                break
        return rows[:EXAMPLES]


def _find_examples(
    part: CorpusPart, parts: Sequence[CorpusPart], group: _Group, number: int, plans: Path, index: BenchmarkIndex | None
) -> dict[str, list[dict[str, Any]]]:
    """Return the first rows with each reason. Rows count from 1, without blank and malformed lines."""
    start = group.part_starts[number]
    rows_by_reason = {reason: group.first_rows(number, reason) for reason in Reason}
    slices = _SliceRows(part, group, number, plans)
    texts = slices.read({row for rows in rows_by_reason.values() for row in rows})
    examples: dict[str, list[dict[str, Any]]] = {}
    for reason, rows in rows_by_reason.items():
        for row in rows:
            sides = [text[:EXAMPLE_CHARACTERS] for text in texts[row] if text]
            example: dict[str, Any] = {"row": row - start + 1, "text": sides}
            origin = group.origins.get((reason, number), {}).get(row)
            if origin is not None:
                other = int(group.part_numbers(origin))
                example |= {"first in": parts[other].name, "first row": origin - group.part_starts[other] + 1}
            if reason in (Reason.IN_BENCHMARK, Reason.NEAR_BENCHMARK) and index:
                example["benchmark"] = index.text(slices.benchmark_sentence(row))[:EXAMPLE_CHARACTERS]
            examples.setdefault(reason, []).append(example)
    return examples


class _SliceRows:
    """Rows of the slices of a part, by their number in the group."""

    def __init__(self, part: CorpusPart, group: _Group, number: int, plans: Path) -> None:
        self.part, self.scans, self.plans = part, group.scans[number], plans
        first = sum(map(len, group.scans[:number]))
        self.starts = group.starts[first : first + len(self.scans)]

    def _locate(self, row: int) -> tuple[int, int]:
        number = bisect_right(self.starts, row) - 1
        return number, row - self.starts[number]

    def read(self, wanted: set[int]) -> dict[int, TextRow]:
        """Read these rows again, and in each slice no row after the last of them."""
        rows_by_slice: dict[int, dict[int, int]] = {}
        for row in wanted:
            number, place = self._locate(row)
            rows_by_slice.setdefault(number, {})[place] = row
        found: dict[int, TextRow] = {}
        for number, rows in rows_by_slice.items():
            texts = self.part.slice(number, self.part.plan(self.plans)).rows()
            first = enumerate(islice(texts, max(rows) + 1))
            found |= {rows[place]: text for place, text in first if place in rows}
        return found

    def benchmark_sentence(self, row: int) -> int:
        """Return the number of the benchmark sentence that a row has."""
        number, place = self._locate(row)
        hits = open_array(self.scans[number], "hits")
        return int(hits[np.searchsorted(hits[:, 0], place), 1])
