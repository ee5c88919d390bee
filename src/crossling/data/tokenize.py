"""Tokenize corpora into shards (see shards.py), by independent jobs.

Each shard part (see shard_writer.py) is written atomically, and is not written again as long as its sources do not
change. So an interrupted call resumes, and a language can be added. A large part is tokenized in slices, so that
several machines can share one file. Each of them reads the whole file, which is cheap, and tokenizes its slice, which
is not. The manifest is written last.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any, overload

from crossling.core.errors import BadInput
from crossling.core.jobs import Job, Share, run_jobs
from crossling.core.locks import lock_file, output_lock
from crossling.core.resumable import ENTRY_FILE, PARTS_FOLDER, check_output_folder
from crossling.corpora.corpus import Corpora, open_corpora
from crossling.data import shard_writer
from crossling.data.shard_writer import (
    LineTokenizer,
    ShardPart,
    has_key_prefix,
    join_slices,
    key_prefix,
    part_key,
    slice_folder,
)
from crossling.data.shards import Shards
from crossling.vocabulary.open_vocabulary import AnyVocabulary, open_vocabulary, store_vocabulary
from crossling.vocabulary.vocabulary import check_vocabulary_folder

StrPath = str | os.PathLike[str]
CONTENTS = ("manifest.json", "text", "pairs", "multi", "vocab", ".*")  # of a folder of shards
SLICE_BYTES = 256 << 20  # of source files on disk
MAX_SLICES = 32  # with more, reading the whole source in each slice costs more than tokenizing


@overload
def tokenize(
    corpora: Corpora | StrPath, vocab: StrPath, out: StrPath, *, workers: int = 1, append: bool = False
) -> Shards: ...


@overload
def tokenize(
    corpora: Corpora | StrPath,
    vocab: StrPath,
    out: StrPath,
    *,
    workers: int = 1,
    append: bool = False,
    share: Share | None,
) -> Shards | None: ...


def tokenize(
    corpora: Corpora | StrPath,
    vocab: StrPath,
    out: StrPath,
    *,
    workers: int = 1,
    append: bool = False,
    share: Share | None = None,
) -> Shards | None:
    """Tokenize corpora into shards. An interrupted call resumes.

    Args:
        corpora: Corpora to tokenize, or their folder.
        vocab: Vocabulary folder, run, Hugging Face folder, name on the hub, or `bundled`. The vocabulary is copied into
            the shards.
        out: Folder for the shards.
        workers: Worker processes.
        append: Keep corpora that the shards have and `corpora` has not.
        share: Do only this share of the work. All machines use the same `out`; the last one to finish writes the
            manifest.

    Returns:
        The shards, or None if another share is missing.

    Raises:
        BadInput: If a corpus cannot be read, if `out` has other content, or if another process writes there.

    Example:
        >>> shards = xl.tokenize("corpora", "vocab", "shards", workers=8)
    """
    corpora, tokenizer, out = open_corpora(corpora), open_vocabulary(vocab), Path(out)
    with output_lock(out, share.label if share else ""):
        kept = _check_shards_folder(out, shard_writer.shard_parts(corpora), tokenizer, append)
        is_complete = write_shards(corpora, tokenizer, out, vocab=vocab, kept=kept, workers=workers, share=share)
    return Shards.open(out) if is_complete else None


def write_shards(
    corpora: Corpora,
    tokenizer: AnyVocabulary,
    out: Path,
    *,
    vocab: StrPath,
    kept: Sequence[str] = (),
    workers: int = 1,
    share: Share | None = None,
) -> bool:
    """Write all parts of the corpora that are not there yet, and the manifest. See `tokenize`.

    Args:
        corpora: Corpora to tokenize.
        tokenizer: Makes token IDs of lines.
        out: Folder for the shards, with nothing but shards in it.
        vocab: What `tokenizer` was opened from. It is copied into the shards.
        kept: Parts that the folder has beside those of `corpora`.
        workers: Worker processes.
        share: Do only this share of the work.

    Returns:
        True if the shards are complete. False if another share is missing.
    """
    parts = shard_writer.shard_parts(corpora)
    out.mkdir(parents=True, exist_ok=True)
    slices = {part.name: _count_slices(part) for part in parts}
    jobs = [
        Job(
            f"{part.name} {index + 1}/{slices[part.name]}" if slices[part.name] > 1 else part.name,
            partial(shard_writer.write_slice, part, tokenizer, out, index, slices[part.name]),
        )
        for part in parts
        for index in range(slices[part.name])
    ]
    run_jobs("tokenize", jobs, workers, share)
    if share and not _are_all_written(out, parts, tokenizer, slices):
        return False
    with lock_file(out / ".joining", wait=False, remove=True) as is_alone:  # two machines may finish at once
        if not is_alone:
            return False
        sliced = [part for part in parts if slices[part.name] > 1]
        if sliced:
            joins = [Job(part.name, partial(join_slices, part, tokenizer, out, slices[part.name])) for part in sliced]
            run_jobs("join", joins, workers)
        _remove_temporary_files(out, parts)
        store_vocabulary(vocab, tokenizer, out / "vocab")
        shard_writer.write_manifest(out, tokenizer, [*kept, *(part.name for part in parts)], corpora)
    return True


def _count_slices(part: ShardPart) -> int:
    """Number of slices. It depends on the sources alone, so that all machines agree on it."""
    size = sum(source.size() for source in part.sources)
    return max(1, min(MAX_SLICES, -(-size // SLICE_BYTES)))


def _are_all_written(out: Path, parts: Sequence[ShardPart], tokenizer: LineTokenizer, slices: dict[str, int]) -> bool:
    """True if no share is missing. Sources are hashed only if all folders exist: by the last machine, not by all."""

    def is_written(part: ShardPart, prefix: str) -> bool:
        count = slices[part.name]
        folders = [slice_folder(out, part, index, count) for index in range(count)]
        return has_key_prefix(out / part.name, prefix) or all(has_key_prefix(folder, prefix) for folder in folders)

    if not all(is_written(part, key_prefix(tokenizer)) for part in parts):
        return False
    return all(is_written(part, part_key(part, tokenizer)) for part in parts)


def _remove_temporary_files(out: Path, parts: Sequence[ShardPart]) -> None:
    """Remove joined slices, and temporary folders of killed processes."""
    shutil.rmtree(out / PARTS_FOLDER, ignore_errors=True)
    for folder in (out / part.name for part in parts):
        for temporary in folder.parent.glob(f".{escape(folder.name)}.*"):
            shutil.rmtree(temporary, ignore_errors=True)


def _check_shards_folder(out: Path, parts: Sequence[ShardPart], vocabulary: AnyVocabulary, append: bool) -> list[str]:
    """Refuse to overwrite anything but shards. Return the names of parts that the folder has beside `parts`."""
    check_output_folder(out, holds=CONTENTS, command="crossling tokenize", exclusive=True)
    folders = [folder for kind in ("text", "pairs") for folder in (out / kind).glob("[!.]*")]
    for corpus in (out / "multi").glob("[!.]*"):
        folders += corpus.glob("[!.]*") if corpus.is_dir() else [corpus]
    folders = [folder for folder in folders if folder.name != shard_writer.EXCLUDED_PAIRS]
    foreign = [folder for folder in folders if not (folder / ENTRY_FILE).is_file()]
    if foreign:
        raise BadInput(f"{out}: {min(foreign)} is no part of shards. Give a new or an empty folder.")
    check_vocabulary_folder(out / "vocab")
    if (out / "manifest.json").is_file() and parts:
        stored: dict[str, Any] = {}
        with suppress(BadInput):  # a damaged or older manifest is written again
            stored = Shards.open(out).manifest["vocabulary"]
        if stored.get("fingerprint", vocabulary.fingerprint) != vocabulary.fingerprint:
            raise BadInput(
                f"{out}: these shards have another vocabulary, of {stored['size']:,} entries. Give that vocabulary,"
                " or a new folder."
            )
    others = sorted({str(folder.relative_to(out)) for folder in folders} - {part.name for part in parts})
    if others and not append:
        raise BadInput(
            f"{out}: these shards have {others[0]}, which is not in the corpora. Set append=true to keep it, remove its"
            " folder, or give another folder."
        )
    unlike = [name for name in others if not has_key_prefix(out / name, key_prefix(vocabulary))]
    if unlike:
        problem = f"{out}: {unlike[0]} was tokenized with another vocabulary."
        raise BadInput(f"{problem} Give that vocabulary, or another folder.")
    return others
