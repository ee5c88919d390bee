"""Ids on disk: memory-mapped, counted, fingerprinted; a multi-way set is stored once per language.

A side of a corpus is one flat array of ids, every sentence closed by </s>, and the offsets of its sentences:

    SHARDS/manifest.json  vocab/
           text/sw/{tokens,offsets,documents}.npy
           pairs/NAME.en-fr/{en,fr}.{tokens,offsets}.npy
           multi/NAME/{en,de,...}.{tokens,offsets}.npy      an empty sentence where a translation is missing

Each folder is written whole or not at all, and is not written again when its sources have not changed: that is how
encoding goes on after an interruption. The manifest comes last.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import combinations, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from crossling.corpora.corpus import Corpora, MultiWay, Pairs, Text
from crossling.disk import new_folder, write_json
from crossling.errors import BadInput
from crossling.progress import Progress
from crossling.vocabulary.vocabulary import EOS, Vocabulary, check_place, copy_vocabulary

FORMAT = 1
LINES_AT_ONCE = 4096
ROWS_AT_ONCE = 1 << 20  # fewer than the 2^24 up to which 32-bit floats count exactly


@dataclass(frozen=True)
class Sentences:
    """One side of a corpus."""

    tokens: np.ndarray
    offsets: np.ndarray  # sentence i is tokens[offsets[i]:offsets[i + 1]], </s> included

    @classmethod
    def open(cls, folder: Path, prefix: str = "") -> Sentences:
        files = [folder / f"{prefix}{part}.npy" for part in ("tokens", "offsets")]
        try:
            return cls(*(np.load(file, mmap_mode="r") for file in files))
        except (OSError, ValueError, EOFError) as error:
            named = " and ".join(map(str, files))
            raise BadInput(f"{named} cannot be read ({error}): make these shards again with crossling encode") from None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.tokens[self.offsets[index] : self.offsets[index + 1]].astype(np.int64)

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    @cached_property
    def filled(self) -> np.ndarray:
        return self.lengths > 0


@dataclass(frozen=True)
class Bitext:
    """One corpus in one language pair: the unit that is counted and drawn."""

    corpus: str
    languages: tuple[str, str]
    sides: tuple[Sentences, Sentences]
    pairs: int
    number: int  # of the corpus: pairs of one multi-way set share it, so that (number, row) tells a row's translations

    @cached_property
    def rows(self) -> np.ndarray:
        """The rows present on both sides."""
        return np.flatnonzero(self.sides[0].filled & self.sides[1].filled)


@dataclass(frozen=True)
class Shards:
    path: Path
    manifest: dict[str, Any] = field(repr=False)

    @classmethod
    def open(cls, path: Path | str) -> Shards:
        file = Path(path) / "manifest.json"
        if not file.is_file():
            raise BadInput(f"{path}: no shards here (expected manifest.json); make them with crossling encode")
        try:
            manifest = json.loads(file.read_text(encoding="utf-8"))
            parts = {"vocabulary", "text", "pairs", "multi", "fingerprint"}
            known = manifest["format"] == FORMAT and parts <= {*manifest}
            known = known and (Path(path) / "vocab" / "sentencepiece.model").is_file()
        except (ValueError, TypeError, KeyError):
            known = False
        if not known:
            raise BadInput(f"{path}: damaged or of another version; make these shards again with crossling encode")
        return cls(Path(path), manifest)

    @property
    def fingerprint(self) -> str:
        return str(self.manifest["fingerprint"])

    @property
    def vocabulary_size(self) -> int:
        return int(self.manifest["vocabulary"]["size"])

    @property
    def vocabulary_path(self) -> Path:
        return self.path / "vocab"

    @cached_property
    def text(self) -> dict[str, Sentences]:
        return {language: Sentences.open(self.path / "text" / language) for language in self.manifest["text"]}

    @cached_property
    def bitexts(self) -> list[Bitext]:
        """Every corpus in every language pair it holds; multi-way sets give all their X-Y pairs without a copy."""
        found = []
        number = 0
        for name, entry in self.manifest["pairs"].items():
            source, target = entry["languages"]
            folder = self.path / "pairs" / name
            sides = Sentences.open(folder, f"{source}."), Sentences.open(folder, f"{target}.")
            found.append(Bitext(name, (source, target), sides, entry["pairs"], number))
            number += 1
        for name, entry in self.manifest["multi"].items():
            folder = self.path / "multi" / name
            sides_by_language = {language: Sentences.open(folder, f"{language}.") for language in entry["languages"]}
            shared = _shared([side.filled for side in sides_by_language.values()])
            for (i, a), (j, b) in combinations(enumerate(sides_by_language), 2):
                if shared[i, j]:
                    both = sides_by_language[a], sides_by_language[b]
                    found.append(Bitext(name, (a, b), both, int(shared[i, j]), number))
            number += 1
        return found


def _shared(filled: list[np.ndarray]) -> np.ndarray:
    """How many rows each two sides have in common."""
    shared = np.zeros((len(filled), len(filled)), dtype=np.int64)
    for start in range(0, len(filled[0]), ROWS_AT_ONCE):
        part = np.stack([side[start : start + ROWS_AT_ONCE] for side in filled]).astype(np.float32)
        shared += (part @ part.T).astype(np.int64)
    return shared


def encode(corpora: Corpora, vocabulary: Path, out: Path, workers: int = 1) -> Shards:
    """Text to token shards. Restartable: corpora already encoded from the same sources are left as they are."""
    vocab, out = Vocabulary.load(vocabulary), Path(out)
    _check_place(out)
    out.mkdir(parents=True, exist_ok=True)
    jobs: list[Job] = [
        *((out / "text" / text.language, text.files, partial(_encode_text, text)) for text in corpora.text),
        *((out / "pairs" / _folder_name(pairs), pairs.files, partial(_encode_pairs, pairs)) for pairs in corpora.pairs),
        *((out / "multi" / m.name, tuple(m.files.values()), partial(_encode_multi, m)) for m in corpora.multi),
    ]
    entries = list(_entries(jobs, vocab, workers))
    copy_vocabulary(Path(vocabulary), out / "vocab")
    manifest: dict[str, Any] = {"format": FORMAT, "vocabulary": {"size": vocab.size, "fingerprint": vocab.fingerprint}}
    manifest |= {"text": {}, "pairs": {}, "multi": {}}
    for (folder, _, _), entry in zip(jobs, entries, strict=True):
        manifest[folder.parent.name][folder.name] = entry
    manifest["fingerprint"] = xxhash.xxh3_128_hexdigest(json.dumps(manifest, sort_keys=True).encode())
    write_json(out / "manifest.json", manifest)
    return Shards.open(out)


Encode = Callable[[Vocabulary, Path, Counter[str]], dict[str, Any]]
Job = tuple[Path, tuple[Path, ...], Encode]


def _entries(jobs: list[Job], vocabulary: Vocabulary, workers: int) -> Iterator[dict[str, Any]]:
    """The manifest entry of every job, in their order, under a bar."""
    with Progress("encode", len(jobs)) as progress, ExitStack() as stack:
        if workers > 1:
            pool = stack.enter_context(ProcessPoolExecutor(workers, mp_context=get_context("spawn")))
            # Leaving on an error must not wait for the corpora not yet begun.
            stack.push(lambda kind, *_: pool.shutdown(cancel_futures=True) if kind else None)
            results: Iterator[dict[str, Any]] = (
                f.result() for f in [pool.submit(_finish, *j, vocabulary) for j in jobs]
            )
        else:
            results = (_finish(*job, vocabulary) for job in jobs)
        for done, (entry, (folder, _, _)) in enumerate(zip(results, jobs, strict=True), start=1):
            progress.update(done, f"{folder.parent.name}/{folder.name}")
            yield entry


def _check_place(out: Path) -> None:
    """Refuses to write shards over anything but shards, finished or begun."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out}: this is a file; give a folder for the shards")
    places = [place for kind in ("text", "pairs", "multi") for place in (out / kind).glob("[!.]*")]
    foreign = [place for place in places if not (place / "entry.json").is_file()]
    if foreign:
        raise BadInput(f"{out}: {min(foreign)} is no part of any shards; give another -o folder")
    check_place(out / "vocab")


