"""Which reader reads a source: running text, the rows of a pair, or one language of a multi-way set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path

from crossling.corpora import records, tmx
from crossling.corpora.files import File, Skip, clean, count_lines, lines
from crossling.corpora.hub import Reference
from crossling.corpora.languages import sides
from crossling.errors import BadInput

Source = File | Reference
Row = tuple[str, str] | Skip

OF_TEXT = ("txt", "jsonl", "parquet", "hf")
OF_PAIRS = ("tsv", "tmx", "jsonl", "parquet", "hf")
OF_MULTI = ("txt", "jsonl", "parquet")
PACKED_INSIDE = ("parquet", "hf")  # and so never with .gz, .xz or .zst

READ = (
    f"text/LL.{{{','.join(OF_TEXT)}}}, pairs/[NAME.]LL-LL.{{{','.join(OF_PAIRS)}}}, pairs/NAME.LL-LL.LL (both sides) "
    f"and multi/NAME/LL.{{{','.join(OF_MULTI)}}} are read, all but Parquet also packed with .gz, .xz or .zst"
)


def text_lines(source: Source) -> Iterator[str | Skip]:
    """Lines of running text, clean; an empty one ends a document."""
    if isinstance(source, File) and source.format == "txt":
        return _clean_lines(source.path)
    return records.document_lines(_texts(source))


def aligned_lines(source: File) -> Iterator[str | Skip]:
    """Line n for row n, clean."""
    if source.format == "txt":
        return _clean_lines(source.path)
    return (records.line(text) if isinstance(text, str) else text for text in _texts(source))


def count_rows(source: File) -> int:
    """As many as `aligned_lines` gives."""
    return records.count_parquet(source.path) if source.format == "parquet" else count_lines(source.path)


def pair_rows(sources: tuple[Source, ...], pair: tuple[str, str]) -> Iterator[Row]:
    """Both sides of every row, not yet clean; two sources are the sides of one text."""
    match sources:
        case File(left), File(right):
            return _moses(left, right)
        case [File() as file] if file.format == "tsv":
            return _table(file.path)
        case [File() as file] if file.format == "tmx":
            return tmx.rows(file.path, pair)
        case [source]:
            column = _column(source, records.TRANSLATION)
            rows = _records(source, lambda name: name == column or any(sides([name], pair)))
            return records.pairs(rows, pair, column, str(source))
    raise ValueError(f"{len(sources)} sources of a pair")


def same_length(lengths: dict[Path, int]) -> None:
    """BadInput when they differ, for then line n is not row n."""
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{file} has {lines}" for file, lines in lengths.items())
        raise BadInput(f"translations need the same number of lines, but {listed}: align them again")


def _clean_lines(file: Path) -> Iterator[str | Skip]:
    for line in lines(file):
        yield clean(line) if isinstance(line, str) else line


def _texts(source: Source) -> Iterator[str | Skip]:
    column = _column(source, records.TEXT)
    return records.texts(_records(source, lambda name: name == column), column, str(source))


def _column(source: Source, usual: str) -> str:
    return (source.column if isinstance(source, Reference) else None) or usual


def _records(source: Source, wanted: Callable[[str], bool]) -> Iterator[records.Record | Skip]:
    if isinstance(source, Reference):
        return source.records(wanted)
    if source.format == "parquet":
        return records.parquet_records(source.path, wanted)
    return records.json_records(source.path)


def _table(file: Path) -> Iterator[Row]:
    for line in lines(file):
        if isinstance(line, str):
            columns = line.split("\t")
            yield (columns[0], columns[1]) if len(columns) == 2 else Skip.NOT_TWO_COLUMNS
        else:
            yield line


def _moses(left: Path, right: Path) -> Iterator[Row]:
    for source, target in zip_longest(lines(left), lines(right)):
        if source is None or target is None:
            same_length({file: count_lines(file) for file in (left, right)})
        elif isinstance(source, str):
            yield (source, target) if isinstance(target, str) else target
        else:
            yield source
