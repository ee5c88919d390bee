"""Parallel text to train, select and score translators on, by direction.

A folder holds text files with one sentence per line, plain or compressed: train.LL, dev.LL (or val, valid), and any
number of test sets, test*.LL (or tst*). Or it is a corpora folder with pairs/ and multi/; then dev and test rows are
held out here. Or it holds FLORES, which has dev and devtest only. Dev and test sets are read into memory. Training text
stays on disk and is streamed.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import xxhash

from crossling.core.errors import BadInput, suggestion
from crossling.core.resumable import fingerprint
from crossling.corpora.corpus import Corpora, MultiwayCorpus, ParallelCorpus
from crossling.corpora.formats import Source
from crossling.corpora.languages import CODE_IN_PAIR, canonical_code, parse_pair
from crossling.corpora.text_files import COMPRESSION_SUFFIX, SkipReason, TextFile, clean_line, read_lines
from crossling.tasks import flores as flores_files

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
class TrainingPairs(ParallelCorpus):
    """Sentence pairs without those that contain a held-out sentence."""

    held_out: Mapping[str, frozenset[str]] = field(default_factory=dict, repr=False)  # sentences by language

    def rows(self, counts: Counter[str] | None = None) -> Iterator[tuple[str, str]]:
        """Yield the rows with text on both sides and no held-out sentence."""
        first, second = (self.held_out.get(language, frozenset()) for language in self.languages)
        return (row for row in super().rows(counts) if row[0] not in first and row[1] not in second)


@dataclass(frozen=True)
class TrainingRows(MultiwayCorpus):
    """Rows in several languages. A held-out sentence is empty."""

    held_out: Mapping[str, frozenset[str]] = field(default_factory=dict, repr=False)  # sentences by language

    def lines(self, language: str, counts: Counter[str] | None = None) -> Iterator[str]:
        """Yield line n for row n, empty if it is missing or held out."""
        sentences = self.held_out.get(language, frozenset())
        return ("" if line in sentences else line for line in super().lines(language, counts))


TrainingCorpus = TrainingPairs | TrainingRows


@dataclass(frozen=True)
class ParallelText:
    """Training corpora, which stay on disk, and the sentence pairs of the dev and test sets, by direction."""

    train: tuple[TrainingCorpus, ...]
    dev: PairsByDirection
    tests: dict[str, PairsByDirection] = field(default_factory=dict)  # by name of the test set

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the training files, of what is held out of them, and of the dev sets."""
        corpora = [_describe_corpus(corpus) for corpus in self.train]
        return fingerprint([corpora, self.dev_fingerprint])

    @property
    def dev_fingerprint(self) -> list[list[str]]:
        """Hash of the dev set of each direction."""
        return [[str(direction), pairs_fingerprint(pairs)] for direction, pairs in sorted(self.dev.items())]


def _describe_corpus(corpus: TrainingCorpus) -> list[object]:
    sources: Iterable[Source] = corpus.sources.values() if isinstance(corpus, MultiwayCorpus) else corpus.sources
    files = [[source.name, source.digest()] for source in sources]
    return [corpus.name, *corpus.languages, files, {language: sorted(own) for language, own in corpus.held_out.items()}]


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
    if is_corpora_folder(data):
        return _hold_out(Corpora(data), directions, splits)
    flores = flores_files.find_release(data)
    if flores is not None:
        return _read_flores(flores, directions, splits)
    return _read_folder(_find_folder(data, languages), directions, splits)


def is_corpora_folder(data: Path) -> bool:
    """Return True for a corpora folder, which has no dev and test sets of its own."""
    return any((data / part).is_dir() for part in ("pairs", "multi"))


def _language_pairs(directions: Iterable[Direction]) -> list[LanguagePair]:
    return sorted({(min(each.source, each.target), max(each.source, each.target)) for each in directions})


def _no_training_text(data: Path | str, name: object) -> BadInput:
    return BadInput(f"{data}: no training text for {name}. Expected {EXPECTED_FILES}.")


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
    found = _find_files(folder)
    train = _training_files(folder, found.pop(TRAIN, {}), directions) if TRAIN in splits else ()
    for split, files in found.items():
        if (split if split in (TRAIN, DEV) else "test") not in splits:
            continue
        for direction in directions:
            if direction.source in files and direction.target in files:
                pairs = _join(files[direction.source], files[direction.target], read)
                by_split.setdefault(split, {})[direction] = pairs
    return ParallelText(train, by_split.pop(DEV, {}), by_split)


def _training_files(
    folder: Path, files: Mapping[str, Path], directions: Sequence[Direction]
) -> tuple[TrainingCorpus, ...]:
    """Return the two files of each language pair as a corpus."""
    for direction in directions:
        if not {direction.source, direction.target} <= {*files}:
            raise _no_training_text(folder, direction)
    pairs = _language_pairs(directions)
    return tuple(TrainingPairs(TRAIN, (a, b), (TextFile(files[a]), TextFile(files[b]))) for a, b in pairs)


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


def _read_flores(release: Path, directions: Sequence[Direction], splits: Sequence[str]) -> ParallelText:
    """Return dev, and the test set devtest. FLORES has no training text."""
    if TRAIN in splits:
        raise _no_training_text(release, directions[0])
    sets: dict[str, PairsByDirection] = {}
    for split in (flores_files.DEV, flores_files.DEVTEST):
        files = flores_files.release_files(release, split)
        present = [each for each in directions if {each.source, each.target} <= {*files}]
        read = cache(flores_files.read_flores)
        sets[split] = {each: _join(files[each.source], files[each.target], read) for each in present}
    tests = {flores_files.DEVTEST: sets[flores_files.DEVTEST]} if "test" in splits else {}
    return ParallelText((), sets[flores_files.DEV] if DEV in splits else {}, tests)


