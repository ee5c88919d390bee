"""`crossling clean`: corpora without the rows that the chosen rules name, as a new folder of corpora.

    CLEANED/ text/sw.txt.gz  pairs/NAME.en-fr.tsv.gz  multi/NAME/sw.txt.gz  cleaning.json

The three folders appear when everything is done; until then all work lies in .parts, where it goes on after an
interruption and where shares of it on several machines meet. Of a multi-way set a cell is blanked, never a row removed.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from crossling.corpora.corpus import Corpora, MultiWay, Text
from crossling.disk import new_folder, write_json
from crossling.errors import BadInput
from crossling.quality.look import ENTRY, entry, is_done, key_of
from crossling.quality.rules import TOO_FEW_PAIRS, Rules
from crossling.quality.survey import PARTS, Part, Stage, Survey, by_language, finish
from crossling.quality.units import Unit
from crossling.tasks import Share

REPORT = "cleaning.json"
KINDS = ("text", "pairs", "multi")
PACKED = "cleaned.gz"
ALONE = "no other language left"  # of a multi-way set
CHOICE = (
    "--length, --ratio, --copies, --near-copies, --duplicates, --near-duplicates, --language, --many-to-one, "
    "--min-pairs, --against, or --all for all but the last two"
)


def clean(
    corpora: Corpora, out: Path, rules: Rules, workers: int = 1, share: Share | None = None
) -> dict[str, Any] | None:
    """Drops what the rules name and reports it. Restartable; None when other shares have to be done first."""
    if not rules:
        raise BadInput(f"no rule is chosen, so nothing would be dropped: choose of {CHOICE}")
    survey = Survey(corpora, rules, True, out)
    known = _earlier(survey, out)
    if known:
        return known
    settled = Part("settled", survey.place / "settled", partial(_settle, survey))
    writing = [Part(unit.name, _written(survey, unit), partial(_write, survey, unit)) for unit in survey.units]
    if not finish([*survey.stages(), Stage("settle", [settled]), Stage("write", writing)], workers, share):
        return None
    report = _publish(survey, out)
    if share is None:
        shutil.rmtree(out / PARTS)
    return report


def _earlier(survey: Survey, out: Path) -> dict[str, Any] | None:
    """The report, if this cleaning is there already; BadInput for a folder that holds anything but an earlier one."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out}: this is a file; give a folder for the cleaned corpora")
    there = {entry.name for entry in out.iterdir()} if out.is_dir() else set()
    if REPORT not in there:
        if there and PARTS not in there:
            raise BadInput(f"{out} is not empty and holds no cleaned corpora: give another -o folder")
        return None
    try:
        known: dict[str, Any] = json.loads((out / REPORT).read_text(encoding="utf-8"))
        key, sources, files = known["key"], known["sources"], dict(known["files"])
    except (ValueError, TypeError, KeyError):
        raise BadInput(f"{out / REPORT} is no report of crossling clean: give another -o folder") from None
    found = {file for kind in KINDS for file in (out / kind).rglob("*") if file.is_file()}
    strange = found - {out / name for name in files}
    if strange:
        raise BadInput(f"{min(strange)} was not written by crossling clean: move it away, or give another -o folder")
    if sources != survey.sources(read=False):
        raise BadInput(f"{out} holds other corpora, cleaned: give another -o folder")
    whole = all((out / name).is_file() and (out / name).stat().st_size == size for name, size in files.items())
    return known if whole and key == survey.key(sources) else None


# ---- which corpora stay -------------------------------------------------------------------------------------


def too_few(pairs: dict[tuple[str, str], int], fewest: int) -> dict[str, int]:
    """Languages with fewer pairs than that, and how many they have; repeated, as each that goes takes pairs along."""
    gone: dict[str, int] = {}
    while True:
        counts: Counter[str] = Counter()
        for languages, count in pairs.items():
            if not gone.keys() & set(languages):
                for language in languages:
                    counts[language] += count
        new = {language: count for language, count in counts.items() if count < fewest}
        if not new:
            return gone
        gone |= new


