"""Parallel text to learn translation from, to choose by and to score on.

A folder has files side by side, each plain or packed, one sentence a line: train.LL, dev.LL (or val, valid), and any
number of test sets, test*.LL (or tst*); or it is CORPORA with pairs/ and multi/, of which a part is held out here.
"""

from __future__ import annotations

import heapq
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import xxhash

from crossling.corpora.corpus import Corpora
from crossling.corpora.files import COMPRESSED, Skip, clean, lines
from crossling.corpora.languages import CODE_IN_PAIR, canonical
from crossling.errors import BadInput
from crossling.translation.directions import Direction

Rows = list[tuple[str, str]]  # source and target
Bitext = dict[Direction, Rows]
Pair = tuple[str, str]  # of languages, in the order of their names

TRAIN, DEV = "train", "dev"
_SPLIT = {"train": TRAIN, "dev": DEV, "val": DEV, "valid": DEV}
_FILE = re.compile(rf"(?P<split>train|dev|val|valid|te?st[A-Za-z0-9_]*)\.(?P<language>{CODE_IN_PAIR})")
HELD, SHARE = 500, 20  # rows of CORPORA held out for dev, and for test, of a pair; at most one of so many of its rows
LOOKED_FOR = "train.LL, dev.LL and test.LL side by side, or pairs/ and multi/ as in CORPORA"


@dataclass(frozen=True)
class Parallel:
    """What is learned from, chosen by and scored on, by direction."""

    train: Bitext
    dev: Bitext
    tests: dict[str, Bitext] = field(default_factory=dict)  # by name of the set

    @cached_property
    def fingerprint(self) -> str:
        """Of all that is learned from or chosen by."""
        parts = [
            [(str(direction), fingerprint(rows)) for direction, rows in sorted(part.items())]
            for part in (self.train, self.dev)
        ]
        return xxhash.xxh3_64_hexdigest(repr(parts).encode())


def fingerprint(rows: Rows) -> str:
    told = xxhash.xxh3_64()
    for row in rows:
        told.update("\t".join(row).encode() + b"\n")
    return told.hexdigest()


def read(data: Path, directions: Sequence[Direction], parts: Sequence[str] = ("train", "dev", "test")) -> Parallel:
    """The parts that are asked for, of every direction. A dev or test part may have some directions only."""
    languages = {code for direction in directions for code in (direction.source, direction.target)}
    if not data.is_dir():
        raise BadInput(f"{data} is no folder: give one with {LOOKED_FOR}")
    if any((data / part).is_dir() for part in ("pairs", "multi")):
        found = _held_out(Corpora(data), directions, parts)
    else:
        found = _side_by_side(_place(data, languages), directions, parts)
    for direction in directions if "train" in parts else ():
        if not found.train.get(direction):
            raise BadInput(f"{data}: there is no training text for {direction}; looked for {LOOKED_FOR}")
    return found


# ---- files side by side -------------------------------------------------------------------------------------


def _files(folder: Path) -> dict[str, dict[str, Path]]:
    """By split and language."""
    found: dict[str, dict[str, Path]] = defaultdict(dict)
    for file in sorted(folder.iterdir()):
        match = _FILE.fullmatch(COMPRESSED.sub("", file.name))
        if match is None or not file.is_file():
            continue
        try:
            language = canonical(match["language"])
        except BadInput:
            continue  # a file that only looks like one
        here = found[_SPLIT.get(match["split"], match["split"])]
        if language in here:
            raise BadInput(f"{here[language]} and {file} are the same text twice: keep one of them")
        here[language] = file
    return dict(found)


def _place(data: Path, languages: set[str]) -> Path:
    """The folder itself, or the one folder in it that has the languages."""
    if _files(data):
        return data
    below = [place for place in sorted(data.iterdir()) if place.is_dir()]
    fitting = [place for place in below if languages <= {code for by in _files(place).values() for code in by}]
    if len(fitting) != 1:
        told = f"{', '.join(place.name for place in fitting)} all have it: give one of them" if fitting else ""
        raise BadInput(
            f"{data}: parallel text of {', '.join(sorted(languages))} is expected; "
            + (told or f"looked here and one folder below for {LOOKED_FOR}")
        )
    return fitting[0]


def _side_by_side(folder: Path, directions: Sequence[Direction], parts: Sequence[str]) -> Parallel:
    texts: dict[Path, list[str]] = {}
    splits: dict[str, Bitext] = {}
    for split, files in _files(folder).items():
        if (split if split in (TRAIN, DEV) else "test") not in parts:
            continue
        for direction in directions:
            sides = [files.get(direction.source), files.get(direction.target)]
            if None not in sides:
                rows = _joined([file for file in sides if file], texts)
                splits.setdefault(split, {})[direction] = rows
    train, dev = splits.pop(TRAIN, {}), splits.pop(DEV, {})
    return Parallel(train, dev, splits)


