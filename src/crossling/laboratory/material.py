"""What all runs of a laboratory learn from and are measured with: given, or made once of embedded languages."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossling.babel import babel
from crossling.benchmarks.dataset import DataSet
from crossling.benchmarks.sets import SETS
from crossling.corpora.corpus import Corpora
from crossling.data.encode import encode
from crossling.data.shards import Shards
from crossling.disk import write_json
from crossling.errors import BadInput
from crossling.evaluate.asked import TASKS, Asked
from crossling.evaluate.files import choose
from crossling.laboratory.plan import Embedded, Plan
from crossling.vocabulary.vocab import ALLOCATIONS, vocab

PLAN, RUNS = "plan.json", "runs"
MADE = ("languages", "vocab-*", "shards-*")  # of embedded languages
FIXED = ("size", "steps", "flops", "set", "looks", "sentences", "measure", "embedded")  # of a plan: what all runs share


Sizes = dict[str, dict[str, int]]  # of the files of each task, in bytes


@dataclass(frozen=True)
class Material:
    shards: Mapping[str, Shards]  # by vocabulary
    data: Path  # benchmarks


def prepare(out: Path, plan: Plan, shards: Path | str | None, data: Path | str | None) -> Material:
    """Opens or makes it, and refuses to go on with other material, or under another budget, than it was begun with."""
    if plan.embedded is None:
        if shards is None or data is None:
            raise BadInput(f"plan {plan.name}: give --shards SHARDS to learn from and --data DATA to measure with")
        material = Material({ALLOCATIONS[0]: Shards.open(shards)}, Path(data))
        check_data(plan, Path(data))
    elif shards is not None or data is not None:
        raise BadInput(f"plan {plan.name} makes its own languages; leave --shards and --data out")
    _check_place(out)
    with held(out / PLAN):
        began = _begun(out, plan)
        _check_plan(out, plan, began["plan"])
        if plan.embedded is not None:
            write_json(out / PLAN, {**began, "plan": plan.stored})  # so that the folder says what it is
            material = _made(out, plan.embedded, dict.fromkeys(trial.vocab for trial in plan.runs.values()))
        fingerprints = {name: each.fingerprint for name, each in material.shards.items()}
        files = _sizes(plan, material.data)
        _check_shards(out, material.shards, began["shards"])
        _check_files(out, material.data, files, began["data"])
        shards_and_data = {"shards": began["shards"] | fingerprints, "data": began["data"] | files}
        write_json(out / PLAN, {"plan": plan.stored, **shards_and_data})
    return material


@contextmanager
def held(place: Path, wait: bool = True) -> Iterator[bool]:
    """Whether this process alone works at a place; the lock is let go when its holder ends, killed or not."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f".{place.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True


def _begun(out: Path, plan: Plan) -> dict[str, dict[str, Any]]:
    """What the folder was begun with. Where nothing was trained yet another plan may take its place, and what was made
    for it goes: a plan whose mistake shows late is mended and given again."""
    began = _read(out / PLAN)
    if began["plan"] == plan.stored or (out / RUNS).exists():
        return began
    if began["plan"].get("embedded") != plan.stored.get("embedded"):
        for made in (each for pattern in MADE for each in out.glob(pattern)):
            shutil.rmtree(made)
    return {part: {} for part in began}


def _made(out: Path, embedded: Embedded, vocabularies: Mapping[str, Any]) -> Material:
    """Languages, and for each way to share a vocabulary out that and its shards. The same seed gives the same bytes."""
    home = babel(
        out / "languages",
        embedded.languages,
        embedded.sentences,
        embedded.seed,
        embedded.lemmas,
        test_sentences=embedded.test_sentences,
        alignment_sentences=embedded.alignment_sentences,
    )
    shards = {}
    for allocate in vocabularies:
        place = out / f"shards-{allocate}"
        if not (place / "manifest.json").is_file():
            corpora, pieces = Corpora(home / "corpora"), out / f"vocab-{allocate}"
            vocab(corpora, embedded.pieces, pieces, seed=embedded.seed, allocate=allocate)
            encode(corpora, pieces, place)
        shards[allocate] = Shards.open(place)
    return Material(shards, home / "data")


def check_data(plan: Plan, data: Path) -> None:
    """What cannot be measured need not be trained for."""
    for task, languages in plan.measure.items():
        Asked([task], data, languages=languages or None).check()
        choose(TASKS[task](data), languages or None, data / task)
    for task in plan.finalists.tasks:
        _, language = SETS[task].source(data)
        SETS[task].development(data, language)
        if not SETS[task].scorable(data):
            raise BadInput(f"{data / task}: nothing to score finalists on; put the test files of {task} there")


def _sizes(plan: Plan, data: Path) -> Sizes:
    """What tells other data from these without reading them."""
    found = {}
    for task, languages in plan.measure.items():
        chosen = choose(TASKS[task](data), languages or None, data / task)
        found[task] = [file for files in chosen.values() for file in files]
    for task in plan.finalists.tasks:
        found[task] = _files_of(SETS[task], data)
    return {
        task: {file.relative_to(data).as_posix(): file.stat().st_size for file in files}
        for task, files in found.items()
    }


def _files_of(data_set: DataSet, data: Path) -> list[Path]:
    """That it may be trained, chosen and scored by."""
    sets = dict.fromkeys((data_set.name, *data_set.train, *data_set.select))
    named = {
        file
        for name in sets
        for layout in SETS[name].layouts
        for split in layout.splits
        for files in layout.find(data, split).values()
        for file in files
    }
    return [file if file.is_file() else file.with_name(f"{file.name}.gz") for file in sorted(named)]


def _check_place(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out}: this is a file; give a folder for the laboratory")
    if out.is_dir() and not (out / PLAN).is_file() and any(each.name[0] != "." for each in out.iterdir()):
        raise BadInput(f"{out}: the folder is not empty and holds no {PLAN} of a laboratory; give another -o folder")


def _check_plan(out: Path, plan: Plan, began: Mapping[str, Any]) -> None:
    """Runs, seeds, finalists and claims may be added; what all runs share may not change."""
    changed = [key for key in FIXED if began.get(key) != plan.stored.get(key)] if began else []
    if changed:
        raise BadInput(
            f"{out}: begun with another plan (different: {', '.join(changed)}); give the plan it began with, or"
            " another -o folder"
        )


def _check_shards(out: Path, shards: Mapping[str, Shards], known: Mapping[str, str]) -> None:
    for name, each in shards.items():
        if known.get(name, each.fingerprint) != each.fingerprint:
            raise BadInput(
                f"{each.path}: these shards are {each.fingerprint}, and {out} was begun with {known[name]}; give the"
                " shards it began with, or another -o folder"
            )


def _check_files(out: Path, data: Path, files: Sizes, known: Sizes) -> None:
    for task, sizes in files.items():
        others = sorted({*sizes.items()} ^ {*known.get(task, sizes).items()})
        if others:
            raise BadInput(
                f"{data / others[0][0]}: {out} was begun with other files of {task} than lie there now; give the data"
                " it began with, or another -o folder"
            )


def _read(file: Path) -> dict[str, dict[str, Any]]:
    """The plan as it was written, the fingerprints of the shards, and the sizes of the data: nothing at first."""
    parts = ("plan", "shards", "data")
    if not file.is_file():
        return {part: {} for part in parts}
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        return {part: dict(stored[part]) for part in parts}
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"{file}: not the plan of a laboratory; restore the file, or give another -o folder") from None
