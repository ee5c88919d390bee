"""Parts of the corpora and their slices, which several processes and machines read at the same time.

A part is the text of a language, a bitext, or one language of a multi-way corpus. A large part is read in slices of
about SLICE_BYTES, each of which starts at a line. Slices depend on the sources alone, so that all machines agree.

| sources | slices |
|---|---|
| plain .txt, .tsv, .jsonl | start at the first line after a multiple of SLICE_BYTES |
| the same in .zst | start in the first frame after it; a file of one frame is one slice |
| two plain sides of a bitext | start at the same line number; the line feeds of both files are counted for it |
| .gz, .xz, .tmx, .parquet, datasets | one slice |

A slice of text in documents starts after the end of a document. If none ends within MAX_DOCUMENT_CHARACTERS bytes, the
document is split at a line. If none ends before the next slice, the slice is empty.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from crossling.corpora.corpus import (
    MAX_DOCUMENT_CHARACTERS,
    Corpora,
    MonolingualCorpus,
    MultiwayCorpus,
    ParallelCorpus,
)
from crossling.corpora.formats import FORMATS, Source, check_equal_lengths
from crossling.corpora.text_files import (
    COMPRESSION_SUFFIX,
    LinePosition,
    LineSpan,
    TextFile,
    open_decompressed,
)
from crossling.corpora.zstd_frames import frame_offsets

SLICE_BYTES = 256 << 20  # of files on disk
COUNT_BYTES = 1 << 20  # read at once to count line feeds

START = LinePosition(0, 0)
Spans = tuple[LineSpan | None, ...]  # of each source of a slice; empty if the slice is empty


@dataclass(frozen=True)
class SourcePart:
    """A corpus, one language of a multi-way corpus, or a slice of them."""

    name: str  # text/sw, pairs/NAME.en-fr, multi/NAME/en
    corpus: MonolingualCorpus | ParallelCorpus | MultiwayCorpus
    language: str = ""  # in a multi-way corpus

    @property
    def sources(self) -> tuple[Source, ...]:
        """Files or datasets that the rows come from."""
        return (self.corpus.sources[self.language],) if isinstance(self.corpus, MultiwayCorpus) else self.corpus.sources

    @property
    def languages(self) -> tuple[str, ...]:
        """Language of each side of a row."""
        match self.corpus:
            case MonolingualCorpus(language=language):
                return (language,)
            case ParallelCorpus(languages=languages):
                return languages
        return (self.language,)

    def documents(self, dropped: Counter[str]) -> Iterator[list[tuple[str, ...]]]:
        """Yield rows, grouped by document. A row has one line for each side."""
        match self.corpus:
            case MonolingualCorpus():
                for document in self.corpus.documents(dropped):
                    yield [(line,) for line in document]
            case ParallelCorpus():
                for row in self.corpus.rows(dropped):
                    yield [row]
            case MultiwayCorpus():
                for line in self.corpus.lines(self.language, dropped):
                    yield [(line,)]

    def state(self) -> str:
        """Return a text that changes with the files and with the way they are sliced."""
        return " ".join([f"{SLICE_BYTES}", *(f"{source.name} {source.state()}" for source in self.sources)])

    # ---- slices ----

    @cached_property
    def slices(self) -> int:
        """Number of slices."""
        return len(self._slice_groups)

    def find_spans(self) -> list[Spans]:
        """Return the lines of every slice. Reads little, but for the sides of a bitext."""
        return [spans for group in self._groups for spans in _find_spans(group, self._has_documents)]

    def slice(self, index: int, spans: Spans) -> SourcePart:
        """Return one slice, by its index and its spans."""
        pairs = zip(self._slice_groups[index], spans, strict=True)
        sources: list[Any] = [replace(cast(TextFile, source), span=span) if span else source for source, span in pairs]
        if isinstance(self.corpus, MultiwayCorpus):
            return replace(self, corpus=replace(self.corpus, sources={self.language: sources[0]}))
        return replace(self, corpus=replace(self.corpus, sources=tuple(sources)))

    def sliced_groups(self) -> Iterator[tuple[tuple[Source, ...], list[int]]]:
        """Yield sources that are read in several slices, with the indices of these."""
        for group in self._groups:
            indices = [index for index, other in enumerate(self._slice_groups) if other is group]
            if len(indices) > 1:
                yield group, indices

    @cached_property
    def _groups(self) -> list[tuple[Source, ...]]:
        """Sources that are read together: both sides of a bitext."""
        together = isinstance(self.corpus, ParallelCorpus)
        return [self.sources] if together else [(source,) for source in self.sources]

    @cached_property
    def _slice_groups(self) -> list[tuple[Source, ...]]:
        """The sources of each slice."""
        return [group for group in self._groups for _ in range(_count_slices(group))]

    @property
    def _has_documents(self) -> bool:
        return isinstance(self.corpus, MonolingualCorpus)


def source_parts(corpora: Corpora) -> list[SourcePart]:
    """Return all parts of the corpora."""
    return [
        *(SourcePart(f"text/{text.language}", text) for text in corpora.text),
        *(SourcePart(f"pairs/{pairs.label}", pairs) for pairs in corpora.pairs),
        *(SourcePart(f"multi/{multi.name}/{code}", multi, code) for multi in corpora.multi for code in multi.languages),
    ]


def spans_to_json(slices: Sequence[Spans]) -> Any:
    """Return spans as a JSON value."""
    return [[span and [span.start, span.end] for span in spans] for spans in slices]


def spans_from_json(value: Any) -> list[Spans]:
    """Return the spans that `spans_to_json` stored."""
    return [tuple(span and LineSpan(*(p and LinePosition(*p) for p in span)) for span in spans) for spans in value]


# ---- finding slices -----------------------------------------------------------------------------------------


def _count_slices(group: Sequence[Source]) -> int:
    if any(not _is_seekable(source) for source in group):
        return 1
    if len(group) > 1 and any(source.name.endswith(".zst") for source in group):  # lines of two files, by their number
        return 1
    return max(1, -(-group[0].size() // SLICE_BYTES))


def _is_seekable(source: Source) -> bool:
    if not isinstance(source, TextFile):
        return False
    compression = COMPRESSION_SUFFIX.search(source.name)
    is_line = source.format not in FORMATS or FORMATS[source.format].is_seekable  # others are sides of a bitext
    return is_line and (compression is None or compression[1] == "zst")


def _find_spans(group: Sequence[Source], has_documents: bool) -> list[Spans]:
    number = _count_slices(group)
    files = cast(Sequence[TextFile], group)
    if number == 1:
        return [(None,) * len(group)]
    starts = _find_aligned(files, number) if len(files) > 1 else _find_starts(files[0], number, has_documents)
    spans: list[Spans] = []
    following: Sequence[LinePosition | None] = (None,) * len(files)
    for positions in reversed(starts):
        spans.append(tuple(map(LineSpan, positions, following)) if positions else ())
        following = positions or following
    return spans[::-1]


def _find_starts(file: TextFile, number: int, has_documents: bool) -> list[tuple[LinePosition] | None]:
    """Return the position of the first line of each slice, None for an empty slice."""
    edges = [index * SLICE_BYTES for index in range(number)]
    if file.path.suffix == ".zst":
        frames = [*frame_offsets(file.path)]
        places = [bisect_left(frames, edge) for edge in edges]
        edges = [frames[place] if place < len(frames) else file.size() for place in places]
    found = [
        _find_start(file, *section, has_documents) for section in zip(edges[1:], [*edges[2:], file.size()], strict=True)
    ]
    return [(START,), *((position,) if position else None for position in found)]


def _find_start(file: TextFile, offset: int, end: int, has_documents: bool) -> LinePosition | None:
    """Return the first line that may start a slice, except the first line of a section of the file, or None."""
    if offset == end:
        return None
    first = skip = 0  # behind the first line, and behind the current one
    with open_decompressed(file.path, LineSpan(LinePosition(offset, 0), LinePosition(end, 0))) as handle:
        while skip - first < MAX_DOCUMENT_CHARACTERS:
            is_whole = first > 0  # the first line may have started in the section before
            while not (line := handle.readline(COUNT_BYTES)).endswith(b"\n"):
                if not line:
                    return None
                skip, is_whole = skip + len(line), False
            skip += len(line)
            first = first or skip
            if not has_documents or (is_whole and _ends_document(file, line)):
                return LinePosition(offset, skip)
    return LinePosition(offset, first)


def _ends_document(file: TextFile, line: bytes) -> bool:
    try:
        return FORMATS[file.format].ends_document(line.decode("utf-8"))
    except UnicodeDecodeError:
        return False


def _find_aligned(files: Sequence[TextFile], number: int) -> list[tuple[LinePosition, ...] | None]:
    """Return the positions at which all files have the same number of lines before them."""
    first, *others = files
    starts = [place[0] for place in _find_starts(first, number, has_documents=False) if place]
    size = first.path.stat().st_size  # no line starts there, but another file may have no line feed at its end
    offsets = sorted({start for position in starts if (start := sum(position)) < size})
    *numbers, length = _count_lines_before(first.path, offsets)
    columns, lengths = [offsets], {first.path: length}
    for file in others:
        *column, lengths[file.path] = _find_lines(file.path, numbers)
        columns.append(column)
    check_equal_lengths(lengths)
    found = [tuple(LinePosition(offset, 0) for offset in row) for row in zip(*columns, strict=True)]
    return [*found, *[None] * (number - len(found))]


def _count_lines_before(file: Path, offsets: Sequence[int]) -> list[int]:
    """Return the number of lines before each offset, and in the whole file."""
    counts, feeds, last = [], 0, b"\n"
    with file.open("rb") as handle:
        for offset in [*offsets, file.stat().st_size]:
            while block := handle.read(min(COUNT_BYTES, offset - handle.tell())):
                feeds, last = feeds + block.count(b"\n"), block[-1:]
            counts.append(feeds)
    return [*counts[:-1], feeds + (last != b"\n")]


def _find_lines(file: Path, numbers: Sequence[int]) -> list[int]:
    """Return the offset of each line with these numbers, and the number of lines of the file."""
    offsets: list[int] = []
    start, feeds, last = 0, 0, b"\n"
    wanted = [number for number in numbers if number]
    with file.open("rb") as handle:
        while block := handle.read(COUNT_BYTES):
            count = block.count(b"\n")
            if len(offsets) < len(wanted) and wanted[len(offsets)] <= feeds + count:
                ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + start + 1
                within = [number - feeds - 1 for number in wanted[len(offsets) :] if number <= feeds + count]
                offsets += ends[within].tolist()
            start, feeds, last = start + len(block), feeds + count, block[-1:]
    return [*[0] * (len(numbers) - len(wanted)), *offsets, feeds + (last != b"\n")]
