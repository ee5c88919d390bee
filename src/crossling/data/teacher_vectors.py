"""Sentence vectors of a teacher on disk, with the token IDs of the sentences: the data of distillation.

    SHARDS/teacher/teacher.json                 name of the teacher, width, vocabulary, sentences of each language
                   vectors.npy                  [V, E], float16 or float32
                   de/{tokens,offsets,rows}.npy token IDs as in shards.py, and the vector of each sentence

Several sentences may have one vector: both sides of a translation pair have that of the source.
"""
# V vectors, E width of the teacher, N sentences

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from crossling.core.errors import BadInput
from crossling.core.files import atomic_folder, check_format, link_or_copy, read_json, write_json
from crossling.data.shard_writer import LineTokenizer
from crossling.data.shards import ArrayWriter, Shards, TokenizedSentences, map_array

TEACHER_FORMAT = 1
FOLDER, INFO, VECTORS = "teacher", "teacher.json", "vectors.npy"
SENTENCES_PER_BLOCK = 4096  # tokenized together
FIX = "Write them again with crossling distill."


@dataclass(frozen=True)
class TeacherSentences:
    """Sentences of one language, each with the row of its vector."""

    folder: Path
    language: str

    @cached_property
    def sentences(self) -> TokenizedSentences:
        """Token IDs."""
        return TokenizedSentences.open(self.folder / self.language)

    @cached_property
    def rows(self) -> np.ndarray:
        """Row of the vector of each sentence."""
        return map_array(self.folder / self.language / "rows.npy")

    @cached_property
    def vectors(self) -> np.ndarray:
        """Vectors of all languages, [V, E], memory-mapped."""
        return np.asarray(np.load(self.folder / VECTORS, mmap_mode="r", allow_pickle=False))

    def __len__(self) -> int:
        return len(self.rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return TeacherSentences, (self.folder, self.language)  # another process maps the files itself


@dataclass(frozen=True)
class TeacherVectors:
    """The sentences of all languages with the vectors of a teacher.

    Attributes:
        path: Folder of the vectors.
        info: Content of teacher.json.
    """

    path: Path
    info: dict[str, Any] = field(repr=False)

    @classmethod
    def open(cls, shards: Shards) -> TeacherVectors:
        """Open the vectors of a teacher in a folder of shards.

        Raises:
            BadInput: If there are none, or they belong to another vocabulary.
        """
        path = shards.path / FOLDER
        if not (path / INFO).is_file():
            raise BadInput(
                f"{shards.path}: no vectors of a teacher in these shards. Write them with crossling distill."
            )
        info = read_json(path / INFO)
        check_format(path / INFO, info.get("format"), TEACHER_FORMAT, FIX)
        if info["vocabulary"] != shards.manifest["vocabulary"]["fingerprint"]:
            raise BadInput(f"{path}: the sentences have another vocabulary than {shards.path}. {FIX}")
        return cls(path, info)

    @property
    def width(self) -> int:
        """Width of the vectors."""
        return int(self.info["width"])

    @property
    def counts(self) -> dict[str, int]:
        """Number of sentences by language."""
        return dict(self.info["sentences"])

    @cached_property
    def languages(self) -> dict[str, TeacherSentences]:
        """Sentences by language."""
        return {language: TeacherSentences(self.path, language) for language in self.counts}


def write_teacher_vectors(
    shards: Shards,
    tokenizer: LineTokenizer,
    sentences: Mapping[str, Iterable[tuple[str, int]]],
    vectors: str | os.PathLike[str],
    *,
    teacher: str,
) -> TeacherVectors:
    """Write the sentences and vectors that the objective `distillation` reads. Works in bounded memory.

    Args:
        shards: Shards to add them to. Earlier vectors are replaced.
        tokenizer: Vocabulary of the shards.
        sentences: By language, each sentence with the row of its vector. Sentences without tokens are dropped.
        vectors: Vectors of the teacher, a `.npy` file [V, E] as `crossling embed` writes it.
        teacher: Name of the teacher.

    Returns:
        The vectors.

    Raises:
        BadInput: If the vocabulary is not that of the shards, or a language has no sentences.

    Example:
        >>> xl.encode_file("LaBSE", "de.txt", "de.npy", half=True)
        >>> lines = Path("de.txt").read_text().splitlines()
        >>> rows = {"de": ((line, row) for row, line in enumerate(lines))}
        >>> write_teacher_vectors(shards, open_vocabulary("vocab"), rows, "de.npy", teacher="LaBSE")
    """
    if tokenizer.fingerprint != shards.manifest["vocabulary"]["fingerprint"]:
        raise BadInput(f"{shards.path}: the shards have another vocabulary. Give theirs, {shards.vocabulary_path}.")
    width = int(np.load(vectors, mmap_mode="r", allow_pickle=False).shape[1])
    with atomic_folder(shards.path / FOLDER) as folder:
        counts = {language: _write(folder / language, each, tokenizer) for language, each in sentences.items()}
        if empty := [language for language, count in counts.items() if not count]:
            raise BadInput(f"{shards.path}: no sentences of {empty[0]} for the teacher. Omit the language.")
        link_or_copy(Path(vectors), folder / VECTORS)
        info = {"format": TEACHER_FORMAT, "teacher": teacher, "width": width, "sentences": counts}
        write_json(folder / INFO, {**info, "vocabulary": tokenizer.fingerprint})
    return TeacherVectors.open(shards)


def _write(folder: Path, sentences: Iterable[tuple[str, int]], tokenizer: LineTokenizer) -> int:
    """Write the arrays of one language. Return the number of sentences."""
    folder.mkdir()
    dtype = np.uint16 if tokenizer.special.size <= 1 << 16 else np.uint32
    with ExitStack() as stack:
        types = {"tokens": dtype, "offsets": np.int64, "rows": np.int64}
        arrays = {name: stack.enter_context(ArrayWriter(folder / f"{name}.npy", each)) for name, each in types.items()}
        arrays["offsets"].add(np.zeros(1, dtype=np.int64))
        for block in _blocks(sentences):
            texts, rows = zip(*block, strict=True)
            ids = tokenizer.encode(texts)
            kept = [([*each, tokenizer.special.eos], row) for each, row in zip(ids, rows, strict=True) if each]
            lengths = np.asarray([len(each) for each, _ in kept], dtype=np.int64)
            arrays["offsets"].add(arrays["tokens"].length + np.cumsum(lengths))
            arrays["tokens"].add(np.asarray([token for each, _ in kept for token in each], dtype=dtype))
            arrays["rows"].add(np.asarray([row for _, row in kept], dtype=np.int64))
        return arrays["rows"].length


def _blocks(sentences: Iterable[tuple[str, int]]) -> Iterator[list[tuple[str, int]]]:
    remaining = iter(sentences)
    while block := list(islice(remaining, SENTENCES_PER_BLOCK)):
        yield block
