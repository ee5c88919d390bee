"""The files to read: their kinds, their languages by request and name, and which of them are sides of translations."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from crossling.core.errors import BadInput
from crossling.corpora.text_files import COMPRESSION_SUFFIX
from crossling.ingest.columns import LanguageRequest
from crossling.ingest.file_readers import READERS, UNCOMPRESSED
from crossling.ingest.language_hints import NameHint, guess_language, read_name

NO_TEXT = "no text of a corpus"
_NOT_DATA = re.compile(r"\.|~\$|readme|licen[cs]e|changelog|.*\.(md|ids|lock|pyc?)$", re.IGNORECASE)
_FIXES = {
    "doc": "Save it as .docx",
    "odt": "Save it as .docx",
    "rtf": "Save it as .docx",
    "xls": "Save it as .xlsx",
    "ods": "Save it as .xlsx",
    "pdf": "Copy its text into a .txt file",
    "zip": "Unpack it",
    "tar": "Unpack it",
    "json": "Write one JSON object on each line, as .jsonl",
}


@dataclass(frozen=True)
class InputFile:
    """A file to read.

    Attributes:
        path: Path as it was given, or found in a folder that was given.
        is_explicit: The user named the file itself.
        ending: Kind of the file, a key of `READERS`.
        hint: Languages and collection by its name.
    """

    path: Path
    is_explicit: bool
    ending: str
    hint: NameHint


@dataclass(frozen=True)
class InputGroup:
    """A file, or the files whose lines translate each other.

    Attributes:
        files: One file, or one for each language.
        name: Name of the collection.
        request: Languages and columns of the rows.
    """

    files: tuple[InputFile, ...]
    name: str
    request: LanguageRequest

    @property
    def is_explicit(self) -> bool:
        """True if the user named one of the files."""
        return any(file.is_explicit for file in self.files)


@dataclass
class InputPlan:
    """Files to read, and files to skip with the reason."""

    groups: list[InputGroup] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def plan_inputs(paths: Sequence[str | os.PathLike[str]], request: LanguageRequest, out: Path) -> InputPlan:
    """Return what to read, in order.

    Args:
        paths: Files, and folders of which every file is read.
        request: Languages and columns that the user names.
        out: Output folder, which is not read.

    Raises:
        BadInput: If a path is missing, or a file that the user names cannot be read.
    """
    plan = InputPlan()
    files: list[InputFile] = []
    for path in dict.fromkeys(map(Path, paths)):
        if not path.exists():
            raise BadInput(f"{path}: no such file. Give files, or folders with files.")
        for each in _files_in(path, out):
            found = _classify(each, is_explicit=each == path)
            if isinstance(found, str):
                if each == path:
                    raise BadInput(f"{each}: {found}.")
                plan.skipped[str(each)] = found
            else:
                files.append(found)
    _add_groups(plan, files, request)
    return plan


def _files_in(path: Path, out: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    own = out.resolve()
    return sorted(
        file
        for file in path.rglob("*")
        if file.is_file()
        and own not in file.resolve().parents
        and not any(part.startswith(".") for part in file.relative_to(path).parts[:-1])
    )


def _classify(path: Path, *, is_explicit: bool) -> InputFile | str:
    """Return the kind of a file, or why it cannot be read."""
    name = COMPRESSION_SUFFIX.sub("", path.name)
    stem, _, ending = name.rpartition(".")
    known = ending.lower() in READERS
    if not is_explicit and _NOT_DATA.match(name):
        return NO_TEXT
    if known and stem:
        if name != path.name and ending.lower() in UNCOMPRESSED:
            return "a compressed file of this kind cannot be read. Decompress it"
        return InputFile(path, is_explicit, ending.lower(), read_name(stem))
    language = guess_language(ending) if stem else None
    if language:
        hint = read_name(stem)
        collection = hint.name if language in hint.languages else stem
        return InputFile(path, is_explicit, "txt", NameHint(collection, (language,)))
    supported = ", ".join(f".{each}" for each in READERS)
    return f"unknown kind of file. {_FIXES.get(ending.lower(), f'Expected {supported}, or a language as in train.en')}"


def _add_groups(plan: InputPlan, files: Sequence[InputFile], request: LanguageRequest) -> None:
    sides = _find_sides(files, request)
    grouped = {file.path: key for key, members in sides.items() for file in members}
    for file in files:
        key = grouped.get(file.path)
        if key is not None:
            members = sides[key]
            if members[0] is file:
                languages = request.languages or tuple(member.hint.languages[0] for member in members)
                plan.groups.append(InputGroup(tuple(members), key[1], LanguageRequest(languages)))
            continue
        languages = _languages_of(file, request)
        if not file.is_explicit and file.hint.languages and not set(file.hint.languages) <= {*languages}:
            wanted, named = "-".join(request.languages), "-".join(file.hint.languages)
            plan.skipped[str(file.path)] = f"its name has the language {named}, requested was {wanted}"
            continue
        columns = request.columns if len(languages) == len(request.languages) or not languages else ()
        plan.groups.append(InputGroup((file,), file.hint.name, LanguageRequest(languages, columns)))


def _languages_of(file: InputFile, request: LanguageRequest) -> tuple[str, ...]:
    """Return the languages of a file that is read alone."""
    if len(request.languages) == 2 and file.ending in ("txt", "docx") and len(file.hint.languages) == 1:
        return file.hint.languages  # text beside the translations that were requested
    return request.languages or file.hint.languages


def _find_sides(files: Sequence[InputFile], request: LanguageRequest) -> dict[tuple[Path, str], list[InputFile]]:
    """Return the groups of text files whose lines translate each other, by folder and name, in order of languages."""
    texts = [file for file in files if file.ending == "txt"]
    is_pair = len(request.languages) == 2
    explicit = [file for file in texts if file.is_explicit]
    if len(request.languages) == 1 or request.columns:
        return {}
    if is_pair and len(explicit) == len(files) == 2 and not any(len(file.hint.languages) == 2 for file in files):
        ordered = _order_sides(explicit, request.languages)
        return {(ordered[0].path.parent, _common_name(ordered)): ordered}
    groups: dict[tuple[Path, str], list[InputFile]] = {}
    for file in texts:
        if len(file.hint.languages) == 1 and file.hint.name:
            groups.setdefault((file.path.parent, file.hint.name), []).append(file)
    complete = {}
    for key, members in groups.items():
        by_language = {file.hint.languages[0]: file for file in members}
        if is_pair and {*request.languages} <= by_language.keys():
            complete[key] = [by_language[language] for language in request.languages]
        elif not is_pair and 1 < len(members) == len(by_language):
            complete[key] = list(by_language.values())
    return complete


def _order_sides(files: Sequence[InputFile], pair: Sequence[str]) -> list[InputFile]:
    """Return two files in the order of the languages: by their names, or else as they were given."""
    first, second = files
    if first.hint.languages == (pair[1],) or second.hint.languages == (pair[0],):
        first, second = second, first
    for file, language in zip((first, second), pair, strict=True):
        if file.hint.languages not in ((), (language,)):
            raise BadInput(
                f"{file.path}: its name has the language {file.hint.languages[0]}, expected {language}. Rename it, or"
                " give the other pair."
            )
    return [first, second]


def _common_name(files: Sequence[InputFile]) -> str:
    """Return the name of the collection of two sides: what both names have in common."""
    letters = zip(*(file.hint.name for file in files), strict=False)
    common = "".join(left for left, _ in takewhile(lambda both: both[0] == both[1], letters))
    return common.rstrip("._- ")