def _folder_name(pairs: Pairs) -> str:
    languages = "-".join(pairs.languages)
    return f"{pairs.name}.{languages}" if pairs.name else languages


def _finish(folder: Path, files: tuple[Path, ...], job: Encode, vocabulary: Vocabulary) -> dict[str, Any]:
    """One folder of shards and its manifest entry, unless it is there already."""
    sources = xxhash.xxh3_128()
    for file in files:
        sources.update(f"{file.name} {file.stat().st_size}\n".encode())  # the name tells the language
        with file.open("rb") as handle:
            while block := handle.read(1 << 20):
                sources.update(block)
    key = f"{FORMAT}-{vocabulary.fingerprint}-{sources.hexdigest()}"
    done = folder / "entry.json"
    if done.is_file():
        entry: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
        if entry["key"] == key and entry["bytes"] == _sizes(folder):
            return entry
    dropped: Counter[str] = Counter()
    with new_folder(folder) as new:
        entry = {"key": key, **job(vocabulary, new, dropped), "dropped": dict(dropped), "bytes": _sizes(new)}
        write_json(new / "entry.json", entry)
        # An older manifest would describe these shards wrongly, should this be interrupted before there is a new one.
        (folder.parent.parent / "manifest.json").unlink(missing_ok=True)
    return entry


