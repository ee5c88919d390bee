"""Benchmark sentences in training text: an index of the sentences, and looking lines up in it.

Texts are taken apart into sentences on both sides and compared in their plain form, so a benchmark sentence is found
inside a longer line too. Equal forms are found by hash, similar ones by MinHash. The index takes some 700 bytes a
sentence on disk, mapped and not read into memory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from crossling.corpora.files import File
from crossling.disk import new_folder, write_json
from crossling.errors import BadInput
from crossling.quality.benchmarks import SHORTEST, Benchmark, find_benchmarks
from crossling.quality.normal import plain, sentences, weight
from crossling.quality.shingles import (
    BANDS,
    PERMUTATIONS,
    SIMILAR,
    folded,
    has_signature,
    places,
    signatures,
    similarity,
)

AT_ONCE = 8192
LOOKED_AT = 4  # of the benchmark sentences that agree in a band; more are variations of one
CARD = "entry.json"

Hits = np.ndarray  # rows of (line, sentence of the index, whether it is only similar)


def digest(data: Path) -> str:
    """Of all files of benchmarks."""
    content = xxhash.xxh3_128()
    for one in find_benchmarks(data):
        content.update(f"{one.path.relative_to(data).as_posix()} {File(one.path).digest()}\n".encode())
    return content.hexdigest()


def build(data: Path, folder: Path) -> None:
    """The index of all benchmarks in a folder, unless it is there already."""
    key = digest(data)
    if (folder / CARD).is_file() and json.loads((folder / CARD).read_text("utf-8"))["key"] == key:
        return
    with new_folder(folder) as new:
        files = _write_sentences(find_benchmarks(data), data, new)
        if not any(file["sentences"] for file in files):
            raise BadInput(f"{data}: no sentence of a benchmark found; give a folder of benchmark data")
        _write_bands(new)
        write_json(new / CARD, {"key": key, "files": files})


def _write_sentences(benchmarks: list[Benchmark], data: Path, folder: Path) -> list[dict[str, Any]]:
    """Every sentence once, with its signature; returns how many each file has."""
    numbers: dict[int, int] = {}  # of sentences, by hash
    forms: list[str] = []  # not yet signed
    ends: list[int] = []
    owners: list[tuple[int, int]] = []
    files: list[dict[str, Any]] = []
    with (folder / "texts").open("wb") as texts, (folder / "signatures").open("wb") as signed:
        for file, one in enumerate(benchmarks):
            inside: set[int] = set()
            for text, form in one.sentences():
                number = numbers.setdefault(_hash(form), len(numbers))
                inside.add(number)
                if number == len(ends):
                    forms.append(form)
                    texts.write(text.encode())
                    ends.append(texts.tell())
                if len(forms) == AT_ONCE:
                    signed.write(signatures(forms).tobytes())
                    forms = []
            owners += [(number, file) for number in sorted(inside)]
            known = {"benchmark": one.name, "file": one.path.relative_to(data).as_posix(), "language": one.language}
            files.append({**known, "sentences": len(inside)})
        signed.write(signatures(forms).tobytes())
    hashes = np.fromiter(numbers, dtype=np.uint64, count=len(numbers))
    order = np.argsort(hashes)
    for name, array in {"hashes": hashes[order], "numbers": order, "ends": ends, "owners": sorted(owners)}.items():
        np.save(folder / f"{name}.npy", np.asarray(array))
    return files


def _write_bands(folder: Path) -> None:
    """For each band the sentences in the order of their values there."""
    signed = _signatures(folder)
    rows = np.flatnonzero(has_signature(signed))
    values = np.empty((BANDS, len(rows)), dtype=np.uint64)
    sentence = np.empty((BANDS, len(rows)), dtype=np.uint32)
    for band in range(BANDS):
        value = folded(signed[rows, places(band)])
        order = np.argsort(value, kind="stable")
        values[band], sentence[band] = value[order], rows[order]
    np.save(folder / "bands.npy", values)
    np.save(folder / "in_bands.npy", sentence)


def _signatures(folder: Path) -> np.ndarray:
    return np.memmap(folder / "signatures", dtype=np.uint16, mode="r").reshape(-1, PERMUTATIONS)


class Index:
    """What `build` wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        card = json.loads((folder / CARD).read_text(encoding="utf-8"))
        self.key: str = card["key"]
        self.files: list[dict[str, Any]] = card["files"]
        self.signatures = _signatures(folder)
        self.hashes, self.numbers, self.bands, self.in_bands, self.owners, self.ends = (
            np.load(folder / f"{name}.npy", mmap_mode="r")
            for name in ("hashes", "numbers", "bands", "in_bands", "owners", "ends")
        )

    def find(self, lines: Sequence[str]) -> Hits:
        """Benchmark sentences in lines, in their order."""
        owners, forms = [], []
        for number, line in enumerate(lines):
            for sentence in sentences(line):
                form = plain(sentence)
                if weight(form) >= SHORTEST:
                    owners.append(number)
                    forms.append(form)
        if not forms:
            return np.empty((0, 3), dtype=np.int64)
        hashed = np.fromiter(map(_hash, forms), dtype=np.uint64, count=len(forms))
        nearest = np.minimum(np.searchsorted(self.hashes, hashed), len(self.hashes) - 1)
        equal = self.hashes[nearest] == hashed
        rest = np.flatnonzero(~equal)
        rows = np.array(owners)
        exact = np.stack([rows[equal], self.numbers[nearest[equal]], np.zeros(equal.sum(), dtype=np.int64)], axis=1)
        texts, found = self._similar([forms[place] for place in rest])
        similar = np.stack([rows[rest[texts]], found, np.ones(len(found), dtype=np.int64)], axis=1)
        return np.unique(np.concatenate([exact, similar]), axis=0)

    def text(self, number: int) -> str:
        """A sentence as the benchmark has it."""
        with (self.folder / "texts").open("rb") as handle:
            start = int(self.ends[number - 1]) if number else 0
            handle.seek(start)
            return handle.read(int(self.ends[number]) - start).decode()

    def _similar(self, forms: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of texts, and for each a sentence much like it."""
        signed = signatures(forms)
        rows = np.flatnonzero(has_signature(signed))
        found = [(rows[:0], rows[:0])]
        for band in range(BANDS):
            value = folded(signed[rows, places(band)])
            start = np.searchsorted(self.bands[band], value, side="left")
            end = np.searchsorted(self.bands[band], value, side="right")
            for step in range(LOOKED_AT):
                there = np.flatnonzero(start + step < end)
                sentence = self.in_bands[band][start[there] + step]
                alike = similarity(signed[rows[there]], self.signatures[sentence]) >= SIMILAR
                found.append((rows[there[alike]], sentence[alike]))
        return np.concatenate([text for text, _ in found]), np.concatenate([sentence for _, sentence in found])


def _hash(form: str) -> int:
    return xxhash.xxh3_64_intdigest(form.encode())