def _joined(files: Sequence[Path], texts: dict[Path, list[str]]) -> Rows:
    """Rows with both sides filled."""
    for file in files:
        if file not in texts:
            texts[file] = [*_lines(file)]
    one, other = (texts[file] for file in files)
    if len(one) != len(other):
        raise BadInput(
            f"{files[0]} has {len(one):,} lines and {files[1]} has {len(other):,}: line n of one must translate line n"
            " of the other; fetch or make both again"
        )
    rows = [(source, target) for source, target in zip(one, other, strict=True) if source and target]
    if not rows:
        raise BadInput(f"{files[0]} and {files[1]} have no row with both sides filled; fetch or make both again")
    return rows


def _lines(file: Path) -> Iterator[str]:
    for number, line in enumerate(lines(file), start=1):
        if isinstance(line, Skip):
            raise BadInput(f"{file}: line {number} cannot be read ({line.value}); mend or remove it on both sides")
        yield clean(line)


# ---- corpora ------------------------------------------------------------------------------------------------


def _held_out(corpora: Corpora, directions: Sequence[Direction], parts: Sequence[str]) -> Parallel:
    """Of each pair of languages rows with the lowest hashes are dev and test, whatever order they come in. No test row
    of any pair has a sentence of dev, and no training row one of either."""
    pairs = sorted({(min(d.source, d.target), max(d.source, d.target)) for d in directions})
    rows = {pair: _rows(corpora, pair) for pair in pairs}
    sizes = {pair: min(HELD, len(found) // SHARE) for pair, found in rows.items()}
    # More than are needed: some of what comes after dev shares a sentence with it.
    lowest = {pair: heapq.nsmallest(4 * sizes[pair], found, key=_hash) for pair, found in rows.items()}
    dev = {pair: found[: sizes[pair]] for pair, found in lowest.items()}
    test = {pair: found[: sizes[pair]] for pair, found in _without(lowest, dev).items()}
    train = _without(_without(rows, dev), test)
    counts = (
        f"{a}-{b} {len(train[a, b]):,} to train on, {len(dev[a, b])} dev, {len(test[a, b])} test" for a, b in pairs
    )
    warnings.warn(f"{corpora.path}: rows held out by their hash: {'; '.join(counts)}", stacklevel=2)
    return Parallel(
        _by_direction(train, directions) if "train" in parts else {},
        _by_direction(dev, directions) if "dev" in parts else {},
        {"test": _by_direction(test, directions)} if "test" in parts else {},
    )


def _without(rows: Mapping[Pair, Rows], others: Mapping[Pair, Rows]) -> dict[Pair, Rows]:
    """The rows that share no sentence with any of the others."""
    said: dict[str, set[str]] = defaultdict(set)  # by language
    for pair, found in others.items():
        for row in found:
            for language, sentence in zip(pair, row, strict=True):
                said[language].add(sentence)
    return {
        (a, b): [row for row in found if row[0] not in said[a] and row[1] not in said[b]]
        for (a, b), found in rows.items()
    }


def _rows(corpora: Corpora, pair: Pair) -> Rows:
    """All that the corpora have of a pair of languages, each row once, in its order."""
    found: dict[tuple[str, str], None] = {}
    for pairs in corpora.pairs:
        if pairs.languages == pair:
            found |= dict.fromkeys(pairs.rows())
        elif pairs.languages == pair[::-1]:
            found |= dict.fromkeys((other, one) for one, other in pairs.rows())
    for multi in corpora.multi:
        if {*pair} <= {*multi.languages}:
            multi.check()
            sides = zip(multi.lines(pair[0]), multi.lines(pair[1]), strict=False)
            found |= dict.fromkeys((one, other) for one, other in sides if one and other)
    return list(found)


def _hash(row: tuple[str, str]) -> int:
    return xxhash.xxh3_64_intdigest("\t".join(row).encode())


def _by_direction(rows: Mapping[Pair, Rows], directions: Sequence[Direction]) -> Bitext:
    found: Bitext = {}
    for direction in directions:
        forward = rows.get((direction.source, direction.target))
        backward = rows.get((direction.target, direction.source), [])
        own = [(target, source) for source, target in backward] if forward is None else forward
        if own:
            found[direction] = own
    return found
