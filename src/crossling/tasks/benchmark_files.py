"""Files of the training-free tasks by language pair, found without reading them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from crossling.core.errors import BadInput, suggestion
from crossling.core.folder_kinds import data_folder_hint
from crossling.corpora.languages import canonical_code, find_code
from crossling.tasks.flores import find_flores_files
from crossling.tasks.registry import DATASETS, check_task

FilesByPair = dict[str, list[Path]]  # by names such as `de-en`
FLORES = "flores"

_TATOEBA = re.compile(r"tatoeba\.(?P<pair>[^.]+-[^.]+)\.[^.]+(\.gz)?")
_BUCC = re.compile(r"(?P<pair>[^.]+-[^.]+)\.(dev|test)\.[^.]+(\.gz)?")
_GOLD = re.compile(r"(?P<pair>[^.]+)(\..+)?\.src-tgt(\.gz)?")


def find_tatoeba_files(data: Path) -> FilesByPair:
    """Return the files of DATA/tatoeba/v1 in the order of their names."""
    return _find_files(data, "tatoeba/v1", "*", _TATOEBA, ("tatoeba.XXX-eng.{XXX,eng}", "tatoeba.XXX-YYY.XXX"))


def find_bucc_files(data: Path) -> FilesByPair:
    """Return the files of DATA/bucc2018 in the order of their names."""
    return _find_files(data, "bucc2018", "*", _BUCC, ("zh-en.dev.{zh,en,gold}", "zh-en.dev.zh"))


def find_word_alignment_files(data: Path) -> FilesByPair:
    """Return the texts and gold links of DATA/word-alignment in the order of their names."""
    names = ("PAIR/PAIR.{src-tgt,gold}", "PAIR/PAIR.src-tgt")
    texts = _find_files(data, "word-alignment", "*/*.src-tgt*", _GOLD, names)
    for files in texts.values():
        stems = [(file.parent, file.name[: file.name.index(".src-tgt")]) for file in files]
        files += [gold for parent, stem in stems for gold in sorted(parent.glob(f"{stem}.gold*"))]
    return texts


# Training-free tasks with the function that finds their files. FLORES has pairs of any two languages, and finds those
# without English on request only.
TRAINING_FREE_TASKS: dict[str, Callable[[Path, Sequence[str] | None], FilesByPair]] = {
    "tatoeba": lambda data, _: find_tatoeba_files(data),
    FLORES: find_flores_files,
    "bucc2018": lambda data, _: find_bucc_files(data),
    "word-alignment": lambda data, _: find_word_alignment_files(data),
}
TRANSLATION = "translation"  # task of translators, scored by direction


def check_finetuning_task(task: str) -> None:
    """Raise BadInput if the task does not exist or needs no fine-tuning."""
    if task in TRAINING_FREE_TASKS:
        raise BadInput(f"task={task}: needs no fine-tuning. Score the model with crossling evaluate.")
    check_task(task, [*DATASETS, TRANSLATION])


def parse_pair_name(name: str) -> str:
    """Normalize the name of a language pair: `deen` and `deu-eng` become `de-en`."""
    codes = name.split("-") if "-" in name else [name[: len(name) // 2], name[len(name) // 2 :]]
    if len(codes) != 2 or not all(codes):
        raise BadInput(f"{name!r}: not a language pair. Rename the file to a name such as deen or qaa-qab.")
    return "-".join(canonical_code(code) for code in codes)


def find_task_files(task: str, data: Path, languages: Sequence[str] | None) -> FilesByPair:
    """Return the files of a training-free task, of some languages or of all."""
    return select_pairs(TRAINING_FREE_TASKS[task](data, languages), languages, data / task)


def available_languages(task: str, data: Path, languages: Sequence[str]) -> set[str]:
    """Return the names that select files of a training-free task. FLORES has those of the requested pairs too."""
    return language_names(TRAINING_FREE_TASKS[task](data, languages))


def select_pairs(files: FilesByPair, languages: Sequence[str] | None, where: object) -> FilesByPair:
    """Return the pairs that are among the languages, or have one of them as a side. All if `languages` is None."""
    if languages is None:
        return files
    known = language_names(files)
    requested = {language: normalize_language(language, known) for language in languages}
    for language, name in requested.items():
        if name not in known:
            raise BadInput(f"{where}: no files of language {language!r}{suggestion(language, known)}")
    return {name: paths for name, paths in files.items() if {*requested.values()} & language_names([name])}


def language_names(pairs: Iterable[str]) -> set[str]:
    """Return all names that select files: the pairs and both of their sides."""
    return {name for pair in pairs for name in (pair, *_sides(pair))}


def _sides(pair: str) -> list[str]:
    """Return the two languages of `de-en` or `zh-Hant-en`."""
    parts = pair.split("-")
    splits = (("-".join(parts[:end]), "-".join(parts[end:])) for end in range(1, len(parts)))
    return next(([*sides] for sides in splits if all(map(find_code, sides))), parts)


def normalize_language(language: str, known: Iterable[str]) -> str:
    """Return a language or pair in canonical codes: `deu-eng` becomes `de-en`. Known names stay as they are."""
    if language in known:
        return language
    code = find_code(language)
    if code and code in known:
        return code
    try:
        return "-".join(canonical_code(code) for code in _sides(language))
    except BadInput:
        return language


def _find_files(
    data: Path, name: str, pattern: str, expression: re.Pattern[str], names: tuple[str, str]
) -> FilesByPair:
    """Return the files by pair. `names` describes all files and one file in error messages."""
    folder = data / name
    if not folder.is_dir():
        hint = data_folder_hint(data, [str(folder.relative_to(data))])
        raise BadInput(f"{folder}: no such folder.{hint or f' Put the files {names[0]} there.'}")
    by_pair: FilesByPair = {}
    for file in sorted(folder.glob(pattern)):
        match = expression.fullmatch(file.name)
        if match:
            by_pair.setdefault(_pair_name(match["pair"]), []).append(file)
    if not by_pair:
        raise BadInput(f"{folder}: no files named {names[1]}. Put the benchmark there.")
    return by_pair


def _pair_name(pair: str) -> str:
    try:
        return parse_pair_name(pair)
    except BadInput:  # reported when the file is read, if ever
        return pair
