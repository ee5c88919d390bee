"""Raw text on disk, by language or language pair, streamed: no more than a line or a document in memory.

    CORPORA/ text/sw.txt                  one sentence a line, blank line between documents
             pairs/en-fr.tsv              source TAB target                         (also NAME.en-fr.tsv)
             pairs/NAME.en-fr.en  .fr     line n of one translates line n of the other
             multi/NAME/en.txt  de.txt    the same for any number of languages, empty line where one is missing

each plain or compressed (.gz, .xz, .zst). A line ends at a line feed and nowhere else, so that no odd character inside
a text can shift one side against the other. What is left out is counted by reason, where the caller hands a Counter in.
"""

from __future__ import annotations

import gzip
import io
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from crossling.corpora.languages import canonical
from crossling.errors import BadInput

MALFORMED = "malformed utf-8"
EMPTY_SIDE = "empty side"
NOT_TWO_COLUMNS = "not two columns"

LONGEST_DOCUMENT = 10_000  # lines; a file without blank lines is one endless document and comes in pieces of this size

READ_SO_FAR = (
    "text/LL.txt, pairs/[NAME.]LL-LL.tsv, pairs/NAME.LL-LL.LL (both sides) and multi/NAME/LL.txt, "
    "plain or with .gz, .xz or .zst are read so far"
)


@dataclass(frozen=True)
class Text:
    """Sentences of one language in their documents."""

    language: str
    files: tuple[Path, ...]

    def documents(self, counts: Counter[str] | None = None) -> Iterator[list[str]]:
        """Documents as lists of filled lines; malformed lines are left out and counted."""
        counts = Counter() if counts is None else counts
        for file in self.files:
            usable = False
            document: list[str] = []
            for line in _lines(file):
                if line is None:
                    counts[MALFORMED] += 1
                    continue
                text = _clean(line)
                if text:
                    document.append(text)
                if document and (not text or len(document) == LONGEST_DOCUMENT):
                    yield document
                    usable, document = True, []
            if document:
                yield document
            elif not usable:
                raise _nothing_in(file)


@dataclass(frozen=True)
class Pairs:
    """Sentences of one language with their translations in another: one TSV file, or two Moses files side by side."""

    name: str  # of the corpus, empty where the file names none; with the languages it is unique
    languages: tuple[str, str]
    files: tuple[Path, ...]

    def rows(self, counts: Counter[str] | None = None) -> Iterator[tuple[str, str]]:
        """Rows with both sides filled. Rows given and rows counted make up all rows of the files."""
        counts = Counter() if counts is None else counts
        usable = False
        for row in self._moses() if len(self.files) == 2 else self._columns():
            if isinstance(row, str):
                counts[row] += 1
                continue
            source, target = _clean(row[0]), _clean(row[1])
            if source and target:
                usable = True
                yield source, target
            else:
                counts[EMPTY_SIDE] += 1
        if not usable:
            raise _nothing_in(*self.files)

    def _columns(self) -> Iterator[tuple[str, str] | str]:
        """Two columns, or the reason why there are none."""
        for line in _lines(self.files[0]):
            if line is None:
                yield MALFORMED
                continue
            columns = line.split("\t")
            yield (columns[0], columns[1]) if len(columns) == 2 else NOT_TWO_COLUMNS

    def _moses(self) -> Iterator[tuple[str, str] | str]:
        """The two sides, or the reason why there are none."""
        left, right = self.files
        lengths = {left: 0, right: 0}
        for source, target in zip_longest(enumerate(_lines(left), 1), enumerate(_lines(right), 1)):
            if source is not None:
                lengths[left] = source[0]
            if target is not None:
                lengths[right] = target[0]
            if source is not None and target is not None:
                yield MALFORMED if source[1] is None or target[1] is None else (source[1], target[1])
        _same_length(lengths)


@dataclass(frozen=True)
class MultiWay:
    """The same rows in several languages: any two of them make a pair."""

    name: str
    files: dict[str, Path]  # by language

    def lines(self, language: str, counts: Counter[str] | None = None) -> Iterator[str]:
        """Line n of every language is row n: empty where this one has no (or a malformed) translation."""
        counts = Counter() if counts is None else counts
        usable = False
        for line in _lines(self.files[language]):
            if line is None:
                counts[MALFORMED] += 1
            text = _clean(line or "")
            usable = usable or bool(text)
            yield text
        if not usable:
            raise _nothing_in(self.files[language])

    def check(self) -> int:
        """The number of rows; BadInput when the files differ in it, for then line n is not row n."""
        lengths = {file: sum(1 for _ in _raw_lines(file)) for file in self.files.values()}
        _same_length(lengths)
        return next(iter(lengths.values()))


