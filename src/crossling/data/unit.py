"""A unit is what has a folder of its own in the shards: a language of text, a bitext, a language of a multi-way set.

Here it is encoded, whole or one slice of it (every n-th block of its rows), and slices are put together in the order of
the source. A finished folder says of itself in entry.json what it was made from, what it holds, and its checksums.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from crossling.corpora.corpus import MultiWay, Pairs, Text
from crossling.corpora.formats import Source
from crossling.data.column import Column, checksum, mapped
from crossling.data.shards import FORMAT, Sentences, count
from crossling.disk import new_folder, write_json
from crossling.errors import BadInput
from crossling.vocabulary.vocabulary import EOS, Vocabulary

ROWS_AT_ONCE = 4096  # a block: encoded together, and never split between slices
NO_TOKENS = "no tokens"


@dataclass(frozen=True)
class Unit:
    place: str  # its folder: text/sw, pairs/NAME.en-fr, multi/NAME/en
    corpus: Text | Pairs | MultiWay
    language: str = ""  # of a multi-way set

    @property
    def sources(self) -> tuple[Source, ...]:
        return (self.corpus.sources[self.language],) if isinstance(self.corpus, MultiWay) else self.corpus.sources

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Of the files of each side."""
        return tuple(f"{language}." for language in self.corpus.languages) if isinstance(self.corpus, Pairs) else ("",)

    def blocks(self, dropped: Counter[str]) -> Iterator[list[list[tuple[str, ...]]]]:
        """Some ROWS_AT_ONCE rows at a time, grouped by what belongs together: a row has one line for each side."""
        block: list[list[tuple[str, ...]]] = []
        rows = 0
        for group in self._groups(dropped):
            block.append(group)
            rows += len(group)
            if rows >= ROWS_AT_ONCE:
                yield block
                block, rows = [], 0
        if block:
            yield block

    def _groups(self, dropped: Counter[str]) -> Iterator[list[tuple[str, ...]]]:
        match self.corpus:
            case Text():
                for document in self.corpus.documents(dropped):
                    yield [(line,) for line in document]
            case Pairs():
                for row in self.corpus.rows(dropped):
                    yield [row]
            case MultiWay():
                for line in self.corpus.lines(self.language, dropped):
                    yield [(line,)]


# ---- what a finished folder is ------------------------------------------------------------------------------


def key_of(unit: Unit, vocabulary: Vocabulary) -> str:
    """What the ids of a unit are a function of."""
    sources = xxhash.xxh3_128()
    for source in unit.sources:
        sources.update(f"{source.name} {source.digest()}\n".encode())  # the name tells the language
    return kind_of(vocabulary) + sources.hexdigest()


def kind_of(vocabulary: Vocabulary) -> str:
    """How the keys of all that was encoded with it begin."""
    return f"{FORMAT}-{vocabulary.fingerprint}-"


def slice_folder(out: Path, unit: Unit, part: int, parts: int) -> Path:
    return out / ".parts" / unit.place / f"{part + 1}-of-{parts}"


def is_done(folder: Path, key: str) -> bool:
    entry = entry_of(folder)
    return entry is not None and entry["key"].startswith(key)


def is_damaged(folder: Path) -> bool:
    """Whether a file of a finished folder is not what was written."""
    entry = entry_of(folder)
    return entry is None or any(checksum(folder / name) != file["xxh3"] for name, file in entry["files"].items())


def entry_of(folder: Path) -> dict[str, Any] | None:
    """What a finished folder says of itself; none if there is none, or if a file of it was cut off or lost since."""
    try:
        entry: dict[str, Any] = json.loads((folder / "entry.json").read_text(encoding="utf-8"))
        sizes = {name: (folder / name).stat().st_size for name in entry["files"]}
    except (OSError, ValueError, KeyError):
        return None
    return entry if sizes == {name: file["bytes"] for name, file in entry["files"].items()} else None


# ---- writing one --------------------------------------------------------------------------------------------


def write(unit: Unit, vocabulary: Vocabulary, folder: Path, part: int, parts: int, key: str) -> None:
    read, empty = Counter[str](), 0
    with ExitStack() as stack:
        sides = [_Side(stack, folder, prefix, vocabulary.size) for prefix in unit.prefixes]
        documents, blocks = (_ends(stack, folder / f"{name}.npy") for name in ("documents", "blocks"))
        rows = 0
        for number, block in enumerate(unit.blocks(read)):
            if number % parts != part:
                continue
            lines = zip(*(row for group in block for row in group), strict=True)
            ids_by_side = [vocabulary.encode(side) for side in lines]
            present = np.asarray([all(row) for row in zip(*ids_by_side, strict=True)])
            if isinstance(unit.corpus, MultiWay):
                present[:] = True  # line n is row n
            empty += int(np.count_nonzero(~present))
            for side, ids in zip(sides, ids_by_side, strict=True):
                side.add([row for row, there in zip(ids, present, strict=True) if there])
            ends = np.cumsum(present)[np.cumsum([len(group) for group in block]) - 1]
            documents.add(rows + ends[np.diff(ends, prepend=0) > 0])
            rows += int(ends[-1])
            blocks.add(np.asarray([rows]))
    dropped = dict(read) | ({NO_TOKENS: empty} if empty else {})
    _finish(unit, folder, key, dropped, is_slice=parts > 1)


