"""Scan all corpora and apply the rules, and collect the findings for a report.

FOLDER/index/              benchmark sentences
       plan/PART.json      digest and slices of a part
       scan/PART/SLICE/    every slice, read once                 (the long stage)
       reasons/GROUP/      the reasons of every row
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from crossling.cleaning.apply_rules import REASONS_FILE, apply_rules
from crossling.cleaning.contamination import BenchmarkIndex, benchmark_fingerprint, build_index
from crossling.cleaning.corpus_parts import CorpusPart, corpus_parts
from crossling.cleaning.rules import BLANK, Rules
from crossling.cleaning.scan import scan_slice
from crossling.cleaning.stored_arrays import (
    CLEANING_FORMAT,
    cleaning_key,
    map_values,
    open_array,
    stored_entry,
    stored_key,
)
from crossling.core.errors import BadInput
from crossling.core.files import check_format, read_json
from crossling.core.jobs import Job, Share, run_jobs
from crossling.core.locks import lock_file
from crossling.core.resumable import PARTS_FOLDER, read_entry
from crossling.corpora import source_parts
from crossling.corpora.corpus import Corpora

ROWS_PER_CHUNK = 1 << 20  # fewer than 2^24, up to which 32-bit floats count exactly
BENCHMARK_EXAMPLES = 3
COMPLETION_LOCK = ".completion.lock"


@dataclass(frozen=True)
class CorpusSurvey:
    """Rules that are applied to all parts of the corpora."""

    corpora: Corpora
    rules: Rules
    drop: bool  # each rule sees only the rows that those before it keep
    out: Path

    @cached_property
    def folder(self) -> Path:
        """Folder of the stored results. Other rules, benchmarks or sizes of the sources have another one."""
        key = stored_key(self.rules.to_json(), self.benchmarks, {part.name: part.size() for part in self.parts})
        return self.out / PARTS_FOLDER / key

    @cached_property
    def benchmarks(self) -> str | None:
        """Fingerprint of the benchmarks at the start, if there are any."""
        return benchmark_fingerprint(self.rules.against) if self.rules.against else None

    @cached_property
    def parts(self) -> list[CorpusPart]:
        """All parts of the corpora."""
        return corpus_parts(self.corpora)

    @cached_property
    def groups(self) -> dict[str, list[CorpusPart]]:
        """Parts in which duplicates are searched together."""
        groups: dict[str, list[CorpusPart]] = {}
        for part in self.parts:
            groups.setdefault(part.group, []).append(part)
        return groups

    @property
    def index_folder(self) -> Path | None:
        """Folder of the benchmark index, if there is one."""
        return self.folder / "index" if self.rules.against else None

    @property
    def plans(self) -> Path:
        """Folder of the plans of all parts."""
        return self.folder / "plan"

    def scan_folders(self, part: CorpusPart) -> list[Path]:
        """Folders of the scanned slices of a part."""
        return [self.folder / "scan" / part.name / f"{number}" for number in range(part.slices)]

    def reasons_folder(self, group: str) -> Path:
        """Folder with the reasons of all rows of a group."""
        return self.folder / "reasons" / group

    def scan(self, workers: int, share: Share | None) -> bool:
        """Read every slice of this share once. Return False if another share is missing."""
        if self.rules.against and self.index_folder:
            run_jobs("benchmarks", [Job("index", partial(build_index, self.rules.against, self.index_folder))])
        scans = {folder: (part, number) for part in self.parts for number, folder in enumerate(self.scan_folders(part))}
        jobs = [
            Job(
                slice_name(part, number),
                partial(scan_slice, part, number, self.rules, folder, self.plans, self.index_folder),
            )
            for folder, (part, number) in scans.items()
        ]
        run_jobs("scan", jobs, workers, share)
        return share is None or all(read_entry(folder) is not None for folder in scans)

    def completion_lock(self, share: Share | None) -> AbstractContextManager[bool]:
        """Return a lock for everything after the scan. It yields False if another machine has it."""
        return lock_file(self.out / COMPLETION_LOCK, wait=share is None, remove=True)

    def find_reasons(self, workers: int) -> None:
        """Apply the rules to all groups. The workers search a large group together."""
        large = {
            name for name, parts in self.groups.items() if sum(part.size() for part in parts) > source_parts.SLICE_BYTES
        }
        run_jobs("apply rules", [self._rules_job(name) for name in self.groups if name not in large], workers)
        for name in sorted(large):  # one after the other: each starts its own workers
            self._rules_job(name, workers).run()

    def _rules_job(self, group: str, workers: int = 1) -> Job:
        parts, folder = self.groups[group], self.reasons_folder(group)
        scans = [self.scan_folders(part) for part in parts]
        options: dict[str, Any] = {"rules": self.rules, "drop": self.drop, "plans": self.plans}
        options |= {"index_folder": self.index_folder, "workers": workers}
        return Job(group, partial(apply_rules, parts, scans, folder, **options))

    def reasons(self, part: CorpusPart) -> np.ndarray:
        """Return the bits of the reasons against every row."""
        folder = self.reasons_folder(part.group)
        result = stored_entry(folder)["parts"][part.name]
        return map_values(folder / REASONS_FILE, np.uint16)[result["first"] : result["first"] + result["rows"]]

    def scanned_sources(self) -> str:
        """Fingerprint of all sources at the time of the scan."""
        return cleaning_key({part.name: self.scanned_entry(part)["sources"] for part in self.parts})

    def scanned_entry(self, part: CorpusPart) -> dict[str, Any]:
        """Return the sums over the scanned slices of a part."""
        slices = [stored_entry(folder) for folder in self.scan_folders(part)]
        detected: dict[str, Counter[str]] = {}
        for entry in slices:
            for language, others in entry["detected"].items():
                detected.setdefault(language, Counter()).update(others)
        sources = {entry["sources"] for entry in slices}
        return {
            "sources": sources.pop() if len(sources) == 1 else sorted(sources),
            **{name: sum(entry[name] for entry in slices) for name in ("rows", "characters", "words")},
            "malformed": sum((Counter(entry["malformed"]) for entry in slices), Counter()),
            "damage": dict(sum((Counter(entry["damage"]) for entry in slices), Counter())),
            "detected": {
                language: dict(sorted(others.items(), key=lambda item: (-item[1], item[0])))
                for language, others in detected.items()
            },
            "unchecked_languages": slices[0]["unchecked_languages"],
        }

    def current_sources(self) -> str:
        """Fingerprint of all sources as they are now."""
        return cleaning_key({part.name: part.fingerprint() for part in self.parts})

    def key(self, sources: str) -> str:
        """Fingerprint of a report."""
        return cleaning_key(self.rules.to_json(), sources, self.benchmarks)

    # ---- findings --------------------------------------------------------------------------------------------

    def findings(self) -> list[dict[str, Any]]:
        """Return for every part the rows read and kept, and the number of dropped or suspicious rows by reason."""
        results = {
            name: result
            for group in self.groups
            for name, result in stored_entry(self.reasons_folder(group))["parts"].items()
        }
        findings = []
        for part in self.parts:
            scan, result = self.scanned_entry(part), results[part.name]
            findings.append(
                {
                    "corpus": part.name,
                    "languages": list(part.languages),
                    **({"pivot": part.pivot} if part.pivot else {}),
                    "read": scan["rows"] + sum(scan["malformed"].values()),
                    "kept": result["kept"],
                    "reasons": dict(scan["malformed"] + Counter(result["reasons"])),
                    "characters": scan["characters"],
                    "words": scan["words"],
                    "detected languages": scan["detected"],
                    "languages not checked": scan["unchecked_languages"],
                    "damage": scan["damage"],
                    "also in": result["also in"],
                    "examples": result["examples"],
                }
            )
        return findings

    def pair_counts(self, is_kept: bool) -> Counter[tuple[str, str]]:
        """Count sentence pairs by their two languages, in bitext and multi-way corpora: those kept, or all."""
        counts: Counter[tuple[str, str]] = Counter()
        multiway: dict[str, list[CorpusPart]] = {}
        for part in self.parts:
            if part.kind == "multi":
                multiway.setdefault(part.collection, []).append(part)
            elif part.pair:
                a, b = sorted(part.pair)
                result = stored_entry(self.reasons_folder(part.group))["parts"][part.name]
                counts[a, b] += result["kept" if is_kept else "rows"]
        for parts in multiway.values():
            counts.update(_count_common_rows({part.languages[0]: self.reasons(part) for part in parts}, is_kept))
        return counts

    def _benchmark_hits(self, part: CorpusPart) -> np.ndarray:
        """Return all hits of a part, with rows of the part."""
        found, start = [np.empty((0, 3), dtype=np.int64)], 0
        for scan in self.scan_folders(part):
            found.append(open_array(scan, "hits") + np.array([start, 0, 0]))
            start += len(open_array(scan, "flags"))
        return np.concatenate(found)

    def contamination(self) -> list[dict[str, Any]]:
        """Return for every benchmark file its sentences found in the corpora, exactly or nearly, and where."""
        if self.index_folder is None:
            return []
        index = BenchmarkIndex(self.index_folder)
        sentences, files = np.asarray(index.owners)[:, 0], np.asarray(index.owners)[:, 1]
        is_exact, is_similar = (np.zeros(len(index.hashes), dtype=bool) for _ in range(2))
        corpora: list[Counter[str]] = [Counter() for _ in index.files]
        examples: list[list[dict[str, Any]]] = [[] for _ in index.files]
        for part in self.parts:
            hits = self._benchmark_hits(part)
            is_near = hits[:, 2] != 0
            is_exact[hits[~is_near, 1]] = True
            is_similar[hits[is_near, 1]] = True
            for row, number, near in hits:
                for file in files[np.searchsorted(sentences, number) : np.searchsorted(sentences, number, "right")]:
                    corpora[file][part.collection] += 1
                    if len(examples[file]) < BENCHMARK_EXAMPLES:
                        example = {"corpus": part.name, "row": int(row) + 1, "sentence": index.text(number)}
                        examples[file].append(example | {"exact": not near})
        is_similar &= ~is_exact
        exact, similar = (
            np.bincount(files, weights=mask[sentences], minlength=len(index.files)).astype(int)
            for mask in (is_exact, is_similar)
        )
        return [
            {
                **file,
                "exact": int(exact[number]),
                "near": int(similar[number]),
                "corpora": dict(corpora[number].most_common()),
                "examples": examples[number],
            }
            for number, file in enumerate(index.files)
        ]


def slice_name(part: CorpusPart, number: int) -> str:
    """Name of a slice for the progress bar."""
    return f"{part.name} {number + 1}/{part.slices}" if part.slices > 1 else part.name


def read_report(file: Path, command: str, *keys: str) -> dict[str, Any]:
    """Read a report of `check` or `clean`; BadInput for another file or format version."""
    fix = f"Run {command} with a new or an empty folder."
    try:
        report: dict[str, Any] = read_json(file)
        _, version = [report[key] for key in keys], report.get("format", 1)
    except (ValueError, TypeError, KeyError):
        raise BadInput(f"{file}: not a report of {command}. {fix}") from None
    check_format(file, version, CLEANING_FORMAT, fix)
    return report


def sum_by_language(findings: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return sums over text and over bitext by language. A pair counts for both its languages."""
    languages: dict[str, dict[str, Any]] = {}
    for row in findings:
        kind = "text" if row["corpus"].startswith("text/") else "bitext"
        for language in row["languages"]:
            sums = languages.setdefault(language, {}).setdefault(kind, {"read": 0, "kept": 0, "reasons": {}})
            sums["read"] += row["read"]
            sums["kept"] += row["kept"]
            sums["reasons"] = dict(Counter(sums["reasons"]) + Counter(row["reasons"]))
    return dict(sorted(languages.items()))


def _select_rows(reasons: np.ndarray, is_kept: bool) -> np.ndarray:
    return np.asarray(reasons == 0 if is_kept else (reasons & BLANK) == 0)


def _count_common_rows(reasons: dict[str, np.ndarray], is_kept: bool) -> dict[tuple[str, str], int]:
    """Count the rows that each two languages of a multi-way corpus have in common."""
    languages = sorted(reasons)
    common = np.zeros((len(languages), len(languages)), dtype=np.int64)
    for start in range(0, len(reasons[languages[0]]), ROWS_PER_CHUNK):
        rows = slice(start, start + ROWS_PER_CHUNK)
        masks = np.stack([_select_rows(reasons[language][rows], is_kept) for language in languages]).astype(np.float32)
        common += (masks @ masks.T).astype(np.int64)
    return {(languages[i], languages[j]): int(common[i, j]) for i, j in combinations(range(len(languages)), 2)}
