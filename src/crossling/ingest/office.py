"""Text of Word documents (.docx) and Excel workbooks (.xlsx), parsed as a stream.

Both are zip archives of XML. Declared entities are refused, no part may be larger than MAX_PART_BYTES when it is
decompressed, and nothing is written to disk. So a hostile file cannot fill memory.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, NoReturn, TypeVar
from xml.parsers import expat

from crossling.core.errors import BadInput
from crossling.corpora.text_files import BLOCK_BYTES, MAX_LINE_BYTES
from crossling.ingest.delimited import Cells

MAX_PART_BYTES = 1 << 32  # decompressed, of one part of the archive
MAX_SHARED_CHARACTERS = 1 << 28  # texts of a workbook, which are in memory while it is read
MAX_SHARED_STRINGS = 1 << 22  # four columns of texts, each as long as Excel allows
MAX_ITEM_BYTES = 1 << 26  # of one paragraph or row, which is in memory as a whole
MAX_DEPTH = 256  # of nested tags
MAX_TAG_BYTES = 1 << 20
MAX_COLUMNS = 1 << 14  # as in Excel
WORD_PARTS = ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml")
WORKBOOK, SHARED_STRINGS = "xl/workbook.xml", "xl/sharedStrings.xml"

Item = TypeVar("Item")


class _PartHandler(Generic[Item]):
    """Handles the tags of one part, by local names, and collects finished items in `done`."""

    def __init__(self) -> None:
        self.done: list[Item] = []
        self.tags: list[str] = []

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Handle a start tag. `tags` has all open tags, this one last."""

    def end(self, tag: str) -> None:
        """Handle an end tag, which is no longer in `tags`."""

    def text(self, data: str) -> None:
        """Handle text."""


def read_document(file: Path) -> Iterator[str | Cells]:
    """Yield the paragraphs of a Word document, and the cells of every row of a table.

    Deleted and moved text is not read, and neither are headers and footers of pages.

    Raises:
        BadInput: If the file is damaged or protected by a password.
    """
    with _open_archive(file, WORD_PARTS[0]) as archive:
        for part in WORD_PARTS:
            if part in archive.namelist():
                yield from _parse_part(archive, part, file, _DocumentHandler())


def read_workbook(file: Path) -> Iterator[tuple[str, Iterator[Cells]]]:
    """Yield the name and the rows of every sheet of an Excel workbook. Read a sheet before the next one.

    Raises:
        BadInput: If the file is damaged or protected by a password.
    """
    with _open_archive(file, WORKBOOK) as archive:
        strings = _read_shared_strings(archive, file)
        for name, part in _sheet_parts(archive, file):
            yield name, map(_fill_gaps, _parse_part(archive, part, file, _SheetHandler(strings)))


# ---- archives ------------------------------------------------------------------------------------------------


@contextmanager
def _open_archive(file: Path, main: str) -> Iterator[zipfile.ZipFile]:
    with _readable_errors(file), zipfile.ZipFile(file) as archive:
        if main not in archive.namelist():
            raise BadInput(f"{file}: no {main} in it. Save it as {file.suffix} again.")
        yield archive


@contextmanager
def _readable_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        reason = "damaged, or protected by a password" if not isinstance(error, zipfile.BadZipFile) else str(error)
        raise BadInput(f"{file}: not readable ({reason}). Save it as {file.suffix} again.") from None
    except OSError as error:
        raise BadInput(f"{file}: cannot be read ({error.strerror or error}). Check the file.") from None


def _parse_part(archive: zipfile.ZipFile, part: str, file: Path, handler: _PartHandler[Item]) -> Iterator[Item]:
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True

    def refuse(reason: str) -> NoReturn:
        raise BadInput(f"{file}, {part}: not readable ({reason}). Save the file again.")

    def start(name: str, attributes: dict[str, str]) -> None:
        tag = name.rpartition(" ")[2]
        handler.tags.append(tag)
        if len(handler.tags) > MAX_DEPTH:
            refuse(f"tags are nested more than {MAX_DEPTH} deep")
        handler.start(tag, {key.rpartition(" ")[2]: value for key, value in attributes.items()})

    def end(_: str) -> None:
        handler.end(handler.tags.pop())

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = handler.text
    parser.EntityDeclHandler = lambda name, *_: refuse(f"it declares the entity {name!r:.40}")
    read = last = 0  # bytes so far, and up to the last finished item
    try:
        with _readable_errors(file), archive.open(part) as handle:
            while block := handle.read(BLOCK_BYTES):
                read += len(block)
                parser.Parse(block, False)
                if read > MAX_PART_BYTES:
                    refuse(f"more than {MAX_PART_BYTES >> 30} GiB")
                if read - parser.CurrentByteIndex > MAX_TAG_BYTES:
                    refuse("a single tag or comment is too long")
                if read - last > MAX_ITEM_BYTES:
                    refuse(f"a paragraph or row of more than {MAX_ITEM_BYTES >> 20} MiB")
                if handler.done:
                    last = read
                    yield from handler.done
                    handler.done.clear()
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        refuse(expat.ErrorString(error.code))
    except (LookupError, KeyError) as error:  # unknown encoding, or a part that is missing
        refuse(str(error))
    yield from handler.done


# ---- Word ----------------------------------------------------------------------------------------------------

_NOT_TEXT = {"moveFrom", "Fallback"}  # text that is also elsewhere
_CHARACTERS = {"tab": " ", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}


