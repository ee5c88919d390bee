"""The corpora that an adaptation trains on: those of the new languages, and those of the languages to keep."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from crossling.adapt.prepare_text import PreparedText
from crossling.core.files import atomic_folder

NEW, REPLAY = "new", "replay"  # prefixes of the names of collections


def write_training_corpora(out: Path, new: PreparedText, replay: PreparedText | None) -> None:
    """Write one folder of corpora.

    Args:
        out: Folder to write.
        new: Text of the new languages.
        replay: Text of the languages to keep.
    """
    with atomic_folder(out) as folder:
        for prefix, prepared in ((NEW, new), (REPLAY, replay)):
            if prepared is not None:
                _copy(prepared.train, folder, prefix)


def _copy(source: Path, folder: Path, prefix: str) -> None:
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        kind, *rest = file.relative_to(source).parts
        if kind == "text":
            target = folder / kind / rest[0]
        else:  # one collection for each prefix, because two may have files of the same name
            target = (
                folder / kind / f"{prefix}-{rest[0]}" / Path(*rest[1:])
                if kind == "multi"
                else (folder / kind / f"{prefix}.{rest[0]}")
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def write_held_out_text(out: Path, sentences: Mapping[str, Sequence[str]]) -> None:
    """Write held-out sentences as a folder of corpora, each a document of its own."""
    with atomic_folder(out) as folder:
        (folder / "text").mkdir()
        for language, lines in sentences.items():
            text = "".join(f"{line}\n\n" for line in lines)
            (folder / "text" / f"{language}.txt").write_text(text, encoding="utf-8", newline="\n")
