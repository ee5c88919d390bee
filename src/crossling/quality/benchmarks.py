"""The sentences of benchmarks, whatever the layout: tables, tokens line by line, JSON, `source ||| target`, plain text.

A file is known by its content. Where a text could be anything (a column, a value in JSON), what is short or looks like
an identifier is no sentence, so that labels, names and numbers fall away.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from crossling.corpora.files import COMPRESSED, lines
from crossling.corpora.languages import canonical
from crossling.errors import BadInput
from crossling.quality.normal import plain, sentences, weight

# Letters. What is shorter ("I do not know.") is said by chance.
SHORTEST = 20
LONGEST = 1 << 30  # bytes: a file of JSON may be one line
WORD = 12  # letters: longer ones are no words, on average
HEAD = 5000  # lines looked at to tell the layout

_NO_SENTENCES = re.compile(r"\.|readme|licen[cs]e|notice|.*\.(md|ids|gold|py)$", re.IGNORECASE)
_IDENTIFIER = re.compile(r"[!-~]*")  # ASCII without a space
_CODES_OF_CONLL = {"esp": "es", "ned": "nl"}


@dataclass(frozen=True)
class Benchmark:
    """One file of a benchmark."""

    path: Path
    name: str  # of the benchmark: the folder below the one that was given
    language: str  # as the file is named, or empty

    def sentences(self) -> Iterator[tuple[str, str]]:
        """Sentences long enough to be told apart, each with its plain form."""
        for text in _texts(self.path):
            for sentence in sentences(text):
                form = plain(sentence)
                if weight(form) >= SHORTEST and not _IDENTIFIER.fullmatch(sentence):
                    yield sentence, form


def find_benchmarks(data: Path) -> list[Benchmark]:
    if not data.is_dir():
        raise BadInput(f"{data} is no folder: give one with benchmarks in it")
    files = sorted(
        file
        for file in data.rglob("*")
        if file.is_file() and not any(_NO_SENTENCES.match(part) for part in _parts(file.relative_to(data)))
    )
    found = []
    for file in files:
        inside = file.relative_to(data)
        name = inside.parts[0] if len(inside.parts) > 1 else data.resolve().name
        found.append(Benchmark(file, name, _language(_parts(inside))))
    return found


def _parts(inside: Path) -> list[str]:
    return [*inside.parts[:-1], COMPRESSED.sub("", inside.name)]


# ---- languages ----------------------------------------------------------------------------------------------


def _language(parts: list[str]) -> str:
    """From `tatoeba.afr-eng.afr`, `dev-sw.tsv`, `deen.src-tgt`, `hau/test.txt`: the part that is a code."""
    *folders, name = parts
    stem, _, ending = name.rpartition(".")
    for whole in (ending, stem):
        if code := _code(whole, 3):
            return code
    words = re.split(r"[-._]", name)
    joined = re.fullmatch("(?!test)([a-z]{2})([a-z]{2})", words[0])
    for candidates in (words, joined.groups() if joined else ()):
        if codes := [code for word in candidates if (code := _code(word, 2))]:
            return "-".join(dict.fromkeys(codes))
    return next((code for folder in reversed(folders) if (code := _code(folder, 3))), "")


def _code(word: str, longest: int) -> str:
    if word in _CODES_OF_CONLL:
        return _CODES_OF_CONLL[word]
    if not re.fullmatch(f"[a-z]{{2,{longest}}}", word) or word in ("dev", "val", "txt", "tsv", "csv"):
        return ""
    try:
        return canonical(word)
    except BadInput:
        return ""


# ---- layouts ------------------------------------------------------------------------------------------------


def _texts(file: Path) -> Iterator[str]:
    """Texts of a file, each a sentence, a few, or no sentence at all."""
    content = [line.rstrip("\r\n") for line in lines(file, LONGEST) if isinstance(line, str)]
    first = next((line for line in content if line.strip()), "")
    if first.lstrip().startswith(("{", "[")):
        yield from _json(content)
        return
    column = _column_of_tokens(content[:HEAD])
    if column is not None:
        yield from _joined(content, column)
        return
    for line in content:
        for cell in line.split("\t"):
            yield from cell.split(" ||| ")


def _json(content: list[str]) -> Iterator[str]:
    for whole in (content, ["\n".join(content)]):  # a value on every line, or one value on all
        try:
            values = [json.loads(line) for line in whole if line.strip()]
        except (ValueError, RecursionError):
            continue
        for value in values:
            yield from _strings(value)
        return
    yield from content


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def _column_of_tokens(head: list[str]) -> int | None:
    """Where the words stand in a file with a word a line and a blank line between sentences; None if it is none."""
    rows = [_columns(line) for line in head if line.strip() and not line.startswith("# ")]
    widths = {len(row) for row in rows}
    if len(widths) != 1 or not any(not line.strip() for line in head):
        return None
    if any(" " in cell.strip() for row in rows for cell in row[:2]):
        return None
    if widths == {1} and fmean(len(row[0]) for row in rows) > WORD:  # no tags: words, or sentences without spaces
        return None
    return 1 if all(re.fullmatch(r"[\d.-]+", row[0]) for row in rows) else 0


def _columns(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else line.split(" ")


def _joined(content: list[str], column: int) -> Iterator[str]:
    """Sentences as their files give them (`# text = ...` of CoNLL-U), or else the words, with spaces between."""
    for filled, block in groupby(content, key=lambda line: bool(line.strip())):
        if not filled:
            continue
        block_lines = list(block)
        whole = [line.removeprefix("# text = ") for line in block_lines if line.startswith("# text = ")]
        rows = [_columns(line) for line in block_lines if not line.startswith("# ")]
        yield whole[0] if whole else " ".join(row[column] for row in rows if len(row) > column)
