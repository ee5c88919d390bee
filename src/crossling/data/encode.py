"""Text to token shards (see shards.py), by independent tasks.

A unit is what has a folder of its own: a language of text, a bitext, a language of a multi-way set. Each is written
whole or not at all, and is not written again when its sources have not changed: that is how encoding goes on after an
interruption, and how a language is added. A large unit is encoded in slices, every n-th block of its rows each, which
are then put together in the order of the source; so several machines can share one file, each reading all of it
(which is cheap) and encoding its part (which is not). The manifest comes last.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from glob import escape
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from crossling.corpora.corpus import Corpora, MultiWay, Pairs, Text
from crossling.corpora.formats import Source
from crossling.data.column import Column, checksum, mapped
from crossling.data.shards import FORMAT, Sentences, Shards
from crossling.disk import new_folder, write_json
from crossling.errors import BadInput
from crossling.tasks import Share, Task, run
from crossling.vocabulary.vocabulary import EOS, Vocabulary, check_place, copy_vocabulary

SLICE_BYTES = 256 << 20  # of source files, as they lie on disk
MOST_SLICES = 32  # beyond it, reading everything in every slice would cost more than encoding
ROWS_AT_ONCE = 4096  # a block: encoded together, and never split between slices
NO_TOKENS = "no tokens"
LEFT_OUT = "left-out.json"  # pairs of a multi-way set that another collection has, by the priority asked for
KINDS = ("text", "pairs", "multi")


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


def encode(corpora: Corpora, vocabulary: Path, out: Path, workers: int = 1, append: bool = False) -> Shards:
    """Text to token shards; goes on where it was interrupted. With `append`, what the shards hold already stays."""
    shards = encode_share(corpora, vocabulary, out, None, workers, append)
    assert shards is not None
    return shards


def encode_share(
    corpora: Corpora, vocabulary: Path, out: Path, share: Share | None, workers: int = 1, append: bool = False
) -> Shards | None:
    """One share of the tasks, as one of several machines would do it. Whoever finds that all are done puts the slices
    together, writes the manifest and returns the shards; the others return None."""
    vocab, out = Vocabulary.load(vocabulary), Path(out)
    units = [
        *(Unit(f"text/{text.language}", text) for text in corpora.text),
        *(Unit(f"pairs/{pairs.label}", pairs) for pairs in corpora.pairs),
        *(Unit(f"multi/{m.name}/{language}", m, language) for m in corpora.multi for language in m.languages),
    ]
    kept = _check_place(out, units, vocab, append)
    out.mkdir(parents=True, exist_ok=True)
    slices = {unit.place: _slices(unit) for unit in units}
    tasks = [
        Task(
            f"{unit.place} {part + 1}/{parts}" if parts > 1 else unit.place, partial(_do, out, unit, vocab, part, parts)
        )
        for unit in units
        for parts in [slices[unit.place]]
        for part in range(parts)
    ]
    run("encode", tasks, workers, share)
    if share and not _all_ready(out, units, vocab, slices):
        return None
    with _alone(out) as alone:
        if not alone:
            return None
        joins = [
            Task(unit.place, partial(_join, out, unit, vocab, slices[unit.place]))
            for unit in units
            if slices[unit.place] > 1
        ]
        if joins:
            run("join", joins, workers)
        _sweep(out, units)
        copy_vocabulary(Path(vocabulary), out / "vocab")
        _write_manifest(out, vocab, [*kept, *(unit.place for unit in units)], corpora)
    return Shards.open(out)


def _slices(unit: Unit) -> int:
    """A function of the sources alone, so that it does not matter who asks."""
    size = sum(source.size() for source in unit.sources)
    return max(1, min(MOST_SLICES, -(-size // SLICE_BYTES)))


# ---- one task -----------------------------------------------------------------------------------------------


def _do(out: Path, unit: Unit, vocabulary: Vocabulary, part: int, parts: int) -> None:
    """One slice of a unit, unless it is there already, or the unit as a whole is."""
    key = _key(unit, vocabulary)
    folder = out / unit.place if parts == 1 else _part(out, unit, part, parts)
    if any(_is_done(place, key) and not _damaged(place) for place in (out / unit.place, folder)):
        return
    with new_folder(folder) as new:
        _write(unit, vocabulary, new, part, parts, key)
        if parts == 1:
            (out / "manifest.json").unlink(missing_ok=True)  # an older one would describe the new shards wrongly


def _key(unit: Unit, vocabulary: Vocabulary) -> str:
    """What the ids of a unit are a function of."""
    sources = xxhash.xxh3_128()
    for source in unit.sources:
        sources.update(f"{source.name} {source.digest()}\n".encode())  # the name tells the language
    return _of(vocabulary) + sources.hexdigest()


def _of(vocabulary: Vocabulary) -> str:
    """How the keys of all that was encoded with it begin."""
    return f"{FORMAT}-{vocabulary.fingerprint}-"


def _part(out: Path, unit: Unit, part: int, parts: int) -> Path:
    return out / ".parts" / unit.place / f"{part + 1}-of-{parts}"


def _is_done(folder: Path, key: str) -> bool:
    entry = _entry(folder)
    return entry is not None and entry["key"].startswith(key)


def _damaged(folder: Path) -> bool:
    """Whether a file of a finished folder is not what was written."""
    entry = _entry(folder)
    return entry is None or any(checksum(folder / name) != file["xxh3"] for name, file in entry["files"].items())


def _entry(folder: Path) -> dict[str, Any] | None:
    """What a finished folder says of itself; none if there is none, or if a file of it was cut off or lost since."""
    try:
        entry: dict[str, Any] = json.loads((folder / "entry.json").read_text(encoding="utf-8"))
        sizes = {name: (folder / name).stat().st_size for name in entry["files"]}
    except (OSError, ValueError, KeyError):
        return None
    return entry if sizes == {name: file["bytes"] for name, file in entry["files"].items()} else None


def _write(unit: Unit, vocabulary: Vocabulary, folder: Path, part: int, parts: int, key: str) -> None:
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
            entry = {"rows": len(sides[0]), "filled": _count(sides[0]), "tokens": tokens[0]}
    files = {file.name: {"bytes": file.stat().st_size, "xxh3": checksum(file)} for file in sorted(folder.glob("*.npy"))}
    write_json(folder / "entry.json", {"key": key, **entry, "dropped": dropped, "files": files})


def _count(side: Sentences, other: Sentences | None = None) -> int:
    """Sentences that are there, or rows that two sides share."""
    total, step = 0, 1 << 20
    for start in range(0, len(side), step):
        filled = side.filled(start, start + step)
        total += int(np.count_nonzero(filled if other is None else filled & other.filled(start, start + step)))
    return total


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


# ---- slices together, and the manifest ----------------------------------------------------------------------


def _all_ready(out: Path, units: Sequence[Unit], vocabulary: Vocabulary, slices: dict[str, int]) -> bool:
    """Whether all shares are done. The sources are looked at only if it seems so: by the last one, not by all."""

    def ready(unit: Unit, key: str) -> bool:
        parts = slices[unit.place]
        whole, cut = [out / unit.place], [_part(out, unit, part, parts) for part in range(parts)]
        return any(all(_is_done(folder, key) for folder in folders) for folders in (whole, cut))

    return all(ready(unit, _of(vocabulary)) for unit in units) and all(
        ready(unit, _key(unit, vocabulary)) for unit in units
    )


def _join(out: Path, unit: Unit, vocabulary: Vocabulary, parts: int) -> None:
    """The slices of a unit, block by block in the order of the source."""
    key = _key(unit, vocabulary)
    if _is_done(out / unit.place, key):
        return
    folders = [_part(out, unit, part, parts) for part in range(parts)]
    entries = [entry for folder in folders if (entry := _entry(folder)) and entry["key"] == key]
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


def _sweep(out: Path, units: Sequence[Unit]) -> None:
    """Slices that are joined, and what processes that were killed left behind."""
    shutil.rmtree(out / ".parts", ignore_errors=True)
    for place in (out / unit.place for unit in units):
        for left in place.parent.glob(f".{escape(place.name)}.*"):
            shutil.rmtree(left, ignore_errors=True)


def _write_manifest(out: Path, vocabulary: Vocabulary, places: Sequence[str], corpora: Corpora) -> None:
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "vocabulary": {"size": vocabulary.size, "fingerprint": vocabulary.fingerprint},
        **{kind: {} for kind in KINDS},
    }
    for place in sorted(set(places)):
        kind, name, *language = place.split("/")
        entry = json.loads((out / place / "entry.json").read_text(encoding="utf-8"))
        if language:
            manifest[kind].setdefault(name, {"languages": {}})["languages"][language[0]] = entry
        else:
            manifest[kind][name] = entry
    for given in corpora.multi:  # kept beside the set, for when something is appended without it
        if given.pairs_left_out:
            write_json(out / "multi" / given.name / LEFT_OUT, sorted(given.pairs_left_out))
        else:
            (out / "multi" / given.name / LEFT_OUT).unlink(missing_ok=True)
    for name, multi in manifest["multi"].items():
        rows = {language: entry["rows"] for language, entry in multi["languages"].items()}
        if len(set(rows.values())) > 1:
            listed = ", ".join(f"{language} has {n}" for language, n in rows.items())
            raise BadInput(f"multi/{name}: translations need the same number of lines, but {listed}: align them again")
        sides = {language: Sentences.open(out / "multi" / name / language) for language in rows}
        file = out / "multi" / name / LEFT_OUT
        left_out = {tuple(pair) for pair in json.loads(file.read_text(encoding="utf-8"))} if file.is_file() else set()
        multi["rows"] = next(iter(rows.values()))
        multi["pairs"] = [
            [a, b, shared]
            for a, b in combinations(sides, 2)
            if (a, b) not in left_out and (shared := _count(sides[a], sides[b]))
        ]
    manifest["fingerprint"] = xxhash.xxh3_128_hexdigest(json.dumps(manifest, sort_keys=True).encode())
    write_json(out / "manifest.json", manifest)


@contextmanager
def _alone(out: Path) -> Iterator[bool]:
    """Two shares that end at the same moment must not both put the slices together."""
    with (out / ".joining").open("w") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # let go when its holder ends, killed or not
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            Path(lock.name).unlink(missing_ok=True)


def _check_place(out: Path, units: Sequence[Unit], vocabulary: Vocabulary, append: bool) -> list[str]:
    """Refuses to write shards over anything but shards; the places of what they hold beside these units."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out}: this is a file; give a folder for the shards")
    there = [place for kind in ("text", "pairs") for place in (out / kind).glob("[!.]*")]
    there += [
        place for name in (out / "multi").glob("[!.]*") for place in (name.glob("[!.]*") if name.is_dir() else [name])
    ]
    there = [place for place in there if place.name != LEFT_OUT]
    foreign = [place for place in there if not (place / "entry.json").is_file()]
    if foreign:
        raise BadInput(f"{out}: {min(foreign)} is no part of any shards; give another -o folder")
    check_place(out / "vocab")
    others = sorted({str(place.relative_to(out)) for place in there} - {unit.place for unit in units})
    if others and not append:
        raise BadInput(
            f"{out}: these shards hold {others[0]}, which is not in the corpora; give --append to keep it beside them,"
            " remove that folder, or give another -o folder"
        )
    unlike = [place for place in others if not _is_done(out / place, _of(vocabulary))]
    if unlike:
        raise BadInput(f"{out}: {unlike[0]} was encoded with another vocabulary; give that one, or another -o folder")
    return others
