"""Discovery of the files of a corpora folder by their names. No text is read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from crossling.core.errors import BadInput, prefix_errors
from crossling.corpora.formats import FORMATS, Source, describe_layout, endings
from crossling.corpora.hub_datasets import DatasetReference
from crossling.corpora.languages import CODE_IN_PAIR, canonical_code, find_code, parse_pair
from crossling.corpora.text_files import COMPRESSION_SUFFIX, TextFile, read_lines

_NOT_DATA = re.compile(r"\.|readme|licen[cs]e|.*\.(md|ids|scores)$", re.IGNORECASE)
_PAIR_FILE = re.compile(  # CCMatrix has names such as en-fr.bitextf.tsv.gz
    rf"(?:(?P<name>.+)\.)?(?P<pair>{CODE_IN_PAIR}-{CODE_IN_PAIR})(?:\.bitextf)?\.(?P<ending>[^.]+)"
)


def find_text(folder: Path) -> dict[str, tuple[Source, ...]]:
    """Return the sources in text/ by language. `sw.txt` and `swh.txt` are two sources of one language."""
    found: dict[str, list[Source]] = {}
    files_by_code: dict[str, Path] = {}
    for name, file in _data_files(_entries(folder)):
        code, ending = _split_name(name, file, "text")
        if code in files_by_code:
            raise BadInput(f"{files_by_code[code]} and {file}: the same text twice. Keep one of them.")
        files_by_code[code] = file
        language = _language(code, file)
        found.setdefault(language, []).append(_make_source(file, ending, (language,)))
    return {language: tuple(sources) for language, sources in sorted(found.items())}


def find_pairs(folder: Path) -> dict[tuple[str, str, str], tuple[Source, ...]]:
    """Return the sources in pairs/ by name, source and target language: one source, or the two sides.

    The name is that of the file, or else that of the subfolder of pairs/ that it is in.
    """
    found: dict[tuple[str, str, str], dict[str, Path]] = {}  # and by ending or side
    for collection, name, file in _pair_files(folder):
        match = _PAIR_FILE.fullmatch(name)
        if match is None:
            raise _unknown_format(file)
        with prefix_errors(file):
            source, target = parse_pair(match["pair"])
        ending = match["ending"]
        if ending not in endings("pairs"):
            ending = _side(ending, (source, target), file)
        files = found.setdefault((match["name"] or collection, source, target), {})
        if ending in files:
            raise BadInput(
                f"{files[ending]} and {file}: both hold {source}-{target}. Remove one, or name it NAME.LL-LL.{ending}."
            )
        files[ending] = file
    return {key: _pair_sources(key[1:], files) for key, files in sorted(found.items())}


def find_multi(folder: Path) -> dict[str, dict[str, TextFile]]:
    """Return the sources in multi/ by name of the corpus and by language."""
    corpora = {}
    for subfolder in _entries(folder):
        if not subfolder.is_dir():
            raise BadInput(f"{subfolder}: a file, expected a folder. Multiway text is multi/NAME/LL.txt.")
        files: dict[str, TextFile] = {}
        for name, file in _data_files(_entries(subfolder)):
            language = _language(_split_name(name, file, "multi")[0], file)
            if language in files:
                raise BadInput(f"{files[language]} and {file}: both are {language}. Keep one of them.")
            files[language] = TextFile(file)
        if len(files) < 2:
            raise BadInput(f"{subfolder}: {len(files)} languages, expected two or more files LL.txt. Add the others.")
        corpora[subfolder.name] = dict(sorted(files.items()))
    return corpora


def check_stray_files(folder: Path) -> None:
    """Raise BadInput for text beside text/, pairs/ and multi/, which would not be read."""
    stray = re.compile(rf"text|pairs|multi|.*\.({'|'.join(FORMATS)})", re.IGNORECASE)
    for entry in _entries(folder):
        if entry.is_file() and stray.fullmatch(COMPRESSION_SUFFIX.sub("", entry.name)):
            raise BadInput(f"{entry}: not read at this place. {describe_layout()}")


def _entries(folder: Path) -> list[Path]:
    """Return the entries that may be data, sorted: no hidden files, notes and names of rows."""
    if not folder.exists():
        return []
    return sorted(entry for entry in folder.iterdir() if not _NOT_DATA.match(COMPRESSION_SUFFIX.sub("", entry.name)))


def _pair_files(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield the files of pairs/ and of its subfolders: name of the subfolder or nothing, `_data_files`."""
    entries = _entries(folder)
    subfolders = [entry for entry in entries if entry.is_dir()]
    for name, file in _data_files([entry for entry in entries if entry not in subfolders]):
        yield "", name, file
    for subfolder in subfolders:
        for name, file in _data_files(_entries(subfolder)):
            yield subfolder.name, name, file


