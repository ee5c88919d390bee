"""Corpus formats: one table from file ending to reader functions.

To add a format, write its reader functions here and add one entry to `FORMATS`. Discovery of files, decompression and
error messages follow from the table. For instance, pairs with three bars between the sides (`pairs/en-fr.bars`):

    def _read_bars(file: TextFile, _: LanguagePair) -> Iterator[PairRow]:
        return map_rows(_split_at_bars, read_lines(file.path, span=file.span))

    def _split_at_bars(line: str) -> PairRow:
        source, separator, target = line.partition("|||")
        return (source, target) if separator else SkipReason.NOT_TWO_COLUMNS

    FORMATS["bars"] = CorpusFormat(read_pairs=_read_bars, is_seekable=True)

- The key is the last suffix of the file name. A variant of an existing ending needs an ending of its own.
- A reader yields one item for every row. For a row that cannot be used it yields a `SkipReason`, under whose value the
  row is counted. A new reason is a new member of `SkipReason` (text_files.py).
- A format with one row a line can be read from the start of any line (`is_seekable`), if its reader passes on
  `file.span`. Large files of this kind are read in slices (text_slices.py).
- Rows may depend on the name and the bytes of the file alone: `tokenize` and `clean` reuse results by `Source.digest`.
  A value that users set, such as `min_score`, is a field of the source and enters its digest.
- Add the ending to the samples and to `test_endings_of_every_place` in tests/corpora/test_formats.py, and to
  docs/reference/formats.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, NoReturn

from crossling.core.errors import BadInput
from crossling.corpora import records
from crossling.corpora.hub_datasets import DatasetReference
from crossling.corpora.languages import match_codes
from crossling.corpora.scored_rows import read_tsv
from crossling.corpora.text_files import SkipReason, TextFile, clean_line, count_lines, map_rows, read_lines

Source = TextFile | DatasetReference
LanguagePair = tuple[str, str]
Line = str | SkipReason
PairRow = tuple[str, str] | SkipReason
# The first argument of a reader is a TextFile, or a DatasetReference for the ending `hf`.
LineReader = Callable[[Any], Iterator[Line]]
PairReader = Callable[[Any, LanguagePair], Iterator[PairRow]]
RecordReader = Callable[[Any, Callable[[str], bool]], Iterator[records.Record | SkipReason]]


def unsupported(*_: object) -> NoReturn:
    """Reader of a format that is not supported in a folder (text/, pairs/ or multi/)."""
    raise TypeError("this format is not supported in this folder")


@dataclass(frozen=True, kw_only=True)
class CorpusFormat:
    """Reader functions of one file ending. Without a reader, files of this format are refused at that place."""

    read_text: LineReader = unsupported  # text/LL.ENDING: clean lines. An empty one ends a document.
    read_pairs: PairReader = unsupported  # pairs/[NAME.]LL-LL.ENDING: both sides of every row, not yet clean.
    read_multi: LineReader = unsupported  # multi/NAME/LL.ENDING: line n, clean, belongs to row n.
    count_rows: Callable[[Path], int] = count_lines  # Number of rows, for `read_multi`.
    is_seekable: bool = False  # A row is a line, and readers start at any line (`TextFile.span`).
    ends_document: Callable[[str], bool] = unsupported  # For `read_text`, if seekable: True if a line is the last one.
    is_compressible: bool = True  # May end in .gz, .xz or .zst.


# ---- readers -------------------------------------------------------------------------------------------------


def _read_txt(file: TextFile) -> Iterator[Line]:
    return map_rows(clean_line, read_lines(file.path, span=file.span))


def _read_moses(left: TextFile, right: TextFile) -> Iterator[PairRow]:
    for source, target in zip_longest(read_lines(left.path, span=left.span), read_lines(right.path, span=right.span)):
        if source is None or target is None:
            # Counted as they are read, so that every difference between the sides is an error.
            check_equal_lengths({file.path: sum(1 for _ in read_lines(file.path)) for file in (left, right)})
        elif isinstance(source, str):
            yield (source, target) if isinstance(target, str) else target
        else:
            yield source


def _record_format(read_records: RecordReader, **options: Any) -> CorpusFormat:
    """Return the format of rows with named columns.

    Args:
        read_records: Function of a source and a predicate of column names that yields rows.
        **options: Fields of the format.
    """

    def read_texts(source: Source) -> Iterator[Line]:
        column = _column(source, records.TEXT)
        rows = read_records(source, lambda name: name == column)
        return records.select_texts(rows, column, str(source), is_checked=_is_continued(source))

    def read_text(source: Source) -> Iterator[Line]:
        return records.split_documents(read_texts(source))

    def read_multi(source: Source) -> Iterator[Line]:
        return map_rows(records.clean_text, read_texts(source))

    def read_pairs(source: Source, pair: LanguagePair) -> Iterator[PairRow]:
        column = _column(source, records.TRANSLATION)
        rows = read_records(source, lambda name: name == column or any(match_codes([name], pair)))
        return records.select_pairs(rows, pair, column, str(source), is_checked=_is_continued(source))

    return CorpusFormat(read_text=read_text, read_pairs=read_pairs, read_multi=read_multi, **options)


def _is_continued(source: Source) -> bool:
    return isinstance(source, TextFile) and source.is_continued


def _column(source: Source, default: str) -> str:
    return (source.column if isinstance(source, DatasetReference) else None) or default


# ---- table ---------------------------------------------------------------------------------------------------

FORMATS: dict[str, CorpusFormat] = {
    "txt": CorpusFormat(
        read_text=_read_txt, read_multi=_read_txt, is_seekable=True, ends_document=lambda line: not clean_line(line)
    ),
    "tsv": CorpusFormat(read_pairs=lambda file, _: read_tsv(file), is_seekable=True),
    "tmx": CorpusFormat(read_pairs=records.read_units),
    "jsonl": _record_format(
        lambda file, _: records.read_jsonl(file), is_seekable=True, ends_document=records.ends_document
    ),
    "parquet": _record_format(
        lambda file, is_wanted: records.read_parquet(file.path, is_wanted),
        count_rows=records.count_parquet_rows,
        is_compressible=False,
    ),
    "hf": replace(
        _record_format(lambda reference, is_wanted: reference.records(is_wanted), is_compressible=False),
        read_multi=unsupported,
    ),
}


def endings(place: str) -> tuple[str, ...]:
    """Return the endings that are read at a place: "text", "pairs" or "multi"."""
    return tuple(ending for ending, form in FORMATS.items() if getattr(form, f"read_{place}") is not unsupported)


def describe_layout() -> str:
    """Return the files that a corpora folder may hold, for error messages."""
    text, pairs, multi = (f"{{{','.join(endings(place))}}}" for place in ("text", "pairs", "multi"))
    fixed = " and ".join(f".{ending}" for ending, form in FORMATS.items() if not form.is_compressible)
    return (
        f"Expected text/LL.{text}, pairs/[NAME.]LL-LL.{pairs}, pairs/NAME.LL-LL.LL (both sides)"
        f" or multi/NAME/LL.{multi}. The pairs of a collection may be in pairs/NAME/."
        f" All but {fixed} may be compressed with .gz, .xz or .zst."
    )


def read_pairs(sources: tuple[Source, ...], pair: LanguagePair) -> Iterator[PairRow]:
    """Yield both sides of every row, not yet clean. Two sources are the two sides of one corpus."""
    match sources:
        case TextFile() as left, TextFile() as right:
            return _read_moses(left, right)
        case [source]:
            return FORMATS[source.format].read_pairs(source, pair)
    raise ValueError(f"unexpected sources of a pair: {sources}")


def check_equal_lengths(lengths: dict[Path, int]) -> None:
    """Raise BadInput if the numbers of lines differ: line n would not be row n."""
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{file} has {lines}" for file, lines in lengths.items())
        raise BadInput(f"translations need the same number of lines, but {counts}. Align the files again.")
