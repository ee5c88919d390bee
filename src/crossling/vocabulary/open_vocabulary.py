"""Open the vocabulary of a folder, whichever kind it is: our own, or the tokenizer of a Hugging Face model."""

from __future__ import annotations

import os
from pathlib import Path

from crossling.bundled import resolve_model
from crossling.core.errors import BadInput
from crossling.core.folder_kinds import kind_note
from crossling.core.hub import TOKENIZER_FILES, get_model_folder
from crossling.vocabulary.fast_vocabulary import TOKENIZER, FastVocabulary
from crossling.vocabulary.vocabulary import REPORT, Vocabulary, copy_vocabulary

AnyVocabulary = Vocabulary | FastVocabulary
SENTENCEPIECE = "sentencepiece.model"


def open_vocabulary(model: str | os.PathLike[str]) -> AnyVocabulary:
    """Open a vocabulary folder, or the vocabulary of a run or of a Hugging Face model, with unchanged ids.

    Args:
        model: Vocabulary folder, run folder, Hugging Face folder, name on the hub, or `bundled`.

    Returns:
        A `Vocabulary` if SentencePiece gives the same ids, which is faster. Otherwise a `FastVocabulary`.

    Raises:
        BadInput: If there is no vocabulary, or its tokenizer cannot be loaded.

    Example:
        >>> open_vocabulary("mmBERT-base").size
        256000
    """
    path = Path(resolve_model(model))
    for folder in (path, path / "vocab"):
        if (folder / SENTENCEPIECE).is_file():
            return Vocabulary.load(folder)
        if (folder / REPORT).is_file() and (folder / TOKENIZER).is_file():
            return FastVocabulary.load(folder)
    if path.is_dir() and not any(any(path.glob(file)) for file in ("tokenizer*.json", "vocab.txt", "*.model")):
        raise BadInput(
            f"{model}: no vocabulary (expected {SENTENCEPIECE} or {TOKENIZER}{kind_note(path)})."
            " Make one with `crossling vocab`."
        )
    from crossling.vocabulary.reuse_vocabulary import load_vocabulary  # it imports transformers

    folder = get_model_folder(resolve_model(model), TOKENIZER_FILES)
    try:
        return load_vocabulary(folder)
    except BadInput:
        return FastVocabulary.load(folder, os.fspath(model))


def store_vocabulary(source: str | os.PathLike[str], vocabulary: AnyVocabulary, target: Path) -> None:
    """Write the vocabulary that `open_vocabulary(source)` returned. A vocabulary folder is copied with its report."""
    for folder in (Path(source), Path(source) / "vocab"):
        if (folder / REPORT).is_file():
            copy_vocabulary(folder, target)
            return
    vocabulary.save(target)
