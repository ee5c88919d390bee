"""What a laboratory was begun with stays; what cannot be, or became another, is refused before any run is trained."""

from __future__ import annotations

import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from crossling.data.shards import Shards
from crossling.errors import BadInput, Failed, Interrupted
from crossling.laboratory import unit
from crossling.laboratory.lab import lab

from .made import Lab, plan, states, written


def test_other_shards_than_it_began_with_are_refused(work: Lab, tmp_path: Path) -> None:
    work(only=["text"])
    file = tmp_path / "lab" / "plan.json"
    known = json.loads(file.read_text(encoding="utf-8"))
    assert re.fullmatch("[0-9a-f]{16,}", known["shards"]["joint"])
    known["shards"]["joint"] = "0" * 16
    file.write_text(json.dumps(known), encoding="utf-8")
    with pytest.raises(BadInput, match=r"was begun with 0{16}; give the shards it began with"):
        work()


def test_other_data_than_it_began_with_are_refused(shards: Shards, babel_folder: Path, tmp_path: Path) -> None:
    finalists = {"runs": ["text"], "tasks": {"udpos": ["steps=2", "batch=4", "length=64"]}}
    shutil.copytree(babel_folder / "data", tmp_path / "data")

    def work(**changes: Any) -> dict[str, Any]:
        file = written(tmp_path, runs={"text": {"recipe": "xlm_r"}}, claims=[], **changes)
        return lab(file, tmp_path / "lab", shards.path, tmp_path / "data")

    work()
    noted = json.loads((tmp_path / "lab" / "plan.json").read_text(encoding="utf-8"))["data"]
    assert set(noted) == {"tatoeba", "word-alignment"}
    assert all(
        (tmp_path / "data" / name).stat().st_size == size for task in noted.values() for name, size in task.items()
    )
    work(finalists=finalists)  # whose files are noted now
    retrieval = tmp_path / "data" / next(iter(noted["tatoeba"]))
    for file in (retrieval, next((tmp_path / "data" / "udpos").iterdir())):
        was = file.read_bytes()
        file.write_bytes(was + b"\n")
        with pytest.raises(
            BadInput, match=rf"{file.name}: .*lab was begun with other files of (udpos|tatoeba) than lie"
        ):
            work(finalists=finalists)
        file.write_bytes(was)
    retrieval.rename(tmp_path / "gone")
    with pytest.raises(BadInput, match="was begun with other files of tatoeba"):
        work()


@pytest.mark.parametrize(
    ("changes", "different"),
    [
        ({"steps": 5}, "steps"),
        ({"steps": None, "flops": 1e7}, "steps, flops"),
        ({"looks": 4}, "looks"),
        ({"measure": {"tatoeba": ["qaa-qab"]}}, "measure"),
    ],
)
def test_another_budget_or_measure_is_refused(changes: dict[str, Any], different: str, work: Lab) -> None:
    work(only=["text"], claims=[])
    with pytest.raises(BadInput, match=rf"begun with another plan \(different: {different}\)"):
        work(claims=[], **changes)


@pytest.mark.parametrize("name", ["cost.json", "measured.json"])
def test_a_damaged_run_is_told_by_its_file(name: str, work: Lab, tmp_path: Path) -> None:
    work()
    file = next((tmp_path / "lab" / "runs").glob(f"text-0/{name}"))
    file.write_text("{", encoding="utf-8")
    with pytest.raises(BadInput, match=rf"text-0/{name}: damaged; remove .*text-0, and"):
        work()


def test_a_run_that_became_another_is_refused(work: Lab) -> None:
    work(only=["text"])
    runs = {**plan()["runs"], "text": {"recipe": "xlm_r", "set": ["lr=0.5"]}}
    with pytest.raises(BadInput, match=r"text-0: this run was started with another recipe \(different: lr\)"):
        work(runs=runs)


