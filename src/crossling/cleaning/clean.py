"""Write corpora without the rows that the chosen rules find, as a new folder of corpora (`crossling clean`).

    CLEANED/ text/sw.txt.gz  pairs/NAME.en-fr.tsv.gz  multi/NAME/sw.txt.gz  cleaning.json

The three folders appear when everything is done. Until then all work is in .partial, where an interrupted call resumes
and where several machines share the work. In a multi-way corpus a line is blanked, and no row is removed.
"""

from __future__ import annotations

import gzip
import os
import shutil
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from crossling.cleaning.corpus_parts import CorpusPart
from crossling.cleaning.rules import TOO_FEW_PAIRS, Rules
from crossling.cleaning.stored_arrays import CLEANING_FORMAT, open_array, stored_entry, stored_key
from crossling.cleaning.survey import CorpusSurvey, read_report, slice_name, sum_by_language
from crossling.core.errors import BadInput
from crossling.core.files import append_file, atomic_folder, link_or_copy, write_json
from crossling.core.jobs import Job, Share, run_jobs
from crossling.core.locks import output_lock
from crossling.core.resumable import PARTS_FOLDER, check_output_folder, is_finished, write_finished_folder
from crossling.corpora.corpus import Corpora, MonolingualCorpus, MultiwayCorpus, open_corpora
from crossling.corpora.languages import small_languages
from crossling.corpora.scored_rows import has_scores
from crossling.corpora.text_files import TextFile

REPORT = "cleaning.json"
KINDS = ("text", "pairs", "multi")
CLEANED_FILE = "cleaned.gz"
MAX_LISTED = 3  # files in a message
LINES_PER_BLOCK = 512  # compressed in one call
ROWS_AT_ONCE = 1 << 20
ONLY_LANGUAGE = "no other language left"  # reason to remove the last language of a multi-way corpus


def clean(
    corpora: Corpora | str | os.PathLike[str],
    out: str | os.PathLike[str],
    rules: Rules | None = None,
    *,
    workers: int = 1,
    share: Share | None = None,
) -> dict[str, Any] | None:
    """Drop the rows that the rules find, and report them. An interrupted call resumes.

    Args:
        corpora: Corpora to clean, or their folder. They are not changed.
        out: Folder for the cleaned corpora and the report cleaning.json.
        rules: Rules to apply. At least one is needed.
        workers: Worker processes.
        share: Do only this share of the work. All machines use the same `out`.

    Returns:
        The report, or None if another share is missing or another machine completes the work.

    Raises:
        BadInput: If no rule is chosen, if nothing is left, or if `out` has other content.

    Example:
        >>> report = xl.clean("corpora", "cleaned", xl.Rules(duplicates=True))
        >>> report["corpora"][0]["kept"]
        50917
    """
    if not rules:
        names = ", ".join(field.name for field in fields(Rules))
        raise BadInput(
            f"rules: none is chosen, so nothing would be dropped. Choose from {names}: in Python"
            " Rules(duplicates=True), on the command line --duplicates or --all."
        )
    out, corpora = Path(out), open_corpora(corpora)
    if rules.min_score is not None:
        corpora = corpora.with_min_score(rules.min_score)
    survey = CorpusSurvey(corpora, rules, True, out)
    if report := _find_finished(survey, out):
        return report
    if rules.min_score is not None:
        _report_files_without_scores(corpora, rules.min_score)
    with output_lock(out, share.label if share else ""):
        return _clean(survey, out, workers, share)


def _report_files_without_scores(corpora: Corpora, min_score: float) -> None:
    sources = [source for corpus in corpora.pairs for source in corpus.sources]
    without = [source.name for source in sources if not (isinstance(source, TextFile) and has_scores(source))]
    if without:
        listed = ", ".join(without[:MAX_LISTED]) + (", ..." if len(without) > MAX_LISTED else "")
        warnings.warn(
            f"min_score={min_score:g}: {len(without)} of {len(sources)} files of pairs have no scores and keep all"
            f" their pairs ({listed})",
            stacklevel=3,
        )


def _clean(survey: CorpusSurvey, out: Path, workers: int, share: Share | None) -> dict[str, Any] | None:
    if not survey.scan(workers, share):
        return None
    with survey.completion_lock(share) as is_alone:
        if not is_alone:
            return None
        survey.find_reasons(workers)
        _select_parts(survey)
        write = [
            Job(slice_name(part, number), partial(_write_slice, survey, part, number))
            for part in survey.parts
            for number in range(part.slices)
        ]
        run_jobs("write", write, workers)
        report = _publish(survey, out)
    if share is None:
        shutil.rmtree(out / PARTS_FOLDER)
    return report


