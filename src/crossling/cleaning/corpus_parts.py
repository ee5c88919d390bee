"""Parts of the corpora that are checked, and the slices of large ones.

A corpus part is a text, a bitext, or one language of a multi-way corpus beside its pivot. The pivot is English, or else
the language with the most rows. Every other language is compared with it; the pivot itself is checked line by line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, cast

from crossling.cleaning.rules import TextRow
from crossling.cleaning.stored_arrays import stored_key
from crossling.core.resumable import fingerprint, stored_value
from crossling.corpora import source_parts
from crossling.corpora.corpus import Corpora, MonolingualCorpus, MultiwayCorpus, ParallelCorpus
from crossling.corpora.formats import Source
from crossling.corpora.source_parts import SourcePart, Spans, spans_from_json, spans_to_json


class SlicePlan(NamedTuple):
    """Fingerprint of the sources of a part, and the lines of each slice if there are several."""

    sources: str
    spans: list[Spans]


@dataclass(frozen=True)
class CorpusPart:
    """A corpus, or one language of a multi-way corpus, whose rows are checked."""

    name: str  # text/sw, pairs/NAME.en-fr or multi/NAME/sw; also the name of its cleaned text
    corpus: MonolingualCorpus | ParallelCorpus | MultiwayCorpus
    languages: tuple[str, ...]  # of the checked lines
    pivot: str = ""  # language of the lines beside them, in a multi-way corpus

    @property
    def kind(self) -> str:
        """`text`, `pairs` or `multi`."""
        return self.name.partition("/")[0]

    @property
    def collection(self) -> str:
        """Name of the multi-way corpus, else of the part."""
        return self.name.rpartition("/")[0] if self.kind == "multi" else self.name

    @property
    def pair(self) -> tuple[str, str] | None:
        """Languages of each row, if it has two."""
        if self.pivot:
            return self.languages[0], self.pivot
        return (self.languages[0], self.languages[1]) if len(self.languages) == 2 else None

    @property
    def group(self) -> str:
        """Name of the group in which duplicates are searched: all bitext of the same two languages."""
        return "pairs/" + "-".join(sorted(self.pair)) if self.pair else self.name

    def rows(self, counts: Counter[str] | None = None) -> Iterator[TextRow]:
        """Yield all rows. The first side is empty if a multi-way corpus has no translation."""
        if not self.sources:  # an empty slice
            return iter(())
        match self.corpus:
            case MonolingualCorpus():
                return ((line, "") for document in self.corpus.documents(counts) for line in document)
            case ParallelCorpus():
                return self.corpus.rows(counts)
            case MultiwayCorpus():
                return self._multiway_rows(self.corpus, counts)

    def _multiway_rows(self, corpus: MultiwayCorpus, counts: Counter[str] | None) -> Iterator[TextRow]:
        lines = corpus.lines(self.languages[0], counts)
        if not self.pivot:
            yield from ((line, "") for line in lines)
            return
        for line, other in zip_longest(lines, corpus.lines(self.pivot)):
            if line is None or other is None:
                corpus.count_rows()  # raises an error with the lengths of all files
            yield line, other

    @property
    def sources(self) -> Sequence[Source]:
        """Files or datasets that the rows come from."""
        if isinstance(self.corpus, MultiwayCorpus):
            return [self.corpus.sources[language] for language in (*self.languages, self.pivot) if language]
        return self.corpus.sources

    @property
    def own_sources(self) -> Sequence[Source]:
        """Sources without those of the pivot."""
        return self.sources[:1] if isinstance(self.corpus, MultiwayCorpus) else self.sources

    def size(self) -> int:
        """Bytes of all sources."""
        return sum(source.size() for source in self.sources)

    def fingerprint(self) -> str:
        """Fingerprint of all sources. Their names determine the languages."""
        return fingerprint([[source.name, source.digest()] for source in self.sources])

    # ---- slices, each of which is read by one process ----

    @property
    def slices(self) -> int:
        """Number of slices. The files of a multi-way corpus are read side by side, as a whole."""
        return 1 if self.kind == "multi" else self._source_part.slices

    def plan(self, folder: Path) -> SlicePlan:
        """Return the plan of the slices, which is stored until the files change."""

        def compute() -> dict[str, Any]:
            spans = [] if self.slices == 1 else spans_to_json(self._source_part.find_spans())
            return {"sources": self.fingerprint(), "spans": spans}

        key = stored_key(source_parts.SLICE_BYTES, [[source.name, source.state()] for source in self.sources])
        value = stored_value(folder / f"{self.name}.json", key, compute)
        return SlicePlan(value["sources"], spans_from_json(value["spans"]))

    def slice(self, number: int, plan: SlicePlan) -> CorpusPart:
        """Return one slice of a part."""
        if self.slices == 1:
            return self
        spans = plan.spans[number]
        if not spans:
            return replace(self, corpus=replace(cast(Any, self.corpus), sources=()))
        return replace(self, corpus=self._source_part.slice(number, spans).corpus)

    @cached_property
    def _source_part(self) -> SourcePart:
        return SourcePart(self.name, self.corpus)


def corpus_parts(corpora: Corpora) -> list[CorpusPart]:
    """Return all parts, in the order in which the first of equal rows is kept."""
    parts = [CorpusPart(f"text/{text.language}", text, (text.language,)) for text in corpora.text]
    for pairs in corpora.pairs:
        # `-` separates the two languages, so `_` replaces it inside of a code.
        languages = "-".join(language.replace("-", "_") for language in pairs.languages)
        parts.append(CorpusPart("pairs/" + ".".join(filter(None, [pairs.name, languages])), pairs, pairs.languages))
    for multi in corpora.multi:
        pivot = _choose_pivot(multi)
        for language in multi.languages:
            name, other = f"multi/{multi.name}/{language}", pivot if language != pivot else ""
            parts.append(CorpusPart(name, multi, (language,), other))
    return parts


def _choose_pivot(corpus: MultiwayCorpus) -> str:
    if "en" in corpus.languages:
        return "en"
    rows = {language: sum(1 for line in corpus.lines(language) if line) for language in corpus.languages}
    return max(sorted(rows), key=lambda language: rows[language])