@pytest.mark.parametrize(
    ("run", "changes", "told"),
    [
        ({"set": ["sampling.pivot=xx"]}, {}, "needs translation pairs with xx and these shards have none"),
        ({"set": ["sampling.focus=sw"]}, {}, "sampling.focus=sw is not in these shards"),
        ({"set": ["optimizer.warmup=3"]}, {"steps": None, "flops": 2e7}, "optimizer.warmup is 3 and steps only 2"),
    ],
)
def test_a_run_that_cannot_be_is_refused_before_any_is_trained(
    run: dict[str, Any], changes: dict[str, Any], told: str, work: Lab, tmp_path: Path
) -> None:
    runs = {"text": {"recipe": "xlm_r"}, "pairs": {"recipe": "xlm", **run}}
    with pytest.raises(BadInput, match=f"run pairs-0: .*{told}"):
        work(runs=runs, claims=[], **changes)
    assert not (tmp_path / "lab" / "runs").exists()


def test_finalists_that_are_tuned_otherwise_are_refused(work: Lab) -> None:
    def tuned(*differences: str) -> dict[str, Any]:
        tasks = {"udpos": [*differences, "batch=4", "length=64"]}
        return {"finalists": {"runs": ["text"], "tasks": tasks}, "claims": [], "measure": {"word-alignment": []}}

    runs = {"text": {"recipe": "xlm_r"}}
    told = r"text-0/udpos: fine-tuned with steps=2, batch=4, length=64, and the plan has {}; give the setting"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unit, "finetune", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
        with pytest.raises(Interrupted):
            work(runs=runs, **tuned("steps=2"))
    with pytest.raises(BadInput, match=told.format("steps=3, batch=4, length=64")):  # of one under way
        work(runs=runs, **tuned("steps=3"))
    assert states(work(runs=runs, **tuned("steps=2"))) == {"text-0": "finished"}
    with pytest.raises(BadInput, match=told.format("batch=4, length=64")):  # and of one that is measured
        work(runs=runs, **tuned())
    again = {"finalists": {"runs": ["text"], "tasks": {"udpos": ["length=64", "batch=4", "steps=2"]}}}
    assert states(work(runs=runs, **{**tuned(), **again})) == {"text-0": "finished"}  # the same in another order


def test_what_cannot_be_measured_is_not_trained_for(shards: Shards, babel_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "lab"
    with pytest.raises(BadInput, match="give --shards SHARDS to learn from and --data DATA"):
        lab(written(tmp_path), out, shards.path)
    with pytest.raises(BadInput, match="no such folder"):
        lab(written(tmp_path), out, shards.path, tmp_path / "none")
    with pytest.raises(BadInput, match="nothing to score in 'qaz'"):
        lab(written(tmp_path, measure={"tatoeba": ["qaz"]}, claims=[]), out, shards.path, babel_folder / "data")
    with pytest.raises(BadInput, match="makes its own languages; leave --shards and --data out"):
        lab(written(tmp_path, embedded={}), out, shards.path, babel_folder / "data")
    assert not out.exists()


def test_a_folder_of_something_else_is_left_alone(work: Lab, tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "thesis.tex").write_text("x", encoding="utf-8")
    with pytest.raises(BadInput, match=r"the folder is not empty and holds no plan\.json"):
        work()
    assert [file.name for file in (tmp_path / "lab").iterdir()] == ["thesis.tex"]


def test_processes_of_torchrun_are_refused(work: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(BadInput, match="not by torchrun; start one for each device"):
        work()


def test_a_plan_is_mended_as_long_as_nothing_was_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise Failed("not here")

    monkeypatch.setattr(unit, "pretrain", never)
    sizes = {"sentences": 60, "lemmas": 300, "pieces": 300, "test_sentences": 5, "alignment_sentences": 5}

    def begun(languages: int, of: list[str]) -> None:
        plan = {"embedded": {"languages": languages, **sizes}, "measure": {"tatoeba": of}, "claims": []}
        lab(written(tmp_path, **plan), tmp_path / "lab")

    with pytest.raises(BadInput, match="languages: 1 given, expected 2 to 40"):
        begun(1, [])
    with pytest.raises(BadInput, match="zz"):
        begun(2, ["zz"])
    with pytest.raises(Failed, match="not here"):
        begun(3, [])
    assert len([*(tmp_path / "lab" / "languages" / "corpora" / "text").iterdir()]) == 3
    (tmp_path / "lab" / "runs").mkdir(exist_ok=True)
    with pytest.raises(BadInput, match=r"begun with another plan \(different: embedded\)"):
        begun(2, [])