class Corpora:
    """All that a folder holds: finds the files and settles their languages, reads none of them yet."""

    def __init__(self, path: Path | str) -> None:
        if str(path).startswith("hf:"):
            raise BadInput(f"{path} cannot be read yet: {READ_SO_FAR}")
        self.path = Path(path)
        if not self.path.is_dir():
            raise BadInput(f"{path} is no folder: give one with text/, pairs/ or multi/ in it")
        _refuse_strays(self.path)
        self.text = _find_text(self.path / "text")
        self.pairs = _find_pairs(self.path / "pairs")
        self.multi = _find_multi(self.path / "multi")
        if not (self.text or self.pairs or self.multi):
            raise BadInput(f"{path} holds no text: {READ_SO_FAR}")
        self.languages: tuple[str, ...] = tuple(
            sorted(
                {text.language for text in self.text}
                | {language for pairs in self.pairs for language in pairs.languages}
                | {language for multi in self.multi for language in multi.files}
            )
        )


# ---- finding files ------------------------------------------------------------------------------------------

_COMPRESSED = re.compile(r"\.(gz|xz|zst)$")
_NO_DATA = re.compile(r"\.|readme|licen[cs]e|.*\.md$|.*\.ids$", re.IGNORECASE)
_STRAY = re.compile(r"text|pairs|multi|.*\.(txt|tsv|tmx|jsonl|parquet)", re.IGNORECASE)
# In a pair, `-` also parts the two languages: there a region is written in capitals (pt-BR-en) or after `_` (pt_br-en).
_CODE = r"[A-Za-z]{2,3}(?:_[A-Za-z0-9]+|-[A-Za-z]{4}|-[A-Z]{2})*"
_PAIR = re.compile(rf"(?:(?P<name>.+)\.)?(?P<source>{_CODE})-(?P<target>{_CODE})\.(?P<kind>[^.]+)")


def _find_text(folder: Path) -> tuple[Text, ...]:
    found: dict[str, list[Path]] = {}
    for stem, file in _files(folder):
        found.setdefault(_language_of_txt(stem, file), []).append(file)
    return tuple(Text(language, tuple(files)) for language, files in sorted(found.items()))


def _find_pairs(folder: Path) -> tuple[Pairs, ...]:
    found: dict[tuple[str, str, str], dict[str, Path]] = {}  # (name, source, target) -> "tsv" or a side -> file
    for stem, file in _files(folder):
        match = _PAIR.fullmatch(stem)
        if match is None:
            raise _unreadable(file)
        source, target = _language(match["source"], file), _language(match["target"], file)
        if source == target:
            raise BadInput(f"{file} pairs {source} with itself: a pair needs two languages")
        kind = match["kind"]
        if kind != "tsv":
            if kind.lower() in ("tmx", "jsonl", "parquet"):
                raise _unreadable(file)
            kind = _language(kind, file)
            if kind not in (source, target):
                raise BadInput(f"{file} should end in .{source} or .{target}, the languages it pairs: rename it")
        kinds = found.setdefault((match["name"] or "", source, target), {})
        if kind in kinds:
            raise BadInput(
                f"{kinds[kind]} and {file} both hold {source}-{target}: remove one, or name it NAME.LL-LL.tsv"
            )
        kinds[kind] = file
    return tuple(_pairs(*key, kinds) for key, kinds in sorted(found.items()))


def _pairs(name: str, source: str, target: str, kinds: dict[str, Path]) -> Pairs:
    if "tsv" in kinds and len(kinds) > 1:
        raise BadInput(f"{', '.join(map(str, kinds.values()))} hold one corpus twice: remove the .tsv or the two sides")
    if "tsv" not in kinds and len(kinds) == 1:
        [(side, file)] = kinds.items()
        other = target if side == source else source
        raise BadInput(f"{file} has no other side: put the {other} side beside it, with the ending .{other}")
    files = (kinds["tsv"],) if "tsv" in kinds else (kinds[source], kinds[target])
    return Pairs(name, (source, target), files)


