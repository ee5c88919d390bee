"""Which files of the tasks without training lie there, by pair of languages: known before any is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from crossling.corpora.languages import canonical
from crossling.errors import BadInput, nearest

Files = dict[str, list[Path]]  # by names such as `de-en`

_TATOEBA = re.compile(r"tatoeba\.(?P<pair>[^.]+-[^.]+)\.[^.]+(\.gz)?")
_BUCC = re.compile(r"(?P<pair>[^.]+-[^.]+)\.(dev|test)\.[^.]+(\.gz)?")
_GOLD = re.compile(r"(?P<pair>[^.]+)(\..+)?\.src-tgt(\.gz)?")


def tatoeba_files(data: Path) -> Files:
    """Of DATA/tatoeba/v1, in the order of their names."""
    folder = data / "tatoeba" / "v1"
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder; put the files tatoeba.XXX-eng.{{XXX,eng}} there")
    return _by_pair(folder.iterdir(), _TATOEBA, f"{folder}: no files named tatoeba.XXX-YYY.XXX here")


def bucc_files(data: Path) -> Files:
    """Of DATA/bucc2018, in the order of their names."""
    folder = data / "bucc2018"
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder; put the files zh-en.dev.{{zh,en,gold}} there")
    return _by_pair(folder.iterdir(), _BUCC, f"{folder}: no files named zh-en.dev.zh here")


def gold_files(data: Path) -> Files:
    """Of DATA/word-alignment, in the order of their names: the texts of all sets of a pair, and the gold beside."""
    folder = data / "word-alignment"
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder; put the files PAIR/PAIR.{{src-tgt,gold}} there")
    texts = _by_pair(folder.glob("*/*.src-tgt*"), _GOLD, f"{folder}: no files PAIR/PAIR.src-tgt here")
    return {name: [*files, *(gold for file in files for gold in _golds(file))] for name, files in texts.items()}


def pair_of(name: str) -> str:
    """`deen`, `deu-eng` and `de-en` all name two languages."""
    codes = name.split("-") if "-" in name else [name[: len(name) // 2], name[len(name) // 2 :]]
    if len(codes) != 2 or not all(codes):
        raise BadInput(f"{name!r} is no pair of languages, expected a name such as deen or qaa-qab; rename the file")
    return "-".join(canonical(code) for code in codes)


def choose(there: Files, languages: Sequence[str] | None, where: object) -> Files:
    """The pairs whose name, such as `de-en`, is one of the languages or has one of them as a side."""
    if languages is None:
        return there
    known = names(there)
    asked = {language: spelt(language, known) for language in languages}
    for language, meant in asked.items():
        if meant not in known:
            raise BadInput(f"{where}: no files of language {language!r}{nearest(language, known)}")
    return {name: files for name, files in there.items() if {*asked.values()} & names([name])}


def names(pairs: Iterable[str]) -> set[str]:
    """All that files of these pairs can be asked for by: the pairs, and each side."""
    return {part for pair in pairs for part in (pair, *pair.split("-"))}


def spelt(language: str, known: Iterable[str]) -> str:
    """As the files spell it: `deu-eng` is `de-en`."""
    if language in known:
        return language
    try:
        return "-".join(canonical(code) for code in language.split("-"))
    except BadInput:
        return language


def _by_pair(files: Iterable[Path], expression: re.Pattern[str], missing: str) -> Files:
    found: Files = {}
    for file in sorted(files):
        match = expression.fullmatch(file.name)
        if match:
            found.setdefault(_name(match["pair"]), []).append(file)
    if not found:
        raise BadInput(f"{missing}; put the benchmark there")
    return found


def _golds(text: Path) -> list[Path]:
    return sorted(text.parent.glob(text.name[: text.name.index(".src-tgt")] + ".gold*"))


def _name(pair: str) -> str:
    """A name that is no pair is told of when its file is read, if it ever is."""
    try:
        return pair_of(pair)
    except BadInput:
        return pair
