"""Text files, plain or compressed: lines, sizes and content hashes.

A line ends at a line feed only, so that no other character can shift one side of a translation against the other. For
the same reason a line that cannot be used is replaced by a `SkipReason` and not dropped.
"""

from __future__ import annotations

import gzip
import io
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from crossling.core.errors import BadInput, import_package
from crossling.core.resumable import file_fingerprint, file_state

MAX_LINE_BYTES = 1 << 20  # a longer line is not a sentence and is not kept in memory
BLOCK_BYTES = 1 << 16

T = TypeVar("T")
U = TypeVar("U")

COMPRESSION_SUFFIX = re.compile(r"\.(gz|xz|zst)$")


class SkipReason(Enum):
    """Reason to skip a line or a row. Skipped rows are counted under its value."""

    MALFORMED = "malformed utf-8"
    TOO_LONG = "line too long"
    EMPTY_SIDE = "empty side"
    MISSING_SIDE = "missing side"
    NOT_TWO_COLUMNS = "not two columns"
    NO_SCORE = "no score"
    LOW_SCORE = "low score"
    NOT_JSON = "not JSON"
    NO_TEXT = "no text"  # null, absent, or a number
    # of crossling ingest
    HEADER = "header"
    BLANK_ROW = "blank row"
    WRONG_COLUMNS = "other number of columns"
    UNCLOSED_QUOTE = "unclosed quote"
    OUTSIDE_TABLE = "not in a table"
    OTHER_SHEET = "sheet without the languages"
    DAMAGED_CHARACTER = "replacement character"  # U+FFFD, which an earlier conversion left


# Versions of readers that read a file in another way than before, so that stored results of the old one are not reused.
READER_VERSIONS = {"tsv": "2"}  # 2: rows with scores


class LinePosition(NamedTuple):
    """Start of a line: an offset in the file, of a frame if it is compressed, and decompressed bytes to skip there."""

    offset: int
    skip: int


class LineSpan(NamedTuple):
    """Lines of a file from one position to another."""

    start: LinePosition
    end: LinePosition | None  # None: the end of the file


@dataclass(frozen=True)
class TextFile:
    """Source of text: a file, or some of its lines."""

    path: Path
    min_score: float | None = None  # of pairs, if the file has scores
    span: LineSpan | None = None  # None: the whole file

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        """File name."""
        return self.path.name

    @property
    def format(self) -> str:
        """Ending without compression: `txt` for en.txt.gz."""
        return COMPRESSION_SUFFIX.sub("", self.path.name).rpartition(".")[2]

    def size(self) -> int:
        """Return the number of bytes on disk."""
        with _readable_errors(self.path):
            return self.path.stat().st_size

    def digest(self) -> str:
        """Return a hash of the bytes on disk, which depends on the compression, with all that changes what is read."""
        with _readable_errors(self.path):
            return " ".join([file_fingerprint(self.path), *self._reading()])

    def state(self) -> str:
        """Return a hash of the file's size and time of change, with all that changes what is read. Reads no text."""
        with _readable_errors(self.path):
            return " ".join([file_state([self.path]), *self._reading()])

    @property
    def is_continued(self) -> bool:
        """True if the lines do not start with the first line of the file."""
        return self.span is not None and self.span.start != (0, 0)

    def _reading(self) -> list[str]:
        score = [] if self.min_score is None else [repr(self.min_score)]
        return score + ([READER_VERSIONS[self.format]] if self.format in READER_VERSIONS else [])


def map_rows(function: Callable[[T], U], rows: Iterable[T | SkipReason]) -> Iterator[U | SkipReason]:
    """Apply a function to all rows but those to skip."""
    return (row if isinstance(row, SkipReason) else function(row) for row in rows)


def read_lines(file: Path, max_bytes: int = MAX_LINE_BYTES, span: LineSpan | None = None) -> Iterator[str | SkipReason]:
    """Yield raw lines with their line feed, or the reason for a line that is too long or not UTF-8."""
    first = span is None or span.start == (0, 0)
    with open_decompressed(file, span) as handle:
        while raw := handle.readline(max_bytes + 1):
            is_cut = len(raw) > max_bytes and not raw.endswith(b"\n")  # before a mark is removed: the rest follows
            if first:
                raw, first = _strip_byte_order_mark(raw, file), False
            if is_cut:
                while (rest := handle.readline(max_bytes)) and not rest.endswith(b"\n"):
                    pass
                yield SkipReason.TOO_LONG
                continue
            try:
                yield raw.decode("utf-8")
            except UnicodeDecodeError:
                yield SkipReason.MALFORMED


def count_lines(file: Path) -> int:
    """Return the number of lines that `read_lines` yields."""
    feeds, last = 0, b"\n"
    with open_decompressed(file) as handle:
        while block := handle.read(BLOCK_BYTES):
            feeds, last = feeds + block.count(b"\n"), block[-1:]
    return feeds + (last != b"\n")


