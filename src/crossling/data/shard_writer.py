"""Tokenize one part of the corpora into its folder of the shards, whole or in slices.

A shard part is what has a folder of its own: the text of a language, a bitext, or one language of a multi-way corpus.
A slice is every n-th block of its rows. Slices are joined in the order of the source. The `entry.json` of a finished
folder (see crossling.core.resumable) has the fingerprint of its inputs, counts and checksums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import xxhash

from crossling.core.errors import BadInput
from crossling.core.files import read_json, write_json
from crossling.core.resumable import PARTS_FOLDER, file_fingerprint, fingerprint, read_entry, write_finished_folder
from crossling.corpora.corpus import Corpora, MonolingualCorpus, MultiwayCorpus, ParallelCorpus
from crossling.corpora.formats import Source
from crossling.data.shards import SHARD_FORMAT, ArrayWriter, TokenizedSentences, count_sentences, map_array
from crossling.vocabulary.special_tokens import SpecialTokens

ROWS_PER_BLOCK = 4096  # tokenized together, and never split between slices
NO_TOKENS = "no tokens"
KINDS = ("text", "pairs", "multi")
EXCLUDED_PAIRS = "excluded-pairs.json"  # pairs of a multi-way corpus that another corpus has by its priority


class LineTokenizer(Protocol):
    """A `Vocabulary`, or the tokenizer of another model, in the form that worker processes can receive."""

    @property
    def size(self) -> int:
        """Number of vocabulary entries."""

    @property
    def fingerprint(self) -> str:
        """Hash of all that determines the token IDs."""

    @property
    def special(self) -> SpecialTokens:
        """IDs of the special tokens."""

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Convert lines to token IDs, without special tokens."""


@dataclass(frozen=True)
class ShardPart:
    """A corpus, or one language of a multi-way corpus, with a folder of its own in the shards."""

    name: str  # its folder: text/sw, pairs/NAME.en-fr, multi/NAME/en
    corpus: MonolingualCorpus | ParallelCorpus | MultiwayCorpus
    language: str = ""  # in a multi-way corpus

    @property
    def sources(self) -> tuple[Source, ...]:
        """Files or datasets that the rows come from."""
        return (self.corpus.sources[self.language],) if isinstance(self.corpus, MultiwayCorpus) else self.corpus.sources

    @property
    def prefixes(self) -> tuple[str, ...]:
        """File name prefix of each side."""
        languages = self.corpus.languages if isinstance(self.corpus, ParallelCorpus) else ()
        return tuple(f"{language}." for language in languages) or ("",)

    def blocks(self, dropped: Counter[str]) -> Iterator[list[list[tuple[str, ...]]]]:
        """Yield blocks of about ROWS_PER_BLOCK rows, grouped by document. A row has one line for each side."""
        block: list[list[tuple[str, ...]]] = []
        rows = 0
        for group in self._groups(dropped):
            block.append(group)
            rows += len(group)
            if rows >= ROWS_PER_BLOCK:
                yield block
                block, rows = [], 0
        if block:
            yield block

    def _groups(self, dropped: Counter[str]) -> Iterator[list[tuple[str, ...]]]:
        match self.corpus:
            case MonolingualCorpus():
                for document in self.corpus.documents(dropped):
                    yield [(line,) for line in document]
            case ParallelCorpus():
                for row in self.corpus.rows(dropped):
                    yield [row]
            case MultiwayCorpus():
                for line in self.corpus.lines(self.language, dropped):
                    yield [(line,)]


def shard_parts(corpora: Corpora) -> list[ShardPart]:
    """Return all parts of the corpora."""
    return [
        *(ShardPart(f"text/{text.language}", text) for text in corpora.text),
        *(ShardPart(f"pairs/{pairs.label}", pairs) for pairs in corpora.pairs),
        *(ShardPart(f"multi/{multi.name}/{code}", multi, code) for multi in corpora.multi for code in multi.languages),
    ]


# ---- fingerprints -------------------------------------------------------------------------------------------


def part_key(part: ShardPart, tokenizer: LineTokenizer) -> str:
    """Fingerprint of all that determines the token IDs of a part."""
    sources = xxhash.xxh3_128()
    for source in part.sources:
        sources.update(f"{source.name} {source.digest()}\n".encode())  # the name determines language and format
    return key_prefix(tokenizer) + sources.hexdigest()


def key_prefix(tokenizer: LineTokenizer) -> str:
    """Prefix of the keys of all parts that were tokenized by this tokenizer."""
    return f"{SHARD_FORMAT}-{tokenizer.fingerprint}-"


def has_key_prefix(folder: Path, prefix: str) -> bool:
    """True if the folder is finished and its key starts with the prefix."""
    entry = read_entry(folder)
    return entry is not None and str(entry["key"]).startswith(prefix)


def is_intact(folder: Path, key: str) -> bool:
    """True if the folder is finished for this key and all checksums are right."""
    entry = read_entry(folder)
    if entry is None or entry["key"] != key:
        return False
    return all(file_fingerprint(folder / name) == file["xxh3"] for name, file in entry["files"].items())


