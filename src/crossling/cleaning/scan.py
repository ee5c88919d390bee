"""Read each part of the corpora once: the faults of its rows, and arrays to compare rows with each other.

A corpus part is a text, a bitext, or one language of a multi-way corpus beside its pivot. The pivot is English, or else
the language with the most rows. Every other language is compared with it; the pivot itself is checked line by line.

    flags        bits of the reasons that need no other row
    hashes       hash of the row as it is                             8 bytes a row
    sides        hash of the plain form of each side                 16
    proportions  logarithm of the length ratio                        4
    signatures   MinHash                                            256
    hits         rows of (row, benchmark sentence, is only similar)

Only arrays that the rules need are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from crossling.cleaning.contamination import BenchmarkIndex
from crossling.cleaning.minhash import PERMUTATIONS, compute_signatures
from crossling.cleaning.plain_text import plain_forms, text_weight
from crossling.cleaning.rules import BIT, Reason, RowFilter, Rules, TextRow, log_length_ratio
from crossling.core.resumable import fingerprint, is_finished, read_entry, write_finished_folder
from crossling.corpora.corpus import Corpora, MonolingualCorpus, MultiwayCorpus, ParallelCorpus
from crossling.corpora.formats import Source

CLEANING_FORMAT = 2  # version of the stored results and of the reports
ROWS_PER_CHUNK = 4096
MIN_SIDE_LETTERS = 20  # shorter texts, such as "Yes.", may have many translations

_ARRAYS: dict[str, tuple[type, int]] = {
    "flags": (np.uint16, 1),
    "hashes": (np.uint64, 1),
    "sides": (np.uint64, 2),
    "proportions": (np.float32, 1),
    "signatures": (np.uint16, PERMUTATIONS),
    "hits": (np.int64, 3),
}


# ---- parts of the corpora ------------------------------------------------------------------------------------


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

    def size(self) -> int:
        """Bytes of all sources."""
        return sum(source.size() for source in self.sources)

    def fingerprint(self) -> str:
        """Fingerprint of all sources. Their names determine the languages."""
        return fingerprint([[source.name, source.digest()] for source in self.sources])


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


# ---- stored results ------------------------------------------------------------------------------------------


def open_array(folder: Path, name: str) -> np.ndarray:
    """Map an array that `scan_part` wrote. Empty if the rules did not need it."""
    dtype, width = _ARRAYS[name]
    file = folder / name
    has_values = file.is_file() and file.stat().st_size > 0  # an empty file cannot be mapped
    values = np.memmap(file, dtype=dtype, mode="r") if has_values else np.empty(0, dtype=dtype)
    return values if width == 1 else values.reshape(-1, width)


def stored_entry(folder: Path) -> dict[str, Any]:
    """Return the entry of a folder that is finished."""
    entry = read_entry(folder)
    assert entry is not None, folder
    return entry


def cleaning_key(*inputs: object) -> str:
    """Fingerprint of the inputs of a stored result."""
    return fingerprint([CLEANING_FORMAT, *inputs])


# ---- reading -------------------------------------------------------------------------------------------------


def scan_part(part: CorpusPart, rules: Rules, folder: Path, index_folder: Path | None) -> None:
    """Read a part, unless that was done with the same rules and sources."""
    index = BenchmarkIndex(index_folder) if index_folder else None
    sources = part.fingerprint()
    key = cleaning_key(part.name, part.pivot, rules.to_json(), index.key if index else None, sources)
    if is_finished(folder, key):
        return
    row_filter = RowFilter(rules, part.languages, part.pair)
    malformed: Counter[str] = Counter()
    counts = Counter(rows=0, characters=0, words=0)
    rows = part.rows(malformed)
    total = 0
    with write_finished_folder(folder, key) as (new, entry):
        while chunk := list(islice(rows, ROWS_PER_CHUNK)):
            forms = list(zip(*map(plain_forms, zip(*chunk, strict=True)), strict=True))
            arrays = _compute_arrays(chunk, forms, part, rules)
            flags = np.fromiter(map(row_filter.find_faults, chunk, forms), dtype=np.uint16, count=len(chunk))
            if index:
                hits = _find_hits(chunk, part, index)
                bits = np.where(hits[:, 2], BIT[Reason.NEAR_BENCHMARK], BIT[Reason.IN_BENCHMARK])
                np.bitwise_or.at(flags, hits[:, 0], bits)
                hits[:, 0] += total
                arrays["hits"] = hits
            for name, values in (arrays | {"flags": flags}).items():
                with (new / name).open("ab") as file:
                    file.write(values.astype(_ARRAYS[name][0]).tobytes())
            total += len(chunk)
            _count(chunk, part, counts)
        detected = {language: dict(others.most_common()) for language, others in row_filter.detected.items() if others}
        entry |= {"sources": sources, **counts, "malformed": dict(malformed), "detected": detected}
        entry["unchecked_languages"] = row_filter.unchecked_languages


def _count(chunk: list[TextRow], part: CorpusPart, counts: Counter[str]) -> None:
    lines = [line for line, _ in chunk if line] + ([other for _, other in chunk] if len(part.languages) == 2 else [])
    counts["rows"] += sum(1 for line, _ in chunk if line)
    counts["characters"] += sum(map(len, lines))
    counts["words"] += sum(len(line.split()) for line in lines)


def _compute_arrays(
    chunk: list[TextRow], forms: list[TextRow], part: CorpusPart, rules: Rules
) -> dict[str, np.ndarray]:
    """Arrays to compare rows by. None for a pivot, which repeats a line as often as it has translations."""
    if part.kind != "text" and part.pair is None:
        return {}
    arrays = {}
    is_complete = [bool(line) and (bool(other) or part.pair is None) for line, other in chunk]
    if rules.duplicates:
        is_swapped = part.pair is not None and part.pair[0] > part.pair[1]  # both orders of two languages are one group
        arrays["hashes"] = _hash_texts((f"{b}\t{a}" if is_swapped else f"{a}\t{b}" for a, b in chunk), is_complete)
    if rules.near_duplicates:
        texts = [a + b if complete else "" for (a, b), complete in zip(forms, is_complete, strict=True)]
        arrays["signatures"] = compute_signatures(texts)
    if rules.many_to_one and part.pair:
        sides = []
        for side in zip(*forms, strict=True):
            is_long = [text_weight(text) >= MIN_SIDE_LETTERS for text in side]
            sides.append(_hash_texts(side, [a and b for a, b in zip(is_complete, is_long, strict=True)]))
        arrays["sides"] = np.stack(sides, axis=1)
    if rules.ratio and part.pair:
        pairs = zip(chunk, is_complete, strict=True)
        arrays["proportions"] = np.array([log_length_ratio(*row) if complete else np.nan for row, complete in pairs])
    return arrays


def _hash_texts(texts: Iterable[str], mask: list[bool]) -> np.ndarray:
    """Hash the texts of a mask. Others have the hash 0."""
    pairs = zip(texts, mask, strict=True)
    hashes = (xxhash.xxh3_64_intdigest(text.encode()) if is_included else 0 for text, is_included in pairs)
    return np.fromiter(hashes, dtype=np.uint64, count=len(mask))


def _find_hits(chunk: list[TextRow], part: CorpusPart, index: BenchmarkIndex) -> np.ndarray:
    hits = [index.find([row[side] for row in chunk]) for side in range(len(part.languages))]
    return np.unique(np.concatenate(hits), axis=0)
