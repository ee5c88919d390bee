"""Signs that a file was not converted well: what readers of corpora take as it is, and `crossling ingest` repairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from crossling.corpora.formats import Source
from crossling.corpora.text_files import BLOCK_BYTES, TextFile, open_decompressed, read_lines
from crossling.ingest.delimited import take_sample, was_quoted_by_spreadsheet
from crossling.ingest.entities import ENTITY
from crossling.ingest.language_hints import header_role, match_header

CARRIAGE_RETURNS = "carriage returns without line feed"  # lines that are read as one
ZERO_BYTES = "zero bytes, as in UTF-16"
HEADER_ROW = "header row"
QUOTED_CELLS = "cells in the quotes of a spreadsheet"
ENTITIES = "rows with HTML entities"


def find_file_damage(sources: Sequence[Source], languages: Sequence[str]) -> Counter[str]:
    """Count the signs of damage in the files of a corpus.

    Args:
        sources: Files of the corpus. Only plain text and TSV are read here.
        languages: Languages of its rows.
    """
    counts: Counter[str] = Counter()
    for source in sources:
        if isinstance(source, TextFile) and source.format not in ("jsonl", "tmx", "parquet"):
            counts += _count_bytes(source)
            counts += _check_table(source, languages) if source.format == "tsv" else Counter()
    return counts


def count_entities(rows: Iterable[tuple[str, str]]) -> int:
    """Return the number of rows with an HTML entity, which no format has after it was read."""
    return sum(any("&" in side and ENTITY.search(side) is not None for side in row) for row in rows)


def _count_bytes(source: TextFile) -> Counter[str]:
    counts: Counter[str] = Counter()
    last = b""
    with open_decompressed(source.path) as handle:
        while block := handle.read(BLOCK_BYTES):
            ends = block.count(b"\r\n") + (last == b"\r" and block.startswith(b"\n"))
            counts[CARRIAGE_RETURNS] += block.count(b"\r") - ends
            counts[ZERO_BYTES] += block.count(b"\0")
            last = block[-1:]
    return +counts


def _check_table(source: TextFile, languages: Sequence[str]) -> Counter[str]:
    sample = [line.rstrip("\r\n") for line in take_sample(read_lines(source.path))[0]]
    cells = sample[0].split("\t") if sample else []
    roles = {header_role(cell) for cell in cells}
    is_header = len(cells) > 1 and (None not in match_header(cells, languages) or roles >= {"source", "target"})
    return +Counter({HEADER_ROW: int(is_header), QUOTED_CELLS: int(was_quoted_by_spreadsheet(sample))})