def _finish(unit: Unit, folder: Path, key: str, dropped: dict[str, int], is_slice: bool) -> None:
    """Counts, checksums, and the entry that says that all is there."""
    if not isinstance(unit.corpus, Text):
        (folder / "documents.npy").unlink()
    if not is_slice:
        (folder / "blocks.npy").unlink()
    sides = [Sentences.open(folder, prefix) for prefix in unit.prefixes]
    tokens = [len(side.tokens) for side in sides]
    match unit.corpus:
        case Text():
            documents = len(mapped(folder / "documents.npy")) - 1
            entry: dict[str, Any] = {"sentences": len(sides[0]), "documents": documents, "tokens": tokens[0]}
        case Pairs():
            entry = {"languages": list(unit.corpus.languages), "pairs": len(sides[0]), "tokens": tokens}
        case MultiWay():
            entry = {"rows": len(sides[0]), "filled": count(sides[0]), "tokens": tokens[0]}
    files = {file.name: {"bytes": file.stat().st_size, "xxh3": checksum(file)} for file in sorted(folder.glob("*.npy"))}
    write_json(folder / "entry.json", {"key": key, **entry, "dropped": dropped, "files": files})


class _Side:
    """One side of a unit as it is written."""

    def __init__(self, stack: ExitStack, folder: Path, prefix: str, vocabulary_size: int) -> None:
        self.type = np.dtype(np.uint16 if vocabulary_size <= 1 << 16 else np.uint32)
        self.tokens = stack.enter_context(Column(folder / f"{prefix}tokens.npy", self.type))
        self.offsets = _ends(stack, folder / f"{prefix}offsets.npy")

    def add(self, sentences: Sequence[Sequence[int]]) -> None:
        closed = [[*ids, EOS] if ids else [] for ids in sentences]
        lengths = np.fromiter(map(len, closed), dtype=np.int64, count=len(closed))
        flat = np.fromiter((i for ids in closed for i in ids), dtype=self.type, count=int(lengths.sum()))
        self.extend(flat, lengths)

    def extend(self, tokens: np.ndarray, lengths: np.ndarray) -> None:
        self.offsets.add(self.tokens.length + np.cumsum(lengths))
        self.tokens.add(tokens)


def _ends(stack: ExitStack, path: Path) -> Column:
    """A column of places that begins with 0."""
    column = stack.enter_context(Column(path, np.int64))
    column.add(np.zeros(1, dtype=np.int64))
    return column


# ---- slices together ----------------------------------------------------------------------------------------


def join(out: Path, unit: Unit, vocabulary: Vocabulary, parts: int) -> None:
    """The slices of a unit, block by block in the order of the source."""
    key = key_of(unit, vocabulary)
    if is_done(out / unit.place, key):
        return
    folders = [slice_folder(out, unit, part, parts) for part in range(parts)]
    entries = [entry for folder in folders if (entry := entry_of(folder)) and entry["key"] == key]
    if len(entries) < parts:
        raise BadInput(f"{unit.place}: the sources changed while they were encoded; run crossling encode again")
    blocks = [mapped(folder / "blocks.npy") for folder in folders]
    with new_folder(out / unit.place) as new:
        with ExitStack() as stack:
            documents = _ends(stack, new / "documents.npy")
            _ends(stack, new / "blocks.npy")
            for prefix in unit.prefixes:
                target = _Side(stack, new, prefix, vocabulary.size)
                sides = [Sentences.open(folder, prefix, isinstance(unit.corpus, Text)) for folder in folders]
                for number in range(sum(map(len, blocks)) - parts):
                    side, of_side = sides[number % parts], blocks[number % parts]
                    start, end = of_side[number // parts], of_side[number // parts + 1]
                    offsets = side.offsets[start : end + 1]
                    if side.documents is not None:
                        own = side.documents[
                            np.searchsorted(side.documents, start, "right") : np.searchsorted(
                                side.documents, end, "right"
                            )
                        ]
                        documents.add(own - start + target.offsets.length - 1)
                    target.extend(side.tokens[offsets[0] : offsets[-1]], np.diff(offsets))
        # What the reader left out, every slice has seen; what had no tokens, each for its own rows.
        empty = sum(entry["dropped"].get(NO_TOKENS, 0) for entry in entries)
        dropped = entries[0]["dropped"] | ({NO_TOKENS: empty} if empty else {})
        _finish(unit, new, key, dropped, is_slice=False)
        (out / "manifest.json").unlink(missing_ok=True)
