"""Sentences of a student: files of the user to text, held-out pairs, and the texts that the teacher encodes.

    WORK/ingested/            corpora, if the user gives files
         corpora/text/LL.txt  distinct sentences to train on, each a document
                 pairs/A-B.tsv
         teacher.txt          distinct sentences whose vectors are targets
         targets/LL.tsv       row of teacher.txt, sentence
         heldout/A-B.tsv      pairs to score with
         data.json            counts; exists when all of this is complete

A sentence of text has its own vector as target. Both sides of a pair have that of the source. No sentence that is
equal or nearly equal to one of a held-out pair is trained on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import IO

import numpy as np
import xxhash

from crossling.cleaning.held_out import HeldOutIndex
from crossling.core.errors import BadInput
from crossling.core.files import atomic_folder, read_json, write_json
from crossling.corpora.corpus import Corpora, open_corpora
from crossling.ingest.ingest import ingest

HELD_OUT_PAIRS, HELD_OUT_FRACTION = 1000, 0.1  # of each language pair, whichever is fewer
DATA, FOLDER = "data.json", "data"
CORPORA_FOLDERS = ("text", "pairs", "multi")

PairRow = tuple[str, str]


@dataclass(frozen=True)
class StudentData:
    """Sentences to train a student on.

    Attributes:
        path: Folder of all files.
        sentences: Sentences by language.
        pairs: Pairs to train on by language pair.
        held_out: Held-out pairs by language pair.
        targets: Texts that the teacher encodes.
        words: Mean words of a sentence.
    """

    path: Path
    sentences: dict[str, int]
    pairs: dict[str, int]
    held_out: dict[str, int]
    targets: int
    words: float

    @property
    def corpora(self) -> Path:
        """Folder of the training corpora."""
        return self.path / "corpora"

    @property
    def teacher_texts(self) -> Path:
        """File of the texts that the teacher encodes."""
        return self.path / "teacher.txt"

    def targets_of(self, language: str) -> Iterator[tuple[str, int]]:
        """Yield the sentences of a language with the row of their vector."""
        with (self.path / "targets" / f"{language}.tsv").open(encoding="utf-8", newline="\n") as file:
            for line in file:
                row, _, sentence = line.rstrip("\n").partition("\t")
                yield sentence, int(row)

    def held_out_pairs(self, pair: str) -> list[PairRow]:
        """Return the held-out pairs of a language pair."""
        text = (self.path / "heldout" / f"{pair}.tsv").read_text(encoding="utf-8")
        return [(row[0], row[1]) for line in text.split("\n") if len(row := line.split("\t")) == 2]


def gather_sentences(files: Sequence[Path], work: Path, source: str, seed: int = 0) -> StudentData:
    """Read the files or corpora of the user, set pairs aside, and write the sentences. Finished work is kept.

    Args:
        files: Files of `crossling ingest`, or folders of corpora.
        work: Folder to write.
        source: Language whose side of a pair gives the target of both. Others: the first of the pair.
        seed: Seed of the held-out pairs.

    Raises:
        BadInput: If there is no text in two languages or more, or too few pairs to set some aside.
    """
    out = work / FOLDER
    if not (out / DATA).is_file():
        corpora = _open_all(files, work)
        with atomic_folder(out) as new:
            _write(corpora, new, source, seed)
    stored = read_json(out / DATA)
    return StudentData(path=out, **stored)


def _open_all(files: Sequence[Path], work: Path) -> list[Corpora]:
    """Return the corpora that the user gives, and those made of the files."""
    folders = [file for file in files if file.is_dir() and any((file / each).is_dir() for each in CORPORA_FOLDERS)]
    others = [file for file in files if file not in folders]
    if others:
        ingest(others, work / "ingested")
        folders.append(work / "ingested")
    return [open_corpora(folder) for folder in folders]


def _write(corpora: Sequence[Corpora], out: Path, source: str, seed: int) -> None:
    for name in ("corpora/text", "corpora/pairs", "targets", "heldout"):
        (out / name).mkdir(parents=True)
    pairs = _read_pairs(corpora)
    held_out = {name: _hold_out(rows, seed) for name, rows in pairs.items()}
    if not any(held_out.values()):
        raise BadInput("pairs: fewer than 20 translation pairs. Give more, to train on and to score with.")
    excluded = HeldOutIndex(text for rows in held_out.values() for row in rows for text in row)
    with _SentenceWriter(out) as writer:
        for name, rows in pairs.items():
            codes = name.split("-")
            first = codes.index(source) if source in codes else 0
            kept = [row for row in rows if not excluded.has_any(row)]
            with (out / "corpora" / "pairs" / f"{name}.tsv").open("w", encoding="utf-8", newline="\n") as file:
                file.writelines("\t".join(row) + "\n" for row in kept)
            writer.pairs[name] = len(kept)
            for row in kept:
                number = writer.target(row[first])
                for code, sentence in zip(codes, row, strict=True):
                    writer.add(code, sentence, number)
            lines = ["\t".join(row) for row in held_out[name]]
            (out / "heldout" / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
        for each in corpora:
            for text in each.text:
                for sentence in (line for document in text.documents() for line in document):
                    if not writer.has(text.language, sentence) and sentence not in excluded:
                        writer.add(text.language, sentence, writer.target(sentence))
    counts = StudentData(
        path=out,
        sentences=writer.sentences,
        pairs=writer.pairs,
        held_out={name: len(rows) for name, rows in held_out.items() if rows},
        targets=len(writer.numbers),
        words=writer.words / max(1, sum(writer.sentences.values())),
    )
    if not counts.sentences:
        raise BadInput("text: no sentences to train on. Give more text or pairs.")
    write_json(out / DATA, {name: value for name, value in asdict(counts).items() if name != "path"})


def _read_pairs(corpora: Sequence[Corpora]) -> dict[str, list[PairRow]]:
    """Return the distinct pairs of each language pair, by names such as `de-en`."""
    found: dict[str, dict[PairRow, None]] = {}
    for each in corpora:
        for corpus in each.pairs:
            rows = found.setdefault("-".join(sorted(corpus.languages)), {})
            is_swapped = corpus.languages[0] > corpus.languages[1]
            rows.update(dict.fromkeys((b, a) if is_swapped else (a, b) for a, b in corpus.rows()))
        for multi in each.multi:
            for one, other in combinations(sorted(multi.languages), 2):
                if (one, other) not in multi.excluded_pairs:
                    rows = found.setdefault(f"{one}-{other}", {})
                    sides = zip(multi.lines(one), multi.lines(other), strict=True)
                    rows.update(dict.fromkeys((a, b) for a, b in sides if a and b))
    return {name: [*rows] for name, rows in sorted(found.items()) if rows}


def _hold_out(rows: Sequence[PairRow], seed: int) -> list[PairRow]:
    number = min(HELD_OUT_PAIRS, int(HELD_OUT_FRACTION * len(rows)))
    chosen = np.random.default_rng(seed).permutation(len(rows))[: number if number > 1 else 0]
    return [rows[place] for place in sorted(chosen.tolist())]


def _hash(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode())


class _SentenceWriter:
    """Files of the sentences of each language and of the texts for the teacher."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.numbers: dict[int, int] = {}  # row of the vector of each text, by its hash
        self.pairs: dict[str, int] = {}
        self.words = 0
        self._seen: dict[str, set[int]] = {}  # sentences of each language
        self._files: dict[str, tuple[IO[str], IO[str]]] = {}
        self._teacher = (out / "teacher.txt").open("w", encoding="utf-8", newline="\n")

    @property
    def sentences(self) -> dict[str, int]:
        """Number of sentences by language."""
        return {language: len(seen) for language, seen in sorted(self._seen.items())}

    def target(self, text: str) -> int:
        """Return the row of the vector of a text."""
        key = _hash(text)
        if key not in self.numbers:
            self.numbers[key] = len(self.numbers)
            self._teacher.write(text + "\n")
        return self.numbers[key]

    def has(self, language: str, sentence: str) -> bool:
        """Return whether a sentence was added."""
        return _hash(sentence) in self._seen.get(language, ())

    def add(self, language: str, sentence: str, row: int) -> None:
        """Add a sentence, unless it is there already."""
        seen = self._seen.setdefault(language, set())
        key = _hash(sentence)
        if key in seen:
            return
        seen.add(key)
        if language not in self._files:
            names = self.out / "corpora" / "text" / f"{language}.txt", self.out / "targets" / f"{language}.tsv"
            self._files[language] = tuple(name.open("w", encoding="utf-8", newline="\n") for name in names)  # type: ignore[assignment]
        text, targets = self._files[language]
        text.write(sentence + "\n\n")
        targets.write(f"{row}\t{sentence}\n")
        self.words += len(sentence.split())

    def __enter__(self) -> _SentenceWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._teacher, *(file for files in self._files.values() for file in files)):
            file.close()
