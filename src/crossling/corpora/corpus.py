"""Raw text by language or language pair, streamed: no more than a line, a row or a document in memory.

    CORPORA/ text/sw.txt                  one sentence a line, blank line between documents   (or .jsonl .parquet .hf)
             pairs/en-fr.tsv              source TAB target           (also NAME.en-fr.tsv; or .tmx .jsonl .parquet .hf)
             pairs/NAME.en-fr.en  .fr     line n of one translates line n of the other
             multi/NAME/en.txt  de.txt    the same for any number of languages, empty line where one is missing

each plain or compressed (.gz, .xz, .zst); docs/formats.md has the rules. What is left out is counted by reason, where
the caller hands a Counter in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from crossling.corpora.files import File, Skip, clean
from crossling.corpora.folder import find_multi, find_pairs, find_text, refuse_strays
from crossling.corpora.formats import READ, Source, aligned_lines, count_rows, pair_rows, same_length, text_lines
from crossling.corpora.hub import SYNTAX, Reference
from crossling.errors import BadInput, nearest

# A text without blank lines is one endless document, and comes in pieces of this size.
LONGEST_DOCUMENT = 10_000  # lines
LARGEST_DOCUMENT = 1 << 24  # characters

UNNAMED = "unnamed"  # the collection of pairs/LL-LL.*, where collections are named


@dataclass(frozen=True)
class Text:
    """Sentences of one language in their documents."""

    language: str
    sources: tuple[Source, ...]

    @property
    def name(self) -> str:
        return self.language

    @property
    def files(self) -> tuple[Path, ...]:
        return _files(self.sources)

    def documents(self, counts: Counter[str] | None = None) -> Iterator[list[str]]:
        """Documents as lists of filled lines; lines left out are counted."""
        counts = Counter() if counts is None else counts
        for source in self.sources:
            before = counts.copy()
            usable = False
            document: list[str] = []
            size = 0
            for line in text_lines(source):
                if not isinstance(line, str):
                    counts[line.value] += 1
                    continue
                if line:
                    document.append(line)
                    size += len(line)
                if document and (not line or len(document) == LONGEST_DOCUMENT or size > LARGEST_DOCUMENT):
                    yield document
                    usable, document, size = True, [], 0
            if document:
                yield document
            elif not usable:
                raise _nothing_in(source, skipped=counts - before)


@dataclass(frozen=True)
class Pairs:
    """Sentences of one language with their translations in another: one source, or two Moses files side by side."""

    name: str  # of the collection, empty where the file names none
    languages: tuple[str, str]
    sources: tuple[Source, ...]

    @property
    def label(self) -> str:
        """`NAME.en-fr`, or `en-fr` where there is no name: there is no other like it."""
        return ".".join(filter(None, [self.name, "-".join(self.languages)]))

    @property
    def files(self) -> tuple[Path, ...]:
        return _files(self.sources)

    def rows(self, counts: Counter[str] | None = None) -> Iterator[tuple[str, str]]:
        """Rows with both sides filled. Rows given and rows counted make up all rows of the sources."""
        counts = Counter() if counts is None else counts
        before = counts.copy()
        usable = False
        for row in pair_rows(self.sources, self.languages):
            if not isinstance(row, tuple):
                counts[row.value] += 1
                continue
            source, target = clean(row[0]), clean(row[1])
            if source and target:
                usable = True
                yield source, target
            else:
                counts[Skip.EMPTY_SIDE.value] += 1
        if not usable:
            raise _nothing_in(*self.sources, skipped=counts - before)


@dataclass(frozen=True)
class MultiWay:
    """The same rows in several languages: any two of them make a pair."""

    name: str
    sources: dict[str, File]  # by language
    pairs_left_out: frozenset[tuple[str, str]] = frozenset()  # sorted: pairs that another collection gives

    @property
    def languages(self) -> tuple[str, ...]:
        return tuple(self.sources)

    @property
    def files(self) -> dict[str, Path]:
        return {language: source.path for language, source in self.sources.items()}

    def lines(self, language: str, counts: Counter[str] | None = None) -> Iterator[str]:
        """Line n of every language is row n: empty where this one has no translation, or none that can be used."""
        counts = Counter() if counts is None else counts
        before = counts.copy()
        usable = False
        source = self.sources[language]
        for line in aligned_lines(source):
            if isinstance(line, str):
                usable = usable or bool(line)
                yield line
            else:
                counts[line.value] += 1
                yield ""
        if not usable:
            raise _nothing_in(source, skipped=counts - before)

    def check(self) -> int:
        """The number of rows; BadInput when the files differ in it, for then line n is not row n."""
        lengths = {source.path: count_rows(source) for source in self.sources.values()}
        same_length(lengths)
        return next(iter(lengths.values()))


class Corpora:
    """All that a folder or a reference to a dataset holds: finds it and settles the languages, reads none of it yet.

    With `priority`, collections of translations named earlier come before those named later, and those before the rest
    in alphabetical order: a later one gives only pairs of languages that none before it has. `unnamed` is the
    collection of files without a name. Without `priority` every collection gives all it has.
    """

    def __init__(self, path: Path | str, priority: Sequence[str] = ()) -> None:
        self.path: Path | str  # a reference stays as it was written
        self.text: tuple[Text, ...]
        self.pairs: tuple[Pairs, ...]
        self.multi: tuple[MultiWay, ...]
        if str(path).startswith("hf:"):
            # A Path has made one slash of two.
            self.path = str(path).replace("hf:/", "hf://", 1) if isinstance(path, Path) else path
            self.text, self.pairs, self.multi = _referred(self.path)
        else:
            self.path = Path(path)
            self.text, self.pairs, self.multi = _found(self.path)
        if priority:
            self.pairs, self.multi = _by_priority(priority, self.pairs, self.multi)
        self.languages: tuple[str, ...] = tuple(
            sorted(
                {text.language for text in self.text}
                | {language for pairs in self.pairs for language in pairs.languages}
                | {language for multi in self.multi for language in multi.languages}
            )
        )

    def lines(self, language: str) -> Iterator[str]:
        """Every line of a language in text, pairs and multi-way sets."""
        for text in self.text:
            if text.language == language:
                for document in text.documents():
                    yield from document
        for pairs in self.pairs:
            if language in pairs.languages:
                side = pairs.languages.index(language)
                yield from (row[side] for row in pairs.rows())
        for multi in self.multi:
            if language in multi.sources:
                yield from filter(None, multi.lines(language))


Contents = tuple[tuple[Text, ...], tuple[Pairs, ...], tuple[MultiWay, ...]]


def _found(folder: Path) -> Contents:
    if not folder.is_dir():
        raise BadInput(f"{folder} is no folder: give one with text/, pairs/ or multi/ in it, or {SYNTAX}")
    refuse_strays(folder)
    text = tuple(Text(*found) for found in find_text(folder / "text").items())
    pairs = tuple(Pairs(name, (a, b), of) for (name, a, b), of in find_pairs(folder / "pairs").items())
    multi = tuple(MultiWay(*found) for found in find_multi(folder / "multi").items())
    if not (text or pairs or multi):
        raise BadInput(f"{folder} holds no text: {READ}")
    return text, pairs, multi


def _referred(text: str) -> Contents:
    reference = Reference.parse(text)
    if reference.language:
        return (Text(reference.language, (reference,)),), (), ()
    if reference.pair:
        return (), (Pairs("", reference.pair, (reference,)),), ()
    raise BadInput(f"{text} does not say what it holds: add language=LL for text, or pair=LL-LL for translations")


def _by_priority(
    priority: Sequence[str], pairs: tuple[Pairs, ...], multi: tuple[MultiWay, ...]
) -> tuple[tuple[Pairs, ...], tuple[MultiWay, ...]]:
    """What is left when of two collections that have a pair of languages only the first gives it."""
    gives: dict[str, set[tuple[str, str]]] = {}  # by collection
    collections: list[Pairs | MultiWay] = [*pairs, *multi]
    for corpus in collections:
        gives.setdefault(corpus.name or UNNAMED, set()).update(_pairs_of(corpus))
    for name in priority:
        if name not in gives:
            raise BadInput(f"there is no collection {name!r} to give priority{nearest(name, gives)}")
    taken: dict[str, set[tuple[str, str]]] = {}  # by the collections before
    so_far: set[tuple[str, str]] = set()
    for name in dict.fromkeys([*priority, *sorted(gives)]):
        taken[name] = set(so_far)
        so_far |= gives[name]
    return (
        tuple(one for one in pairs if not _pairs_of(one) & taken[one.name or UNNAMED]),
        tuple(
            replace(many, pairs_left_out=frozenset(_pairs_of(many) & taken[many.name]))
            for many in multi
            if _pairs_of(many) - taken[many.name]
        ),
    )


def _pairs_of(corpus: Pairs | MultiWay) -> set[tuple[str, str]]:
    return set(combinations(sorted(corpus.languages), 2))


def _files(sources: tuple[Source, ...]) -> tuple[Path, ...]:
    return tuple(source.path for source in sources if isinstance(source, File))


def _nothing_in(*sources: Source, skipped: Counter[str]) -> BadInput:
    listed = " and ".join(map(str, sources))
    reasons = ", ".join(f"{reason}: {number}" for reason, number in skipped.items()) or "it is empty"
    return BadInput(f"{listed}: not one usable line found ({reasons}); expected UTF-8 text in one of these: {READ}")