def _settle(survey: Survey) -> None:
    """Writes which units go as a whole, and why."""
    folder = survey.place / "settled"
    judged = [entry(survey.judged(group)) for group in survey.groups]
    key = key_of([one["key"] for one in judged])
    if is_done(folder, key):
        return
    kept = {name: row["kept"] for one in judged for name, row in one["units"].items()}
    pairs = survey.pair_counts(kept=True)
    few = too_few(pairs, survey.rules.min_pairs) if survey.rules.min_pairs else {}
    gone = {unit.name: "" for unit in survey.units if not kept[unit.name]}
    for unit in survey.units:
        if unit.kind != "text" and few.keys() & set(unit.languages) and unit.name not in gone:
            gone[unit.name] = TOO_FEW_PAIRS
    left = Counter(unit.collection for unit in survey.units if unit.name not in gone)
    for unit in survey.units:
        if unit.kind == "multi" and left[unit.collection] == 1 and unit.name not in gone:
            gone[unit.name] = ALONE
    if len(gone) == len(survey.units):
        raise BadInput(f"{survey.corpora.path}: the rules leave nothing at all; choose fewer or looser ones")
    totals: Counter[str] = Counter()
    for (a, b), count in pairs.items():
        totals.update({language: count for language in (a, b) if not few.keys() & {a, b}})
    with new_folder(folder) as new:
        write_json(new / ENTRY, {"key": key, "gone": gone, "few": few, "pairs": dict(sorted(totals.items()))})


# ---- writing ------------------------------------------------------------------------------------------------


def _written(survey: Survey, unit: Unit) -> Path:
    return survey.place / "written" / unit.name


def _write(survey: Survey, unit: Unit) -> None:
    """The rows of one unit that are kept, packed."""
    settled, folder = entry(survey.place / "settled"), _written(survey, unit)
    key = key_of(settled["key"], unit.name)
    if is_done(folder, key):
        return
    if unit.digest() != entry(survey.look(unit))["digest"]:
        raise BadInput(f"{unit.name} of {survey.corpora.path} has changed while it was cleaned: run the command again")
    with new_folder(folder) as new:
        if unit.name not in settled["gone"]:
            _pack(new / PACKED, _kept_lines(unit, survey.reasons(unit) == 0))
        write_json(new / ENTRY, {"key": key})


def _pack(file: Path, lines: Iterable[str]) -> None:
    """Compressed without name and time of day, which would make equal text differ."""
    with file.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
        for number, line in enumerate(lines):
            # The reader takes one byte order mark off a file; one that belongs to the text must stay.
            mark = "\ufeff" if number == 0 and line.startswith("\ufeff") else ""
            packed.write(f"{mark}{line}\n".encode())


def _kept_lines(unit: Unit, kept: np.ndarray) -> Iterator[str]:
    if isinstance(unit.corpus, Text):
        yield from _kept_documents(unit.corpus, kept)
        return
    for (line, other), stays in zip(unit.rows(), kept.tolist(), strict=True):
        if isinstance(unit.corpus, MultiWay):
            yield line if stays else ""
        elif stays:
            yield f"{line}\t{other}"


def _kept_documents(text: Text, kept: np.ndarray) -> Iterator[str]:
    start = written = 0
    for document in text.documents():
        stays = kept[start : start + len(document)].tolist()
        start += len(document)
        lines = [line for line, stay in zip(document, stays, strict=True) if stay]
        if lines and written:
            yield ""
        yield from lines
        written += len(lines)


def _publish(survey: Survey, out: Path) -> dict[str, Any]:
    """Moves everything to its place, the report last."""
    settled = entry(survey.place / "settled")
    files = {}
    (out / REPORT).unlink(missing_ok=True)  # it would describe the new folders wrongly
    for kind in KINDS:
        staying = [unit for unit in survey.units if unit.kind == kind and unit.name not in settled["gone"]]
        if not staying:
            shutil.rmtree(out / kind, ignore_errors=True)
            continue
        with new_folder(out / kind) as new:
            for unit in staying:
                name = f"{unit.name}.{'tsv' if kind == 'pairs' else 'txt'}.gz"
                place = new / Path(name).relative_to(kind)
                place.parent.mkdir(parents=True, exist_ok=True)
                _link(_written(survey, unit) / PACKED, place)
                files[name] = place.stat().st_size
    report = _report(survey, settled, files)
    write_json(out / REPORT, report)
    return report


def _link(file: Path, place: Path) -> None:
    try:
        os.link(file, place)
    except OSError:  # not on every file system
        shutil.copyfile(file, place)


def _report(survey: Survey, settled: dict[str, Any], files: dict[str, int]) -> dict[str, Any]:
    sources = survey.sources(read=True)
    findings = survey.findings()
    for row in findings:
        reason = settled["gone"].get(row["corpus"])
        if reason:
            row["reasons"][reason] = row["kept"]
            row["kept"] = 0
    return {
        "key": survey.key(sources),
        "sources": sources,
        "rules": survey.rules.to_json(),
        "corpora": findings,
        "languages": by_language(findings),
        "pairs": settled["pairs"],
        "gone": {name: reason or "nothing kept" for name, reason in settled["gone"].items()},
        "languages with too few pairs": settled["few"],
        "benchmarks": survey.benchmarks(),
        "files": files,
    }