def _find_finished(survey: CorpusSurvey, out: Path) -> dict[str, Any] | None:
    """Return the report of the same cleaning, if there is one. Refuse a folder with other content."""
    check_output_folder(out, holds=[REPORT, PARTS_FOLDER], command="crossling clean")
    if not (out / REPORT).exists():
        return None
    report = read_report(out / REPORT, "crossling clean", "key", "sources", "files")
    files = {out / name: size for name, size in report["files"].items()}
    foreign = {file for kind in KINDS for file in (out / kind).rglob("*") if file.is_file()} - files.keys()
    if foreign:
        raise BadInput(f"{min(foreign)}: not written by crossling clean. Move it, or give a new or an empty folder.")
    if report["sources"] != survey.current_sources():
        raise BadInput(
            f"{out}: has cleaned text of other corpora, or of another min_score. Give a new or an empty folder."
        )
    is_complete = all(file.is_file() and file.stat().st_size == size for file, size in files.items())
    return report if is_complete and report["key"] == survey.key(report["sources"]) else None


# ---- selection of corpora ------------------------------------------------------------------------------------


def _selection_folder(survey: CorpusSurvey) -> Path:
    return survey.folder / "selection"


def _select_parts(survey: CorpusSurvey) -> None:
    """Write which parts are removed as a whole, and why."""
    results = [stored_entry(survey.reasons_folder(group)) for group in survey.groups]
    key = stored_key([result["key"] for result in results])
    if is_finished(_selection_folder(survey), key):
        return
    kept = {name: row["kept"] for result in results for name, row in result["parts"].items()}
    pairs = survey.pair_counts(is_kept=True)
    small = small_languages(pairs, survey.rules.min_pairs) if survey.rules.min_pairs else {}
    removed = {part.name: "" for part in survey.parts if not kept[part.name]}
    for part in survey.parts:
        if part.kind != "text" and small.keys() & set(part.languages) and part.name not in removed:
            removed[part.name] = TOO_FEW_PAIRS
    languages = Counter(part.collection for part in survey.parts if part.name not in removed)
    for part in survey.parts:
        if part.kind == "multi" and languages[part.collection] == 1 and part.name not in removed:
            removed[part.name] = ONLY_LANGUAGE
    if len(removed) == len(survey.parts):
        raise BadInput(f"{survey.corpora.path}: the rules drop every row. Choose fewer or looser rules.")
    totals: Counter[str] = Counter()
    for languages_of_pair, count in pairs.items():
        if small.keys().isdisjoint(languages_of_pair):
            totals.update(dict.fromkeys(languages_of_pair, count))
    with write_finished_folder(_selection_folder(survey), key) as (_, entry):
        entry |= {"removed": removed, "small_languages": small, "pairs": dict(sorted(totals.items()))}


# ---- writing -------------------------------------------------------------------------------------------------


def _cleaned_folders(survey: CorpusSurvey, part: CorpusPart) -> list[Path]:
    return [survey.folder / "cleaned" / part.name / f"{number}" for number in range(part.slices)]


def _write_slice(survey: CorpusSurvey, part: CorpusPart, number: int) -> None:
    """Write the kept rows of one slice of a part, compressed."""
    selection, folder = stored_entry(_selection_folder(survey)), _cleaned_folders(survey, part)[number]
    key = stored_key(selection["key"], part.name, number)
    if is_finished(folder, key):
        return
    plan, scans = part.plan(survey.plans), survey.scan_folders(part)
    if plan.sources != stored_entry(scans[number])["sources"]:
        raise BadInput(f"{part.name} changed during the cleaning. Run the same command again.")
    with write_finished_folder(folder, key) as (new, entry):
        if part.name not in selection["removed"]:
            *before, rows = (len(open_array(scan, "flags")) for scan in scans[: number + 1])
            start, reasons = sum(before), survey.reasons(part)
            is_kept = _is_kept(reasons[start : start + rows])
            lines = _kept_lines(part.slice(number, plan), is_kept, entry)
            _compress(new / CLEANED_FILE, lines, is_start=not any(_is_kept(reasons[:start])))


