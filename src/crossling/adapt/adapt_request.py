"""Request of an adaptation: model, files and options, with digests by which a later call is recognised."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from crossling.core.errors import BadInput, suggestion
from crossling.core.folder_kinds import folder_kind
from crossling.core.hub import TOKENIZER_FILES, WEIGHT_FILES
from crossling.core.resumable import file_fingerprint, fingerprint
from crossling.corpora.languages import canonical_code, parse_pair
from crossling.inference.sentence_head import HEAD_FILES
from crossling.recipes.run_checkpoints import find_checkpoint, run_of

PathOrName = str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True)
class AdaptRequest:
    """Model, files and options of one adaptation.

    Attributes:
        model: Name or folder of the encoder.
        text: Files of text, in one language or with the language in their names.
        pairs: Files of translations.
        replay: Files or folders of corpora of the languages to keep.
        language: Language of the text.
        pair: Languages of the translations.
        minutes: Training time to aim at.
        lora: Rank of the LoRA matrices. Without it all weights are trained.
        assignments: `key=value` settings.
        seed: Seed of the new weights and of the sampling.
    """

    model: str
    text: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    replay: tuple[str, ...] = ()
    language: str | None = None
    pair: str | None = None
    minutes: float | None = None
    lora: int | None = None
    assignments: tuple[str, ...] = ()
    seed: int = 0

    def check(self) -> None:
        """Raise BadInput if a file is missing or empty, or options contradict each other. Reads no content."""
        if not self.text and not self.pairs:
            raise BadInput("text and pairs: no files. Give text of the new language, translations, or both.")
        if self.language:
            canonical_code(self.language)
        if self.pair:
            parse_pair(self.pair)
        if self.minutes is not None and not self.minutes > 0:
            raise BadInput(f"minutes={self.minutes:g}: expected a positive number.")
        if self.lora is not None and self.lora < 1:
            raise BadInput(f"lora={self.lora}: expected a rank of at least 1, such as 16.")
        for path in map(Path, (*self.text, *self.pairs, *self.replay)):
            if not path.exists():
                names = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
                hint = suggestion(path.name, names) if names else ""
                raise BadInput(f"{path}: no such file{hint or '. Give files, or folders with files.'}")
            if path.is_file() and path.stat().st_size == 0:
                raise BadInput(f"{path}: empty. Give a file with text.")
            if not path.is_file() and not any(each.is_file() for each in path.rglob("*")):
                raise BadInput(f"{path}: a folder without files. Give files, or folders with files.")

    def description(self) -> dict[str, str]:
        """Return a digest of each option and of the content of all files: no name or path of the user."""
        digests = {name: fingerprint(_digests(getattr(self, name))) for name in ("text", "pairs", "replay")}
        digests["model"] = fingerprint([file_fingerprint(file) for file in _model_files(self.model)])
        return {name: fingerprint(value) for name, value in (asdict(self) | {"digests": digests}).items()}


def _model_files(model: str) -> list[Path]:
    """Return the files with weights and tokenizer of a model in a folder. A hub name has none here."""
    folder = Path(model)
    if run_of(folder) is not None:
        saved = find_checkpoint(folder)
        vocabulary = (run_of(folder) or folder) / "vocab"
        return [file for each in (saved, vocabulary) for file in sorted(each.iterdir()) if file.is_file()]
    patterns = (*TOKENIZER_FILES, *WEIGHT_FILES, *HEAD_FILES)
    return sorted({file for pattern in patterns for file in folder.glob(pattern) if file.is_file()})


def _digests(paths: Sequence[str]) -> list[str]:
    return [file_fingerprint(file) for path in paths for file in _files(Path(path))]


def _files(path: Path) -> Iterator[Path]:
    yield from [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())


def is_corpora_folder(path: Path) -> bool:
    """Return True for a folder in the layout of corpora, which is read as it is."""
    return path.is_dir() and folder_kind(path) == "a folder of corpora"
