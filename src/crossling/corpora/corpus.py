"""Raw text by language or language pair, streamed: at most a line, a row or a document is in memory.

    CORPORA/ text/sw.txt                  one sentence per line, blank line between documents  (or .jsonl .parquet .hf)
             pairs/en-fr.tsv              source TAB target, or with a score     (or .tmx .jsonl .parquet .hf)
             pairs/NAME.en-fr.en  .fr     line n of one translates line n of the other
             pairs/NAME/en-fr.tsv         files of one collection
             multi/NAME/en.txt  de.txt    the same for any number of languages, empty line for a missing translation

Files may be compressed (.gz, .xz, .zst); docs/reference/formats.md has the rules. Skipped lines are counted by reason
if the caller passes a Counter. formats.py has the reader functions and explains how to add a format.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TypeVar

from crossling.core.errors import BadInput, suggestion
from crossling.core.folder_kinds import folder_kind
from crossling.corpora.corpus_folder import check_stray_files, find_multi, find_pairs, find_text
from crossling.corpora.formats import FORMATS, PairRow, Source, check_equal_lengths, describe_layout, read_pairs
from crossling.corpora.hub_datasets import SYNTAX, DatasetReference
from crossling.corpora.text_files import SkipReason, TextFile, clean_line, map_rows

# A text without blank lines is one endless document, which is split at these limits.
MAX_DOCUMENT_LINES = 10_000
MAX_DOCUMENT_CHARACTERS = 1 << 24

UNNAMED = "unnamed"  # collection of the files pairs/LL-LL.*, in a list of priorities

T = TypeVar("T")


@dataclass(frozen=True)
class MonolingualCorpus:
    """Documents of one language."""

    language: str
    sources: tuple[Source, ...]

    def documents(self, counts: Counter[str] | None = None) -> Iterator[list[str]]:
        """Yield documents as lists of non-empty lines. `counts` counts skipped lines by reason."""
        document: list[str] = []
        size = 0
        for line in self.lines(counts):
            if line:
                document.append(line)
                size += len(line)
            is_full = len(document) == MAX_DOCUMENT_LINES or size > MAX_DOCUMENT_CHARACTERS
            if document and (not line or is_full):
                yield document
                document, size = [], 0
        if document:
            yield document

    def lines(self, counts: Counter[str] | None = None) -> Iterator[str]:
        """Yield all lines, with an empty one after each document. `counts` counts skipped lines by reason."""
        for source in self.sources:
            for line in _count_skipped(FORMATS[source.format].read_text(source), (source,), counts):
                if isinstance(line, str):
                    yield line
            if not (isinstance(source, TextFile) and source.span and source.span.end):
                yield ""  # the end of the file


@dataclass(frozen=True)
class ParallelCorpus:
    """Sentence pairs of two languages: one source, or two Moses files side by side."""

    name: str  # of the collection; empty if the file has none
    languages: tuple[str, str]
    sources: tuple[Source, ...]

    @property
    def label(self) -> str:
        """Unique label: `NAME.en-fr`, or `en-fr` without a name."""
        return ".".join(filter(None, [self.name, "-".join(self.languages)]))

    def rows(self, counts: Counter[str] | None = None) -> Iterator[tuple[str, str]]:
        """Yield the rows with text on both sides. `counts` counts all other rows by reason."""
        rows = map_rows(_clean_row, read_pairs(self.sources, self.languages))
        return (row for row in _count_skipped(rows, self.sources, counts) if isinstance(row, tuple))


@dataclass(frozen=True)
class MultiwayCorpus:
    """The same rows in several languages. Any two languages make a pair."""

    name: str
    sources: dict[str, TextFile]  # by language
    excluded_pairs: frozenset[tuple[str, str]] = frozenset()  # sorted pairs that come from another collection

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages of the corpus."""
        return tuple(self.sources)

    def lines(self, language: str, counts: Counter[str] | None = None) -> Iterator[str]:
        """Yield line n for row n, empty if there is no usable translation. `counts` counts skipped lines by reason."""
        source = self.sources[language]
        lines = _count_skipped(FORMATS[source.format].read_multi(source), (source,), counts)
        return (line if isinstance(line, str) else "" for line in lines)

    def count_rows(self) -> int:
        """Return the number of rows; BadInput if the files differ in it, since line n would not be row n."""
        lengths = {source.path: FORMATS[source.format].count_rows(source.path) for source in self.sources.values()}
        check_equal_lengths(lengths)
        return next(iter(lengths.values()))


