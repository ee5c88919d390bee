"""A lab from its first run to the status of its claims: no work is repeated or lost."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from crossling import cli
from crossling.core.errors import BadInput, Failed, Interrupted
from crossling.core.locks import lock_file
from crossling.data.batches import Batches, StepWork
from crossling.data.shards import Shards
from crossling.lab import lab as lab_module
from crossling.lab import lab_run
from crossling.lab.lab_plan import read_plan
from crossling.recipes.network import build_meta_network, flops_per_token, make_batches, objective_loads
from crossling.tasks import scores
from crossling.train.checkpoint import list_checkpoints

from ..html_pages import chart_lines
from .tiny_plan import ALIGNMENT, RETRIEVAL, RunLab, states, write_plan

BOTH = [
    {"claim": "TLM finds", "better": "pairs", "worse": "text", **RETRIEVAL},
    {"claim": "TLM aligns", "better": "pairs", "worse": "text", **ALIGNMENT},
]


def weights(run: Path) -> dict[str, list[float]]:
    """Return the tensors of the newest checkpoint, with the optimizer state."""
    [file] = list_checkpoints(run / "checkpoints")[-1].glob("*.safetensors")
    return {name: values.flatten().tolist() for name, values in load_file(file).items()}


def stop_at(step: int, patch: pytest.MonkeyPatch) -> None:
    """Send the signal of a scheduler when a step is sampled."""
    original = Batches.__getitem__

    def sample(self: Batches, number: int) -> StepWork:
        if number == step:
            signal.raise_signal(signal.SIGTERM)
        return original(self, number)

    patch.setattr(Batches, "__getitem__", sample)


# ---- results ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("real_pages")
def test_lab_writes_results_a_page_and_curves(run_lab: RunLab, tmp_path: Path) -> None:
    results = run_lab(claims=BOTH, seeds=[0, 1])
    out = tmp_path / "lab"
    assert json.loads((out / "lab.json").read_text(encoding="utf-8")) == json.loads(json.dumps(results))
    assert str(tmp_path) not in (out / "lab.json").read_text(encoding="utf-8")
    assert results["command"] == "crossling lab mine.json -o LAB --shards SHARDS --data DATA"
    assert states(results) == dict.fromkeys(("text-0", "text-1", "pairs-0", "pairs-1"), "finished")
    page = (out / "results.md").read_text(encoding="utf-8")
    assert "| pairs | `xlm` | 2 of 2 | 4 |" in page
    assert "| pairs | text | `sampling.pair_alpha`, `sampling.text_alpha`, `tlm` | tatoeba accuracy |" in page
    assert "one vocabulary" in page
    for claim in results["claims"]:
        found = claim["views"]["equal steps"]
        assert f"{found['status']}: {found['difference']:+.1f}" in page
        assert claim["differs"] == ["sampling.pair_alpha", "sampling.text_alpha", "tlm"]
        assert (found["languages"], found["seeds"]) == (3, 2)
    assert "pairs-1" in (out / "report.html").read_text(encoding="utf-8")
    lines = chart_lines((out / "curves.svg").read_text(encoding="utf-8"))
    assert len(lines) == 4  # two runs, by FLOPs and by steps
    # Earlier checkpoints are removed.
    assert all(len(list_checkpoints(run / "checkpoints")) == 1 for run in (out / "runs").iterdir() if run.is_dir())


def test_scores_are_those_of_the_best_layer(run_lab: RunLab, tmp_path: Path) -> None:
    results = run_lab(claims=[])
    for run in results["runs"]:
        rows = scores.read_scores(tmp_path / "lab" / "runs" / f"{run['run']}-0" / "scores.jsonl")
        for task, metric in (("tatoeba", "accuracy"), ("word-alignment", "aer")):
            score = run["scores"][task][metric]
            rows_of_metric = [row for row in rows if row["metric"] == metric]
            [measured] = [each for each in scores.summarize_layers(rows_of_metric) if each.task == task]
            assert (score["layer"], score["mean"]) == (measured.best_layer, pytest.approx(measured.best))
            assert score["by_layer"] == measured.by_layer
            own = [row["value"] for row in rows_of_metric if row["task"] == task and row["layer"] == score["layer"]]
            assert sum(score["languages"].values()) / 3 == pytest.approx(sum(own) / len(own))


def test_retrieval_is_also_compared_at_equal_flops(run_lab: RunLab) -> None:
    results = run_lab(claims=BOTH)
    finds, aligns = results["claims"]
    assert set(finds["views"]) == {"equal steps", "equal FLOPs"}
    assert set(aligns["views"]) == {"equal steps"}
    text = next(run for run in results["runs"] if run["run"] == "text")
    assert finds["views"]["equal FLOPs"]["where"] == f"{text['cost']['flops']['full']:.3g} FLOPs"  # the cheaper one
    assert [point["step"] for point in text["curve"]] == [0, 2, 4]
    assert text["curve"][-1]["flops"] == text["cost"]["flops"]["full"]


def test_budget_of_flops_determines_the_steps_of_each_run(run_lab: RunLab) -> None:
    flops = 2e8
    results = run_lab(steps=None, flops=flops, claims=BOTH)
    spent = {run["run"]: run for run in results["runs"]}
    assert spent["text"]["steps"] > spent["pairs"]["steps"]
    for run in results["runs"]:
        assert run["cost"]["flops"]["full"] == pytest.approx(flops, rel=0.025)
        assert run["cost"]["steps"] == run["steps"]
    assert set(results["claims"][0]["views"]) == {"equal FLOPs", "equal steps"}
    assert results["claims"][0]["views"]["equal steps"]["where"] == f"{spent['pairs']['steps']} steps"


@pytest.mark.parametrize(
    "run",
    [{"recipe": "xlm_r"}, {"recipe": "xlm"}, {"recipe": "xlm", "set": ["alternate=true", "tlm.tokens=512"]}],
    ids=["text", "both", "in turn"],
)
def test_steps_within_a_budget_use_it_up(run: dict[str, Any], shards: Shards, tmp_path: Path) -> None:
    """Compare with the tokens that are really sampled, also if text and pairs alternate."""
    known = read_plan(write_plan(tmp_path, runs={"a": run}, claims=[]))
    recipe, flops = known.recipe("a"), 5e8
    steps = lab_run.steps_within(flops, recipe, shards)
    batches = make_batches(recipe, shards)
    net = build_meta_network(recipe, shards.vocabulary_size)
    of_token = flops_per_token(recipe, net, objective_loads(batches))["full"]
    assert of_token * sum(batches[step].tokens for step in range(steps)) == pytest.approx(flops, rel=0.025)
    with pytest.raises(BadInput, match=r"'flops' 10: one step of xlm\w* takes \d\S+\. Give more"):
        lab_run.steps_within(10.0, recipe, shards)


def test_fine_tuned_runs(run_lab: RunLab, tmp_path: Path) -> None:
    finetune = {"runs": ["pairs"], "tasks": {"udpos": ["steps=2", "batch=4", "length=64"]}}
    results = run_lab(finetune=finetune, claims=[], measure={"word-alignment": []})
    text, pairs = results["runs"]
    assert set(text["scores"]) == {"word-alignment"}
    assert set(pairs["scores"]) == {"word-alignment", "udpos"}
    assert set(pairs["scores"]["udpos"]) == {"f1", "accuracy"}
    assert set(pairs["scores"]["udpos"]["f1"]["languages"]) == {"qaa", "qab", "qac"}
    assert pairs["scores"]["udpos"]["f1"]["layer"] is None
    assert text["curve"] == []  # the plan does not measure retrieval
    assert "POS F1" in (tmp_path / "lab" / "results.md").read_text(encoding="utf-8")


# ---- resuming -----------------------------------------------------------------------------------------------


def test_finished_runs_are_not_repeated(run_lab: RunLab, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_lab(claims=[])

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("repeated")

    monkeypatch.setattr(lab_run, "pretrain", never)
    monkeypatch.setattr(lab_run, "evaluate", never)
    again = run_lab(claims=BOTH)  # claims may be added
    assert again["runs"] == first["runs"]
    assert len(again["claims"]) == 2


def test_interrupted_run_resumes_to_the_same_weights(run_lab: RunLab, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stop_at(2, patch)
        with pytest.raises(Interrupted, match=r"text-0: stopped at step 3 of 4"):
            run_lab()
    stopped = json.loads((tmp_path / "lab" / "lab.json").read_text(encoding="utf-8"))
    assert states(stopped) == {"text-0": "in progress", "pairs-0": "not started"}
    assert states(run_lab()) == {"text-0": "finished", "pairs-0": "finished"}
    first = weights(tmp_path / "lab" / "runs" / "text-0")
    (tmp_path / "lab").rename(tmp_path / "earlier")
    run_lab()
    assert weights(tmp_path / "lab" / "runs" / "text-0") == first


def test_signal_during_evaluation_loses_no_training(
    run_lab: RunLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        signal.raise_signal(signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lab_run, "evaluate", stopped)
        with pytest.raises(Interrupted, match=r"interrupted\. Finished work is in"):
            run_lab(only=["text"])
    trained = weights(tmp_path / "lab" / "runs" / "text-0")
    monkeypatch.setattr(lab_run, "pretrain", stopped)
    assert states(run_lab(only=["text"]))["text-0"] == "finished"
    assert weights(tmp_path / "lab" / "runs" / "text-0") == trained


def test_time_limit_ends_work_before_the_next_job(
    run_lab: RunLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(lab_module.time, "monotonic", lambda: now[0])
    original = lab_run.pretrain

    def long(*arguments: Any, **named: Any) -> Any:
        now[0] += 3601
        return original(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lab_run, "pretrain", long)
        with pytest.raises(Interrupted, match=r"60 minutes are over\. The same command resumes"):
            run_lab(minutes=60)
    assert (tmp_path / "lab" / "runs" / "text-0" / "cost.json").is_file()
    assert not (tmp_path / "lab" / "runs" / "pairs-0").exists()
    assert states(run_lab(minutes=60)) == {"text-0": "finished", "pairs-0": "finished"}


def test_runs_and_seeds_can_be_added(run_lab: RunLab, tmp_path: Path) -> None:
    run_lab(runs={"text": {"recipe": "xlm_r"}}, claims=[])
    old = weights(tmp_path / "lab" / "runs" / "text-0")
    results = run_lab(runs={"text": {"recipe": "xlm_r", "seeds": [0, 1]}, "pairs": {"recipe": "xlm"}})
    assert states(results) == dict.fromkeys(("text-0", "text-1", "pairs-0"), "finished")
    assert weights(tmp_path / "lab" / "runs" / "text-0") == old
    assert weights(tmp_path / "lab" / "runs" / "text-1") != old


def test_first_seeds_come_before_second_seeds(run_lab: RunLab, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def record(recipe: Any, *_: Any, **__: Any) -> Any:
        started.append(f"{recipe.name}-{recipe.seed}")
        raise Failed("not here")

    monkeypatch.setattr(lab_run, "pretrain", record)
    with pytest.raises(Failed):
        run_lab(runs={"text": {"recipe": "xlm_r", "seeds": [5, 0]}, "pairs": {"recipe": "xlm", "seeds": [1, 2]}})
    assert started == ["xlm_r-5", "xlm-1", "xlm_r-0", "xlm-2"]


# ---- several processes --------------------------------------------------------------------------------------


def test_only_some_runs(run_lab: RunLab, tmp_path: Path) -> None:
    assert states(run_lab(only=["pairs"])) == {"text-0": "not started", "pairs-0": "finished"}
    assert not (tmp_path / "lab" / "runs" / "text-0").exists()
    assert not (tmp_path / "lab" / "report.html").exists()
    with pytest.raises(BadInput, match=r"only=pears: there is no such run in plan mine\.json; did you mean 'pairs'"):
        run_lab(only=["pears"])


def test_run_of_another_process_is_skipped(run_lab: RunLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_lab(only=["pairs"])
    with lock_file(tmp_path / "lab" / "runs" / ".text-0.lock") as is_free:
        assert is_free
        assert states(run_lab()) == {"text-0": "not started", "pairs-0": "finished"}
    assert "text-0: another process is working on it" in capsys.readouterr().err
    assert states(run_lab())["text-0"] == "finished"


def test_results_are_written_by_one_process_at_a_time(
    run_lab: RunLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are read under the same lock, so no older state overwrites a newer one."""
    free = []
    for part in ("compare_runs", "write_results"):
        original = getattr(lab_module, part)

        def check_lock(*arguments: Any, original: Any = original) -> Any:
            with lock_file(tmp_path / "lab" / ".lab.json.lock", wait=False) as is_free:
                free.append(is_free)
            return original(*arguments)

        monkeypatch.setattr(lab_module, part, check_lock)
    run_lab(only=["text"])
    assert free
    assert not any(free)