def _is_kept(reasons: np.ndarray) -> Iterator[bool]:
    """Iterate over the rows of a mapped array without a list of all."""
    for start in range(0, len(reasons), ROWS_AT_ONCE):
        yield from (reasons[start : start + ROWS_AT_ONCE] == 0).tolist()


def _compress(file: Path, lines: Iterator[str], is_start: bool) -> None:
    """Write gzip without name and time, so that equal text gives equal bytes."""
    with file.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
        while block := list(islice(lines, LINES_PER_BLOCK)):
            # The reader removes one byte order mark from a file. A mark that belongs to the text must stay.
            mark = "\ufeff" if is_start and block[0].startswith("\ufeff") else ""
            is_start = False
            packed.write((mark + "\n".join(block) + "\n").encode())


def _kept_lines(part: CorpusPart, is_kept: Iterator[bool], entry: dict[str, Any]) -> Iterator[str]:
    if isinstance(part.corpus, MonolingualCorpus):
        return _kept_text(part.corpus, is_kept, entry)
    rows = zip(part.rows(), is_kept, strict=True)
    if isinstance(part.corpus, MultiwayCorpus):
        return (line if keep else "" for (line, _), keep in rows)
    return (f"{line}\t{other}" for (line, other), keep in rows if keep)


def _kept_text(text: MonolingualCorpus, is_kept: Iterator[bool], entry: dict[str, Any]) -> Iterator[str]:
    """Yield kept lines, with an empty one between documents. The entry stores whether a document ends before
    or after them."""
    is_break = has_lines = False
    entry |= {"starts_document": False}
    for line in text.lines():
        if not line:
            is_break = True
        elif next(is_kept):
            if not has_lines:
                entry["starts_document"] = is_break
            elif is_break:
                yield ""
            is_break, has_lines = False, True
            yield line
    entry |= {"has_lines": has_lines, "ends_document": is_break}


def _publish(survey: CorpusSurvey, out: Path) -> dict[str, Any]:
    """Link everything to its final name, the report last."""
    selection = stored_entry(_selection_folder(survey))
    files = {}
    (out / REPORT).unlink(missing_ok=True)  # it would describe the new folders wrongly
    for kind in KINDS:
        parts = [part for part in survey.parts if part.kind == kind and part.name not in selection["removed"]]
        if not parts:
            shutil.rmtree(out / kind, ignore_errors=True)
            continue
        with atomic_folder(out / kind) as new:
            for part in parts:
                name = f"{part.name}.{'tsv' if kind == 'pairs' else 'txt'}.gz"
                target = new / Path(name).relative_to(kind)
                target.parent.mkdir(parents=True, exist_ok=True)
                _join_slices(_cleaned_folders(survey, part), target)
                files[name] = target.stat().st_size
    report = _create_report(survey, selection, files)
    write_json(out / REPORT, report)
    return report


def _join_slices(folders: Sequence[Path], target: Path) -> None:
    """Concatenate compressed slices, with an empty line where a document ends between two of them."""
    if len(folders) == 1:
        link_or_copy(folders[0] / CLEANED_FILE, target)
        return
    has_lines = is_break = False
    with target.open("wb") as joined:
        for folder in folders:
            entry = stored_entry(folder)
            is_break |= entry.get("starts_document", False)
            if entry.get("has_lines", True):
                if has_lines and is_break:
                    joined.write(gzip.compress(b"\n", mtime=0))
                has_lines, is_break = True, False
                with (folder / CLEANED_FILE).open("rb") as cleaned:
                    append_file(cleaned, joined)
            is_break |= entry.get("ends_document", False)


def _create_report(survey: CorpusSurvey, selection: dict[str, Any], files: dict[str, int]) -> dict[str, Any]:
    sources = survey.scanned_sources()
    findings = survey.findings()
    for row in findings:
        if reason := selection["removed"].get(row["corpus"]):
            row["reasons"][reason], row["kept"] = row["kept"], 0
    return {
        "format": CLEANING_FORMAT,
        "key": survey.key(sources),
        "sources": sources,
        "rules": survey.rules.to_json(),
        "corpora": findings,
        "languages": sum_by_language(findings),
        "pairs": selection["pairs"],
        "removed": {name: reason or "nothing kept" for name, reason in selection["removed"].items()},
        "languages with too few pairs": selection["small_languages"],
        "benchmarks": survey.contamination(),
        "files": files,
    }
