"""Character encodings and line ends of text files, found by reading the whole file once.

The encoding is that of the byte order mark. Without a mark it is UTF-16 if every second byte is zero, and UTF-8 if most
of what is not ASCII is valid. Otherwise it is the Windows code page of the language, Windows-1252 for most of them.
Text that Windows-1252 would turn into accented gibberish, such as Cyrillic, is refused if its language is not known.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from crossling.core.errors import BadInput
from crossling.corpora.text_files import BLOCK_BYTES, MAX_LINE_BYTES, SkipReason, open_decompressed

MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
MIN_ZEROS = 0.2  # least proportion of zero bytes at even or odd positions of UTF-16: letters of ASCII, spaces, digits
# Windows code pages other than 1252, with the languages that were written in them.
CODE_PAGES = {
    "cp1250": "bs cs hr hu pl ro sk sl sq",
    "cp1251": "ba be bg cv kk ky mk mn ru sr tg tt uk",
    "cp1253": "el",
    "cp1254": "az tr",
    "cp1255": "he yi",
    "cp1256": "ar fa ur",
    "cp1257": "et lt lv",
    "cp1258": "vi",
}
MAX_ACCENTED = 0.3  # largest proportion of letters beyond ASCII in text of Western Europe
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class TextEncoding:
    """Encoding and line ends of a file.

    Attributes:
        name: Name of the codec in Python.
        lf: Lines that end with a line feed alone.
        crlf: Lines that end with carriage return and line feed.
        cr: Carriage returns without a line feed.
    """

    name: str
    lf: int
    crlf: int
    cr: int

    @property
    def has_cr_lines(self) -> bool:
        """True if carriage returns alone end most lines, as in files of classic Mac OS."""
        return self.cr > self.lf + self.crlf

    @property
    def line_ends(self) -> str:
        """Names of the line ends that occur, the most frequent one first."""
        counts = {"LF": self.lf, "CRLF": self.crlf, "CR": self.cr}
        return ", ".join(sorted(filter(counts.get, counts), key=lambda name: -counts[name])) or "none"


def detect_encoding(file: Path, encoding: str | None = None, languages: Sequence[str] = ()) -> TextEncoding:
    """Return the encoding of a file and the number of its line ends.

    Args:
        file: Text file, plain or compressed.
        encoding: Codec that the user names. [default: found by reading the file]
        languages: Languages of the text, as far as they are known.

    Raises:
        BadInput: If the file is not text, or its encoding cannot be found.
    """
    if encoding is not None:
        return _count_line_ends(file, _check_codec(encoding))
    with open_decompressed(file) as handle:
        start = handle.read(BLOCK_BYTES)
    marked = next((name for mark, name in MARKS.items() if start.startswith(mark)), None)
    if marked:
        return _count_line_ends(file, marked)
    if unmarked := _utf16_by_zeros(start):
        return _count_line_ends(file, unmarked)
    if b"\0" in start:
        raise BadInput(f"{file}: zero bytes, so this is no text. Convert it to text.")
    try:
        return _count_line_ends(file, "utf-8", errors="strict")
    except UnicodeDecodeError:
        return _count_line_ends(file, "utf-8" if _is_mostly_utf8(file) else _find_code_page(file, languages))


def decode_blocks(file: Path, encoding: str, errors: str = "") -> Iterator[str]:
    """Yield the decoded text of a file in blocks. Bytes that are not valid become lone surrogates, or U+FFFD."""
    errors = errors or ("replace" if encoding.startswith(("utf-16", "utf-32")) else "surrogateescape")
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    with open_decompressed(file) as handle:
        while block := handle.read(BLOCK_BYTES):
            yield decoder.decode(block)
    yield decoder.decode(b"", final=True)


def decoded_lines(
    file: Path, encoding: TextEncoding, *, split_cr: bool | None = None, most: int = MAX_LINE_BYTES
) -> Iterator[str | SkipReason]:
    """Yield lines without their ends, or the reason for a line that is too long or not valid.

    Args:
        file: Text file, plain or compressed.
        encoding: Its encoding.
        split_cr: Carriage returns end lines as well. [default: if most lines of the file end so]
        most: Largest number of characters of a line.
    """
    split_cr = encoding.has_cr_lines if split_cr is None else split_cr
    pending, is_cut, held = "", False, ""
    for block in decode_blocks(file, encoding.name):
        text = held + block
        held = text[-1:] if text.endswith("\r") else ""  # the next block may start with its line feed
        text = text.removesuffix("\r").replace("\r\n", "\n")
        text = text.replace("\r", "\n") if split_cr else text
        first, *others = text.split("\n")
        lines = [pending + first, *others]
        for line in lines[:-1]:
            yield SkipReason.TOO_LONG if is_cut or len(line) > most else _checked(line)
            is_cut = False
        pending = lines[-1]
        if len(pending) > most:
            pending, is_cut = "", True
    if pending or is_cut or (held and split_cr):
        yield SkipReason.TOO_LONG if is_cut else _checked(pending)


def has_surrogates(text: str) -> bool:
    """Return True if a text has half of a surrogate pair, which cannot be written as UTF-8."""
    return not text.isascii() and _SURROGATE.search(text) is not None


def _checked(line: str) -> str | SkipReason:
    return SkipReason.MALFORMED if has_surrogates(line) else line


def _count_line_ends(file: Path, encoding: str, errors: str = "") -> TextEncoding:
    feeds = returns = both = 0
    last = ""
    for block in decode_blocks(file, encoding, errors):
        feeds += block.count("\n")
        returns += block.count("\r")
        both += block.count("\r\n") + (last == "\r" and block.startswith("\n"))
        last = block[-1:] or last
    return TextEncoding(encoding, feeds - both, both, returns - both)


def _utf16_by_zeros(start: bytes) -> str | None:
    even, odd = start[0::2], start[1::2]
    if odd.count(0) > MIN_ZEROS * len(odd) and even.count(0) * 20 < odd.count(0):
        return "utf-16-le"
    if even.count(0) > MIN_ZEROS * len(even) and odd.count(0) * 20 < even.count(0):
        return "utf-16-be"
    return None


def _is_mostly_utf8(file: Path) -> bool:
    """Return True if more characters beyond ASCII are valid UTF-8 than not."""
    valid = invalid = 0
    for block in decode_blocks(file, "utf-8"):
        beyond = len(block) - len(block.encode("ascii", "ignore"))
        wrong = len(_SURROGATE.findall(block))
        valid, invalid = valid + beyond - wrong, invalid + wrong
    return valid > invalid


def _find_code_page(file: Path, languages: Sequence[str]) -> str:
    """Return the codec of the code page of the languages, or Windows-1252 if the text can be in it."""
    pages = {page for page, codes in CODE_PAGES.items() for language in languages if language in codes.split()}
    if len(pages) == 1:
        return pages.pop()
    letters = accented = 0
    for block in decode_blocks(file, "cp1252"):
        letters += sum(map(str.isalpha, block))
        accented += sum(letter.isalpha() and not letter.isascii() for letter in block) if not block.isascii() else 0
    if pages or accented > MAX_ACCENTED * letters:
        raise BadInput(
            f"{file}: neither UTF-8, UTF-16 nor Windows-1252. Name its encoding, such as cp1251, for this file alone."
        )
    return "cp1252"


def _check_codec(name: str) -> str:
    try:
        io.TextIOWrapper(io.BytesIO(), encoding=name)  # refuses codecs that are no encodings of text, such as base64
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        raise BadInput(f"encoding={name!r:.40}: unknown. Give a codec of Python, such as cp1251.") from None
