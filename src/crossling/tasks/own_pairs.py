"""Sentence pairs of the user as a retrieval task, from any table that `crossling ingest` reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from crossling.core.errors import BadInput
from crossling.corpora.languages import parse_pair
from crossling.corpora.text_files import COMPRESSION_SUFFIX, SkipReason, clean_line
from crossling.ingest.columns import LanguageRequest
from crossling.ingest.file_readers import READERS, read_file
from crossling.ingest.language_hints import read_name

RETRIEVAL = "retrieval"  # task of the score rows
MAX_PAIRS = 20_000  # whose vectors at every layer are in memory


class OwnPairs(NamedTuple):
    """Sentence pairs of two languages, and the rows that were skipped by reason."""

    languages: tuple[str, str]
    rows: list[tuple[str, str]]
    skipped: dict[str, int]


def read_own_pairs(file: Path, languages: Sequence[str] | None = None) -> OwnPairs:
    """Read the sentence pairs of a file.

    Args:
        file: TSV, CSV, xlsx, docx, JSON Lines, Parquet or TMX.
        languages: The pair, as one code such as `en-sw`. [default: by the file name or the header]

    Raises:
        BadInput: If the file cannot be read, its languages are not certain, or it has fewer than two pairs.
    """
    if not file.is_file():
        raise BadInput(f"{file}: no such file. Give a file with two columns of sentences.")
    if languages is not None and len(languages) != 1:
        raise BadInput(f"languages={','.join(languages)}: expected the pair of {file.name}, such as en-sw.")
    stem, _, ending = COMPRESSION_SUFFIX.sub("", file.name).rpartition(".")
    if ending.lower() not in READERS:
        raise BadInput(f"{file}: unknown kind of file. Expected {', '.join(f'.{each}' for each in READERS)}.")
    pair = parse_pair(languages[0]) if languages else read_name(stem).languages
    found: tuple[str, ...] = ()
    rows: list[tuple[str, str]] = []
    skipped: Counter[str] = Counter()
    for reading in read_file(file, ending.lower(), LanguageRequest(pair if len(pair) == 2 else ())):
        found = found or reading.languages
        if len(found) != 2 or reading.languages != found:
            raise BadInput(f"{file}: languages {', '.join(reading.languages)}, expected one pair. Name it, as en-sw.")
        for row in reading.rows:
            if isinstance(row, SkipReason):
                skipped[row.value] += 1
                continue
            source, target = map(clean_line, row)
            if source and target:
                rows.append((source, target))
            else:
                skipped[SkipReason.EMPTY_SIDE.value] += 1
            if len(rows) > MAX_PAIRS:
                raise BadInput(f"{file}: more than {MAX_PAIRS:,} pairs. Give a sample of them.")
    if len(rows) < 2:
        raise BadInput(f"{file}: {len(rows)} sentence pairs, expected two or more. Give a file with more rows.")
    return OwnPairs((found[0], found[1]), rows, dict(skipped))
