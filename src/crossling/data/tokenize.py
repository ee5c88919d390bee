"""Tokenize corpora into shards (see shards.py), by independent jobs.

Each part of the corpora (see shard_writer.py) is written atomically, and is not written again as long as its sources do
not change. So an interrupted call resumes, and a language can be added. Three kinds of jobs follow each other:

1. Hash the sources of a part and find its slices. A process that needs a missing plan computes it.
2. Tokenize a slice. It reads its own range of the file.
3. Join the slices of a part, as soon as all are there.

Machines share the jobs of the first two kinds. The machine that writes the last slice of a part joins them. The last
machine writes the manifest.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
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
from crossling.corpora.source_parts import SourcePart, source_parts
from crossling.data import shard_writer
from crossling.data.shard_writer import (
    LineTokenizer,
    has_key_prefix,
    is_slice_written,
    join_slices,
    key_prefix,
    part_plan,
)
from crossling.data.shards import Shards
from crossling.vocabulary.open_vocabulary import AnyVocabulary, open_vocabulary, store_vocabulary
from crossling.vocabulary.vocabulary import check_vocabulary_folder

StrPath = str | os.PathLike[str]
CONTENTS = ("manifest.json", "text", "pairs", "multi", "teacher", "vocab", ".*")  # of a folder of shards


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
        kept = _check_shards_folder(out, source_parts(corpora), tokenizer, append)
        is_complete = write_shards(corpora, tokenizer, out, vocab=vocab, kept=kept, workers=workers, share=share)
    return Shards.open(out) if is_complete else None


def write_shards(
    corpora: Corpora,
    tokenizer: LineTokenizer,
    out: Path,
    *,
    vocab: StrPath | None = None,
    kept: Sequence[str] = (),
    workers: int = 1,
    share: Share | None = None,
) -> bool:
    """Write all parts of the corpora that are not there yet, and the manifest. See `tokenize`.

    Args:
        corpora: Corpora to tokenize.
        tokenizer: Makes token IDs of lines.
        out: Folder for the shards, with nothing but shards in it.
        vocab: What `tokenizer` was opened from, if it is a vocabulary. It is copied into the shards.
        kept: Parts that the folder has beside those of `corpora`.
        workers: Worker processes.
        share: Do only this share of the work.

    Returns:
        True if the shards are complete. False if another share is missing.
    """
    parts = source_parts(corpora)
    out.mkdir(parents=True, exist_ok=True)
    plans = [Job(part.name, partial(part_plan, part, tokenizer, out)) for part in parts]
    run_jobs("read", plans, workers, share)
    run_jobs("tokenize", [job for part in parts for job in _slice_jobs(part, tokenizer, out)], workers, share)
    sliced = [part for part in parts if part.slices > 1]
    joins = [part for part in sliced if not share or _is_written(part, tokenizer, out)]
    if joins:
        run_jobs("join", [Job(part.name, partial(join_slices, part, tokenizer, out)) for part in joins], workers)
    if share and not all(_is_complete(part, tokenizer, out) for part in parts):
        return False
    with lock_file(out / ".joining", wait=False, remove=True) as is_alone:  # two machines may finish at once
        if not is_alone:
            return False
        _remove_temporary_files(out, parts)
        if vocab is not None:
            assert isinstance(tokenizer, AnyVocabulary)
            store_vocabulary(vocab, tokenizer, out / "vocab")
        shard_writer.write_manifest(out, tokenizer, [*kept, *(part.name for part in parts)], corpora)
    return True


def _slice_jobs(part: SourcePart, tokenizer: LineTokenizer, out: Path) -> list[Job]:
    return [
        Job(
            f"{part.name} {index + 1}/{part.slices}" if part.slices > 1 else part.name,
            partial(shard_writer.write_slice, part, tokenizer, out, index),
        )
        for index in range(part.slices)
    ]


def _is_written(part: SourcePart, tokenizer: LineTokenizer, out: Path) -> bool:
    """True if no slice is missing. The plan, which may hash sources, is used only if all folders exist."""
    return all(
        is_slice_written(part, out, index, prefix)
        for prefix in _key_prefixes(part, tokenizer, out)
        for index in range(part.slices)
    )


def _is_complete(part: SourcePart, tokenizer: LineTokenizer, out: Path) -> bool:
    """True if the folder of the part is there, for these sources."""
    return all(has_key_prefix(out / part.name, prefix) for prefix in _key_prefixes(part, tokenizer, out))


def _key_prefixes(part: SourcePart, tokenizer: LineTokenizer, out: Path) -> Iterator[str]:
    yield key_prefix(tokenizer)
    yield part_plan(part, tokenizer, out).key


def _remove_temporary_files(out: Path, parts: Sequence[SourcePart]) -> None:
    """Remove joined slices, and temporary folders of killed processes."""
    shutil.rmtree(out / PARTS_FOLDER, ignore_errors=True)
    for folder in (out / part.name for part in parts):
        for temporary in folder.parent.glob(f".{escape(folder.name)}.*"):
            shutil.rmtree(temporary, ignore_errors=True)


def _check_shards_folder(out: Path, parts: Sequence[SourcePart], vocabulary: AnyVocabulary, append: bool) -> list[str]:
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
