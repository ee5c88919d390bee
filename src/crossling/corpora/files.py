"""Files of text, plain or packed: opened, taken apart into lines, told apart by their bytes.

A line ends at a line feed and nowhere else, so that no odd character inside a text can shift one side of a translation
against the other. A line that cannot be given leaves the reason in its place, for the same end.
"""

from __future__ import annotations

import gzip
import io
import lzma
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import xxhash

from crossling.errors import BadInput

LONGEST_LINE = 1 << 20  # bytes; what is longer is no sentence, and is not held in memory
BLOCK = 1 << 16

COMPRESSED = re.compile(r"\.(gz|xz|zst)$")


class Skip(Enum):
    """Why a line or a row is left out; the value is what it is counted under."""

    MALFORMED = "malformed utf-8"
    TOO_LONG = "line too long"
    EMPTY_SIDE = "empty side"
    MISSING_SIDE = "missing side"
    NOT_TWO_COLUMNS = "not two columns"
    NOT_JSON = "not JSON"
    NO_TEXT = "no text"  # null, absent, or a number


@dataclass(frozen=True)
class File:
    """A file as a source of text."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def format(self) -> str:
        """`txt` of en.txt.gz."""
        return COMPRESSED.sub("", self.path.name).rpartition(".")[2]

    def size(self) -> int:
        """Bytes on disk."""
        with _named(self.path):
            return self.path.stat().st_size

    def digest(self) -> str:
        """Of the bytes on disk: the same text packed otherwise has another."""
        content = xxhash.xxh3_128()
        with _named(self.path), self.path.open("rb") as handle:
            while block := handle.read(1 << 20):
                content.update(block)
        return content.hexdigest()


def lines(file: Path, longest: int = LONGEST_LINE) -> Iterator[str | Skip]:
    """Lines as they are, with their line feed; the reason in the place of one that is no UTF-8 or too long."""
    first = True
    with opened(file) as handle:
        while raw := handle.readline(longest + 1):
            if first:
                raw, first = _without_mark(raw, file), False
            if len(raw) > longest and not raw.endswith(b"\n"):
                while (rest := handle.readline(longest)) and not rest.endswith(b"\n"):
                    pass
                yield Skip.TOO_LONG
                continue
            try:
                yield raw.decode("utf-8")
            except UnicodeDecodeError:
                yield Skip.MALFORMED


def count_lines(file: Path) -> int:
    """As many as `lines` gives."""
    feeds, last = 0, b"\n"
    with opened(file) as handle:
        while block := handle.read(BLOCK):
            feeds, last = feeds + block.count(b"\n"), block[-1:]
    return feeds + (last != b"\n")


# Control characters (tabs too) and the two Unicode separators that other tools take for the end of a line.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def clean(line: str) -> str:
    """Without control characters and the white space around."""
    line = line.strip()
    return line if line.isprintable() else _CONTROL.sub(" ", line).strip()


def too_long(line: str) -> bool:
    """By the measure of bytes, as for lines of files."""
    return len(line) > LONGEST_LINE // 4 and len(line.encode("utf-8", "surrogatepass")) > LONGEST_LINE


@contextmanager
def opened(file: Path) -> Iterator[io.BufferedReader]:
    """The unpacked bytes, never more of them at once than are asked for; damage is told in a sentence."""
    # Buffered once more: reading lines from Python's own unpackers is slow.
    with _named(file), io.BufferedReader(_unpacker(file), BLOCK) as handle:
        yield handle


def _unpacker(file: Path) -> Any:
    match file.suffix:
        case ".gz":
            return gzip.open(file)
        case ".xz":
            return lzma.open(file)
        case ".zst":
            return _open_zst(file)
        case _:
            return file.open("rb", buffering=0)


def _open_zst(file: Path) -> Any:
    # The package zstandard either unpacks a long run of one character in one go, or takes the end of a file that was
    # cut short for the end of the text.
    try:
        import pyarrow
    except ImportError:
        raise BadInput(f"{file} needs the package pyarrow: pip install crossling[data]") from None
    return pyarrow.input_stream(str(file), compression="zstd", buffer_size=BLOCK)


@contextmanager
def _named(file: Path) -> Iterator[None]:
    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise _damaged(file, error) from None
    except OSError as error:
        if error.strerror is None:  # no word from the system: it was the unpacker
            raise _damaged(file, error) from None
        raise BadInput(f"{file} cannot be opened ({error.strerror}): put it there and let it be read") from None


def _damaged(file: Path, error: Exception) -> BadInput:
    return BadInput(f"{file} is cut short or damaged ({error}): fetch or compress it again")


def _without_mark(start: bytes, file: Path) -> bytes:
    """The first line without its byte order mark."""
    if start.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")):
        raise BadInput(f"{file} is UTF-16 or UTF-32 by its first bytes: save it as UTF-8")
    return start.removeprefix(b"\xef\xbb\xbf")
