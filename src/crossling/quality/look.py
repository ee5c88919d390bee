"""Reading a unit once: the faults of every row, and what is needed to compare rows with each other, on disk.

    flags        the reasons against a row that need no other row
    hashes       of the row as it is, to find it again               8 bytes a row
    sides        of each side in its plain form                     16
    proportions  of the lengths of both sides                        4
    signatures   by MinHash                                        256
    hits         rows of (row, benchmark sentence, whether it is only similar)

Only what the rules ask for is written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import xxhash

from crossling.disk import new_folder, write_json
from crossling.quality.normal import plain, weight
from crossling.quality.overlap import Index
from crossling.quality.rules import BIT, IN_BENCHMARK, NEAR_BENCHMARK, RowJudge, Rules, proportion
from crossling.quality.shingles import PERMUTATIONS, signatures
from crossling.quality.units import Row, Unit

FORMAT = 1
ENTRY = "entry.json"
ROWS_AT_ONCE = 4096
SHORTEST_SIDE = 20  # letters, for a text with many translations to be suspicious: "Yes." is not

_ARRAYS: dict[str, tuple[type, int]] = {
    "flags": (np.uint16, 1),
    "hashes": (np.uint64, 1),
    "sides": (np.uint64, 2),
    "proportions": (np.float32, 1),
    "signatures": (np.uint16, PERMUTATIONS),
    "hits": (np.int64, 3),
}


def array(folder: Path, name: str) -> np.ndarray:
    """What `look` wrote, mapped; empty where nothing was to be written."""
    kind, width = _ARRAYS[name]
    file = folder / name
    there = file.is_file() and file.stat().st_size > 0  # nothing cannot be mapped
    values = np.memmap(file, dtype=kind, mode="r") if there else np.empty(0, dtype=kind)
    return values if width == 1 else values.reshape(-1, width)


def entry(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / ENTRY).read_text(encoding="utf-8"))
    return found


def is_done(folder: Path, key: str) -> bool:
    return (folder / ENTRY).is_file() and entry(folder)["key"] == key


def key_of(*parts: object) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps([FORMAT, *parts], sort_keys=True).encode())


def look(unit: Unit, rules: Rules, folder: Path, index_folder: Path | None) -> None:
    """Reads a unit, unless that was done with the same rules and sources."""
    index = Index(index_folder) if index_folder else None
    digest = unit.digest()
    key = key_of(unit.name, unit.pivot, rules.to_json(), index.key if index else None, digest)
    if is_done(folder, key):
        return
    judge = RowJudge(rules, unit)
    counts: Counter[str] = Counter()
    tally: Counter[str] = Counter()
    rows = unit.rows(counts)
    total = 0
    with new_folder(folder) as new:
        with ExitStack() as stack:
            files: dict[str, IO[bytes]] = {}
            while chunk := list(islice(rows, ROWS_AT_ONCE)):
                forms = [(plain(line), plain(other)) for line, other in chunk]
                found = _measure(chunk, forms, unit, rules)
                flags = np.array([judge.faults(*both) for both in zip(chunk, forms, strict=True)], dtype=np.uint16)
                if index:
                    hits = _hits(chunk, unit, index)
                    np.bitwise_or.at(flags, hits[:, 0], np.where(hits[:, 2], BIT[NEAR_BENCHMARK], BIT[IN_BENCHMARK]))
                    hits[:, 0] += total
                    found["hits"] = hits
                for name, values in (found | {"flags": flags}).items():
                    if name not in files:
                        files[name] = stack.enter_context((new / name).open("wb"))
                    files[name].write(values.astype(_ARRAYS[name][0]).tobytes())
                total += len(chunk)
                _count(chunk, unit, tally)
        known = {"digest": digest, **tally, "malformed": dict(counts), "unknown": judge.unknown}
        instead = {language: dict(seen.most_common()) for language, seen in judge.instead.items() if seen}
        write_json(new / ENTRY, {"key": key, **known, "instead": instead})


def _count(chunk: list[Row], unit: Unit, tally: Counter[str]) -> None:
    judged = [line for line, _ in chunk if line] + ([other for _, other in chunk] if len(unit.languages) == 2 else [])
    tally["filled"] += sum(1 for line, _ in chunk if line)
    tally["characters"] += sum(map(len, judged))
    tally["words"] += sum(len(line.split()) for line in judged)


def _measure(chunk: list[Row], forms: list[Row], unit: Unit, rules: Rules) -> dict[str, np.ndarray]:
    """What rows are compared by; nothing for a line of a pivot, which repeats as often as its translations differ."""
    if unit.kind != "text" and unit.pair is None:
        return {}
    found = {}
    whole = [bool(line) and (bool(other) or unit.pair is None) for line, other in chunk]
    if rules.duplicates:
        turned = unit.pair is not None and unit.pair[0] > unit.pair[1]  # both orders of two languages are one group
        found["hashes"] = _hashes((f"{b}\t{a}" if turned else f"{a}\t{b}" for a, b in chunk), whole)
    if rules.near_duplicates:
        found["signatures"] = signatures([a + b if there else "" for (a, b), there in zip(forms, whole, strict=True)])
    if rules.many_to_one and unit.pair:
        sides = [
            _hashes(side, [there and weight(text) >= SHORTEST_SIDE for text, there in zip(side, whole, strict=True)])
            for side in zip(*forms, strict=True)
        ]
        found["sides"] = np.stack(sides, axis=1)
    if rules.ratio and unit.pair:
        ratios = [proportion(*row) if there else np.nan for row, there in zip(chunk, whole, strict=True)]
        found["proportions"] = np.array(ratios)
    return found


def _hashes(texts: Iterable[str], judged: list[bool]) -> np.ndarray:
    hashed = (
        xxhash.xxh3_64_intdigest(text.encode()) if there else 0 for text, there in zip(texts, judged, strict=True)
    )
    return np.fromiter(hashed, dtype=np.uint64, count=len(judged))


def _hits(chunk: list[Row], unit: Unit, index: Index) -> np.ndarray:
    found = [index.find([row[side] for row in chunk]) for side in range(len(unit.languages))]
    return np.unique(np.concatenate(found), axis=0)
