"""Tagging files: a word a line, its tag in the last column, an empty line after each sentence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crossling.benchmarks.examples import Tagged
from crossling.benchmarks.lines import read_lines
from crossling.benchmarks.tables import known
from crossling.errors import BadInput

DOCUMENT = "-DOCSTART-"  # CoNLL's line between two texts, no word


@dataclass(frozen=True)
class Columns:
    """Reads `token<TAB>tag`, or whichever columns are named; a file of words alone has no tags."""

    word: int = 0
    tag: int = -1
    width: int = 2
    separator: str = "\t"
    prefix: bool = False  # words come as `en:word`

    def __call__(self, path: Path, labels: tuple[str, ...]) -> list[Tagged]:
        found: list[Tagged] = []
        for sentence in sentences(path):
            words: list[str] = []
            tags: list[str] = []
            for line, text in sentence:
                cells = text.split(self.separator)
                if cells[0] == DOCUMENT:
                    continue
                where = f"{path}: line {line}"
                if len(cells) not in (1, self.width):
                    raise BadInput(f"{where} has {len(cells)} columns, expected {self.width}; fetch the file again")
                word = cells[self.word if len(cells) > 1 else 0].strip()
                words.append(word.partition(":")[2] if self.prefix else word)
                if not words[-1]:
                    raise BadInput(f"{where} has no word before its tag; fetch the file again")
                if len(cells) > 1:
                    tags.append(known(where, cells[self.tag].strip(), labels))
            if tags and len(tags) < len(words):
                raise BadInput(f"{path}: line {sentence[0][0]} begins a sentence with a tag on some words only")
            if words:
                found.append(Tagged(str(len(found)), tuple(words), tuple(tags) or None))
        return found


def read_conllu(path: Path, labels: tuple[str, ...]) -> list[Tagged]:
    """Universal Dependencies: the words and their UPOS. Ranges (`1-2`, a word written as one) and empty nodes (`1.1`,
    a word not written at all) are passed over: the words inside a range follow it."""
    found: list[Tagged] = []
    for sentence in sentences(path):
        words: list[str] = []
        tags: list[str] = []
        for line, text in sentence:
            if text.startswith("#"):
                continue
            where = f"{path}: line {line}"
            cells = text.split("\t")
            if len(cells) != 10:
                raise BadInput(f"{where} has {len(cells)} columns, expected CoNLL-U's 10; fetch the file again")
            if "-" in cells[0] or "." in cells[0]:
                continue
            if cells[0] != str(len(words) + 1):
                raise BadInput(f"{where} is word {cells[0]!r}, expected {len(words) + 1}; fetch the file again")
            words.append(cells[1])
            tags.append(known(where, cells[3], labels))
        if words:
            found.append(Tagged(str(len(found)), tuple(words), tuple(tags)))
    return found


def sentences(path: Path) -> Iterator[list[tuple[int, str]]]:
    """The lines between empty ones, each with its number."""
    sentence: list[tuple[int, str]] = []
    for number, line in enumerate([*read_lines(path), ""], start=1):
        if line.strip():
            sentence.append((number, line))
        elif sentence:
            yield sentence
            sentence = []
