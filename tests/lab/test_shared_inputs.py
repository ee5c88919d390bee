"""Shared inputs of a lab may not change, and invalid runs are refused before any run is trained."""

from __future__ import annotations

import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from crossling.core.errors import BadInput, Failed, Interrupted
from crossling.data.shards import Shards
from crossling.lab import lab_run
from crossling.lab.lab import lab

from .tiny_plan import RunLab, states, tiny_plan, write_plan


def test_other_shards_are_refused(run_lab: RunLab, tmp_path: Path) -> None:
    run_lab(only=["text"])
    file = tmp_path / "lab" / "plan.json"
    known = json.loads(file.read_text(encoding="utf-8"))
    assert re.fullmatch("[0-9a-f]{16,}", known["shards"]["joint"])
    known["shards"]["joint"] = "0" * 16
    file.write_text(json.dumps(known), encoding="utf-8")
    with pytest.raises(BadInput, match=r"was started with 0{16}\. Give the first shards"):
        run_lab()


def test_other_data_are_refused(shards: Shards, synth_folder: Path, tmp_path: Path) -> None:
    finetune = {"runs": ["text"], "tasks": {"udpos": ["steps=2", "batch=4", "length=64"]}}
    shutil.copytree(synth_folder / "data", tmp_path / "data")

    def run_lab(**changes: Any) -> dict[str, Any]:
        file = write_plan(tmp_path, runs={"text": {"recipe": "xlm_r"}}, claims=[], **changes)
        return lab(file, tmp_path / "lab", shards.path, tmp_path / "data")

    run_lab()
    recorded = json.loads((tmp_path / "lab" / "plan.json").read_text(encoding="utf-8"))["data"]
    assert set(recorded) == {"tatoeba", "word-alignment"}
    assert all(
        (tmp_path / "data" / name).stat().st_size == size for task in recorded.values() for name, size in task.items()
    )
    run_lab(finetune=finetune)  # now its files are recorded
    retrieval = tmp_path / "data" / next(iter(recorded["tatoeba"]))
    for file in (retrieval, next((tmp_path / "data" / "udpos").iterdir())):
        was = file.read_bytes()
        file.write_bytes(was + b"\n")
        with pytest.raises(BadInput, match=rf"{file.name}: the files of (udpos|tatoeba) have changed since"):
            run_lab(finetune=finetune)
        file.write_bytes(was)
    retrieval.rename(tmp_path / "gone")
    with pytest.raises(BadInput, match="the files of tatoeba have changed"):
        run_lab()


@pytest.mark.parametrize(
    ("changes", "different"),
    [
        ({"steps": 5}, "steps"),
        ({"steps": None, "flops": 1e7}, "steps, flops"),
        ({"evaluations": 4}, "evaluations"),
        ({"measure": {"tatoeba": ["qaa-qab"]}}, "measure"),
    ],
)
def test_another_budget_or_measure_is_refused(changes: dict[str, Any], different: str, run_lab: RunLab) -> None:
    run_lab(only=["text"], claims=[])
    with pytest.raises(BadInput, match=rf"started with another plan \(different: {different}\)"):
        run_lab(claims=[], **changes)


@pytest.mark.parametrize("name", ["cost.json", "evaluations.json"])
def test_damaged_file_of_a_run_is_named(name: str, run_lab: RunLab, tmp_path: Path) -> None:
    run_lab()
    file = next((tmp_path / "lab" / "runs").glob(f"text-0/{name}"))
    file.write_text("{", encoding="utf-8")
    with pytest.raises(BadInput, match=rf"text-0/{name}: damaged\. Remove .*text-0: the same"):
        run_lab()


def test_changed_run_is_refused(run_lab: RunLab) -> None:
    run_lab(only=["text"])
    runs = {**tiny_plan()["runs"], "text": {"recipe": "xlm_r", "set": ["lr=0.5"]}}
    with pytest.raises(BadInput, match=r"text-0: this run has another recipe \(different: lr\)"):
        run_lab(runs=runs)


@pytest.mark.parametrize(
    ("run", "changes", "message"),
    [
        ({"set": ["sampling.pivot=xx"]}, {}, "no translation pairs with xx in these shards, which the recipe needs"),
        ({"set": ["sampling.focus=sw"]}, {}, "sampling.focus=sw is not in these shards"),
        ({"set": ["optimizer.warmup=3"]}, {"steps": None, "flops": 2e7}, "optimizer.warmup is 3 and steps only 2"),
    ],
)
def test_invalid_run_is_refused_before_any_is_trained(
    run: dict[str, Any], changes: dict[str, Any], message: str, run_lab: RunLab, tmp_path: Path
) -> None:
    runs = {"text": {"recipe": "xlm_r"}, "pairs": {"recipe": "xlm", **run}}
    with pytest.raises(BadInput, match=f"run pairs-0: .*{message}"):
        run_lab(runs=runs, claims=[], **changes)
    assert not (tmp_path / "lab" / "runs").exists()