def slice_folder(out: Path, part: ShardPart, index: int, slices: int) -> Path:
    """Folder of a slice until the slices are joined."""
    return out / PARTS_FOLDER / part.name / f"{index + 1}-of-{slices}"


# ---- writing ------------------------------------------------------------------------------------------------


def write_slice(part: ShardPart, tokenizer: LineTokenizer, out: Path, index: int, slices: int) -> None:
    """Tokenize one slice of a part, unless the slice or the whole part is there already and intact."""
    key = part_key(part, tokenizer)
    folder = out / part.name if slices == 1 else slice_folder(out, part, index, slices)
    if any(is_intact(place, key) for place in (out / part.name, folder)):
        return
    with write_finished_folder(folder, key) as (new, entry):
        dropped = _write_arrays(part, tokenizer, new, index, slices)
        entry |= _describe(part, new, dropped, is_slice=slices > 1)
        if slices == 1:
            _remove_manifest(out)


def _write_arrays(part: ShardPart, tokenizer: LineTokenizer, folder: Path, index: int, slices: int) -> dict[str, int]:
    """Write the arrays of a slice. Return the number of dropped rows by reason."""
    dropped, without_tokens = Counter[str](), 0
    with ExitStack() as stack:
        sides = [_SideWriter(stack, folder, prefix, tokenizer.special) for prefix in part.prefixes]
        documents, blocks = (_ends_writer(stack, folder / f"{name}.npy") for name in ("documents", "blocks"))
        rows = 0
        for number, block in enumerate(part.blocks(dropped)):
            if number % slices != index:
                continue
            lines = zip(*(row for group in block for row in group), strict=True)
            ids_by_side = [tokenizer.encode(side) for side in lines]
            has_tokens = np.asarray([all(row) for row in zip(*ids_by_side, strict=True)])
            if isinstance(part.corpus, MultiwayCorpus):
                has_tokens[:] = True  # line n is row n
            without_tokens += int(np.count_nonzero(~has_tokens))
            for side, ids in zip(sides, ids_by_side, strict=True):
                side.add([row for row, is_kept in zip(ids, has_tokens, strict=True) if is_kept])
            ends = np.cumsum(has_tokens)[np.cumsum([len(group) for group in block]) - 1]
            documents.add(rows + ends[np.diff(ends, prepend=0) > 0])
            rows += int(ends[-1])
            blocks.add(np.asarray([rows]))
    return dict(dropped) | ({NO_TOKENS: without_tokens} if without_tokens else {})


def _describe(part: ShardPart, folder: Path, dropped: dict[str, int], is_slice: bool) -> dict[str, Any]:
    """Remove arrays that this part does not need. Return counts and checksums of the others."""
    if not isinstance(part.corpus, MonolingualCorpus):
        (folder / "documents.npy").unlink()
    if not is_slice:
        (folder / "blocks.npy").unlink()
    sides = [TokenizedSentences.open(folder, prefix) for prefix in part.prefixes]
    tokens = [len(side.tokens) for side in sides]
    match part.corpus:
        case MonolingualCorpus():
            documents = len(map_array(folder / "documents.npy")) - 1
            counts: dict[str, Any] = {"sentences": len(sides[0]), "documents": documents, "tokens": tokens[0]}
        case ParallelCorpus():
            counts = {"languages": list(part.corpus.languages), "pairs": len(sides[0]), "tokens": tokens}
        case MultiwayCorpus():
            counts = {"rows": len(sides[0]), "filled": count_sentences(sides[0]), "tokens": tokens[0]}
    arrays = sorted(folder.glob("*.npy"))
    files = {file.name: {"bytes": file.stat().st_size, "xxh3": file_fingerprint(file)} for file in arrays}
    return {**counts, "dropped": dropped, "files": files}


def _remove_manifest(out: Path) -> None:
    """Remove a manifest that would describe new token IDs wrongly."""
    (out / "manifest.json").unlink(missing_ok=True)


class _SideWriter:
    """Arrays of one language side."""

    def __init__(self, stack: ExitStack, folder: Path, prefix: str, special: SpecialTokens) -> None:
        self.dtype, self.eos = np.dtype(np.uint16 if special.size <= 1 << 16 else np.uint32), special.eos
        self.tokens = stack.enter_context(ArrayWriter(folder / f"{prefix}tokens.npy", self.dtype))
        self.offsets = _ends_writer(stack, folder / f"{prefix}offsets.npy")

    def add(self, sentences: Sequence[Sequence[int]]) -> None:
        """Append sentences, each with </s>. Empty ones stay empty."""
        with_eos = [[*ids, self.eos] if ids else [] for ids in sentences]
        lengths = np.fromiter(map(len, with_eos), dtype=np.int64, count=len(with_eos))
        flat = np.fromiter((i for ids in with_eos for i in ids), dtype=self.dtype, count=int(lengths.sum()))
        self.extend(flat, lengths)

    def extend(self, tokens: np.ndarray, lengths: np.ndarray) -> None:
        """Append sentences that are one flat array."""
        self.offsets.add(self.tokens.length + np.cumsum(lengths))
        self.tokens.add(tokens)


