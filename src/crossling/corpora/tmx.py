"""Translation memories: the two languages asked for out of each unit, read as the bytes come."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from html import unescape
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from crossling.corpora.files import BLOCK, LONGEST_LINE, Skip, opened, too_long
from crossling.corpora.languages import LONGEST_CODE, sides
from crossling.errors import BadInput

# These hold codes of the program the text came from (`<bpt>&lt;b&gt;</bpt>`); `hi` and `sub` hold text.
CODES = {"bpt", "ept", "it", "ph", "ut"}
LONGEST_TAG = 1 << 22  # bytes; the parser holds a tag, a comment or a declaration whole
DEEPEST = 256  # tags inside tags, all of which the parser holds

_sides = lru_cache(maxsize=1024)(sides)  # a memory has few codes and many units


def rows(file: Path, pair: tuple[str, str]) -> Iterator[tuple[str, str] | Skip]:
    """One for every unit."""
    units = _Units(file, pair)
    read = 0
    with opened(file) as handle:
        while block := handle.read(BLOCK):
            units.parse(block)
            yield from units.take()
            read += len(block)
            if read - units.parser.CurrentByteIndex > LONGEST_TAG:
                units.refuse(f"a single tag, comment or declaration of more than {LONGEST_TAG >> 20} MiB begins here")
        units.parse(b"", final=True)
        yield from units.take()


class _Units:
    """What the parser calls, and the units it has finished."""

    def __init__(self, file: Path, pair: tuple[str, str]) -> None:
        self.file, self.pair = file, pair
        self.done: list[tuple[str, str] | Skip] = []
        self.unit: dict[str, str | Skip] = {}  # by language code as it is written
        self.language = ""  # of the variant that is open, if it is one of the pair
        self.segment: list[str] = []  # pieces of the text that is open
        self.length = 0  # of the pieces
        self.kept: list[bool] = []  # for every open tag, whether text in it is text
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.EntityDeclHandler = self._entity
        self.parser.SkippedEntityHandler = self._foreign

    def parse(self, block: bytes, final: bool = False) -> None:
        try:
            self.parser.Parse(block, final)
        except BadInput:
            raise
        except expat.ExpatError as error:
            self.refuse(expat.ErrorString(error.code), error.lineno)
        except (LookupError, ValueError) as error:  # an encoding that there is not
            self.refuse(str(error))

    def take(self) -> list[tuple[str, str] | Skip]:
        done, self.done = self.done, []
        return done

    def refuse(self, why: str, line: int | None = None) -> NoReturn:
        line = line or self.parser.CurrentLineNumber
        raise BadInput(f"{self.file}, line {line}: no readable TMX ({why}): mend it or export it again")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self.kept.append(tag not in CODES and (tag in ("seg", "sub") or self.kept[-1:] == [True]))
        if len(self.kept) > DEEPEST:
            self.refuse(f"tags are nested more than {DEEPEST} deep")
        if tag == "tu":
            self.unit = {}
        elif tag == "tuv":
            code = (attributes.get("xml:lang") or attributes.get("lang") or "")[: LONGEST_CODE + 1]
            self.language = code if any(_sides((code,), self.pair)) else ""
        elif tag == "seg" and self.language:
            self.segment, self.length = [], 0
            self.parser.CharacterDataHandler = self._text

    def _end(self, tag: str) -> None:
        self.kept.pop()
        if tag == "tu":
            left, right = _sides(tuple(self.unit), self.pair)
            self.done.append(_row(self.unit.get(left or ""), self.unit.get(right or "")))
        elif tag == "tuv":
            self.language = ""
        elif tag == "seg":
            self.parser.CharacterDataHandler = None
            if self.language:
                text = "".join(self.segment)
                self.unit.setdefault(self.language, Skip.TOO_LONG if too_long(text) else text)

    def _text(self, text: str) -> None:
        if self.kept[-1] and self.length <= LONGEST_LINE:
            self.segment.append(text)
            self.length += len(text)

    def _entity(self, name: str, *_: object) -> NoReturn:
        # A handful of them, each made of the one before, can stand for more text than there is memory.
        self.refuse(f"it declares the entity {name!r}")

    def _foreign(self, name: str, in_declaration: bool) -> None:
        """An entity of a document type that is not fetched: the names all of HTML uses are known without it."""
        if not in_declaration and self.parser.CharacterDataHandler:
            self._text(unescape(f"&{name};"))


def _row(left: str | Skip | None, right: str | Skip | None) -> tuple[str, str] | Skip:
    if left is None or right is None:
        return Skip.MISSING_SIDE
    if isinstance(left, Skip):
        return left
    return right if isinstance(right, Skip) else (left, right)
