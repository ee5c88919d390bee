"""Tokenized corpora on disk: memory-mapped token IDs with counts and checksums.

Each language side of a corpus is one flat array of token IDs, in which every sentence ends with </s>, and the offsets
of its sentences:

    SHARDS/manifest.json  vocab/
           text/sw/{tokens,offsets,documents}.npy           documents: first sentence of each document, and the end
           pairs/NAME.en-fr/{en,fr}.{tokens,offsets}.npy
           multi/NAME/en/{tokens,offsets}.npy               row n is sentence n, empty if there is no translation

A multi-way corpus is stored once per language and gives all its language pairs. This module reads shards; tokenize.py
and shard_writer.py create them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from crossling.core.errors import BadInput
from crossling.core.files import append_file, check_format, read_json
from crossling.core.folder_kinds import kind_note
from crossling.core.progress import track
from crossling.core.resumable import file_fingerprint
from crossling.vocabulary.special_tokens import SpecialTokens
from crossling.vocabulary.vocabulary import read_report

SHARD_FORMAT = 2
ROWS_PER_BLOCK = 512  # rows whose presence is counted together


# ---- array files --------------------------------------------------------------------------------------------


class ArrayWriter:
    """One-dimensional .npy file that grows in constant memory: `with ArrayWriter(path, np.uint16) as writer`."""

    def __init__(self, path: Path, dtype: np.typing.DTypeLike) -> None:
        self.dtype, self.length = np.dtype(dtype), 0
        self.file = path.open("wb")
        self._write_header()

    def add(self, values: np.ndarray) -> None:
        """Append values."""
        self.file.write(np.ascontiguousarray(values, dtype=self.dtype).data)
        self.length += len(values)

    def add_file(self, path: Path) -> None:
        """Append the values of another array file of this type."""
        values = map_array(path)
        with path.open("rb") as source:
            source.seek(-values.nbytes, os.SEEK_END)
            append_file(source, self.file)
        self.length += len(values)

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(self, error: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        try:
            if error is None:
                self.file.seek(0)
                self._write_header()
        finally:
            self.file.close()

    def _write_header(self) -> None:
        # NumPy pads the header so that the first axis can grow in place.
        header = {"descr": npy.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.length,)}
        npy.write_array_header_1_0(self.file, header)


def map_array(path: Path) -> np.ndarray:
    """Map a one-dimensional .npy file into memory, read-only. Pages are read when they are used."""
    try:
        with path.open("rb") as file:
            version = npy.read_magic(file)
            shape, _, dtype = npy.read_array_header_1_0(file) if version == (1, 0) else ((), False, np.dtype(object))
            start, size = file.tell(), path.stat().st_size
            if len(shape) != 1 or dtype.hasobject or size != start + shape[0] * dtype.itemsize:
                raise ValueError(f"its {size} bytes do not match its header")
            if not shape[0]:
                return np.empty(0, dtype)
            array = _map_bytes(file, size)[start:].view(dtype)
        array.flags.writeable = False
        return array
    except (OSError, ValueError, EOFError) as error:
        problem = f"{path}: cannot read the array ({error})."
        raise BadInput(f"{problem} Create the shards again with crossling tokenize.") from None


def _map_bytes(file: BinaryIO, size: int) -> np.ndarray:
    """Map a file that is closed afterwards.

    Python's mmap would keep it open, and there are thousands of files. A private mapping, as torch makes it, must fit
    into the memory of the machine.
    """
    if os.name != "posix":
        return np.memmap(file, np.uint8, "r")
    address = _libc().mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    mapped = (ctypes.c_uint8 * size).from_address(address)
    weakref.finalize(mapped, _libc().munmap, address, size).atexit = False  # arrays may be in use until the very end
    return np.ctypeslib.as_array(mapped)


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    number, pointer, size, offset = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long
    libc.mmap.restype, libc.mmap.argtypes = pointer, [pointer, size, number, number, number, offset]
    libc.munmap.restype, libc.munmap.argtypes = number, [pointer, size]
    return libc


# ---- corpora ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenizedSentences:
    """Token IDs of one language side of a corpus."""

    tokens: np.ndarray
    offsets: np.ndarray  # sentence i is tokens[offsets[i]:offsets[i + 1]], </s> included
    documents: np.ndarray | None = None  # document i is sentences documents[i]:documents[i + 1]
    folder: Path | None = None
    prefix: str = ""

    @classmethod
    def open(cls, folder: Path, prefix: str = "", documents: bool = False) -> TokenizedSentences:
        """Map the arrays of a folder."""
        tokens, offsets = (map_array(folder / f"{prefix}{part}.npy") for part in ("tokens", "offsets"))
        return cls(tokens, offsets, map_array(folder / "documents.npy") if documents else None, folder, prefix)

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process maps the files itself. Pickling a mapped array would copy all of it.
        if self.folder is None:
            return TokenizedSentences, (self.tokens, self.offsets, self.documents)
        return TokenizedSentences.open, (self.folder, self.prefix, self.documents is not None)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def lengths(self, index_N: np.ndarray) -> np.ndarray:
        """Return the tokens of some sentences, from their offsets."""
        return np.asarray(self.offsets[index_N + 1] - self.offsets[index_N])

    def presence(self, start: int = 0, end: int | None = None) -> np.ndarray:
        """Return a mask of the sentences from `start` up to `end` that are not empty."""
        offsets = self.offsets[start : None if end is None else end + 1]
        return offsets[1:] > offsets[:-1]


def count_sentences(side: TokenizedSentences, other: TokenizedSentences | None = None) -> int:
    """Count the sentences that are not empty, or the rows that are not empty on both sides."""
    total, step = 0, 1 << 20
    for start in range(0, len(side), step):
        mask = side.presence(start, start + step)
        total += int(np.count_nonzero(mask if other is None else mask & other.presence(start, start + step)))
    return total


@dataclass(frozen=True, kw_only=True)
class TokenizedBitext:
    """One corpus in one language pair: the group that sampling probabilities apply to."""

    corpus: str
    languages: tuple[str, str]
    sides: tuple[TokenizedSentences, TokenizedSentences]
    pairs: int
    corpus_id: int  # shared by the pairs of a multi-way corpus: (corpus_id, row) identifies a row's translations

    def row(self, index: int) -> int:
        """Return the position of the index-th row that is not empty on both sides."""
        return int(self.rows(np.asarray([index]))[0])

    def rows(self, index_N: np.ndarray) -> np.ndarray:
        """Return the position of each index-th row that is not empty on both sides."""
        if self.pairs == len(self.sides[0]):
            return index_N
        block_N = np.searchsorted(self._pairs_before, index_N, side="right") - 1
        rank_N = index_N - self._pairs_before[block_N]  # in its block
        places = zip((block_N * ROWS_PER_BLOCK).tolist(), rank_N.tolist(), strict=True)
        found = [start + np.flatnonzero(self.presence(start, start + ROWS_PER_BLOCK))[rank] for start, rank in places]
        return np.array(found, dtype=np.int64)

    @cached_property
    def _pairs_before(self) -> np.ndarray:
        """Pairs before each block of rows, to find a row without a list of all rows."""
        blocks = range(0, len(self.sides[0]), ROWS_PER_BLOCK)
        counts = (np.count_nonzero(self.presence(start, start + ROWS_PER_BLOCK)) for start in blocks)
        return np.cumsum([0, *counts])

    def presence(self, start: int, end: int) -> np.ndarray:
        """Return a mask of the rows from `start` up to `end` that are not empty on both sides."""
        left, right = (side.presence(start, end) for side in self.sides)
        return np.asarray(left & right)


@dataclass(frozen=True)
class Shards:
    """Tokenized corpora of a folder, with the vocabulary they were tokenized with.

    Example:
        >>> shards = xl.Shards.open("shards")
        >>> sentences = shards.text["sw"]
        >>> sentences[0]  # token IDs of the first sentence, </s> included
    """

    path: Path
    manifest: dict[str, Any] = field(repr=False)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Shards:
        """Open a folder that `crossling tokenize` wrote.

        Args:
            path: Folder with a manifest.json.

        Returns:
            The shards. Arrays are mapped when they are used first.

        Raises:
            BadInput: If the folder has no shards, damaged ones, or shards or a vocabulary of another format.

        Example:
            >>> xl.Shards.open("shards").vocabulary_size
            32000
        """
        file = Path(path) / "manifest.json"
        if not file.is_file():
            raise BadInput(
                f"{path}: no shards found (no manifest.json{kind_note(path)}). Create them with crossling tokenize."
            )
        try:
            manifest = read_json(file)
            version = manifest["format"]
            complete = {"vocabulary", "text", "pairs", "multi", "fingerprint"} <= {*manifest}
            file_name = "tokenizer.json" if "special" in manifest["vocabulary"] else "sentencepiece.model"
            complete = complete and (Path(path) / "vocab" / file_name).is_file()
        except (ValueError, TypeError, KeyError):
            version, complete = SHARD_FORMAT, False
        fix = "Create them again with crossling tokenize."
        check_format(path, version, SHARD_FORMAT, fix)
        if not complete:
            raise BadInput(f"{path}: these shards are damaged. {fix}")
        read_report(Path(path) / "vocab", "Create the shards again with crossling tokenize.")  # runs copy it
        return cls(Path(path), manifest)

    @property
    def fingerprint(self) -> str:
        """Digest of the manifest, which changes with any token."""
        return str(self.manifest["fingerprint"])

    @property
    def vocabulary_size(self) -> int:
        """Number of vocabulary entries."""
        return int(self.manifest["vocabulary"]["size"])

    @cached_property
    def special(self) -> SpecialTokens:
        """Ids of the special tokens. The manifest has them unless they are those of crossling's own vocabularies."""
        stored = self.manifest["vocabulary"].get("special")
        return SpecialTokens.from_dict(stored) if stored else SpecialTokens.standard(self.vocabulary_size)

    @property
    def vocabulary_path(self) -> Path:
        """Folder with a copy of the vocabulary."""
        return self.path / "vocab"

    @cached_property
    def text(self) -> dict[str, TokenizedSentences]:
        """Monolingual text by language."""
        text, folder = self.manifest["text"], self.path / "text"
        return {language: TokenizedSentences.open(folder / language, documents=True) for language in text}

    @cached_property
    def bitexts(self) -> list[TokenizedBitext]:
        """Every corpus in each of its language pairs. Multi-way corpora give all their pairs without a copy."""
        bitexts = []
        for corpus_id, (name, entry) in enumerate(self.manifest["pairs"].items()):
            source, target = entry["languages"]
            folder = self.path / "pairs" / name
            sides = TokenizedSentences.open(folder, f"{source}."), TokenizedSentences.open(folder, f"{target}.")
            pair, pairs = (source, target), entry["pairs"]
            bitexts.append(TokenizedBitext(corpus=name, languages=pair, sides=sides, pairs=pairs, corpus_id=corpus_id))
        for corpus_id, (name, entry) in enumerate(self.manifest["multi"].items(), start=len(bitexts)):
            folder = self.path / "multi" / name
            by_language = {language: TokenizedSentences.open(folder / language) for language in entry["languages"]}
            for source, target, pairs in entry["pairs"]:
                pair, sides = (source, target), (by_language[source], by_language[target])
                bitexts.append(
                    TokenizedBitext(corpus=name, languages=pair, sides=sides, pairs=pairs, corpus_id=corpus_id)
                )
        return bitexts

    def entries(self) -> dict[str, dict[str, Any]]:
        """Return the manifest's entries by folder.

        Returns:
            Entries by `text/sw`, `pairs/NAME.en-fr` or `multi/NAME/en`, with counts, dropped lines and checksums.

        Example:
            >>> xl.Shards.open("shards").entries()["text/sw"]["sentences"]
            512000
        """
        entries = {f"{kind}/{name}": entry for kind in ("text", "pairs") for name, entry in self.manifest[kind].items()}
        for name, entry in self.manifest["multi"].items():
            entries |= {f"multi/{name}/{language}": side for language, side in entry["languages"].items()}
        return entries

    def verify(self) -> list[Path]:
        """Read all files and compare their checksums.

        Returns:
            Files that are missing or damaged.

        Example:
            >>> xl.Shards.open("shards").verify()
            []
        """
        files = {
            self.path / folder / name: expected
            for folder, entry in self.entries().items()
            for name, expected in entry["files"].items()
        }
        tracked = track("verify", [*files], lambda file: str(file.relative_to(self.path)))
        return [file for file in tracked if not file.is_file() or file_fingerprint(file) != files[file]["xxh3"]]