class Corpora:
    """All corpora of a folder or of a dataset on the hub. The constructor reads file names only.

    Attributes:
        path: The folder, or the dataset reference as written.
        text: Monolingual corpora, one per language.
        pairs: Parallel corpora.
        multi: Multiway parallel corpora.
        languages: Codes of all languages, sorted.

    Args:
        path: Folder with text/, pairs/ or multi/, or a dataset reference (hf://...).
        priority: Collections of translations by priority; those not named follow in alphabetical order. A language
            pair is taken from the first collection that has it. `unnamed` is the collection of files without a name.
            [default: every collection gives all its pairs]

    Raises:
        BadInput: If a file name is invalid, a file is there twice, or there is no text.

    Example:
        >>> corpora = Corpora("corpora")
        >>> corpora.languages
        ('en', 'fr', 'sw')
        >>> for source, target in corpora.pairs[0].rows():
        ...     print(source, target)
    """

    def __init__(self, path: str | os.PathLike[str], priority: Sequence[str] = ()) -> None:
        self.path: Path | str
        if str(path).startswith("hf:"):
            # A Path merges two slashes into one.
            self.path = path if isinstance(path, str) else str(path).replace("hf:/", "hf://", 1)
            self.text, self.pairs, self.multi = _from_reference(self.path)
        else:
            self.path = Path(path)
            self.text, self.pairs, self.multi = _from_folder(self.path)
        if priority:
            self.pairs, self.multi = _apply_priority(priority, self.pairs, self.multi)
        languages = {text.language for text in self.text}
        languages.update(*(pairs.languages for pairs in self.pairs), *(multi.languages for multi in self.multi))
        self.languages = tuple(sorted(languages))

    @classmethod
    def of_translations(cls, corpora: Sequence[ParallelCorpus | MultiwayCorpus]) -> Corpora:
        """Collect corpora that were found elsewhere than in one folder.

        Args:
            corpora: Parallel and multiway corpora.

        Returns:
            Corpora without monolingual text.

        Example:
            >>> sources = TextFile(Path("train.de")), TextFile(Path("train.en"))
            >>> Corpora.of_translations([ParallelCorpus("train", ("de", "en"), sources)]).languages
            ('de', 'en')
        """
        collected = cls.__new__(cls)
        collected.path, collected.text = "", ()
        collected.pairs = tuple(corpus for corpus in corpora if isinstance(corpus, ParallelCorpus))
        collected.multi = tuple(corpus for corpus in corpora if isinstance(corpus, MultiwayCorpus))
        collected.languages = tuple(sorted({language for corpus in corpora for language in corpus.languages}))
        return collected

    def with_min_score(self, score: float) -> Corpora:
        """Return the corpora without the sentence pairs that have a lower score.

        Args:
            score: Least score of a pair in a TSV file with scores. Files without scores keep all pairs.

        Returns:
            A copy whose readers skip these pairs.

        Raises:
            BadInput: If the score is not a number.

        Example:
            >>> corpora = Corpora("corpora").with_min_score(1.06)
        """
        if not isinstance(score, int | float) or math.isnan(score):
            raise BadInput(f"min_score={score!r}: expected a number.")
        other = copy(self)
        other.pairs = tuple(
            replace(
                corpus,
                sources=tuple(
                    replace(source, min_score=score) if isinstance(source, TextFile) else source
                    for source in corpus.sources
                ),
            )
            for corpus in self.pairs
        )
        return other

    def lines(self, language: str) -> Iterator[str]:
        """Yield every line of a language in monolingual, parallel and multiway corpora.

        Args:
            language: Canonical code of the language.

        Yields:
            Clean, non-empty lines.

        Raises:
            BadInput: If a file is damaged or has no usable line.

        Example:
            >>> sum(len(line) for line in Corpora("corpora").lines("sw"))
        """
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


def open_corpora(corpora: Corpora | str | os.PathLike[str]) -> Corpora:
    """Return corpora unchanged, or open those of a folder or a dataset reference."""
    return corpora if isinstance(corpora, Corpora) else Corpora(corpora)


_Contents = tuple[tuple[MonolingualCorpus, ...], tuple[ParallelCorpus, ...], tuple[MultiwayCorpus, ...]]