@pytest.mark.parametrize("kind", [Failed, BadInput])
def test_failed_run_does_not_stop_the_others(kind: type[Exception], run_lab: RunLab) -> None:
    original = lab_run.pretrain

    def diverges(recipe: Any, *arguments: Any, **named: Any) -> Any:
        if recipe.name == "xlm_r":
            raise kind("it diverged")
        return original(recipe, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lab_run, "pretrain", diverges)
        with pytest.raises(
            Failed, match=r"text-0: it diverged The results of the other runs are in .*results\.md\. The same"
        ):
            run_lab()
    assert states(run_lab()) == {"text-0": "finished", "pairs-0": "finished"}


# ---- command ------------------------------------------------------------------------------------------------


@pytest.fixture
def crossling(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["crossling", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


def test_synthetic_languages_are_generated_once_with_every_vocabulary(
    crossling: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    synthetic = {"languages": 2, "sentences": 120, "lemmas": 300, "vocabulary_size": 300, "test_sentences": 10}
    runs = {"joint": {"recipe": "xlm"}, "vocap": {"recipe": "xlm", "vocab": "vocap"}}
    claims = [{"claim": "VoCap helps", "better": "vocap", "worse": "joint", **RETRIEVAL}]
    file = write_plan(tmp_path, synthetic={**synthetic, "alignment_sentences": 5}, runs=runs, claims=claims)
    status, out, err = crossling("lab", file, "-o", tmp_path / "lab", "--json")
    assert status == 0, err
    results = json.loads(out)
    assert results["command"] == "crossling lab mine.json -o LAB"
    assert len({*results["shards"].values()}) == len({*results["shards"]}) == 2
    page = (tmp_path / "lab" / "results.md").read_text(encoding="utf-8")
    assert "a joint vocabulary unless another is named" in page
    assert "`vocab`" in page
    assert results["claims"][0]["views"]["equal steps"]["status"] == "inconclusive"  # only one pair of languages
    times = {file: file.stat().st_mtime_ns for file in (tmp_path / "lab").glob("shards-*/manifest.json")}
    status, out, _ = crossling("lab", file, "-o", tmp_path / "lab")
    assert status == 0
    assert "claims" in out
    assert out.endswith("results.md\n")
    assert times == {file: file.stat().st_mtime_ns for file in (tmp_path / "lab").glob("shards-*/manifest.json")}


def test_command_reports_interruptions_and_errors(
    crossling: Callable[..., tuple[int, str, str]], shards: Shards, synth_folder: Path, tmp_path: Path
) -> None:
    command = [
        "lab",
        write_plan(tmp_path),
        "-o",
        tmp_path / "lab",
        "--shards",
        shards.path,
        "--data",
        synth_folder / "data",
    ]
    with pytest.MonkeyPatch.context() as patch:
        stop_at(1, patch)
        status, out, err = crossling(*command)
    assert (status, out) == (130, "")
    assert "Run the same command to resume" in err.splitlines()[-1]
    status, _, err = crossling("lab", "synthetc", "-o", tmp_path / "other")
    assert status == 2
    assert "did you mean 'synthetic'" in err
    status, _, err = crossling(*command, "--minutes", "0")
    assert status == 2
    assert "minutes=0: expected more than 0" in err