class _DocumentHandler(_PartHandler[str | Cells]):
    def __init__(self) -> None:
        super().__init__()
        self.paragraphs: list[list[str]] = []  # One may be inside of another, in a text frame.
        self.row: list[list[str]] = []  # Paragraphs of every cell.
        self.tables = self.hidden = 0  # Open tags of these kinds.
        self.length = 0

    def start(self, tag: str, _: dict[str, str]) -> None:
        self.hidden += tag in _NOT_TEXT
        self.tables += tag == "tbl"
        if tag == "p":
            self.paragraphs.append([])
            self.length = 0
        elif tag == "tr" and self.tables == 1:
            self.row = []
        elif tag == "tc" and self.tables == 1:
            self.row.append([])
        elif tag in _CHARACTERS and self.tags[-2:-1] == ["r"]:
            self._add(_CHARACTERS[tag])

    def end(self, tag: str) -> None:
        self.hidden -= tag in _NOT_TEXT
        self.tables -= tag == "tbl"
        if tag == "p":
            text = "".join(self.paragraphs.pop())
            if self.tables and self.row:
                self.row[-1].append(text)
            elif not self.tables:
                self.done.append(text)
        elif tag == "tr" and self.tables == 1:
            self.done.append(["\n".join(paragraphs) for paragraphs in self.row])

    def text(self, data: str) -> None:
        if self.tags[-2:] == ["r", "t"]:
            self._add(data)

    def _add(self, text: str) -> None:
        # One character more than a line may have is enough to skip it as too long.
        if self.paragraphs and not self.hidden and self.length <= MAX_LINE_BYTES:
            self.paragraphs[-1].append(text)
            self.length += len(text)


# ---- Excel ---------------------------------------------------------------------------------------------------


class _StringsHandler(_PartHandler[str]):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.phonetic = 0  # hints on pronunciation, in Japanese

    def start(self, tag: str, _: dict[str, str]) -> None:
        self.phonetic += tag == "rPh"
        if tag == "si":
            self.parts = []

    def end(self, tag: str) -> None:
        self.phonetic -= tag == "rPh"
        if tag == "si":
            self.done.append("".join(self.parts))

    def text(self, data: str) -> None:
        if self.tags[-1:] == ["t"] and not self.phonetic:
            self.parts.append(data)


class _SheetHandler(_PartHandler[dict[int, str]]):
    """Collects the filled cells of every row, by column: as a list, a row of one cell could have 16,384 items."""

    def __init__(self, strings: list[str]) -> None:
        super().__init__()
        self.strings = strings
        self.cells: dict[int, str] = {}
        self.column, self.kind = -1, ""
        self.value: list[str] = []

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "row":
            self.cells, self.column = {}, -1
        elif tag == "c":
            self.column = _column_number(attributes.get("r", ""), self.column + 1)
            self.kind, self.value = attributes.get("t", ""), []

    def end(self, tag: str) -> None:
        if tag == "c" and 0 <= self.column < MAX_COLUMNS:
            text = self._cell("".join(self.value))
            if text.strip():
                self.cells[self.column] = text
        elif tag == "row":
            self.done.append(self.cells)

    def text(self, data: str) -> None:
        if self.tags[-1:] == ["v"] or (self.tags[-1:] == ["t"] and "is" in self.tags and "rPh" not in self.tags):
            self.value.append(data)

    def _cell(self, value: str) -> str:
        if self.kind == "e":  # the error of a formula
            return ""
        if self.kind != "s":
            return value
        return self.strings[int(value)] if value.isdecimal() and int(value) < len(self.strings) else ""


def _fill_gaps(cells: dict[int, str]) -> Cells:
    """Return the cells of a row up to the last one that is filled."""
    row = [""] * (max(cells, default=-1) + 1)
    for column, text in cells.items():
        row[column] = text
    return row


def _column_number(reference: str, following: int) -> int:
    """Return 1 for B3, and `following` for a cell without a reference."""
    letters = re.match("[A-Z]{1,3}", reference)
    if letters is None:
        return following
    number = 0
    for letter in letters[0]:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1


def _read_shared_strings(archive: zipfile.ZipFile, file: Path) -> list[str]:
    strings: list[str] = []
    size = 0
    if SHARED_STRINGS in archive.namelist():
        for text in _parse_part(archive, SHARED_STRINGS, file, _StringsHandler()):
            strings.append(text)
            size += len(text)
            if size > MAX_SHARED_CHARACTERS or len(strings) > MAX_SHARED_STRINGS:
                raise BadInput(f"{file}: more text than one workbook may have. Save its sheets as CSV.")
    return strings


class _ListHandler(_PartHandler[Cells]):
    """Collects attributes of all tags of one name."""

    def __init__(self, tag: str, keys: Callable[[dict[str, str]], Cells]) -> None:
        super().__init__()
        self.tag, self.keys = tag, keys

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == self.tag:
            self.done.append(self.keys(attributes))


def _sheet_parts(archive: zipfile.ZipFile, file: Path) -> list[tuple[str, str]]:
    """Return the name and the part of every sheet, in the order of the workbook."""
    relations = _ListHandler("Relationship", lambda found: [found.get("Id", ""), found.get("Target", "")])
    rows = _parse_part(archive, "xl/_rels/workbook.xml.rels", file, relations)
    targets = {row[0]: row[1] for row in rows}
    sheets = _ListHandler("sheet", lambda found: [found.get("name", ""), found.get("id", "")])
    parts = []
    for row in _parse_part(archive, WORKBOOK, file, sheets):
        name, target = row[0], targets.get(row[1], "")
        part = target.lstrip("/") if target.startswith("/") else f"xl/{target}"
        if "worksheets/" in part:  # others are charts
            parts.append((name, part))
    return parts