def _data_files(entries: list[Path]) -> Iterator[tuple[str, Path]]:
    """Yield each file with its name without compression; a file that is there twice would be read twice."""
    files_by_name: dict[str, Path] = {}
    for file in entries:
        name = COMPRESSION_SUFFIX.sub("", file.name)
        ending = name.rpartition(".")[2]
        if file.is_dir():
            raise BadInput(f"{file}: a folder, expected a file. {describe_layout()}")
        if name in files_by_name:
            raise BadInput(f"{files_by_name[name]} and {file}: the same text twice. Keep one of them.")
        if name != file.name and ending in FORMATS and not FORMATS[ending].is_compressible:
            raise BadInput(f"{file}: .{ending} files cannot be compressed. Decompress it.")
        files_by_name[name] = file
        yield name, file


def _split_name(name: str, file: Path, place: str) -> tuple[str, str]:
    """Split LL.txt into code and ending."""
    code, _, ending = name.rpartition(".")
    if ending not in endings(place):
        raise _unknown_format(file)
    return code, ending


def _side(code: str, pair: tuple[str, str], file: Path) -> str:
    """Return the language of a file that is one side of a pair."""
    side = find_code(code)
    if side in pair:
        return side
    raise BadInput(
        f"{file}: ends in .{code}, expected .{pair[0]} or .{pair[1]} (one side of the pair) or a format."
        f" {describe_layout()}"
    )


def _pair_sources(pair: tuple[str, str], files: dict[str, Path]) -> tuple[Source, ...]:
    formats = [ending for ending in files if ending in endings("pairs")]
    if len(files) > (1 if formats else 2):
        listed = ", ".join(map(str, files.values()))
        raise BadInput(f"{listed}: the same corpus twice. Keep one file, or the two sides.")
    if formats:
        [(ending, file)] = files.items()
        return (_make_source(file, ending, pair),)
    if len(files) == 1:
        [(side, file)] = files.items()
        other = pair[1] if side == pair[0] else pair[0]
        raise BadInput(f"{file}: no other side. Put the {other} side beside it, with the ending .{other}.")
    return TextFile(files[pair[0]]), TextFile(files[pair[1]])


def _make_source(file: Path, ending: str, languages: tuple[str, ...]) -> Source:
    if ending != "hf":
        return TextFile(file)
    filled = (line for line in read_lines(file) if not isinstance(line, str) or line.strip())
    line = next(filled, None)
    if not isinstance(line, str) or next(filled, None) is not None:
        raise BadInput(f"{file}: expected one line with a dataset reference, such as hf://owner/dataset.")
    reference = DatasetReference.parse(line.strip(), file)
    declared = reference.pair or (reference.language,)
    if any(declared) and {*declared} != {*languages}:
        raise BadInput(
            f"{reference}: languages {'-'.join(filter(None, declared))}, but its file name has {'-'.join(languages)}."
            " Correct one of them."
        )
    return reference


def _language(code: str, file: Path) -> str:
    with prefix_errors(file):
        return canonical_code(code)


def _unknown_format(file: Path) -> BadInput:
    return BadInput(f"{file}: unknown format. {describe_layout()} crossling ingest converts other files.")