# Control characters, tabs included, and the two Unicode separators that other tools take for line ends.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def clean_line(line: str) -> str:
    """Replace control characters by spaces and strip white space."""
    line = line.strip()
    return line if line.isprintable() else _CONTROL.sub(" ", line).strip()


def is_too_long(line: str) -> bool:
    """Return True if a line has more bytes than a file line may have."""
    return len(line) > MAX_LINE_BYTES // 4 and len(line.encode("utf-8", "surrogatepass")) > MAX_LINE_BYTES


@contextmanager
def open_decompressed(file: Path, span: LineSpan | None = None) -> Iterator[io.BufferedReader]:
    """Open a file for reading with decompression. No more than the requested bytes are decompressed at once.

    Args:
        file: File, whose name has the compression.
        span: Lines to read, of a file that is not compressed or .zst. [default: all]
    """
    # Buffered again: reading lines from Python's own decompressors is slow.
    with _readable_errors(file), io.BufferedReader(_decompressor(file, span), BLOCK_BYTES) as handle:
        yield handle


def _decompressor(file: Path, span: LineSpan | None) -> Any:
    if span is not None:
        return _ZstdSpan(file, span) if file.suffix == ".zst" else _FileRange(file, sum(span.start), _offset(span.end))
    match file.suffix:
        case ".gz":
            return gzip.open(file)
        case ".xz":
            return _XzReader(file)
        case ".zst":
            # The package zstandard either decompresses a long run of one character at once, or does not notice that a
            # file is truncated.
            pyarrow = import_package("pyarrow", file)
            return pyarrow.input_stream(str(file), compression="zstd", buffer_size=BLOCK_BYTES)
    return file.open("rb", buffering=0)


def _offset(position: LinePosition | None) -> int | None:
    return None if position is None else sum(position)


class _FileRange(io.RawIOBase):
    """Bytes of a file from one offset to another."""

    def __init__(self, file: Path, start: int, end: int | None) -> None:
        self._file = file.open("rb", buffering=0)
        self._file.seek(start)
        self._left = sys.maxsize if end is None else end - start

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read = self._file.readinto(memoryview(buffer)[: self._left]) or 0
        self._left -= read
        return read

    def close(self) -> None:
        self._file.close()
        super().close()


class _ZstdSpan(io.RawIOBase):
    """Text from a position in one frame to a position in another: whole frames, then the start of the last one."""

    def __init__(self, file: Path, span: LineSpan) -> None:
        start, end = span
        self._file, self._pyarrow = file, import_package("pyarrow", file)
        ranges = [(start.offset, end.offset if end else None, sys.maxsize)]
        ranges += [(end.offset, None, end.skip)] if end else []
        self._streams = [self._open(*one) for one in ranges]
        while start.skip and (skipped := self._streams[0][0].read(min(start.skip, BLOCK_BYTES))):
            start = start._replace(skip=start.skip - len(skipped))

    def _open(self, start: int, end: int | None, limit: int) -> tuple[Any, int]:
        raw = self._pyarrow.PythonFile(io.BufferedReader(_FileRange(self._file, start, end), BLOCK_BYTES), mode="r")
        return self._pyarrow.CompressedInputStream(raw, "zstd"), limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while self._streams:
            stream, limit = self._streams[0]
            if data := stream.read(min(len(buffer), limit)):
                buffer[: len(data)] = data
                self._streams[0] = stream, limit - len(data)
                return len(data)
            self._streams.pop(0)[0].close()
        return 0

    def close(self) -> None:
        for stream, _ in self._streams:
            stream.close()
        super().close()


class _XzReader(io.RawIOBase):
    """Text of all streams of an .xz file.

    `lzma.open` takes padding, or a damaged stream after the first, for the end of the file and raises no error.
    """

    def __init__(self, file: Path) -> None:
        self._file = file.open("rb", buffering=0)
        self._decompressor = lzma.LZMADecompressor()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = b""
        while not data:
            block = b""
            if self._decompressor.eof:
                block = self._decompressor.unused_data.lstrip(b"\0")  # zero bytes are padding
                while not block and (more := self._file.read(BLOCK_BYTES)):
                    block = more.lstrip(b"\0")
                if not block:
                    return 0
                self._decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ)
            elif self._decompressor.needs_input and not (block := self._file.read(BLOCK_BYTES)):
                raise EOFError("it ends within a compressed stream")
            data = self._decompressor.decompress(block, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


@contextmanager
def _readable_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        if reason is None:  # raised by the decompressor, not by the system
            raise BadInput(f"{file}: truncated or damaged ({error}). Download or compress it again.") from None
        raise BadInput(f"{file}: cannot be opened ({reason}). Check the file and its permissions.") from None


def _strip_byte_order_mark(start: bytes, file: Path) -> bytes:
    if start.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")):
        raise BadInput(
            f"{file}: UTF-16 or UTF-32 by its first bytes. Save it as UTF-8, or convert it with crossling ingest."
        )
    return start.removeprefix(b"\xef\xbb\xbf")
