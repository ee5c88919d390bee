"""Text of all languages for vocabularies: a sample, excerpts and statistics, read once by several processes.

A job reads one slice of the corpora (crossling.corpora.source_parts) and stores what it found in a folder of its own.
The results are merged when all are there.

Each line gets a random number from the seed, its language, its slice and its position in the slice. The sample of a
language has the lines below a limit, which follows from the characters of all languages. Before these are known, a job
stores SURPLUS times as much as it is expected to contribute by file sizes, the lines with the lowest numbers. So memory
is bounded, and the sample does not depend on the processes. Where the text of a slice is more than SURPLUS times
larger than its size suggests, the slice contributes fewer lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from crossling.core.errors import BadInput
from crossling.core.jobs import Job, Share, run_jobs
from crossling.core.resumable import fingerprint, is_finished, read_entry, stored_value, write_finished_folder
from crossling.corpora.corpus import Corpora
from crossling.corpora.source_parts import SourcePart, Spans, source_parts, spans_from_json, spans_to_json
from crossling.corpora.text_files import COMPRESSION_SUFFIX
from crossling.sampling.marginals import temperature_sampling
from crossling.vocabulary.text_normalization import unnormalized_clusters

if TYPE_CHECKING:
    from crossling.vocabulary.vocabulary import Vocabulary

SAMPLE_FORMAT = 1  # version of the stored results
SAMPLE_CHARACTERS = 40_000_000  # Size of the sample, all languages together.
CHARACTERS_PER_ENTRY = 1250  # Least size of the sample of VoCap: 40 million at 32,000 entries, 625 million at 500,000.
MAX_LINE_CHARACTERS = 4096  # The cost of SentencePiece grows with the square of a long word.
EXCERPT_LINES = 1000  # Lines of each language in the report, up to twice as many.
SURPLUS = 4  # stored over expected characters of the sample
MIN_STORED = 16 * MAX_LINE_CHARACTERS  # characters that every slice stores of a language
COMPRESSION = 4  # expected size of text over that of a compressed file
ROWS_AT_ONCE = 4096
WORKERS_BYTES = 32 << 20  # One process reads smaller corpora before others have started.


@dataclass(frozen=True)
class SampleSettings:
    """Size and proportions of a sample.

    Args:
        characters: Approximate number of characters, all languages together.
        alpha: Exponent that smooths the sampling probabilities of the languages.
        seed: Seed of the sample.
    """

    characters: int = SAMPLE_CHARACTERS
    alpha: float = 0.5
    seed: int = 0


@dataclass(frozen=True)
class TextSample:
    """Sample and statistics of corpora."""

    characters: dict[str, int]  # of all text, by language
    excerpts: dict[str, list[str]]  # by language, lines at equal distances
    unnormalized_clusters: frozenset[str]  # letters with marks that need a normalization rule
    lines: dict[str, list[str]]  # by language, the sample
    token_counts: np.ndarray  # how often all text has each token; empty if they were not counted

    def proportions(self, alpha: float) -> dict[str, float]:
        """Return the exponent-smoothed sampling probability of each language."""
        return temperature_sampling(self.characters, alpha)

    def all_lines(self) -> list[str]:
        """Return the lines of all languages in one list."""
        return self.lines_of(())

    def lines_of(self, languages: Iterable[str]) -> list[str]:
        """Return the lines of some languages in one list. None stands for all."""
        chosen = {*languages} or self.lines.keys()
        return [line for language, lines in self.lines.items() if language in chosen for line in lines]


def sample_corpora(
    corpora: Corpora,
    folder: Path,
    settings: SampleSettings,
    *,
    workers: int = 1,
    share: Share | None = None,
    counted: Vocabulary | None = None,
) -> TextSample | None:
    """Read all text once. An interrupted call resumes.

    A line is in the sample with the probability of its language. A language smaller than its part of the sample is kept
    whole.

    Args:
        corpora: Text to read.
        folder: Folder of the stored results.
        settings: Size and proportions of the sample.
        workers: Worker processes.
        share: Do only this share of the work.
        counted: Vocabulary whose tokens are counted in all text.

    Returns:
        The sample, or None if another share is missing.
    """
    parts = source_parts(corpora)
    limits = _stored_characters(parts, settings)
    tasks = [
        _SliceTask(part, index, limits=limits[part.name], folder=folder, settings=settings, counted=counted)
        for part in parts
        for index in range(part.slices)
    ]
    if sum(source.size() for part in parts for source in part.sources) < WORKERS_BYTES:
        workers = 1
    run_jobs("read", [Job(task.name, task.run) for task in tasks], workers, share)
    if not all(task.is_done() for task in tasks):
        if share is None:
            raise BadInput(f"{corpora.path}: the text changed while it was read. Run crossling vocab again.")
        return None
    return _merge(corpora.languages, tasks, settings)


def _stored_characters(parts: Iterable[SourcePart], settings: SampleSettings) -> dict[str, dict[str, int]]:
    """Return how many characters a slice of each part stores for each of its languages."""
    sizes = [(part, _expected_characters(part)) for part in parts]
    totals = Counter[str]()
    for part, size in sizes:
        totals.update(dict.fromkeys(part.languages, size))
    if not all(size for _, size in sizes):  # the size of a dataset on the hub is unknown
        return {part.name: dict.fromkeys(part.languages, settings.characters) for part, _ in sizes}
    expected = {code: settings.characters * p for code, p in temperature_sampling(totals, settings.alpha).items()}
    return {
        part.name: {
            code: MIN_STORED + round(SURPLUS * expected[code] * size / totals[code] / part.slices)
            for code in part.languages
        }
        for part, size in sizes
    }


def _expected_characters(part: SourcePart) -> int:
    """Return the expected number of characters of each language of a part, by the sizes of its files."""
    sizes = [
        source.size() * (COMPRESSION if source.format == "parquet" or COMPRESSION_SUFFIX.search(source.name) else 1)
        for source in part.sources
    ]
    return sum(sizes) // len(part.languages) if all(sizes) else 0


# ---- one slice ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _SliceTask:
    """Reading of one slice."""

    part: SourcePart
    index: int
    limits: dict[str, int]  # characters to store, by language, if no empty slice follows
    folder: Path
    settings: SampleSettings
    counted: Vocabulary | None

    @property
    def name(self) -> str:
        return f"{self.part.name} {self.index + 1}/{self.part.slices}"

    @property
    def place(self) -> Path:
        return self.folder / self.part.name / f"slice-{self.index + 1}-of-{self.part.slices}"

    def key(self) -> str:
        counted = self.counted.fingerprint if self.counted else None
        return fingerprint([SAMPLE_FORMAT, self.part.state(), self.limits, asdict(self.settings), counted])

    def is_done(self) -> bool:
        return is_finished(self.place, self.key())

    def entry(self) -> dict[str, Any]:
        entry = read_entry(self.place)
        assert entry is not None, self.place
        return entry

    def run(self) -> None:
        """Read the slice and store the result, unless that was done."""
        key = self.key()
        if is_finished(self.place, key):
            return
        spans, width = self._find_lines()
        readers = {code: _LanguageReader(width * limit, self._generator(code)) for code, limit in self.limits.items()}
        token_counts = np.zeros(self.counted.size if self.counted else 0, dtype=np.int64)
        for rows in self._batches(spans):
            sides = [[line for line in side if line] for side in zip(*rows, strict=True)]
            for reader, lines in zip(readers.values(), sides, strict=True):
                reader.add(lines)
                if self.counted is not None:
                    token_counts += self.counted.count_tokens(lines)
        with write_finished_folder(self.place, key) as (new, entry):
            entry["languages"] = {code: reader.to_json() for code, reader in readers.items()}
            for code, reader in readers.items():
                reader.sample.write(new, code)
            np.save(new / "token_counts.npy", token_counts)

    def _batches(self, spans: Spans) -> Iterator[list[tuple[str, ...]]]:
        if spans:
            documents = self.part.slice(self.index, spans).documents(Counter())
            rows = (row for document in documents for row in document)
            while batch := list(islice(rows, ROWS_AT_ONCE)):
                yield batch

    def _find_lines(self) -> tuple[Spans, int]:
        """Return the lines of the slice, and its width: 1, and 1 for each empty slice after it.

        One process finds those of all slices.
        """
        file = self.folder / self.part.name / "plan.json"
        value = stored_value(file, self.part.state(), lambda: spans_to_json(self.part.find_spans()))
        if len(value) != self.part.slices:
            raise BadInput(f"{self.part.name}: the text changed while it was read. Run crossling vocab again.")
        spans, *following = spans_from_json(value)[self.index :]
        return spans, 1 + len([*takewhile(lambda other: not other, following)])

    def _generator(self, language: str) -> np.random.Generator:
        source = xxhash.xxh3_64_intdigest(f"{language} {self.name}".encode())
        return np.random.default_rng([self.settings.seed, source])


class _LanguageReader:
    """Statistics of one language in a slice."""

    def __init__(self, limit: int, generator: np.random.Generator) -> None:
        self.sample, self.excerpt = _LineSample(limit, generator), LineExcerpt(EXCERPT_LINES)
        self.characters = 0
        self.clusters: set[str] = set()

    def add(self, lines: list[str]) -> None:
        self.characters += sum(map(len, lines))
        for line in lines:
            self.clusters |= unnormalized_clusters(line)
        truncated = [line[:MAX_LINE_CHARACTERS] for line in lines]
        self.excerpt.add(truncated)
        self.sample.add(truncated)

    def to_json(self) -> dict[str, Any]:
        excerpt = {"stride": self.excerpt.stride, "lines": self.excerpt.lines}
        return {"characters": self.characters, "clusters": sorted(self.clusters), "excerpt": excerpt}


class _LineSample:
    """Lines with the lowest random numbers, up to a number of characters, in the order of the text."""

    def __init__(self, limit: int, generator: np.random.Generator) -> None:
        self.limit, self.generator = limit, generator
        self.numbers: list[np.ndarray] = []  # of each line, in any number of arrays
        self.lines: list[str] = []
        self.size, self.below = 0, 1.0

    def add(self, lines: list[str]) -> None:
        numbers = self.generator.random(len(lines))
        kept = np.flatnonzero(numbers < self.below)
        self.numbers.append(numbers[kept])
        self.lines += [lines[index] for index in kept.tolist()]
        self.size += sum(len(lines[index]) for index in kept.tolist())
        if self.size > 2 * self.limit:
            self._prune()

    def write(self, folder: Path, language: str) -> None:
        (folder / f"{language}.txt").write_text("\n".join(self.lines), encoding="utf-8", newline="")
        np.save(folder / f"{language}.npy", np.concatenate([np.empty(0), *self.numbers]))

    def _prune(self) -> None:
        numbers = np.concatenate(self.numbers)
        order = np.argsort(numbers)
        lengths = np.fromiter(map(len, self.lines), dtype=np.int64, count=len(self.lines))
        count = int(np.searchsorted(np.cumsum(lengths[order]), self.limit))
        kept = np.sort(order[:count])
        self.below = float(numbers[order[count]])
        self.numbers, self.lines = [numbers[kept]], [self.lines[index] for index in kept.tolist()]
        self.size = int(lengths[kept].sum())


class LineExcerpt:
    """Lines at equal distances: all at first, then every second, every fourth. At least `count`, fewer than twice that.

    The stride doubles whenever the list is full.
    """

    def __init__(self, count: int) -> None:
        self.count, self.position, self.stride = count, 0, 1
        self.lines: list[str] = []

    def add(self, lines: list[str]) -> None:
        """Add lines that follow those before."""
        start = -self.position % self.stride
        self.lines += lines[start :: self.stride]
        self.position += len(lines)
        while len(self.lines) >= 2 * self.count:
            self.lines, self.stride = self.lines[::2], 2 * self.stride


def merge_excerpts(excerpts: Iterable[Mapping[str, Any]], count: int) -> list[str]:
    """Return fewer than twice `count` lines, at equal distances in each excerpt, and at least one of each."""
    parts = [(excerpt["stride"], excerpt["lines"]) for excerpt in excerpts if excerpt["lines"]]
    stride = max((stride for stride, _ in parts), default=1)
    while True:
        thinned = [lines[:: stride // own] for own, lines in parts]
        total = sum(map(len, thinned))
        if total < 2 * count or total <= len(parts):
            return [line for lines in thinned for line in lines]
        stride *= 2


# ---- all slices ---------------------------------------------------------------------------------------------


def _merge(languages: Iterable[str], tasks: list[_SliceTask], settings: SampleSettings) -> TextSample:
    found = [(task, task.entry()["languages"]) for task in tasks]
    rows = {code: [(task, row[code]) for task, row in found if code in row] for code in languages}
    characters = {code: sum(row["characters"] for _, row in these) for code, these in rows.items()}
    lines: dict[str, list[str]] = {}
    for code, proportion in temperature_sampling(characters, settings.alpha).items():
        below = settings.characters * proportion / max(1, characters[code])
        lines[code] = [line for task, _ in rows[code] for line in _read_sample(task.place, code, below)]
    excerpts = {
        code: merge_excerpts((row["excerpt"] for _, row in these), EXCERPT_LINES) for code, these in rows.items()
    }
    clusters = {cluster for these in rows.values() for _, row in these for cluster in row["clusters"]}
    counts = [np.load(task.place / "token_counts.npy", allow_pickle=False) for task in tasks]
    return TextSample(
        characters=characters,
        excerpts=excerpts,
        unnormalized_clusters=frozenset(clusters),
        lines=lines,
        token_counts=np.sum(counts, axis=0),
    )


def _read_sample(folder: Path, language: str, below: float) -> list[str]:
    numbers = np.load(folder / f"{language}.npy", allow_pickle=False)
    with (folder / f"{language}.txt").open(encoding="utf-8", newline="") as file:
        lines = file.read().split("\n")
    return [line for line, number in zip(lines, numbers.tolist(), strict=False) if number < below]
