"""FLORES-200 and FLORES+: the same sentences in more than 200 languages, in the files of their releases.

The folder of a release has `dev` and `devtest`. FLORES-200 has lines of text in `devtest/eng_Latn.devtest`. FLORES+ has
the columns `id` and `text` in `devtest/eng_Latn.parquet` or `.jsonl`, and in older archives lines of text in
`devtest/devtest.eng_Latn`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from crossling.core.errors import BadInput
from crossling.corpora.languages import find_code
from crossling.corpora.records import read_parquet
from crossling.corpora.text_files import SkipReason
from crossling.tasks.readers import get_text, read_json_lines, read_lines

DEV, DEVTEST = "dev", "devtest"
PIVOT = "en"
ROOTS = "flores*"  # names of the folder of a release
EXPECTED = "flores200_dataset/devtest/LL_Script.devtest or flores_plus/devtest/LL_Script.parquet"
_CODE = r"(?P<code>[a-z]{3}_[A-Z][a-z]{3}(_[a-z0-9]+)?)"
_RETIRED = {"ajp_Arab": "ajp"}  # South Levantine Arabic: ISO 639-3 has merged it into apc, which is another file
_FILE = re.compile(
    rf"{_CODE}\.(devtest|dev|parquet|jsonl)(\.gz)?|(devtest|dev)\.{_CODE.replace('code', 'suffix')}(\.gz)?"
)

FilesByLanguage = dict[str, Path]


def find_release(data: Path) -> Path | None:
    """Return the folder of a release: `data` itself or a folder in it. None if there is none."""
    roots = [
        folder
        for folder in (data, *sorted(data.glob(ROOTS)))
        if any(release_files(folder, split) for split in (DEVTEST, DEV))
    ]
    if len(roots) > 1:
        names = ", ".join(root.name for root in roots)
        raise BadInput(f"{data}: several releases of FLORES ({names}). Keep one of them: some of their texts differ.")
    return roots[0] if roots else None


def find_flores_files(data: Path, languages: Sequence[str] | None = None) -> dict[str, list[Path]]:
    """Return the two files of each pair with English, and of the pairs that `languages` names, such as `de-fr`.

    The files are those of devtest, or of dev if the release has only that.
    """
    split = scored_split(data)
    files = release_files(find_release(data) or data, split)
    pairs = [(code, PIVOT) for code in files if code != PIVOT and PIVOT in files]
    for name in languages or ():
        sides = _split_pair(name, files)
        if sides and PIVOT not in sides:
            pairs.append(sides)
    if not pairs:
        raise BadInput(f"{data}: FLORES has no pair with English here. Add eng_Latn, or request a pair such as de-fr.")
    return {"-".join(pair): [files[code] for code in pair] for pair in dict.fromkeys(pairs)}


def scored_split(data: Path) -> str:
    """Return the split to score on: devtest, or dev if the release has only that."""
    root = find_release(data)
    if root is None:
        raise BadInput(f"{data}: no FLORES here. Expected {EXPECTED}.")
    return DEVTEST if release_files(root, DEVTEST) else DEV


def release_files(root: Path, split: str) -> FilesByLanguage:
    """Return the files of a split of a release by language. May be empty."""
    found: FilesByLanguage = {}
    for file in sorted((root / split).glob("*")):
        code = flores_language(file)
        if not code:
            continue
        if code in found:
            raise BadInput(f"{file}: the same language as {found[code].name}. Keep one of them.")
        found[code] = file
    return found


def flores_language(file: Path) -> str:
    """Return the language of a file by its name. Empty for other files."""
    match = _FILE.fullmatch(file.name)
    if not match:
        return ""
    code = match["code"] or match["suffix"]
    return find_code(code) or _RETIRED.get(code, "")


def _split_pair(name: str, known: FilesByLanguage) -> tuple[str, str] | None:
    """Return the two languages of `de-fr`, `deu_Latn-fra_Latn` or `zh-Hant-fr`. None if it is not a known pair."""
    parts = name.split("-")
    for end in range(1, len(parts)):
        first, second = (find_code("-".join(side)) for side in (parts[:end], parts[end:]))
        if first in known and second in known and first != second:
            return str(first), str(second)
    return None


def read_flores(file: Path) -> list[str]:
    """Return the sentences of a file. Their order is the same in all languages."""
    file = file.with_name(file.name.removesuffix(".gz"))
    if file.suffix == ".parquet":
        return _check_order(file, [*_parquet_rows(file)])
    if file.suffix == ".jsonl":
        rows = ((f"{file}: line {line}", record) for line, record in read_json_lines(file))
        return _check_order(file, [(get_text(where, row, "id"), get_text(where, row, "text")) for where, row in rows])
    return _check_sentences(file, [line.strip() for line in read_lines(file)])


def _parquet_rows(file: Path) -> list[tuple[str, str]]:
    rows = []
    for number, record in enumerate(read_parquet(file, ("id", "text").__contains__), start=1):
        where = f"{file}: row {number}"
        if isinstance(record, SkipReason):
            raise BadInput(f"{where}: cannot be read ({record.value}). Download the file again.")
        rows.append((get_text(where, record, "id"), get_text(where, record, "text")))
    return rows


def _check_order(file: Path, rows: list[tuple[str, str]]) -> list[str]:
    """Return the sentences in the order of their ids, which are numbers."""
    if not all(name.isdecimal() for name, _ in rows) or len({name for name, _ in rows}) < len(rows):
        raise BadInput(f"{file}: the column 'id' does not have one number per sentence. Download the file again.")
    ordered = sorted((int(name), text.strip()) for name, text in rows)
    return _check_sentences(file, [text for _, text in ordered])


def _check_sentences(file: Path, sentences: list[str]) -> list[str]:
    for number, sentence in enumerate(sentences, start=1):
        if not sentence:
            raise BadInput(f"{file}: sentence {number} is empty. Download the file again.")
    return sentences