def _find_multi(folder: Path) -> tuple[MultiWay, ...]:
    sets = []
    for place in _entries(folder):
        if not place.is_dir():
            raise BadInput(f"{place} is a file where a folder was expected: multi-way text is multi/NAME/LL.txt")
        files: dict[str, Path] = {}
        for stem, file in _files(place):
            language = _language_of_txt(stem, file)
            if language in files:
                raise BadInput(f"{files[language]} and {file} are both {language}: keep one of them")
            files[language] = file
        if len(files) < 2:
            raise BadInput(f"{place} holds {len(files)} languages: a multi-way set needs two or more files LL.txt")
        sets.append(MultiWay(place.name, dict(sorted(files.items()))))
    return tuple(sets)


def _entries(folder: Path) -> list[Path]:
    """What may be data, in a fixed order: hidden files, notes and the names of rows are not."""
    if not folder.exists():
        return []
    return sorted(entry for entry in folder.iterdir() if not _NO_DATA.match(_COMPRESSED.sub("", entry.name)))


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """(name without the compression, file); a file that lies there packed and unpacked would be read twice."""
    seen: dict[str, Path] = {}
    for file in _entries(folder):
        stem = _COMPRESSED.sub("", file.name)
        if file.is_dir():
            raise BadInput(f"{file} is a folder where a file was expected: {READ_SO_FAR}")
        if stem in seen:
            raise BadInput(f"{seen[stem]} and {file} are the same text twice: keep one of them")
        seen[stem] = file
        yield stem, file


def _refuse_strays(folder: Path) -> None:
    for entry in _entries(folder):
        if entry.is_file() and _STRAY.fullmatch(_COMPRESSED.sub("", entry.name)):
            raise BadInput(f"{entry} is in no place that is read: {READ_SO_FAR}")


def _language_of_txt(stem: str, file: Path) -> str:
    if not stem.endswith(".txt"):
        raise _unreadable(file)
    return _language(stem.removesuffix(".txt"), file)


def _language(code: str, file: Path) -> str:
    try:
        return canonical(code)
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from None


# ---- reading files ------------------------------------------------------------------------------------------

# Control characters (tabs too) and the two Unicode separators that other tools take for the end of a line.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_BOM = b"\xef\xbb\xbf"


def _clean(line: str) -> str:
    return _CONTROL.sub(" ", line).strip()


def _lines(file: Path) -> Iterator[str | None]:
    """Lines as they are, None for those that are no UTF-8."""
    for raw in _raw_lines(file):
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError:
            yield None


def _raw_lines(file: Path) -> Iterator[bytes]:
    try:
        with _open(file) as handle:
            for number, raw in enumerate(handle):
                line = raw.removesuffix(b"\n")
                yield line.removeprefix(_BOM) if number == 0 else line
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise BadInput(f"{file} is cut short or damaged ({error}): fetch or compress it again") from None
    except (FileNotFoundError, PermissionError) as error:
        raise BadInput(f"{file} cannot be opened ({error.strerror}): put it there and let it be read") from None


def _open(file: Path) -> io.BufferedIOBase:
    match file.suffix:
        case ".gz":
            return gzip.open(file)
        case ".xz":
            return lzma.open(file)
        case ".zst":
            return io.BufferedReader(_Joined(_unpack_zst(file)))
        case _:
            return file.open("rb")


def _unpack_zst(file: Path) -> Iterator[bytes]:
    """The package's own reader takes the end of a file cut short for the end of the text; this one does not."""
    try:
        import zstandard
    except ImportError:
        raise BadInput(f"{file} needs the package zstandard: pip install crossling[data]") from None
    frame = None
    rest = b""  # of what was read: it belongs to the next frame
    with file.open("rb") as packed:
        while chunk := rest or packed.read(1 << 14):
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            try:
                yield frame.decompress(chunk)
            except zstandard.ZstdError as error:
                raise EOFError(str(error)) from None
            rest = frame.unused_data
            if frame.eof:
                frame = None
    if frame is not None:
        raise EOFError("its last frame is not complete")


class _Joined(io.RawIOBase):
    """Chunks of bytes as one file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._chunk = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._chunk:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._chunk = memoryview(chunk)
        size = min(len(buffer), len(self._chunk))
        buffer[:size] = self._chunk[:size]
        self._chunk = self._chunk[size:]
        return size


def _same_length(lengths: dict[Path, int]) -> None:
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{file} has {lines}" for file, lines in lengths.items())
        raise BadInput(f"translations need the same number of lines, but {listed}: align them again")


def _nothing_in(*files: Path) -> BadInput:
    listed = " and ".join(map(str, files))
    return BadInput(f"{listed}: not one usable line found; expected UTF-8 text ({READ_SO_FAR})")


def _unreadable(file: Path) -> BadInput:
    return BadInput(f"{file} is in no format known here: {READ_SO_FAR}")
