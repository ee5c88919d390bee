"""Sentence pairs of the retrieval tasks: the files of Tatoeba and FLORES, and translations to plug in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from pathlib import Path

from crossling.core.errors import BadInput
from crossling.corpora.languages import canonical_code
from crossling.tasks.benchmark_files import FLORES, find_task_files, find_tatoeba_files, select_pairs
from crossling.tasks.flores import flores_language, read_flores, scored_split
from crossling.tasks.readers import read_lines

RetrievalInput = str | tuple[str, str]  # a sentence, or a sentence with its translation


@dataclass(frozen=True)
class RetrievalSide:
    """The sentences of one language."""

    language: str
    sentences: list[str]
    file: Path | None = None
    translations: list[str] | None = None  # of each sentence, if cross-attention is plugged in

    @property
    def inputs(self) -> list[RetrievalInput]:
        """Inputs of the encoder."""
        return list(
            self.sentences if self.translations is None else zip(self.sentences, self.translations, strict=True)
        )


@dataclass(frozen=True)
class RetrievalPair:
    """Two sides. Line i of one is the translation of line i of the other."""

    first: RetrievalSide
    second: RetrievalSide
    _: KW_ONLY
    split: str = "test"

    @property
    def sides(self) -> tuple[RetrievalSide, RetrievalSide]:
        """Both sides."""
        return self.first, self.second

    @property
    def name(self) -> str:
        """Language codes, such as `de-en`."""
        return f"{self.first.language}-{self.second.language}"


def read_tatoeba(data: Path, languages: Sequence[str] | None = None) -> list[RetrievalPair]:
    """Return all pairs of DATA/tatoeba/v1 in the order of their names, or those of some languages."""
    selected = select_pairs(find_tatoeba_files(data), languages, data / "tatoeba")
    names = {file.name.split(".")[1] for files in selected.values() for file in files}
    return [_read_pair(data / "tatoeba" / "v1", name) for name in sorted(names)]


def read_flores_pairs(data: Path, languages: Sequence[str] | None = None) -> list[RetrievalPair]:
    """Return all pairs with English, or those of some languages, and the requested pairs without English."""
    split = scored_split(data)
    read = cache(read_flores)  # English is one side of most pairs
    pairs = []
    for files in find_task_files(FLORES, data, languages).values():
        first, second = (RetrievalSide(flores_language(file), read(file), file) for file in files)
        if len(first.sentences) != len(second.sentences):
            raise BadInput(
                f"{files[0]}: {len(first.sentences)} sentences, but {files[1]} has {len(second.sentences)}. Expected"
                " the same sentences in both. Download the files again."
            )
        pairs.append(RetrievalPair(first, second, split=split))
    return pairs


def _read_pair(folder: Path, name: str) -> RetrievalPair:
    codes = name.split("-")
    if len(codes) != 2:
        raise BadInput(f"{folder}: tatoeba.{name} is not a language pair. Rename the files to tatoeba.XXX-YYY.*.")
    sides = []
    for code in codes:
        path = folder / f"tatoeba.{name}.{code}"
        sides.append(RetrievalSide(canonical_code(code), _read_sentences(path), path))
    first, second = sides
    if len(first.sentences) != len(second.sentences):
        raise BadInput(
            f"{folder / f'tatoeba.{name}'}: {len(first.sentences)} lines in .{codes[0]} but {len(second.sentences)} "
            f"in .{codes[1]}. Expected line i to translate line i. Download the files again."
        )
    return RetrievalPair(first, second)


def _read_sentences(path: Path) -> list[str]:
    sentences = read_lines(path)
    for number, sentence in enumerate(sentences, start=1):
        if not sentence.strip():
            raise BadInput(f"{path}: line {number}: empty, expected a sentence. Remove the line from both sides.")
    return sentences


def find_translation_files(files: Sequence[Path]) -> list[Path]:
    """Return the existing translations of the two files of a pair, for cross-attention."""
    plain = [file.with_suffix("") if file.suffix == ".gz" else file for file in files]
    paths = [_translation_file(one, other) for one in plain for other in plain if one != other]
    return [file for path in paths for file in (path, path.with_name(f"{path.name}.gz")) if file.is_file()]


def _translation_file(file: Path, other: Path) -> Path:
    """Return the path of the translation of one side into the language of the other."""
    return file.parents[1] / "translated" / other.suffix[1:] / file.name


def add_translations(side: RetrievalSide, other: RetrievalSide) -> RetrievalSide:
    """Add the translation of each sentence into the language of the other side.

    The file tatoeba/translated/eng/tatoeba.deu-eng.deu is in English. Equal sentences get the translation of the first,
    so that they stay one candidate.
    """
    assert side.file is not None and other.file is not None  # noqa: PT018
    path = _translation_file(side.file, other.file)
    if not any(file.is_file() for file in (path, path.with_name(f"{path.name}.gz"))):
        raise BadInput(
            f"{path}: no such file, plain or .gz. Put the lines of {side.file.name}, translated into {other.language}, "
            "there, or omit plug_in."
        )
    translations = _read_sentences(path)
    if len(translations) != len(side.sentences):
        raise BadInput(
            f"{path}: {len(translations)} lines, but {side.file} has {len(side.sentences)}. Expected line i to "
            "translate line i. Translate the file again."
        )
    first_translation: dict[str, str] = {}
    pairs = zip(side.sentences, translations, strict=True)
    return replace(side, translations=[first_translation.setdefault(*pair) for pair in pairs])
