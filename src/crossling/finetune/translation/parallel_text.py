"""Parallel text to train, select and score translators on, by direction.

A folder holds text files with one sentence per line, plain or compressed: train.LL, dev.LL (or val, valid), and any
number of test sets, test*.LL (or tst*). Or it is a corpora folder with pairs/ and multi/; then dev and test rows are
held out here.
"""

from __future__ import annotations

import heapq
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import xxhash

from crossling.core.errors import BadInput, suggestion
from crossling.corpora.corpus import Corpora
from crossling.corpora.languages import CODE_IN_PAIR, canonical_code, parse_pair
from crossling.corpora.text_files import COMPRESSION_SUFFIX, SkipReason, clean_line, read_lines

TRAIN, DEV = "train", "dev"
_SPLIT = {"train": TRAIN, "dev": DEV, "val": DEV, "valid": DEV}
_FILE = re.compile(rf"(?P<split>train|dev|val|valid|te?st[A-Za-z0-9_]*)\.(?P<language>{CODE_IN_PAIR})")
HELD_OUT_ROWS = 500  # maximum rows of a language pair held out for dev, and for test
ROWS_PER_HELD_OUT = 20  # at most one of so many rows is held out for each
EXPECTED_FILES = "train.LL, dev.LL and test.LL in one folder, or a corpora folder with pairs/ and multi/"


# ---- directions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Direction:
    """Source and target language of a translation."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


def parse_directions(directions: str | Sequence[str]) -> tuple[Direction, ...]:
    """Return the distinct directions of `en-de,de-en` or of a list."""
    names = directions.split(",") if isinstance(directions, str) else directions
    parsed = tuple(dict.fromkeys(Direction(*parse_pair(name.strip())) for name in names if name.strip()))
    if not parsed:
        raise BadInput("directions: none given. Name some, for instance en-de,de-en.")
    return parsed


def language_tag(language: str) -> str:
    """Return the token before a source sentence that names its target language, in models with several."""
    return f"<2{language}>"


def target_languages(directions: Iterable[Direction]) -> list[str]:
    return sorted({direction.target for direction in directions})


def resolve_target(directions: Sequence[Direction], requested: str | None, name: str) -> str:
    """Return the requested target language, or the only one that the model `name` has."""
    languages = target_languages(directions)
    if requested is None:
        if len(languages) > 1:
            raise BadInput(f"{name}: it translates into {', '.join(languages)}. Set `to` to one of them.")
        return languages[0]
    try:
        language = canonical_code(requested)
    except BadInput:
        language = requested
    if language not in languages:
        raise BadInput(f"{name}: it does not translate into {requested!r}{suggestion(language, languages)}")
    return language


# ---- text ---------------------------------------------------------------------------------------------------

SentencePairs = list[tuple[str, str]]  # source and target
PairsByDirection = dict[Direction, SentencePairs]
LanguagePair = tuple[str, str]  # in alphabetical order


@dataclass(frozen=True)
class ParallelText:
    """Sentence pairs of the training, dev and test sets, by direction."""

    train: PairsByDirection
    dev: PairsByDirection
    tests: dict[str, PairsByDirection] = field(default_factory=dict)  # by name of the test set

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the training and dev sets."""
        parts = [
            [(str(direction), pairs_fingerprint(pairs)) for direction, pairs in sorted(split.items())]
            for split in (self.train, self.dev)
        ]
        return xxhash.xxh3_64_hexdigest(repr(parts).encode())


def pairs_fingerprint(pairs: SentencePairs) -> str:
    digest = xxhash.xxh3_64()
    for pair in pairs:
        digest.update("\t".join(pair).encode() + b"\n")
    return digest.hexdigest()


def read_parallel_text(
    data: Path, directions: Sequence[Direction], splits: Sequence[str] = ("train", "dev", "test")
) -> ParallelText:
    """Return the requested splits of every direction. Dev and test sets may have some directions only."""
    languages = {code for direction in directions for code in (direction.source, direction.target)}
    if not data.is_dir():
        raise BadInput(f"{data}: no such folder. Use one with {EXPECTED_FILES}.")
    if any((data / part).is_dir() for part in ("pairs", "multi")):
        text = _hold_out(Corpora(data), directions, splits)
    else:
        text = _read_folder(_find_folder(data, languages), directions, splits)
    for direction in directions if "train" in splits else ():
        if not text.train.get(direction):
            raise BadInput(f"{data}: no training text for {direction}. Expected {EXPECTED_FILES}.")
    return text


def read_sentences(file: Path) -> Iterator[str]:
    """Yield the cleaned lines of a file, and refuse one that is not text."""
    for number, line in enumerate(read_lines(file), start=1):
        if isinstance(line, SkipReason):
            raise BadInput(f"{file}: line {number} cannot be read ({line.value}). Fix or remove it.")
        yield clean_line(line)


# ---- a folder of text files ---------------------------------------------------------------------------------


def _find_files(folder: Path) -> dict[str, dict[str, Path]]:
    """Return the files of a folder by split and language."""
    files: dict[str, dict[str, Path]] = defaultdict(dict)
    for file in sorted(folder.iterdir()):
        match = _FILE.fullmatch(COMPRESSION_SUFFIX.sub("", file.name))
        if match is None or not file.is_file():
            continue
        try:
            language = canonical_code(match["language"])
        except BadInput:
            continue  # the suffix is no language code
        by_language = files[_SPLIT.get(match["split"], match["split"])]
        if language in by_language:
            raise BadInput(f"{file}: the same text as {by_language[language]}. Keep one of them.")
        by_language[language] = file
    return dict(files)


