"""A checkpoint of a run is a model: it is loaded, scored, fine-tuned and reported with its cost."""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

import crossling as xl
from crossling.core.errors import BadInput
from crossling.core.folder_kinds import folder_kind
from crossling.data.shards import Shards
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.recipes.run_checkpoints import run_of, select_checkpoints
from crossling.report.curves import checkpoint_charts
from crossling.report.runs import collect_runs
from crossling.tasks import scores
from crossling.tasks.predictions import find_prediction_files

SENTENCE = ["qaa qab"]


@pytest.fixture(scope="module")
def run(full_recipe: Recipe, shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints at steps 2 and 4."""
    out = tmp_path_factory.mktemp("runs") / "x"
    pretrain(full_recipe.set(["trtd=off", "xlco=off", "steps=4", "keep_every=2", "keep_last=1", "lr=0.1"]), shards, out)
    return out


@pytest.fixture
def data(synth_folder: Path) -> Path:
    return synth_folder / "data"


def test_a_checkpoint_is_loaded_by_its_path(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    latest = xl.load(run).encode(SENTENCE)
    assert np.array_equal(xl.load(run / "checkpoints" / "0000004").encode(SENTENCE), latest)
    early = xl.load(run / "checkpoints" / "0000002")
    assert not np.allclose(early.encode(SENTENCE), latest)
    assert early.name == str(run / "checkpoints" / "0000002")
    monkeypatch.chdir(run / "checkpoints")
    assert np.array_equal(xl.load("0000004").encode(SENTENCE), latest)


def test_a_run_is_initialized_from_a_checkpoint(run: Path) -> None:
    model = xl.InitialModel.load(run / "checkpoints" / "0000002")
    weight = xl.load(run / "checkpoints" / "0000002").model.state_dict()["embeddings.tokens.weight"]
    assert model.encoder.encoder.embeddings.tokens.weight.equal(weight)


def test_a_checkpoint_is_exported(run: Path, tmp_path: Path) -> None:
    xl.export(run / "checkpoints" / "0000002", tmp_path / "exported")
    assert json.loads((tmp_path / "exported" / "export.json").read_text())["step"] == 2
    exported = xl.load(tmp_path / "exported").encode(SENTENCE)
    assert np.allclose(exported, xl.load(run / "checkpoints" / "0000002").encode(SENTENCE), atol=1e-5)


def test_the_run_of_a_model(run: Path, tmp_path: Path) -> None:
    assert run_of(run) == run
    assert run_of(run / "checkpoints" / "0000002") == run
    assert folder_kind(run / "checkpoints" / "0000002") == "a checkpoint of a run"
    assert run_of(run / "vocab") is run_of(tmp_path) is run_of("xlm-roberta-base") is None


def test_a_missing_or_damaged_checkpoint_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"0000003: no such checkpoint\. The run has 0000002, 0000004\.$"):
        xl.load(run / "checkpoints" / "0000003")
    shutil.copytree(run, tmp_path / "x")
    damaged = tmp_path / "x" / "checkpoints" / "0000002"
    (damaged / "state.json").write_text("{")
    with pytest.raises(BadInput, match=r"0000002: not valid \(.*state\.json is damaged"):
        xl.load(damaged)


def test_checkpoints_are_selected_by_step(run: Path, tmp_path: Path) -> None:
    def select(steps: str) -> list[str]:
        return [path.name for path in select_checkpoints(run, steps)]

    assert select("all") == select("2,4") == ["0000002", "0000004"]
    assert select("0000004") == ["0000004"]
    for steps in ("3", "2,x", ""):
        message = re.escape(f"checkpoints={steps}: {run} has 2, 4. Give all, or some of them.")
        with pytest.raises(BadInput, match=message):
            select(steps)
    with pytest.raises(BadInput, match="is no run of crossling pretrain"):
        select_checkpoints(tmp_path, "all")


def test_checkpoints_are_scored_with_their_cost(run: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "x"
    shutil.copytree(run, out)
    rows = xl.evaluate(out, "tatoeba", data, out, checkpoints="all")
    assert {(row["model"], row["step"]) for row in rows} == {
        (str(out / "checkpoints" / f"000000{step}"), step) for step in (2, 4)
    }
    final = json.loads((run / "cost.json").read_text())["flops"]
    assert {tuple(row["flops"].values()) for row in rows if row["step"] == 4} == {tuple(final.values())}
    assert scores.read_scores(out / "scores.jsonl") == rows
    again = xl.evaluate(out, "tatoeba", data, checkpoints="4")
    assert again == [row for row in rows if row["step"] == 4]
    assert find_prediction_files(out) == []
    xl.evaluate(out, "tatoeba", data, out)  # its predictions are stored as if no checkpoint were scored
    assert find_prediction_files(out)

    [found], _ = collect_runs([out])
    assert len(found.checkpoint_rows) == len(rows)
    assert all("step" not in row for row in found.rows)
    [plot] = checkpoint_charts([found])
    assert plot.title.startswith("Tatoeba")
    assert [x for x, _ in plot.series[0].points] == sorted({row["flops"]["paper"] for row in rows})
    assert plot.series[0].points[-1][1] == pytest.approx(next(s.mean for s in found.scores if s.layer is not None))
    page = xl.report(out, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Score during pre-training" in page
    assert plot.title in page


def test_checkpoints_are_fine_tuned_and_scored(run: Path, data: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"steps": 1, "batch": 4, "length": 32}
    rows = xl.finetune(run, "udpos", data, tmp_path / "tuned", checkpoints="all", **options)
    assert sorted(path.name for path in (tmp_path / "tuned").iterdir()) == ["step-0000002", "step-0000004"]
    assert {row["step"] for row in rows} == {2, 4}
    assert all(row["flops"]["paper"] > 0 for row in rows)
    assert xl.evaluate(tmp_path / "tuned" / "step-0000002", "udpos", data)[0]["step"] == 2
    assert xl.finetune(run, "udpos", data, tmp_path / "tuned", checkpoints="2", **options)[0]["step"] == 2  # finished

    for folders in ([run, tmp_path / "tuned"], [tmp_path / "tuned", run], [tmp_path / "tuned"]):
        [found], _ = collect_runs(folders)
        assert (found.name, len(found.checkpoint_rows), len(found.metrics) > 0) == ("x", len(rows), True)
    [plot] = checkpoint_charts([found])
    by_step = defaultdict(list)
    for row in rows:
        if (row["metric"], row["split"]) == (rows[0]["metric"], rows[0]["split"]):
            by_step[row["step"]].append(row["value"])
    assert [y for _, y in plot.series[0].points] == pytest.approx([fmean(by_step[step]) for step in (2, 4)])


def test_wrong_uses_are_refused(run: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"checkpoints=all: applies to training-free tasks\. For xnli, fine-tune"):
        xl.evaluate(run, "xnli", data, checkpoints="all")
    with pytest.raises(BadInput, match=r"task=translation: it has no checkpoints\. Omit them"):
        xl.finetune(run, "translation", data, tmp_path / "mt", checkpoints="all")
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(BadInput, match=r"thesis\.tex is no output of crossling finetune --checkpoints"):
        xl.finetune(run, "udpos", data, tmp_path, checkpoints="all")
