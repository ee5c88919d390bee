"""All units of a folder of corpora, looked at and judged: tasks in stages, and the report on what was found.

PLACE/index/               sentences of the benchmarks
      look/UNIT/           every unit, read once                  (the long part: one task each)
      judged/GROUP/        the reasons of every row
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from crossling.corpora.corpus import Corpora
from crossling.quality.judge import judge
from crossling.quality.look import ENTRY, array, entry, key_of, look
from crossling.quality.overlap import Index, build, digest
from crossling.quality.rules import BLANK, Rules
from crossling.quality.units import Unit, units
from crossling.tasks import Share, Task, run

PARTS = ".parts"
ROWS_AT_ONCE = 1 << 20  # fewer than the 2^24 up to which 32-bit floats count exactly
EXAMPLES_OF_A_BENCHMARK = 3


@dataclass(frozen=True)
class Part:
    """A folder with a result, and the work that leaves it there, whole and with an entry."""

    name: str
    folder: Path
    work: Callable[[], object]

    @property
    def task(self) -> Task:
        return Task(self.name, self.work)


@dataclass(frozen=True)
class Stage:
    title: str
    parts: Sequence[Part]
    by_shares: bool = False  # a machine leaves the parts of the others to them


def finish(stages: Sequence[Stage], workers: int, share: Share | None) -> bool:
    """Does the stages one after the other; False when other shares of one have to be done first.

    Whoever finds such a stage complete does what is left of those after it, its own share first.
    """
    for stage in stages:
        run(stage.title, [part.task for part in stage.parts], workers, share)
        if share:
            left = [part.task for part in stage.parts if not (part.folder / ENTRY).is_file()]
            if left and stage.by_shares:
                return False
            run(stage.title, left, workers)
    return True


@dataclass(frozen=True)
class Survey:
    corpora: Corpora
    rules: Rules
    drop: bool  # each rule sees only what those before it have left
    out: Path

    @cached_property
    def place(self) -> Path:
        """Parts of other rules, or of other sources, must not be taken for parts of this survey."""
        return self.out / PARTS / key_of(self.rules.to_json(), {unit.name: unit.size() for unit in self.units})

    @cached_property
    def units(self) -> list[Unit]:
        return units(self.corpora)

    @cached_property
    def groups(self) -> dict[str, list[Unit]]:
        groups: dict[str, list[Unit]] = {}
        for unit in self.units:
            groups.setdefault(unit.group, []).append(unit)
        return groups

    @property
    def index(self) -> Path | None:
        return self.place / "index" if self.rules.against else None

    def look(self, unit: Unit) -> Path:
        return self.place / "look" / unit.name

    def judged(self, group: str) -> Path:
        return self.place / "judged" / group

    def stages(self) -> list[Stage]:
        stages = [
            Stage("look", [self._looking(unit) for unit in self.units], by_shares=True),
            Stage("judge", [self._judging(group, members) for group, members in self.groups.items()]),
        ]
        if self.rules.against and self.index:
            stages.insert(
                0, Stage("benchmarks", [Part("index", self.index, partial(build, self.rules.against, self.index))])
            )
        return stages

    def _looking(self, unit: Unit) -> Part:
        return Part(unit.name, self.look(unit), partial(look, unit, self.rules, self.look(unit), self.index))

    def _judging(self, group: str, members: list[Unit]) -> Part:
        looks = [self.look(unit) for unit in members]
        work = partial(judge, members, looks, self.rules, self.drop, self.judged(group), self.index)
        return Part(group, self.judged(group), work)

    def reasons(self, unit: Unit) -> np.ndarray:
        """For every row, the bits of the reasons against it."""
        number = self.groups[unit.group].index(unit)
        return np.asarray(np.load(self.judged(unit.group) / f"{number}.npy", mmap_mode="r"))

    def sources(self, read: bool) -> str:
        """Of all that the rules are applied to: as it was read, or as it is now."""
        return key_of({u.name: entry(self.look(u))["digest"] if read else u.digest() for u in self.units})

    def key(self, sources: str) -> str:
        return key_of(self.rules.to_json(), sources, self.rules.against and digest(self.rules.against))

    # ---- what was found -------------------------------------------------------------------------------------

    def findings(self) -> list[dict[str, Any]]:
        """Of every unit: rows read, rows kept, and the number left out or suspicious by reason."""
        found = []
        judged = {name: row for group in self.groups for name, row in entry(self.judged(group))["units"].items()}
        for unit in self.units:
            looked, row = entry(self.look(unit)), judged[unit.name]
            reasons = Counter(looked["malformed"]) + Counter(row["reasons"])
            found.append(
                {
                    "corpus": unit.name,
                    "languages": list(unit.languages),
                    **({"pivot": unit.pivot} if unit.pivot else {}),
                    "read": looked["filled"] + sum(looked["malformed"].values()),
                    "kept": row["kept"],
                    "reasons": dict(reasons),
                    "characters": looked["characters"],
                    "words": looked["words"],
                    "seen instead": looked["instead"],
                    "language not judged": looked["unknown"],
                    "also in": row["also in"],
                    "examples": row["examples"],
                }
            )
        return found

    def pair_counts(self, kept: bool) -> Counter[tuple[str, str]]:
        """Pairs of sentences by their two languages, in bitext and multi-way sets: those kept, or all."""
        counts: Counter[tuple[str, str]] = Counter()
        sets: dict[str, list[Unit]] = {}
        for unit in self.units:
            if unit.kind == "multi":
                sets.setdefault(unit.collection, []).append(unit)
            elif unit.pair:
                a, b = sorted(unit.pair)
                counts[a, b] += int(_counted(self.reasons(unit), kept).sum())
        for members in sets.values():
            counts.update(_shared({unit.languages[0]: self.reasons(unit) for unit in members}, kept))
        return counts

    def benchmarks(self) -> list[dict[str, Any]]:
        """Of every file of a benchmark: its sentences found in the corpora, exactly or nearly, and where."""
        if self.index is None:
            return []
        index = Index(self.index)
        sentences, files = np.asarray(index.owners)[:, 0], np.asarray(index.owners)[:, 1]
        exact, similar = (np.zeros(len(index.hashes), dtype=bool) for _ in range(2))
        where: list[Counter[str]] = [Counter() for _ in index.files]
        examples: list[list[dict[str, Any]]] = [[] for _ in index.files]
        for unit in self.units:
            hits = np.asarray(array(self.look(unit), "hits"))
            near = hits[:, 2] != 0
            exact[hits[~near, 1]] = True
            similar[hits[near, 1]] = True
            for row, number, is_near in hits:
                for file in files[np.searchsorted(sentences, number) : np.searchsorted(sentences, number, "right")]:
                    where[file][unit.collection] += 1
                    if len(examples[file]) < EXAMPLES_OF_A_BENCHMARK:
                        found = {"corpus": unit.name, "row": int(row) + 1, "sentence": index.text(number)}
                        examples[file].append(found | {"exact": not is_near})
        similar &= ~exact
        found_exactly, found_nearly = (
            np.bincount(files, weights=mask[sentences], minlength=len(index.files)).astype(int)
            for mask in (exact, similar)
        )
        return [
            {
                **known,
                "exact": int(found_exactly[number]),
                "near": int(found_nearly[number]),
                "corpora": dict(where[number].most_common()),
                "examples": examples[number],
            }
            for number, known in enumerate(index.files)
        ]


def by_language(findings: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Sums over text and over bitext; a pair counts for both its languages."""
    found: dict[str, dict[str, Any]] = {}
    for row in findings:
        kind = "text" if row["corpus"].startswith("text/") else "bitext"
        for language in row["languages"]:
            sums = found.setdefault(language, {}).setdefault(kind, {"read": 0, "kept": 0, "reasons": {}})
            sums["read"] += row["read"]
            sums["kept"] += row["kept"]
            sums["reasons"] = dict(Counter(sums["reasons"]) + Counter(row["reasons"]))
    return dict(sorted(found.items()))


def _counted(reasons: np.ndarray, kept: bool) -> np.ndarray:
    return np.asarray(reasons == 0 if kept else (reasons & BLANK) == 0)


def _shared(reasons: dict[str, np.ndarray], kept: bool) -> dict[tuple[str, str], int]:
    """How many rows each two languages of a multi-way set have in common."""
    languages = sorted(reasons)
    shared = np.zeros((len(languages), len(languages)), dtype=np.int64)
    for start in range(0, len(reasons[languages[0]]), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        part = np.stack([_counted(reasons[language][rows], kept) for language in languages]).astype(np.float32)
        shared += (part @ part.T).astype(np.int64)
    return {(languages[i], languages[j]): int(shared[i, j]) for i, j in combinations(range(len(languages)), 2)}