def _from_folder(folder: Path) -> _Contents:
    if folder.is_file():
        raise BadInput(
            f"{folder}: a file, expected a folder. Put it into CORPORA/text/LL.txt, LL its language, and give CORPORA."
        )
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder. Give one with text/, pairs/ or multi/ in it, or {SYNTAX}.")
    if not any((folder / kind).is_dir() for kind in ("text", "pairs", "multi")) and folder_kind(folder):
        fix = f"Give {folder / 'corpora'}." if (folder / "corpora").is_dir() else "Give a folder with text/ or pairs/."
        raise BadInput(f"{folder}: this is {folder_kind(folder)}, expected corpora. {fix}")
    check_stray_files(folder)
    text = tuple(MonolingualCorpus(*found) for found in find_text(folder / "text").items())
    pairs = tuple(ParallelCorpus(name, (a, b), files) for (name, a, b), files in find_pairs(folder / "pairs").items())
    multi = tuple(MultiwayCorpus(*found) for found in find_multi(folder / "multi").items())
    if not (text or pairs or multi):
        raise BadInput(f"{folder}: no text. {describe_layout()}")
    return text, pairs, multi


def _from_reference(text: str) -> _Contents:
    reference = DatasetReference.parse(text)
    if reference.language:
        return (MonolingualCorpus(reference.language, (reference,)),), (), ()
    if reference.pair:
        return (), (ParallelCorpus("", reference.pair, (reference,)),), ()
    raise BadInput(f"{text}: no language. Add language=LL for text, or pair=LL-LL for translations.")


def _apply_priority(
    priority: Sequence[str], pairs: tuple[ParallelCorpus, ...], multi: tuple[MultiwayCorpus, ...]
) -> tuple[tuple[ParallelCorpus, ...], tuple[MultiwayCorpus, ...]]:
    """Keep each language pair only in the first collection that has it."""
    pairs_by_collection: dict[str, set[tuple[str, str]]] = {}
    corpora: list[ParallelCorpus | MultiwayCorpus] = [*pairs, *multi]
    for corpus in corpora:
        pairs_by_collection.setdefault(corpus.name or UNNAMED, set()).update(_language_pairs(corpus))
    for name in priority:
        if name not in pairs_by_collection:
            raise BadInput(f"priority {name!r}: unknown collection{suggestion(name, pairs_by_collection)}")
    taken: dict[str, set[tuple[str, str]]] = {}  # by earlier collections
    so_far: set[tuple[str, str]] = set()
    for name in dict.fromkeys([*priority, *sorted(pairs_by_collection)]):
        taken[name], so_far = so_far, so_far | pairs_by_collection[name]
    kept = tuple(corpus for corpus in pairs if not _language_pairs(corpus) & taken[corpus.name or UNNAMED])
    partly_taken = tuple(
        replace(corpus, excluded_pairs=frozenset(_language_pairs(corpus) & taken[corpus.name]))
        for corpus in multi
        if _language_pairs(corpus) - taken[corpus.name]
    )
    return kept, partly_taken


def _language_pairs(corpus: ParallelCorpus | MultiwayCorpus) -> set[tuple[str, str]]:
    return set(combinations(sorted(corpus.languages), 2))


def _clean_row(row: tuple[str, str]) -> PairRow:
    source, target = map(clean_line, row)
    return (source, target) if source and target else SkipReason.EMPTY_SIDE


def _count_skipped(
    items: Iterable[T | SkipReason], sources: Sequence[Source], counts: Counter[str] | None
) -> Iterator[T | SkipReason]:
    """Yield all items and count the skipped ones by reason; BadInput at the end if no item of the sources has text."""
    counts = Counter() if counts is None else counts
    before = counts.copy()
    has_text = False
    for item in items:
        if isinstance(item, SkipReason):
            counts[item.value] += 1
        elif item:
            has_text = True
        yield item
    if not has_text and not any(isinstance(source, TextFile) and source.span for source in sources):
        refuse_empty(sources, counts - before)


def refuse_empty(sources: Sequence[Source], skipped: Mapping[str, int]) -> None:
    """Raise BadInput for sources without text. They may have no pair with the requested score.

    Args:
        sources: Sources that were read completely.
        skipped: Number of skipped lines by reason.
    """
    if SkipReason.LOW_SCORE.value not in skipped:
        names = " and ".join(map(str, sources))
        reasons = ", ".join(f"{reason}: {number}" for reason, number in skipped.items()) or "it is empty"
        raise BadInput(f"{names}: no usable line ({reasons}). Expected UTF-8 text. {describe_layout()}")