def _sizes(folder: Path) -> dict[str, int]:
    """So that a part that was cut off or lost after it was written is made again."""
    return {file.name: file.stat().st_size for file in sorted(folder.glob("*.npy"))}


def _encode_text(text: Text, vocabulary: Vocabulary, folder: Path, dropped: Counter[str]) -> dict[str, Any]:
    starts = [0]

    def lines() -> Iterator[str]:
        for document in text.documents(dropped):
            starts.append(starts[-1] + len(document))
            yield from document

    tokens, sentences = _write(lines(), vocabulary, folder)
    np.save(folder / "documents.npy", np.asarray(starts, dtype=np.int64))
    return {"sentences": sentences, "documents": len(starts) - 1, "tokens": tokens}


def _encode_pairs(pairs: Pairs, vocabulary: Vocabulary, folder: Path, dropped: Counter[str]) -> dict[str, Any]:
    # Both sides stream side by side: rows are read once, each side is encoded from its own half of a chunk.
    writers = [_Writer(vocabulary, folder, f"{language}.") for language in pairs.languages]
    rows = pairs.rows(dropped)
    while chunk := list(islice(rows, LINES_AT_ONCE)):
        for writer, side in zip(writers, zip(*chunk, strict=True), strict=True):
            writer.add(side)
    tokens = [writer.close()[0] for writer in writers]
    left, right = (Sentences.open(folder, f"{language}.") for language in pairs.languages)
    return {"languages": list(pairs.languages), "pairs": int((left.filled & right.filled).sum()), "tokens": tokens}


def _encode_multi(multi: MultiWay, vocabulary: Vocabulary, folder: Path, dropped: Counter[str]) -> dict[str, Any]:
    languages: dict[str, dict[str, int]] = {}
    rows = 0
    for language in multi.files:
        before = rows
        tokens, rows = _write(multi.lines(language, dropped), vocabulary, folder, f"{language}.")
        if languages and rows != before:
            multi.check()  # names every file and its length
        languages[language] = {"tokens": tokens, "rows": int(Sentences.open(folder, f"{language}.").filled.sum())}
    return {"languages": languages, "rows": rows}


def _write(lines: Iterable[str], vocabulary: Vocabulary, folder: Path, prefix: str = "") -> tuple[int, int]:
    writer = _Writer(vocabulary, folder, prefix)
    lines = iter(lines)
    while chunk := list(islice(lines, LINES_AT_ONCE)):
        writer.add(chunk)
    return writer.close()


class _Writer:
    """Encodes chunks of lines to raw ids and gives them a NumPy header at the end, so memory stays flat."""

    def __init__(self, vocabulary: Vocabulary, folder: Path, prefix: str) -> None:
        self.vocabulary, self.folder, self.prefix = vocabulary, folder, prefix
        self.type = np.uint16 if vocabulary.size <= 1 << 16 else np.uint32
        self.raw = (folder / f"{prefix}raw").open("wb")
        self.lengths: list[np.ndarray] = []

    def add(self, lines: Iterable[str]) -> None:
        encoded = [[*ids, EOS] if ids else [] for ids in self.vocabulary.encode(list(lines))]
        self.lengths.append(np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)))
        self.raw.write(np.concatenate([np.asarray(ids, dtype=self.type) for ids in encoded]).tobytes())

    def close(self) -> tuple[int, int]:
        """Tokens and sentences written."""
        self.raw.close()
        lengths = np.concatenate([np.zeros(1, dtype=np.int64), *self.lengths])
        offsets = np.cumsum(lengths)
        np.save(self.folder / f"{self.prefix}offsets.npy", offsets)
        raw = Path(self.raw.name)
        # NumPy cannot map an empty file; np.save copies a mapped array without reading it into memory first.
        tokens = np.memmap(raw, dtype=self.type, mode="r") if offsets[-1] else np.empty(0, dtype=self.type)
        np.save(self.folder / f"{self.prefix}tokens.npy", tokens)
        raw.unlink()
        return int(offsets[-1]), len(offsets) - 1