def test_changed_fine_tuning_settings_are_refused(run_lab: RunLab) -> None:
    def tuned(*differences: str) -> dict[str, Any]:
        tasks = {"udpos": [*differences, "batch=4", "length=64"]}
        return {"finetune": {"runs": ["text"], "tasks": tasks}, "claims": [], "measure": {"word-alignment": []}}

    runs = {"text": {"recipe": "xlm_r"}}
    message = (
        r"text-0/udpos: fine-tuned with steps=2, batch=4, length=64, but the plan has {}\. Give the first settings"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lab_run, "finetune", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
        with pytest.raises(Interrupted):
            run_lab(runs=runs, **tuned("steps=2"))
    with pytest.raises(BadInput, match=message.format("steps=3, batch=4, length=64")):  # in progress
        run_lab(runs=runs, **tuned("steps=3"))
    assert states(run_lab(runs=runs, **tuned("steps=2"))) == {"text-0": "finished"}
    with pytest.raises(BadInput, match=message.format("batch=4, length=64")):  # finished
        run_lab(runs=runs, **tuned())
    again = {"finetune": {"runs": ["text"], "tasks": {"udpos": ["length=64", "batch=4", "steps=2"]}}}
    assert states(run_lab(runs=runs, **{**tuned(), **again})) == {"text-0": "finished"}  # the same in another order


def test_missing_benchmark_data_is_refused_before_training(shards: Shards, synth_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "lab"
    with pytest.raises(BadInput, match="Give `shards` and `data`"):
        lab(write_plan(tmp_path), out, shards.path)
    with pytest.raises(BadInput, match="no such folder"):
        lab(write_plan(tmp_path), out, shards.path, tmp_path / "none")
    with pytest.raises(BadInput, match="has no data for language 'qaz'"):
        lab(write_plan(tmp_path, measure={"tatoeba": ["qaz"]}, claims=[]), out, shards.path, synth_folder / "data")
    with pytest.raises(BadInput, match=r"generates synthetic languages\. Omit `shards` and `data`"):
        lab(write_plan(tmp_path, synthetic={}), out, shards.path, synth_folder / "data")
    assert not out.exists()


def test_other_folder_is_not_changed(run_lab: RunLab, tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "thesis.tex").write_text("x", encoding="utf-8")
    with pytest.raises(BadInput, match="is no output of crossling lab"):
        run_lab()
    assert [file.name for file in (tmp_path / "lab").iterdir()] == ["thesis.tex"]


def test_torchrun_is_refused(run_lab: RunLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(BadInput, match="cannot run under torchrun"):
        run_lab()


def test_plan_may_change_until_a_run_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise Failed("not here")

    monkeypatch.setattr(lab_run, "pretrain", never)
    sizes = {"sentences": 60, "lemmas": 300, "vocabulary_size": 300, "test_sentences": 5, "alignment_sentences": 5}

    def start(languages: int, of: list[str]) -> None:
        plan = {"synthetic": {"languages": languages, **sizes}, "measure": {"tatoeba": of}, "claims": []}
        lab(write_plan(tmp_path, **plan), tmp_path / "lab")

    with pytest.raises(BadInput, match="languages=1: expected 2 to 40"):
        start(1, [])
    with pytest.raises(BadInput, match="zz"):
        start(2, ["zz"])
    with pytest.raises(Failed, match="not here"):
        start(3, [])
    assert len([*(tmp_path / "lab" / "languages" / "corpora" / "text").iterdir()]) == 3
    (tmp_path / "lab" / "runs").mkdir(exist_ok=True)
    with pytest.raises(BadInput, match=r"started with another plan \(different: synthetic\)"):
        start(2, [])


def test_lab_folder_of_another_version_is_refused(run_lab: RunLab, tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "plan.json").write_text('{"plan": {}, "shards": {}, "data": {}}', encoding="utf-8")
    with pytest.raises(
        BadInput, match=r"lab: lab folder: format version 1, expected 2\. Start a new one with `crossling lab"
    ):
        run_lab()
