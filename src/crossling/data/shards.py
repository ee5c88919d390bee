"""Ids on disk: memory-mapped, counted, fingerprinted; a multi-way set is stored once per language.

A side of a corpus is one flat array of ids, every sentence closed by </s>, and the offsets of its sentences:

    SHARDS/manifest.json  vocab/
           text/sw/{tokens,offsets,documents}.npy           documents: the first sentence of each, and the end
           pairs/NAME.en-fr/{en,fr}.{tokens,offsets}.npy
           multi/NAME/en/{tokens,offsets}.npy               row n is sentence n, empty where it is missing

This module reads them; encode.py writes them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from crossling.data.column import checksum, mapped
from crossling.errors import BadInput
from crossling.progress import Progress

FORMAT = 2
ROWS_AT_ONCE = 512  # rows whose presence is looked at together


@dataclass(frozen=True)
class Sentences:
    """One side of a corpus."""

    tokens: np.ndarray
    offsets: np.ndarray  # sentence i is tokens[offsets[i]:offsets[i + 1]], </s> included
    documents: np.ndarray | None = None  # of text: document i is sentences documents[i]:documents[i + 1]
    folder: Path | None = None
    prefix: str = ""

    @classmethod
    def open(cls, folder: Path, prefix: str = "", documents: bool = False) -> Sentences:
        tokens, offsets = (mapped(folder / f"{prefix}{part}.npy") for part in ("tokens", "offsets"))
        return cls(tokens, offsets, mapped(folder / "documents.npy") if documents else None, folder, prefix)

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process maps the files itself, where pickling a mapped array would copy it whole.
        if self.folder is None:
            return Sentences, (self.tokens, self.offsets, self.documents)
        return Sentences.open, (self.folder, self.prefix, self.documents is not None)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def filled(self, start: int = 0, end: int | None = None) -> np.ndarray:
        """Which of the sentences from `start` up to `end` are there."""
        offsets = self.offsets[start : None if end is None else end + 1]
        return offsets[1:] > offsets[:-1]


def count(side: Sentences, other: Sentences | None = None) -> int:
    """Sentences that are there, or rows that two sides share."""
    total, step = 0, 1 << 20
    for start in range(0, len(side), step):
        filled = side.filled(start, start + step)
        total += int(np.count_nonzero(filled if other is None else filled & other.filled(start, start + step)))
    return total


@dataclass(frozen=True)
class Bitext:
    """One corpus in one language pair: the unit that is counted and drawn."""

    corpus: str
    languages: tuple[str, str]
    sides: tuple[Sentences, Sentences]
    pairs: int
    number: int  # of the corpus: pairs of one multi-way set share it, so that (number, row) tells a row's translations

    def row(self, index: int) -> int:
        """Where the index-th row that both sides have lies."""
        if self.pairs == len(self.sides[0]):
            return index
        block = int(np.searchsorted(self._before, index, side="right")) - 1
        start = block * ROWS_AT_ONCE
        return start + int(np.flatnonzero(self._both(start))[index - self._before[block]])

    @cached_property
    def _before(self) -> np.ndarray:
        """Pairs before each block of rows: what finds a row without a list of all of them."""
        blocks = range(0, len(self.sides[0]), ROWS_AT_ONCE)
        return np.cumsum([0, *(np.count_nonzero(self._both(start)) for start in blocks)])

    def _both(self, start: int) -> np.ndarray:
        left, right = (side.filled(start, start + ROWS_AT_ONCE) for side in self.sides)
        return left & right


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
        folder = self.path / "text"
        return {language: Sentences.open(folder / language, documents=True) for language in self.manifest["text"]}

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
            by_language = {
                language: Sentences.open(self.path / "multi" / name / language) for language in entry["languages"]
            }
            for source, target, pairs in entry["pairs"]:
                found.append(Bitext(name, (source, target), (by_language[source], by_language[target]), pairs, number))
            number += 1
        return found

    def units(self) -> dict[str, dict[str, Any]]:
        """The manifest's entries by the folder they describe: `text/sw`, `pairs/NAME.en-fr`, `multi/NAME/en`."""
        found = {f"{kind}/{name}": entry for kind in ("text", "pairs") for name, entry in self.manifest[kind].items()}
        for name, entry in self.manifest["multi"].items():
            found |= {f"multi/{name}/{language}": side for language, side in entry["languages"].items()}
        return found

    def verify(self) -> list[Path]:
        """Reads everything, and names the files that are not what was written."""
        files = {
            self.path / folder / name: expected
            for folder, entry in self.units().items()
            for name, expected in entry["files"].items()
        }
        damaged = []
        with Progress("verify", len(files)) as progress:
            for done, (file, expected) in enumerate(files.items(), start=1):
                if not file.is_file() or checksum(file) != expected["xxh3"]:
                    damaged.append(file)
                progress.update(done, str(file.relative_to(self.path)))
        return damaged
