"""The files of a CORPORA folder: found, told apart and sorted by language, but not read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from crossling.corpora.files import COMPRESSED, File, lines
from crossling.corpora.formats import OF_MULTI, OF_PAIRS, OF_TEXT, PACKED_INSIDE, READ, Source
from crossling.corpora.hub import Reference
from crossling.corpora.languages import CODE_IN_PAIR, canonical, canonical_pair
from crossling.errors import BadInput

_NO_DATA = re.compile(r"\.|readme|licen[cs]e|.*\.md$|.*\.ids$", re.IGNORECASE)
_STRAY = re.compile(rf"text|pairs|multi|.*\.({'|'.join({*OF_TEXT, *OF_PAIRS, *OF_MULTI})})", re.IGNORECASE)
_PAIR = re.compile(rf"(?:(?P<name>.+)\.)?(?P<pair>{CODE_IN_PAIR}-{CODE_IN_PAIR})\.(?P<kind>[^.]+)")


def find_text(folder: Path) -> dict[str, tuple[Source, ...]]:
    """Sources by language: `sw.txt` and `swh.txt` are two of one."""
    found: dict[str, list[Source]] = {}
    stems: dict[str, Path] = {}
    for stem, file in _files(folder):
        code, kind = _parts(stem, file, OF_TEXT)
        if code in stems:
            raise BadInput(f"{stems[code]} and {file} are the same text twice: keep one of them")
        stems[code] = file
        language = _language(code, file)
        found.setdefault(language, []).append(_reference(file, language) if kind == "hf" else File(file))
    return {language: tuple(sources) for language, sources in sorted(found.items())}


def find_pairs(folder: Path) -> dict[tuple[str, str, str], tuple[Source, ...]]:
    """Sources by name, source and target: one, or the two sides."""
    found: dict[tuple[str, str, str], dict[str, Path]] = {}  # and by format or side
    for stem, file in _files(folder):
        match = _PAIR.fullmatch(stem)
        if match is None:
            raise _unreadable(file)
        try:
            source, target = canonical_pair(match["pair"])
        except BadInput as error:
            raise BadInput(f"{file}: {error}") from None
        kind = match["kind"]
        if kind not in OF_PAIRS:
            kind = _side(kind, (source, target), file)
        kinds = found.setdefault((match["name"] or "", source, target), {})
        if kind in kinds:
            raise BadInput(
                f"{kinds[kind]} and {file} both hold {source}-{target}: remove one, or name it NAME.LL-LL.{kind}"
            )
        kinds[kind] = file
    return {key: _sources(key[1:], kinds) for key, kinds in sorted(found.items())}


def find_multi(folder: Path) -> dict[str, dict[str, File]]:
    """Sources by name of the set and language."""
    sets = {}
    for place in _entries(folder):
        if not place.is_dir():
            raise BadInput(f"{place} is a file where a folder was expected: multi-way text is multi/NAME/LL.txt")
        files: dict[str, File] = {}
        for stem, file in _files(place):
            language = _language(_parts(stem, file, OF_MULTI)[0], file)
            if language in files:
                raise BadInput(f"{files[language]} and {file} are both {language}: keep one of them")
            files[language] = File(file)
        if len(files) < 2:
            raise BadInput(f"{place} holds {len(files)} languages: a multi-way set needs two or more files LL.txt")
        sets[place.name] = dict(sorted(files.items()))
    return sets


def refuse_strays(folder: Path) -> None:
    """Text beside text/, pairs/ and multi/ would be left out without a word."""
    for entry in _entries(folder):
        if entry.is_file() and _STRAY.fullmatch(COMPRESSED.sub("", entry.name)):
            raise BadInput(f"{entry} is in no place that is read: {READ}")


def _entries(folder: Path) -> list[Path]:
    """What may be data, in a fixed order: hidden files, notes and the names of rows are not."""
    if not folder.exists():
        return []
    return sorted(entry for entry in folder.iterdir() if not _NO_DATA.match(COMPRESSED.sub("", entry.name)))


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """(name without the compression, file); a file that lies there packed and unpacked would be read twice."""
    seen: dict[str, Path] = {}
    for file in _entries(folder):
        stem = COMPRESSED.sub("", file.name)
        if file.is_dir():
            raise BadInput(f"{file} is a folder where a file was expected: {READ}")
        if stem in seen:
            raise BadInput(f"{seen[stem]} and {file} are the same text twice: keep one of them")
        if stem != file.name and stem.rpartition(".")[2] in PACKED_INSIDE:
            raise BadInput(f"{file} is packed, but {stem} is read only as it is: unpack it")
        seen[stem] = file
        yield stem, file


def _parts(stem: str, file: Path, kinds: tuple[str, ...]) -> tuple[str, str]:
    """(code, format) of LL.txt."""
    code, _, kind = stem.rpartition(".")
    if kind not in kinds:
        raise _unreadable(file)
    return code, kind


def _side(code: str, pair: tuple[str, str], file: Path) -> str:
    """The language of a file that is one side of a pair."""
    try:
        side = canonical(code)
    except BadInput:
        side = ""
    if side not in pair:
        raise BadInput(f"{file} should end in .{pair[0]} or .{pair[1]}, the languages it pairs, or in a format: {READ}")
    return side


def _sources(pair: tuple[str, str], kinds: dict[str, Path]) -> tuple[Source, ...]:
    formats = [kind for kind in kinds if kind in OF_PAIRS]
    if len(kinds) > (1 if formats else 2):
        raise BadInput(f"{', '.join(map(str, kinds.values()))} hold one corpus twice: keep one file, or the two sides")
    if formats:
        [(kind, file)] = kinds.items()
        return (_reference(file, pair) if kind == "hf" else File(file),)
    if len(kinds) == 1:
        [(side, file)] = kinds.items()
        other = pair[1] if side == pair[0] else pair[0]
        raise BadInput(f"{file} has no other side: put the {other} side beside it, with the ending .{other}")
    return File(kinds[pair[0]]), File(kinds[pair[1]])


def _reference(file: Path, meant: str | tuple[str, str]) -> Reference:
    """The reference in a file, which is its only line."""
    filled = (line for line in lines(file) if not isinstance(line, str) or line.strip())
    line = next(filled, None)
    if not isinstance(line, str) or next(filled, None) is not None:
        raise BadInput(f"{file} should hold one line, a reference to a dataset such as hf://owner/dataset")
    reference = Reference.parse(line.strip(), file)
    said = reference.pair or reference.language
    if said and {*_languages(said)} != {*_languages(meant)}:
        raise BadInput(
            f"{reference} says {'-'.join(_languages(said))}, and its file name {'-'.join(_languages(meant))}"
        )
    return reference


def _languages(meant: str | tuple[str, str]) -> tuple[str, ...]:
    return (meant,) if isinstance(meant, str) else meant


def _language(code: str, file: Path) -> str:
    try:
        return canonical(code)
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from None


def _unreadable(file: Path) -> BadInput:
    return BadInput(f"{file} is in no format known here: {READ}")