def _find_folder(data: Path, languages: set[str]) -> Path:
    """Return the folder itself, or its only subfolder with files of these languages."""
    if _find_files(data):
        return data
    subfolders = [path for path in sorted(data.iterdir()) if path.is_dir()]
    matching = [path for path in subfolders if languages <= {code for by in _find_files(path).values() for code in by}]
    if len(matching) == 1:
        return matching[0]
    names = ", ".join(sorted(languages))
    if matching:
        folders = ", ".join(path.name for path in matching)
        raise BadInput(f"{data}: the folders {folders} all have parallel text of {names}. Use one of them.")
    raise BadInput(f"{data}: no parallel text of {names}, here or one folder below. Expected {EXPECTED_FILES}.")


def _read_folder(folder: Path, directions: Sequence[Direction], splits: Sequence[str]) -> ParallelText:
    read = cache(lambda file: [*read_sentences(file)])  # directions share files
    by_split: dict[str, PairsByDirection] = {}
    for split, files in _find_files(folder).items():
        if (split if split in (TRAIN, DEV) else "test") not in splits:
            continue
        for direction in directions:
            if direction.source in files and direction.target in files:
                pairs = _join(files[direction.source], files[direction.target], read)
                by_split.setdefault(split, {})[direction] = pairs
    train, dev = by_split.pop(TRAIN, {}), by_split.pop(DEV, {})
    return ParallelText(train, dev, by_split)


def _join(source_file: Path, target_file: Path, read: Callable[[Path], list[str]]) -> SentencePairs:
    """Return the rows in which both sides have text."""
    sources, targets = read(source_file), read(target_file)
    if len(sources) != len(targets):
        raise BadInput(
            f"{source_file} has {len(sources):,} lines and {target_file} has {len(targets):,}: line n of one must be"
            " the translation of line n of the other. Download or create both again."
        )
    pairs = [(source, target) for source, target in zip(sources, targets, strict=True) if source and target]
    if not pairs:
        raise BadInput(f"{source_file} and {target_file}: no row has text on both sides. Download both again.")
    return pairs


# ---- a corpora folder ---------------------------------------------------------------------------------------


def _hold_out(corpora: Corpora, directions: Sequence[Direction], splits: Sequence[str]) -> ParallelText:
    """Hold out the rows of each language pair with the lowest hashes as dev and test sets, in any order of the rows.

    No test row of any language pair contains a sentence of dev, and no training row a sentence of dev or test.
    """
    pairs = sorted({(min(d.source, d.target), max(d.source, d.target)) for d in directions})
    rows = {pair: _read_pairs(corpora, pair) for pair in pairs}
    sizes = {pair: min(HELD_OUT_ROWS, len(own) // ROWS_PER_HELD_OUT) for pair, own in rows.items()}
    # More than needed, since some rows after those of dev contain a sentence of dev.
    lowest = {pair: heapq.nsmallest(4 * sizes[pair], own, key=_hash) for pair, own in rows.items()}
    dev = {pair: own[: sizes[pair]] for pair, own in lowest.items()}
    test = {pair: own[: sizes[pair]] for pair, own in _exclude(lowest, dev).items()}
    train = _exclude(_exclude(rows, dev), test)
    counts = (f"{a}-{b} {len(train[a, b]):,} train, {len(dev[a, b])} dev, {len(test[a, b])} test" for a, b in pairs)
    warnings.warn(f"{corpora.path}: rows held out by their hash: {'; '.join(counts)}", stacklevel=2)
    return ParallelText(
        _by_direction(train, directions) if "train" in splits else {},
        _by_direction(dev, directions) if "dev" in splits else {},
        {"test": _by_direction(test, directions)} if "test" in splits else {},
    )


def _exclude(
    rows: Mapping[LanguagePair, SentencePairs], excluded: Mapping[LanguagePair, SentencePairs]
) -> dict[LanguagePair, SentencePairs]:
    """Return the rows that have no sentence in common with the excluded rows."""
    sentences: dict[str, set[str]] = defaultdict(set)  # by language
    for pair, own in excluded.items():
        for row in own:
            for language, sentence in zip(pair, row, strict=True):
                sentences[language].add(sentence)
    return {
        (a, b): [row for row in own if row[0] not in sentences[a] and row[1] not in sentences[b]]
        for (a, b), own in rows.items()
    }


def _read_pairs(corpora: Corpora, pair: LanguagePair) -> SentencePairs:
    """Return the distinct rows of a language pair in all corpora."""
    rows: dict[tuple[str, str], None] = {}
    for parallel in corpora.pairs:
        if parallel.languages == pair:
            rows |= dict.fromkeys(parallel.rows())
        elif parallel.languages == pair[::-1]:
            rows |= dict.fromkeys((second, first) for first, second in parallel.rows())
    for multi in corpora.multi:
        if {*pair} <= {*multi.languages}:
            multi.count_rows()  # checks that all languages have the same number of rows
            sides = zip(multi.lines(pair[0]), multi.lines(pair[1]), strict=False)
            rows |= dict.fromkeys((first, second) for first, second in sides if first and second)
    return list(rows)


def _hash(row: tuple[str, str]) -> int:
    return xxhash.xxh3_64_intdigest("\t".join(row).encode())


def _by_direction(rows: Mapping[LanguagePair, SentencePairs], directions: Sequence[Direction]) -> PairsByDirection:
    pairs: PairsByDirection = {}
    for direction in directions:
        forward = rows.get((direction.source, direction.target), [])
        backward = rows.get((direction.target, direction.source), [])
        pairs[direction] = forward or [(target, source) for source, target in backward]
    return {direction: own for direction, own in pairs.items() if own}