def _ends_writer(stack: ExitStack, path: Path) -> ArrayWriter:
    """Array of end positions, with a leading 0."""
    writer = stack.enter_context(ArrayWriter(path, np.int64))
    writer.add(np.zeros(1, dtype=np.int64))
    return writer


# ---- joining ------------------------------------------------------------------------------------------------


def join_slices(part: ShardPart, tokenizer: LineTokenizer, out: Path, slices: int) -> None:
    """Join the slices of a part, block by block in the order of the source."""
    key = part_key(part, tokenizer)
    if has_key_prefix(out / part.name, key):
        return
    folders = [slice_folder(out, part, index, slices) for index in range(slices)]
    entries = [entry for folder in folders if (entry := read_entry(folder)) and entry["key"] == key]
    if len(entries) < slices:
        raise BadInput(f"{part.name}: the sources changed during tokenization. Run crossling tokenize again.")
    with write_finished_folder(out / part.name, key) as (new, entry):
        _join_arrays(part, folders, new, tokenizer.special)
        # Every slice has counted all lines that the reader dropped, and its own rows without tokens.
        without_tokens = sum(one["dropped"].get(NO_TOKENS, 0) for one in entries)
        dropped = entries[0]["dropped"] | ({NO_TOKENS: without_tokens} if without_tokens else {})
        entry |= _describe(part, new, dropped, is_slice=False)
        _remove_manifest(out)


def _join_arrays(part: ShardPart, folders: Sequence[Path], new: Path, special: SpecialTokens) -> None:
    has_documents, slices = isinstance(part.corpus, MonolingualCorpus), len(folders)
    blocks = [map_array(folder / "blocks.npy") for folder in folders]
    with ExitStack() as stack:
        documents = _ends_writer(stack, new / "documents.npy")
        _ends_writer(stack, new / "blocks.npy")
        for prefix in part.prefixes:
            target = _SideWriter(stack, new, prefix, special)
            sides = [TokenizedSentences.open(folder, prefix, has_documents) for folder in folders]
            for number in range(sum(map(len, blocks)) - slices):
                side, ends = sides[number % slices], blocks[number % slices]
                start, end = ends[number // slices], ends[number // slices + 1]
                if side.documents is not None:
                    first, last = np.searchsorted(side.documents, [start, end], "right")
                    documents.add(side.documents[first:last] - start + target.offsets.length - 1)
                offsets = side.offsets[start : end + 1]
                target.extend(side.tokens[offsets[0] : offsets[-1]], np.diff(offsets))


# ---- manifest -----------------------------------------------------------------------------------------------


def write_manifest(out: Path, tokenizer: LineTokenizer, names: Sequence[str], corpora: Corpora) -> None:
    """Write manifest.json from the entries of the parts with these names."""
    vocabulary: dict[str, Any] = {"size": tokenizer.size, "fingerprint": tokenizer.fingerprint}
    if tokenizer.special != SpecialTokens.standard(tokenizer.size):
        vocabulary["special"] = tokenizer.special.dump()
    manifest: dict[str, Any] = {
        "format": SHARD_FORMAT,
        "vocabulary": vocabulary,
        **{kind: {} for kind in KINDS},
    }
    for part in sorted(set(names)):
        kind, name, *language = part.split("/")
        entry = read_entry(out / part)
        if language:
            manifest[kind].setdefault(name, {"languages": {}})["languages"][language[0]] = entry
        else:
            manifest[kind][name] = entry
    for corpus in corpora.multi:  # stored for later calls that append to these shards
        file = out / "multi" / corpus.name / EXCLUDED_PAIRS
        if corpus.excluded_pairs:
            write_json(file, sorted(corpus.excluded_pairs))
        else:
            file.unlink(missing_ok=True)
    for name, multi in manifest["multi"].items():
        multi |= _count_pairs(out / "multi" / name, multi["languages"])
    manifest["fingerprint"] = fingerprint(manifest)
    write_json(out / "manifest.json", manifest)


def _count_pairs(folder: Path, entries: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Count the rows that each two languages of a multi-way corpus share."""
    rows = {language: entry["rows"] for language, entry in entries.items()}
    if len(set(rows.values())) > 1:
        counts = ", ".join(f"{language} has {count}" for language, count in rows.items())
        raise BadInput(f"multi/{folder.name}: expected the same number of lines, but {counts}. Align the files again.")
    sides = {language: TokenizedSentences.open(folder / language) for language in rows}
    file = folder / EXCLUDED_PAIRS
    excluded = {tuple(pair) for pair in read_json(file)} if file.is_file() else set()
    pairs = [
        [a, b, shared]
        for a, b in combinations(sides, 2)
        if (a, b) not in excluded and (shared := count_sentences(sides[a], sides[b]))
    ]
    return {"rows": next(iter(rows.values())), "pairs": pairs}
