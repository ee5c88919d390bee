"""Tokenize one part of the corpora into its folder of the shards, whole or in slices.

Each part of the corpora (crossling.corpora.source_parts) has a folder of its own: the text of a language, a bitext, or
one language of a multi-way corpus. The arrays of its slices are concatenated. The `entry.json` of a finished folder
(crossling.core.resumable) has the fingerprint of its inputs, counts and checksums.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import xxhash

from crossling.core.errors import BadInput
from crossling.core.files import read_json, write_json
from crossling.core.locks import lock_file
from crossling.core.resumable import (
    PARTS_FOLDER,
    file_fingerprint,
    fingerprint,
    is_finished,
    read_entry,
    stored_value,
    write_finished_folder,
)
from crossling.corpora.corpus import Corpora, MonolingualCorpus, MultiwayCorpus, ParallelCorpus, refuse_empty
from crossling.corpora.source_parts import SourcePart, Spans, spans_from_json, spans_to_json
from crossling.data.shards import SHARD_FORMAT, ArrayWriter, TokenizedSentences, count_sentences, map_array
from crossling.vocabulary.special_tokens import SpecialTokens

ROWS_PER_BLOCK = 4096  # tokenized together, and written together
NO_TOKENS = "no tokens"
KINDS = ("text", "pairs", "multi")
ENDS_AT_ONCE = 1 << 20  # end positions that are in memory while slices are joined
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


# ---- fingerprints -------------------------------------------------------------------------------------------


def part_key(part: SourcePart, tokenizer: LineTokenizer) -> str:
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


# ---- plan of a part -----------------------------------------------------------------------------------------


class PartPlan(NamedTuple):
    """Fingerprint and slices of a part, computed once."""

    key: str  # fingerprint of the part
    spans: list[Spans]  # of each slice


def part_plan(part: SourcePart, tokenizer: LineTokenizer, out: Path) -> PartPlan:
    """Return the plan of a part. One process computes it, for which it reads all of the sources."""

    def make() -> dict[str, Any]:
        key = part_key(part, tokenizer)
        _move_damaged(out, part.name, key)
        return {"key": key, "spans": spans_to_json(part.find_spans())}

    value = stored_value(parts_folder(out, part) / "plan.json", key_prefix(tokenizer) + part.state(), make)
    plan = PartPlan(value["key"], spans_from_json(value["spans"]))
    if len(plan.spans) != part.slices:
        raise _sources_changed(part)
    return plan


def _move_damaged(out: Path, name: str, key: str) -> None:
    """Hide a folder of these sources that has a wrong checksum. It is removed at the end."""
    folder = out / name
    if is_finished(folder, key) and not is_intact(folder, key):
        _remove_manifest(out)
        folder.replace(Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent)))


def parts_folder(out: Path, part: SourcePart) -> Path:
    """Folder of the plan and the slices of a part."""
    return out / PARTS_FOLDER / part.name


def is_slice_written(part: SourcePart, out: Path, index: int, key: str) -> bool:
    """True if the slice or the whole part is finished, by the start of its key."""
    return any(has_key_prefix(folder, key) for folder in (out / part.name, _slice_folder(part, out, index)))


def _slice_folder(part: SourcePart, out: Path, index: int) -> Path:
    return out / part.name if part.slices == 1 else parts_folder(out, part) / f"slice-{index + 1}-of-{part.slices}"


def _sources_changed(part: SourcePart) -> BadInput:
    return BadInput(f"{part.name}: the sources changed during tokenization. Run crossling tokenize again.")


# ---- writing ------------------------------------------------------------------------------------------------


def write_slice(part: SourcePart, tokenizer: LineTokenizer, out: Path, index: int) -> None:
    """Tokenize one slice of a part, unless the slice or the whole part is there already."""
    key, spans = part_plan(part, tokenizer, out)
    folder = _slice_folder(part, out, index)
    if is_finished(out / part.name, key) or is_intact(folder, key):
        return
    with write_finished_folder(folder, key) as (new, entry):
        dropped = Counter[str]()
        documents = part.slice(index, spans[index]).documents(dropped) if spans[index] else iter(())
        has_text = _write_arrays(part, documents, tokenizer, new, dropped)
        entry |= _describe(part, new, dropped)
        if part.slices > 1:
            entry["has_text"] = has_text
        else:
            _remove_manifest(out)


def _write_arrays(
    part: SourcePart,
    documents: Iterator[list[tuple[str, ...]]],
    tokenizer: LineTokenizer,
    folder: Path,
    dropped: Counter[str],
) -> bool:
    """Write the arrays of a slice, and count rows without tokens. Return True if it has text."""
    has_text, rows, without_tokens = False, 0, 0
    with ExitStack() as stack:
        sides = [_SideWriter(stack, folder, prefix, tokenizer.special) for prefix in _prefixes(part)]
        ends_writer = _ends_writer(stack, folder / "documents.npy")
        for block in _blocks(documents):
            lines = [*zip(*(row for document in block for row in document), strict=True)]
            has_text |= any(lines[0])
            ids_by_side = [tokenizer.encode(side) for side in lines]
            has_tokens = np.asarray([all(row) for row in zip(*ids_by_side, strict=True)])
            if isinstance(part.corpus, MultiwayCorpus):
                has_tokens[:] = True  # line n is row n
            without_tokens += int(np.count_nonzero(~has_tokens))
            for side, ids in zip(sides, ids_by_side, strict=True):
                side.add([row for row, is_kept in zip(ids, has_tokens, strict=True) if is_kept])
            ends = np.cumsum(has_tokens)[np.cumsum([len(document) for document in block]) - 1]
            ends_writer.add(rows + ends[np.diff(ends, prepend=0) > 0])
            rows += int(ends[-1])
    if without_tokens:
        dropped[NO_TOKENS] = without_tokens
    return has_text


def _blocks(documents: Iterator[list[tuple[str, ...]]]) -> Iterator[list[list[tuple[str, ...]]]]:
    """Yield lists of documents with about ROWS_PER_BLOCK rows."""
    block: list[list[tuple[str, ...]]] = []
    rows = 0
    for document in documents:
        block.append(document)
        rows += len(document)
        if rows >= ROWS_PER_BLOCK:
            yield block
            block, rows = [], 0
    if block:
        yield block


def _prefixes(part: SourcePart) -> tuple[str, ...]:
    """File name prefix of each side."""
    return tuple(f"{code}." for code in part.languages) if isinstance(part.corpus, ParallelCorpus) else ("",)


def _describe(part: SourcePart, folder: Path, dropped: Counter[str]) -> dict[str, Any]:
    """Remove the documents of parts that have none. Return counts, and checksums of the arrays."""
    if not isinstance(part.corpus, MonolingualCorpus):
        (folder / "documents.npy").unlink(missing_ok=True)
    sides = [TokenizedSentences.open(folder, prefix) for prefix in _prefixes(part)]
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
    return {**counts, "dropped": dict(dropped), "files": files}


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
        self.offsets.add(self.tokens.length + np.cumsum(lengths))
        self.tokens.add(flat)


def _ends_writer(stack: ExitStack, path: Path) -> ArrayWriter:
    """Array of end positions, with a leading 0."""
    writer = stack.enter_context(ArrayWriter(path, np.int64))
    writer.add(np.zeros(1, dtype=np.int64))
    return writer


# ---- joining ------------------------------------------------------------------------------------------------


def join_slices(part: SourcePart, tokenizer: LineTokenizer, out: Path) -> None:
    """Concatenate the slices of a part, unless another process does, and remove them."""
    key = part_plan(part, tokenizer, out).key
    with lock_file(parts_folder(out, part) / "joining.lock", wait=False) as is_alone:
        if not is_alone or is_finished(out / part.name, key):
            return
        folders = [_slice_folder(part, out, index) for index in range(part.slices)]
        entries = [entry for folder in folders if (entry := read_entry(folder)) and entry["key"] == key]
        if len(entries) < part.slices:
            raise _sources_changed(part)
        for group, indices in part.sliced_groups():
            if not any(entries[index]["has_text"] for index in indices):
                refuse_empty(group, _sum_dropped([entries[index] for index in indices]))
        with write_finished_folder(out / part.name, key) as (new, entry):
            for name in entries[0]["files"]:
                _join_arrays([folder / name for folder in folders], new / name)
            entry |= _describe(part, new, _sum_dropped(entries))
            _remove_manifest(out)
        for folder in folders:
            shutil.rmtree(folder)


def _sum_dropped(entries: Sequence[dict[str, Any]]) -> Counter[str]:
    """Return the number of dropped rows by reason, in the order of one reader: rows without tokens are last."""
    dropped = Counter[str]()
    for entry in entries:
        dropped.update(entry["dropped"])
    without_tokens = dropped.pop(NO_TOKENS, 0)
    return dropped + Counter({NO_TOKENS: without_tokens})


def _join_arrays(files: Sequence[Path], target: Path) -> None:
    """Concatenate token arrays, or arrays of end positions, each of which starts at 0."""
    is_tokens = target.name.endswith("tokens.npy")
    with ExitStack() as stack:
        if is_tokens:
            writer = stack.enter_context(ArrayWriter(target, map_array(files[0]).dtype))
            for file in files:
                writer.add_file(file)
            return
        writer, total = _ends_writer(stack, target), 0
        for file in files:
            ends = map_array(file)
            for start in range(1, len(ends), ENDS_AT_ONCE):
                writer.add(total + ends[start : start + ENDS_AT_ONCE])
            total += int(ends[-1])


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
