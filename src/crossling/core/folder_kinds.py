"""Kinds of folders by their files, for the errors of a folder of the wrong kind."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

# One of the files or folders, with wildcards, is enough. The first kind that matches counts.
KINDS = {
    "a run of crossling pretrain": ("recipe.json",),
    "a translator": ("translator.json",),
    "a fine-tuned model": ("tuned.json",),
    "a sentence encoder of crossling finetune": ("embedding.json",),
    "a checkpoint of a run": ("state.json",),
    "a folder of shards": ("manifest.json",),
    "an unfinished folder of shards": (".partial", "text/*/entry.json", "pairs/*/entry.json", "multi/*/*/entry.json"),
    "a Hugging Face model": ("config.json",),
    "a vocabulary of crossling vocab": ("sentencepiece.model",),
    "a folder of crossling synth": ("synthetic.json",),
    "a folder of corpora": ("text", "pairs", "multi"),
    "a folder of benchmark data": ("tatoeba", "flores*", "word-alignment", "bucc2018", "xnli", "panx", "udpos"),
    "a folder of scores": ("scores.jsonl",),
}


def folder_kind(folder: str | os.PathLike[str]) -> str | None:
    """Return the kind of a folder, or None if it is not known.

    Args:
        folder: Any path.

    Example:
        >>> folder_kind("runs/xlm_e")
        'a run of crossling pretrain'
    """
    path = Path(folder)
    return next((kind for kind, names in KINDS.items() if any(any(path.glob(name)) for name in names)), None)


def kind_note(folder: str | os.PathLike[str]) -> str:
    """Return `; this is a run of crossling pretrain`, for an error about a folder of another kind, or nothing."""
    path = Path(folder)
    if not path.exists():
        return "; no such folder"
    kind = "a file" if path.is_file() else folder_kind(path)
    return f"; this is {kind}" if kind else ""


def data_folder_hint(data: Path, names: Iterable[str]) -> str:
    """Return ` Give PATH.` if the benchmark is beside or in the folder that was given, else nothing.

    Args:
        data: Folder that was given as benchmark data.
        names: Folders of the benchmark in a folder of benchmark data, such as `tatoeba`.
    """
    for folder in (data.parent, data / "data", data.parent / "data"):
        if any((folder / name).is_dir() for name in names):
            return f" Give {folder}."
    return ""