# ---- a corpora folder ---------------------------------------------------------------------------------------


def _hold_out(corpora: Corpora, directions: Sequence[Direction], splits: Sequence[str]) -> ParallelText:
    """Hold out the rows of each language pair with the lowest hashes as dev and test sets, in any order of the rows.

    No test row of any language pair contains a sentence of dev, and no training row a sentence of dev or test.
    """
    pairs = _language_pairs(directions)
    # Fewer are all the distinct rows, so that their number is known where it matters.
    lowest = {pair: _lowest_rows(_rows(corpora, pair), HELD_OUT_ROWS * ROWS_PER_HELD_OUT) for pair in pairs}
    for pair in pairs:
        if not lowest[pair] and TRAIN in splits:
            raise _no_training_text(corpora.path, "-".join(pair))
    sizes = {pair: len(own) // ROWS_PER_HELD_OUT for pair, own in lowest.items()}
    dev = {pair: own[: sizes[pair]] for pair, own in lowest.items()}
    test = {pair: own[: sizes[pair]] for pair, own in _exclude(lowest, dev).items()}
    counts = (f"{a}-{b} {len(dev[a, b])} dev, {len(test[a, b])} test" for a, b in pairs)
    warnings.warn(f"{corpora.path}: rows held out by their hash: {'; '.join(counts)}", stacklevel=2)
    return ParallelText(
        _training_corpora(corpora, pairs, _sentences(dev, test)) if TRAIN in splits else (),
        _by_direction(dev, directions) if DEV in splits else {},
        {"test": _by_direction(test, directions)} if "test" in splits else {},
    )


def _training_corpora(
    corpora: Corpora, pairs: Sequence[LanguagePair], held_out: Mapping[str, frozenset[str]]
) -> tuple[TrainingCorpus, ...]:
    """Return the corpora that have one of the language pairs, without held-out sentences."""
    found: list[TrainingCorpus] = []
    for corpus in corpora.pairs:
        if tuple(sorted(corpus.languages)) in pairs:
            found.append(TrainingPairs(corpus.name, corpus.languages, corpus.sources, held_out))
    used = {language for pair in pairs for language in pair}
    for multi in corpora.multi:
        sources = {language: file for language, file in multi.sources.items() if language in used}
        if any({*pair} <= {*sources} for pair in pairs):
            found.append(TrainingRows(multi.name, sources, multi.excluded_pairs, held_out))
    return tuple(found)


def _lowest_rows(rows: Iterable[tuple[str, str]], number: int) -> SentencePairs:
    """Return the distinct rows with the lowest hashes, at most `number`, in the order of their hashes."""
    kept: dict[int, tuple[str, str]] = {}
    limit = 1 << 64
    for row in rows:
        key = xxhash.xxh3_64_intdigest("\t".join(row).encode())
        if key < limit:
            kept[key] = row
            if len(kept) == 2 * number:
                kept = dict(sorted(kept.items())[:number])
                limit = max(kept)
    return [row for _, row in sorted(kept.items())[:number]]


def _sentences(*parts: Mapping[LanguagePair, SentencePairs]) -> dict[str, frozenset[str]]:
    """Return the sentences of some rows by language."""
    sentences: dict[str, set[str]] = defaultdict(set)
    for part in parts:
        for pair, own in part.items():
            for row in own:
                for language, sentence in zip(pair, row, strict=True):
                    sentences[language].add(sentence)
    return {language: frozenset(own) for language, own in sentences.items()}


def _exclude(
    rows: Mapping[LanguagePair, SentencePairs], excluded: Mapping[LanguagePair, SentencePairs]
) -> dict[LanguagePair, SentencePairs]:
    """Return the rows that have no sentence in common with the excluded rows."""
    found = defaultdict[str, frozenset[str]](frozenset, _sentences(excluded))
    return {
        (a, b): [row for row in own if row[0] not in found[a] and row[1] not in found[b]]
        for (a, b), own in rows.items()
    }


def _rows(corpora: Corpora, pair: LanguagePair) -> Iterator[tuple[str, str]]:
    """Yield the rows of a language pair in all corpora."""
    for parallel in corpora.pairs:
        if parallel.languages == pair:
            yield from parallel.rows()
        elif parallel.languages == pair[::-1]:
            yield from ((second, first) for first, second in parallel.rows())
    for multi in corpora.multi:
        if {*pair} <= {*multi.languages}:
            multi.count_rows()  # checks that all languages have the same number of rows
            sides = zip(multi.lines(pair[0]), multi.lines(pair[1]), strict=False)
            yield from ((first, second) for first, second in sides if first and second)


def _by_direction(rows: Mapping[LanguagePair, SentencePairs], directions: Sequence[Direction]) -> PairsByDirection:
    pairs: PairsByDirection = {}
    for direction in directions:
        forward = rows.get((direction.source, direction.target), [])
        backward = rows.get((direction.target, direction.source), [])
        pairs[direction] = forward or [(target, source) for source, target in backward]
    return {direction: own for direction, own in pairs.items() if own}
