"""Shared inputs of all runs of a lab: shards and benchmark data, given or generated from synthetic languages."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossling.core.errors import BadInput
from crossling.core.files import check_format, write_json
from crossling.core.locks import lock_file
from crossling.core.resumable import check_output_folder
from crossling.corpora.corpus import Corpora
from crossling.data.shards import Shards
from crossling.data.tokenize import tokenize
from crossling.evaluate.request import EvaluationRequest
from crossling.lab.lab_plan import FORMAT, LabPlan, SyntheticInputs
from crossling.synthetic import synth
from crossling.tasks.benchmark_files import find_task_files
from crossling.tasks.dataset import BenchmarkDataset
from crossling.tasks.registry import DATASETS
from crossling.vocabulary.build_vocabulary import ALLOCATIONS, vocab

PLAN, RUNS = "plan.json", "runs"
GENERATED = ("languages", "vocab-*", "shards-*")  # folders of a lab with synthetic languages
# Keys of a plan that are alike for all runs.
SHARED_KEYS = ("size", "steps", "flops", "set", "evaluations", "sentences", "measure", "synthetic")

FileSizes = dict[str, dict[str, int]]  # task -> file -> bytes


@dataclass(frozen=True)
class SharedInputs:
    """Training and benchmark data of all runs."""

    shards: Mapping[str, Shards]  # by vocabulary
    data: Path  # benchmarks


def prepare_inputs(
    out: Path, plan: LabPlan, shards: str | os.PathLike[str] | None, data: str | os.PathLike[str] | None
) -> SharedInputs:
    """Open or generate the inputs, and record them in the lab folder.

    Raises:
        BadInput: If the folder was started with another plan, other shards or other benchmark files.
    """
    if plan.synthetic is None:
        if shards is None or data is None:
            raise BadInput(f"plan {plan.name}: needs shards and benchmark data. Give `shards` and `data`.")
        inputs = SharedInputs({ALLOCATIONS[0]: Shards.open(Path(shards))}, Path(data))
        check_data(plan, Path(data))
    elif shards is not None or data is not None:
        raise BadInput(f"plan {plan.name}: generates synthetic languages. Omit `shards` and `data`.")
    check_output_folder(out, holds=[PLAN], command="crossling lab")
    with lock_file(out / f".{PLAN}.lock"):
        stored = _stored_inputs(out, plan)
        _check_plan(out, plan, stored["plan"])
        if plan.synthetic is not None:
            write_json(out / PLAN, {**stored, "version": FORMAT, "plan": plan.stored})  # marks the folder as a lab
            inputs = _generate(out, plan.synthetic, dict.fromkeys(run_plan.vocab for run_plan in plan.runs.values()))
        fingerprints = {name: each.fingerprint for name, each in inputs.shards.items()}
        files = _file_sizes(plan, inputs.data)
        _check_shards(out, inputs.shards, stored["shards"])
        _check_files(out, inputs.data, files, stored["data"])
        recorded = {"shards": stored["shards"] | fingerprints, "data": stored["data"] | files}
        write_json(out / PLAN, {"version": FORMAT, "plan": plan.stored, **recorded})
    return inputs


def _stored_inputs(out: Path, plan: LabPlan) -> dict[str, dict[str, Any]]:
    """Return the inputs that the folder was started with.

    Before any run is trained, another plan may replace the first one. Languages generated for it are then removed.
    """
    stored = _read(out / PLAN)
    if stored["plan"] == plan.stored or (out / RUNS).exists():
        return stored
    if stored["plan"].get("synthetic") != plan.stored.get("synthetic"):
        for folder in (folder for pattern in GENERATED for folder in out.glob(pattern)):
            shutil.rmtree(folder)
    return {part: {} for part in stored}


def _generate(out: Path, synthetic: SyntheticInputs, vocabularies: Iterable[str]) -> SharedInputs:
    """Generate languages, and a vocabulary with shards for every allocation. The same seed gives the same bytes."""
    home = synth(
        out / "languages",
        synthetic.languages,
        synthetic.sentences,
        synthetic.seed,
        lemmas=synthetic.lemmas,
        test_sentences=synthetic.test_sentences,
        alignment_sentences=synthetic.alignment_sentences,
    )
    shards = {}
    for allocate in vocabularies:
        folder = out / f"shards-{allocate}"
        if not (folder / "manifest.json").is_file():
            corpora, vocabulary = Corpora(home / "corpora"), out / f"vocab-{allocate}"
            vocab(corpora, vocabulary, size=synthetic.vocabulary_size, seed=synthetic.seed, allocate=allocate)
            tokenize(corpora, vocabulary, folder)
        shards[allocate] = Shards.open(folder)
    return SharedInputs(shards, home / "data")


def check_data(plan: LabPlan, data: Path) -> None:
    """Check before training that the benchmark files of all tasks exist."""
    for task, languages in plan.measure.items():
        EvaluationRequest(tasks=[task], data=data, languages=languages or None).check()
        find_task_files(task, data, languages or None)
    for task in plan.finetune.tasks:
        _, language = DATASETS[task].training_source(data)
        DATASETS[task].read_dev(data, language)
        if not DATASETS[task].languages_with_test_files(data):
            raise BadInput(f"{data / task}: no test files of {task}. Put them there.")


def _file_sizes(plan: LabPlan, data: Path) -> FileSizes:
    """Return the sizes of the benchmark files, which identify them without reading them."""
    files = {}
    for task, languages in plan.measure.items():
        selected = find_task_files(task, data, languages or None)
        files[task] = [file for of_language in selected.values() for file in of_language]
    for task in plan.finetune.tasks:
        files[task] = _dataset_files(DATASETS[task], data)
    return {
        task: {file.relative_to(data).as_posix(): file.stat().st_size for file in of_task}
        for task, of_task in files.items()
    }


def _dataset_files(dataset: BenchmarkDataset, data: Path) -> list[Path]:
    """Return the files for training, model selection and test."""
    names = dict.fromkeys((dataset.name, *dataset.training_sets, *dataset.dev_sets))
    paths = {
        file
        for name in names
        for pattern in DATASETS[name].patterns
        for split in pattern.splits
        for files in pattern.find(data, split).values()
        for file in files
    }
    return [file if file.is_file() else file.with_name(f"{file.name}.gz") for file in sorted(paths)]


def _check_plan(out: Path, plan: LabPlan, stored: Mapping[str, Any]) -> None:
    """Check that the keys that all runs share are the same. Runs, seeds, fine-tuning and claims may be added."""
    changed = [key for key in SHARED_KEYS if stored.get(key) != plan.stored.get(key)] if stored else []
    if changed:
        raise BadInput(
            f"{out}: started with another plan (different: {', '.join(changed)})."
            " Give the first plan, or another `out` folder."
        )


def _check_shards(out: Path, shards: Mapping[str, Shards], stored: Mapping[str, str]) -> None:
    for name, each in shards.items():
        if stored.get(name, each.fingerprint) != each.fingerprint:
            raise BadInput(
                f"{each.path}: shards {each.fingerprint}, but {out} was started with {stored[name]}."
                " Give the first shards, or another `out` folder."
            )


def _check_files(out: Path, data: Path, files: FileSizes, stored: FileSizes) -> None:
    for task, sizes in files.items():
        changed = sorted({*sizes.items()} ^ {*stored.get(task, sizes).items()})
        if changed:
            raise BadInput(
                f"{data / changed[0][0]}: the files of {task} have changed since {out} was started."
                " Give the first data, or another `out` folder."
            )


def _read(file: Path) -> dict[str, dict[str, Any]]:
    """Return the stored plan, fingerprints of the shards and sizes of the data. Empty for a new folder."""
    parts = ("plan", "shards", "data")
    if not file.is_file():
        return {part: {} for part in parts}
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        version = stored.get("version", 1)
        inputs = {part: dict(stored[part]) for part in parts}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(f"{file}: not the plan of a lab. Restore the file, or give another `out` folder.") from None
    check_format(
        f"{file.parent}: lab folder", version, FORMAT, "Start a new one with `crossling lab PLAN -o NEW_FOLDER`."
    )
    return inputs
