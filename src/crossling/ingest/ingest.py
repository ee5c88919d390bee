"""Make corpora from files as people have them, with a report of what was read, changed and skipped.

    CORPORA/ text/sw.txt  pairs/NAME.en-sw.tsv  multi/NAME/en.txt  ingest.json

A row comes out as it is in the file, apart from characters that are written in another way, or it is counted under the
reason to skip it. The output is replaced as a whole. A later call adds to it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from crossling.core.errors import BadInput
from crossling.core.files import atomic_folder, check_format, read_json, write_json
from crossling.core.locks import output_lock
from crossling.core.progress import track
from crossling.core.resumable import check_output_folder, file_fingerprint, fingerprint
from crossling.corpora.languages import canonical_code, parse_pair
from crossling.corpora.text_files import SkipReason, clean_line, is_too_long
from crossling.ingest.columns import LanguageRequest
from crossling.ingest.corpora_writer import CorporaWriter, corpus_files
from crossling.ingest.delimited import Cells
from crossling.ingest.encodings import has_surrogates
from crossling.ingest.entities import decode_entities
from crossling.ingest.file_readers import Reading, read_file, read_sides
from crossling.ingest.inputs import InputGroup, plan_inputs

REPORT = "ingest.json"
REPORT_FORMAT = 1
ENTITIES, MARKS = "HTML entities", "byte order marks"  # changes, counted by rows


def ingest(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    language: str | None = None,
    pair: str | None = None,
    columns: Sequence[str | int] = (),
    encoding: str | None = None,
) -> dict[str, Any]:
    """Make a folder of corpora from documents, spreadsheets, tables and text files of any encoding.

    Files that were named are refused if they cannot be read. In a folder they are skipped with a note. An existing
    output is extended. Files that are in it already are not read again.

    Args:
        files: Files, and folders of which every file is read.
        out: Folder for the corpora and the report ingest.json.
        language: Language of the text. [default: by file names and headers]
        pair: Languages of translations, such as `en-sw`. [default: by file names and headers]
        columns: Names or numbers (from 1) of the columns of a table, in the order of the languages.
        encoding: Codec of the text files, such as `cp1251`. [default: found by reading each file]

    Returns:
        Report with the rows read, written and skipped of each file, and the files that were skipped.

    Raises:
        BadInput: If a file cannot be read, its languages or columns are not certain, or no text is left.

    Example:
        >>> report = xl.ingest(["news.docx", "glossary.xlsx"], "corpora", language="sw")
        >>> report["files"][0]["written"]
        412
    """
    if language and pair:
        raise BadInput("language and pair: both are given. Give the language of text, or the pair of translations.")
    languages = parse_pair(pair) if pair else (canonical_code(language),) if language else ()
    request = LanguageRequest(languages, tuple(map(str, columns)))
    out = Path(out)
    check_output_folder(out, holds=[REPORT], command="crossling ingest")
    paths = [files] if isinstance(files, str | os.PathLike) else list(files)
    if not paths:
        raise BadInput("files: none are given. Give files, or folders with files.")
    plan = plan_inputs(paths, request, out)
    with output_lock(out):
        job = _Ingestion(out, request, encoding)
        with atomic_folder(out) as new:
            writer = CorporaWriter(new, out)
            for group in track("ingest", plan.groups, lambda group: str(group.files[0].path)):
                job.add(group, writer)
            report = job.report(plan.skipped)
            if not any(entry["written"] for entry in report["files"]):
                raise BadInput(f"{paths[0]}: no text to write{_first_reason(report)}. Give files with text.")
            writer.finish()
            write_json(new / REPORT, report)
    return report


class _Ingestion:
    """One call: its entries of the report, after those of earlier calls."""

    def __init__(self, out: Path, request: LanguageRequest, encoding: str | None) -> None:
        self.request, self.encoding = request, encoding
        earlier = _read_report(out / REPORT) if out.exists() else {}
        self.entries: list[dict[str, Any]] = list(earlier.get("files", []))
        self.skipped: dict[str, str] = {}
        self.notes: list[str] = []

    def report(self, skipped: dict[str, str]) -> dict[str, Any]:
        """Return the report."""
        return {
            "format": REPORT_FORMAT,
            "files": self.entries,
            "skipped files": skipped | self.skipped,
            "notes": self.notes,
        }

    def add(self, group: InputGroup, writer: CorporaWriter) -> None:
        """Read a group and write its rows. If a file in a folder cannot be read, note why."""
        try:
            self._add(group, writer)
        except BadInput as error:
            if group.is_explicit:
                raise
            reason = str(error).removeprefix(f"{group.files[0].path}: ")
            self.skipped.update(dict.fromkeys((str(file.path) for file in group.files), reason))

    def _add(self, group: InputGroup, writer: CorporaWriter) -> None:
        digests = [file_fingerprint(file.path) for file in group.files]
        if self._is_known(group, digests):
            return
        if len(group.files) == 1:
            [file] = group.files
            readings = read_file(file.path, file.ending, group.request, self.encoding)
        else:
            try:
                paths = [file.path for file in group.files]
                readings = iter([read_sides(paths, group.request.languages, self.encoding)])
            except BadInput as error:
                if self.request.languages:
                    raise
                self.notes.append(f"{error} They are read as text, not as translations.")
                for file in group.files:
                    self.add(InputGroup((file,), "", replace(group.request, languages=file.hint.languages)), writer)
                return
            self.notes.append(f"{' and '.join(map(str, paths))}: read as translations, line by line.")
        kind = group.files[0].ending
        entry = {
            "files": [str(file.path) for file in group.files],
            "digests": digests,
            "request": self._request_key(group),
            "format": kind if len(group.files) == 1 else "moses",
        }
        self._write(readings, entry, group, writer)

    def _write(
        self, readings: Iterator[Reading], entry: dict[str, Any], group: InputGroup, writer: CorporaWriter
    ) -> None:
        targets: dict[tuple[str, ...], tuple[str, ...]] = {}  # files of the output by languages
        new: list[dict[str, Any]] = []
        with writer.all_or_nothing():
            for reading in readings:
                languages, encoding = reading.languages, reading.encoding
                if languages not in targets:
                    targets[languages] = corpus_files(writer.new_name(group.name, languages), languages)
                counts = _RowCounts()
                with writer.open(targets[languages]) as handles:
                    counts.write(reading, handles)
                new.append(
                    entry
                    | ({"sheet": reading.sheet} if reading.sheet else {})
                    | ({"encoding": encoding.name, "line ends": encoding.line_ends} if encoding else {})
                    | {"languages": list(languages), "output": list(targets[languages])}
                    | counts.to_json()
                )
        self.entries += new

    def _is_known(self, group: InputGroup, digests: list[str]) -> bool:
        """Return True if an earlier entry has the same content. Refuse the same file with other content or options."""
        names = [str(file.path) for file in group.files]
        for entry in self.entries:
            if entry["files"] == names and entry["digests"] != digests:
                raise BadInput(f"{names[0]}: changed since it was added to the output. Give a new or an empty folder.")
            if entry["digests"] == digests:
                if entry["files"] == names and entry["request"] != self._request_key(group):
                    raise BadInput(f"{names[0]}: is in the output with other options. Give a new or an empty folder.")
                if entry["request"] == self._request_key(group):
                    if entry["files"] != names:
                        self.skipped.update(dict.fromkeys(names, f"same content as {entry['files'][0]}"))
                    return True
        return False

    def _request_key(self, group: InputGroup) -> str:
        return fingerprint([group.request.languages, group.request.columns, self.encoding])


class _RowCounts:
    """Rows of one reading: read, written, and skipped by reason."""

    def __init__(self) -> None:
        self.read = self.written = 0
        self.skipped: Counter[str] = Counter()
        self.changed: Counter[str] = Counter()
        self.first: list[str] = []  # the first row that was written

    def to_json(self) -> dict[str, Any]:
        """Return the counts for the report."""
        return {
            "read": self.read,
            "written": self.written,
            "skipped": dict(self.skipped.most_common()),
            "changed": dict(sorted(self.changed.items())),
            "first row": self.first,
        }

    def write(self, reading: Reading, handles: Sequence[IO[str]]) -> None:
        """Write the usable rows of a reading and count all of them."""
        if len(reading.languages) == 1:
            self._write_text(reading, handles[0])
            return
        for row in reading.rows:
            cells = self._clean(row)
            if cells is None:
                continue
            # In a multi-way corpus an empty line stands for a missing translation.
            if sum(map(bool, cells)) < 2:
                self._skip(SkipReason.EMPTY_SIDE)
                continue
            self._count_written(cells)
            if len(handles) == 1:
                handles[0].write("\t".join(cells) + "\n")
            else:
                for handle, cell in zip(handles, cells, strict=True):
                    handle.write(cell + "\n")

    def _write_text(self, reading: Reading, handle: IO[str]) -> None:
        is_open = False  # a document is being written
        ends_document = handle.tell() > 0
        for row in reading.rows:
            if row == [""] or (isinstance(row, list) and not row[0].strip()):
                ends_document, is_open = is_open or ends_document, False
                continue
            cells = self._clean(row)
            if cells is None:
                continue
            if not cells[0]:  # nothing but control characters
                self._skip(SkipReason.NO_TEXT)
                continue
            self._count_written(cells)
            handle.write(("\n" if ends_document else "") + cells[0] + "\n")
            ends_document, is_open = False, True

    def _clean(self, row: Cells | SkipReason) -> Cells | None:
        """Return the cells as they are written, or None for a row that is skipped."""
        self.read += 1
        if isinstance(row, SkipReason):
            self.skipped[row.value] += 1
            return None
        cells: Cells = []
        changes: set[str] = set()
        for cell in row:
            text = decode_entities(cell) if "&" in cell else cell
            changes.update([ENTITIES] if text != cell else [])
            if "\ufeff" in text[:1]:
                text = text.lstrip("\ufeff")
                changes.add(MARKS)
            reason = _find_fault(text)
            if reason:
                self.skipped[reason.value] += 1
                return None
            cells.append(clean_line(text))
        self.changed.update(changes)
        return cells

    def _skip(self, reason: SkipReason) -> None:
        self.skipped[reason.value] += 1

    def _count_written(self, cells: Cells) -> None:
        self.written += 1
        self.first = self.first or [cell[:100] for cell in cells]


def _find_fault(text: str) -> SkipReason | None:
    if text.isprintable() and "\ufffd" not in text and len(text) < 1 << 16:  # no surrogates either
        return None
    if has_surrogates(text):
        return SkipReason.MALFORMED
    if "\ufffd" in text:
        return SkipReason.DAMAGED_CHARACTER
    return SkipReason.TOO_LONG if is_too_long(text) else None


def _read_report(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    fix = "Give a new or an empty folder."
    try:
        report: dict[str, Any] = read_json(file)
        _ = [[*entry["files"], entry["digests"], entry["request"]] for entry in report["files"]]
    except (ValueError, TypeError, KeyError):
        raise BadInput(f"{file}: not a report of crossling ingest. {fix}") from None
    check_format(file, report.get("format"), REPORT_FORMAT, fix)
    return report


def _first_reason(report: dict[str, Any]) -> str:
    """Return the first reason why a file or a row was skipped."""
    for file, reason in report["skipped files"].items():
        return f" ({file}: {reason.rstrip('.')})"
    counts = [f"{reason}: {number:,}" for entry in report["files"] for reason, number in entry["skipped"].items()]
    return f" ({counts[0]})" if counts else ""
