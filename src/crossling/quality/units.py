"""What is judged row by row: a text, a bitext, or one language of a multi-way set beside its pivot.

The pivot of a set is English, or else the language with the most rows. Each other language is compared with it; the
pivot itself is judged line by line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import xxhash

from crossling.corpora.corpus import Corpora, MultiWay, Pairs, Text
from crossling.corpora.files import File
from crossling.corpora.formats import Source

Row = tuple[str, str]  # a line and its translation, empty where there is none


@dataclass(frozen=True)
class Unit:
    name: str  # text/sw, pairs/NAME.en-fr or multi/NAME/sw; its cleaned text has this name too
    corpus: Text | Pairs | MultiWay
    languages: tuple[str, ...]  # of the lines judged here
    pivot: str = ""  # language of the lines beside them, in a multi-way set

    @property
    def kind(self) -> str:
        return self.name.partition("/")[0]

    @property
    def collection(self) -> str:
        """All languages of a multi-way set together, else the unit."""
        return self.name.rpartition("/")[0] if self.kind == "multi" else self.name

    @property
    def pair(self) -> tuple[str, str] | None:
        """The languages of each row, where it has two."""
        if self.pivot:
            return self.languages[0], self.pivot
        return (self.languages[0], self.languages[1]) if len(self.languages) == 2 else None

    @property
    def group(self) -> str:
        """Units in which one may repeat what another says: bitext of the same two languages."""
        return "pairs/" + "-".join(sorted(self.pair)) if self.pair else self.name

    def rows(self, counts: Counter[str] | None = None) -> Iterator[Row]:
        """Every row that the reader gives; the first part is empty where a multi-way set has no translation."""
        match self.corpus:
            case Text():
                return ((line, "") for document in self.corpus.documents(counts) for line in document)
            case Pairs():
                return self.corpus.rows(counts)
            case MultiWay():
                return self._cells(self.corpus, counts)

    def _cells(self, multi: MultiWay, counts: Counter[str] | None) -> Iterator[Row]:
        own = multi.lines(self.languages[0], counts)
        if not self.pivot:
            yield from ((cell, "") for cell in own)
            return
        for cell, other in zip_longest(own, multi.lines(self.pivot)):
            if cell is None or other is None:
                multi.check()  # names every file and its length
            yield cell, other

    @property
    def sources(self) -> Sequence[Source]:
        if isinstance(self.corpus, MultiWay):
            return [File(self.corpus.files[language]) for language in (*self.languages, self.pivot) if language]
        return self.corpus.sources

    def size(self) -> int:
        """Bytes of all that the rows come from."""
        return sum(source.size() for source in self.sources)

    def digest(self) -> str:
        """Of all that the rows come from."""
        told = "\n".join(f"{source.name} {source.digest()}" for source in self.sources)  # the name tells the language
        return xxhash.xxh3_128_hexdigest(told.encode())


def units(corpora: Corpora) -> list[Unit]:
    """In the order in which the first of equal rows is the one to keep."""
    found = [Unit(f"text/{text.language}", text, (text.language,)) for text in corpora.text]
    for pairs in corpora.pairs:
        # `-` parts the two languages, so that inside of one it is written `_`.
        languages = "-".join(language.replace("-", "_") for language in pairs.languages)
        found.append(Unit("pairs/" + ".".join(filter(None, [pairs.name, languages])), pairs, pairs.languages))
    for multi in corpora.multi:
        pivot = _pivot(multi)
        for language in multi.files:
            found.append(Unit(f"multi/{multi.name}/{language}", multi, (language,), pivot if language != pivot else ""))
    return found


def _pivot(multi: MultiWay) -> str:
    if "en" in multi.files:
        return "en"
    filled = {language: sum(1 for cell in multi.lines(language) if cell) for language in multi.files}
    return max(sorted(filled), key=lambda language: filled[language])
