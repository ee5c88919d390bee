"""A plan from its first run to its verdicts: nothing is done twice, and nothing is lost."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from safetensors.torch import load_file

from crossling import cli
from crossling.data.batches import Batches, Work
from crossling.data.shards import Shards
from crossling.errors import BadInput, Failed, Interrupted
from crossling.evaluate import scores
from crossling.laboratory import lab as laboratory
from crossling.laboratory import unit
from crossling.laboratory.material import held
from crossling.laboratory.plan import read
from crossling.recipe.cost import flops_per_token, network
from crossling.train.checkpoint import all_steps

from .made import RETRIEVAL, WORDS, Lab, states, written

BOTH = [
    {"claim": "TLM finds", "better": "pairs", "worse": "text", **RETRIEVAL},
    {"claim": "TLM aligns", "better": "pairs", "worse": "text", **WORDS},
]


def weights(run: Path) -> dict[str, list[float]]:
    """Of the newest checkpoint, with what the optimizer keeps."""
    [file] = all_steps(run / "checkpoints")[-1].glob("*.safetensors")
    return {name: values.flatten().tolist() for name, values in load_file(file).items()}


def stop_at(step: int, patch: pytest.MonkeyPatch) -> None:
    """A scheduler's signal, when that step is drawn."""
    original = Batches.__getitem__

    def drawn(self: Batches, number: int) -> Work:
        if number == step:
            signal.raise_signal(signal.SIGTERM)
        return original(self, number)

    patch.setattr(Batches, "__getitem__", drawn)


# ---- what it leaves -----------------------------------------------------------------------------------------


def test_a_laboratory_leaves_a_board_a_page_and_curves(work: Lab, tmp_path: Path) -> None:
    board = work(claims=BOTH, seeds=[0, 1])
    out = tmp_path / "lab"
    assert json.loads((out / "lab.json").read_text(encoding="utf-8")) == json.loads(json.dumps(board))
    assert str(tmp_path) not in (out / "lab.json").read_text(encoding="utf-8")
    assert board["command"] == "crossling lab mine.json -o LAB --shards SHARDS --data DATA"
    assert states(board) == dict.fromkeys(("text-0", "text-1", "pairs-0", "pairs-1"), "finished")
    page = (out / "results.md").read_text(encoding="utf-8")
    assert "| pairs | `xlm` | 2 of 2 | 4 |" in page
    assert "| pairs | text | `sampling.pair_alpha`, `sampling.text_alpha`, `tlm` | tatoeba accuracy |" in page
    assert "one vocabulary" in page
    for claim in board["claims"]:
        found = claim["views"]["equal steps"]
        assert f"{found['verdict']}: {found['difference']:+.1f}" in page
        assert claim["differs"] == ["sampling.pair_alpha", "sampling.text_alpha", "tlm"]
        assert (found["languages"], found["seeds"]) == (3, 2)
    assert "pairs-1" in (out / "report.html").read_text(encoding="utf-8")
    drawn = ElementTree.parse(out / "curves.svg")
    assert len(drawn.findall(".//{*}polyline")) == 4  # two runs, by operations and by steps
    # No other checkpoint is gone back to.
    assert all(len(all_steps(run / "checkpoints")) == 1 for run in (out / "runs").iterdir() if run.is_dir())


def test_scores_are_those_of_the_best_layer(work: Lab, tmp_path: Path) -> None:
    board = work(claims=[])
    for run in board["runs"]:
        rows = scores.read(tmp_path / "lab" / "runs" / f"{run['run']}-0" / "scores.jsonl")
        for task, metric in (("tatoeba", "accuracy"), ("word-alignment", "aer")):
            told = run["scores"][task][metric]
            [measured] = [each for each in scores.summary(rows) if each.task == task]
            assert (told["layer"], told["mean"]) == (measured.best_layer, pytest.approx(measured.best))
            assert told["by_layer"] == measured.by_layer
            own = [row["value"] for row in rows if row["task"] == task and row["layer"] == told["layer"]]
            assert sum(told["languages"].values()) / 3 == pytest.approx(sum(own) / len(own))


def test_retrieval_is_judged_at_equal_operations_too(work: Lab) -> None:
    board = work(claims=BOTH)
    finds, aligns = board["claims"]
    assert set(finds["views"]) == {"equal steps", "equal FLOPs"}
    assert set(aligns["views"]) == {"equal steps"}
    text = next(run for run in board["runs"] if run["run"] == "text")
    assert finds["views"]["equal FLOPs"]["where"] == f"{text['cost']['flops']['full']:.3g} FLOPs"  # the cheaper one
    assert [point["step"] for point in text["curve"]] == [0, 2, 4]
    assert text["curve"][-1]["flops"] == text["cost"]["flops"]["full"]


def test_a_budget_of_operations_gives_each_run_its_steps(work: Lab) -> None:
    flops = 2e8
    board = work(steps=None, flops=flops, claims=BOTH)
    spent = {run["run"]: run for run in board["runs"]}
    assert spent["text"]["steps"] > spent["pairs"]["steps"]
    for run in board["runs"]:
        assert run["cost"]["flops"]["full"] == pytest.approx(flops, rel=0.025)
        assert run["cost"]["steps"] == run["steps"]
    assert set(board["claims"][0]["views"]) == {"equal FLOPs", "equal steps"}
    assert board["claims"][0]["views"]["equal steps"]["where"] == f"{spent['pairs']['steps']} steps"


@pytest.mark.parametrize(
    "run",
    [{"recipe": "xlm_r"}, {"recipe": "xlm"}, {"recipe": "xlm", "set": ["alternate=true", "tlm.tokens=512"]}],
    ids=["text", "both", "in turn"],
)
def test_steps_of_a_budget_spend_it(run: dict[str, Any], shards: Shards, tmp_path: Path) -> None:
    """By the tokens that are really drawn; where text and pairs take turns, a step is one of them."""
    known = read(written(tmp_path, runs={"a": run}, claims=[]))
    recipe, flops = known.recipe(known.runs["a"]), 5e8
    steps = unit.steps_within(flops, recipe, shards)
    batches = Batches(shards, recipe.objectives, recipe.sampling, recipe.seed, recipe.micro_tokens, recipe.alternate)
    net = network(recipe, shards.vocabulary_size)
    of_token = flops_per_token(recipe, net, unit.loads(recipe, shards))["full"]
    assert of_token * sum(batches[step].tokens for step in range(steps)) == pytest.approx(flops, rel=0.025)
    with pytest.raises(BadInput, match=r"'flops' 10: one step of xlm\w* takes \d\S+; give more"):
        unit.steps_within(10.0, recipe, shards)


def test_finalists_are_fine_tuned(work: Lab, tmp_path: Path) -> None:
    finalists = {"runs": ["pairs"], "tasks": {"udpos": ["steps=2", "batch=4", "length=64"]}}
    board = work(finalists=finalists, claims=[], measure={"word-alignment": []})
    text, pairs = board["runs"]
    assert set(text["scores"]) == {"word-alignment"}
    assert set(pairs["scores"]) == {"word-alignment", "udpos"}
    assert set(pairs["scores"]["udpos"]) == {"f1", "accuracy"}
    assert set(pairs["scores"]["udpos"]["f1"]["languages"]) == {"qaa", "qab", "qac"}
    assert pairs["scores"]["udpos"]["f1"]["layer"] is None
    assert text["curve"] == []  # nobody asked for retrieval
    assert "POS F1" in (tmp_path / "lab" / "results.md").read_text(encoding="utf-8")


# ---- going on -----------------------------------------------------------------------------------------------


def test_what_is_finished_is_not_done_again(work: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    first = work(claims=[])

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("done again")

    monkeypatch.setattr(unit, "pretrain", never)
    monkeypatch.setattr(unit, "evaluate", never)
    again = work(claims=BOTH)  # claims may be added
    assert again["runs"] == first["runs"]
    assert len(again["claims"]) == 2


def test_a_run_that_was_stopped_goes_on_to_the_same_end(work: Lab, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stop_at(2, patch)
        with pytest.raises(Interrupted, match=r"stopped at step 3 of 4, saved in .*text-0; the same command goes on"):
            work()
    stopped = json.loads((tmp_path / "lab" / "lab.json").read_text(encoding="utf-8"))
    assert states(stopped) == {"text-0": "under way", "pairs-0": "not begun"}
    assert states(work()) == {"text-0": "finished", "pairs-0": "finished"}
    first = weights(tmp_path / "lab" / "runs" / "text-0")
    (tmp_path / "lab").rename(tmp_path / "earlier")
    work()
    assert weights(tmp_path / "lab" / "runs" / "text-0") == first


def test_a_signal_while_it_measures_loses_no_training(
    work: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        signal.raise_signal(signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unit, "evaluate", stopped)
        with pytest.raises(Interrupted, match="interrupted; what is finished is kept in"):
            work(only=["text"])
    trained = weights(tmp_path / "lab" / "runs" / "text-0")
    monkeypatch.setattr(unit, "pretrain", stopped)
    assert states(work(only=["text"]))["text-0"] == "finished"
    assert weights(tmp_path / "lab" / "runs" / "text-0") == trained


def test_minutes_that_are_over_end_it_before_the_next_piece_of_work(
    work: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("crossling.laboratory.slot.time.monotonic", lambda: now[0])
    original = unit.pretrain

    def long(*arguments: Any, **named: Any) -> Any:
        now[0] += 3601
        return original(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unit, "pretrain", long)
        with pytest.raises(Interrupted, match="60 minutes are over; the same command goes on"):
            work(minutes=60)
    assert (tmp_path / "lab" / "runs" / "text-0" / "cost.json").is_file()
    assert not (tmp_path / "lab" / "runs" / "pairs-0").exists()
    assert states(work(minutes=60)) == {"text-0": "finished", "pairs-0": "finished"}


def test_runs_and_seeds_may_be_added(work: Lab, tmp_path: Path) -> None:
    work(runs={"text": {"recipe": "xlm_r"}}, claims=[])
    old = weights(tmp_path / "lab" / "runs" / "text-0")
    board = work(runs={"text": {"recipe": "xlm_r", "seeds": [0, 1]}, "pairs": {"recipe": "xlm"}})
    assert states(board) == dict.fromkeys(("text-0", "text-1", "pairs-0"), "finished")
    assert weights(tmp_path / "lab" / "runs" / "text-0") == old
    assert weights(tmp_path / "lab" / "runs" / "text-1") != old


def test_first_seeds_of_all_runs_come_before_second_ones(work: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    def noted(recipe: Any, *_: Any, **__: Any) -> Any:
        begun.append(f"{recipe.name}-{recipe.seed}")
        raise Failed("not here")

    monkeypatch.setattr(unit, "pretrain", noted)
    with pytest.raises(Failed):
        work(runs={"text": {"recipe": "xlm_r", "seeds": [5, 0]}, "pairs": {"recipe": "xlm", "seeds": [1, 2]}})
    assert begun == ["xlm_r-5", "xlm-1", "xlm_r-0", "xlm-2"]


# ---- several processes --------------------------------------------------------------------------------------


def test_only_some_runs(work: Lab, tmp_path: Path) -> None:
    assert states(work(only=["pairs"])) == {"text-0": "not begun", "pairs-0": "finished"}
    assert not (tmp_path / "lab" / "runs" / "text-0").exists()
    assert not (tmp_path / "lab" / "report.html").exists()
    with pytest.raises(BadInput, match=r"--only pears: there is no such run in plan mine\.json; did you mean 'pairs'"):
        work(only=["pears"])


def test_a_run_that_another_process_is_at_is_left_to_it(
    work: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work(only=["pairs"])
    with held(tmp_path / "lab" / "runs" / "text-0") as mine:
        assert mine
        assert states(work()) == {"text-0": "not begun", "pairs-0": "finished"}
    assert "text-0: another process is at it" in capsys.readouterr().err
    assert states(work())["text-0"] == "finished"


def test_the_page_is_written_by_one_process_at_a_time(
    work: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the look at the runs on: else what was seen earlier could be written later."""
    free = []
    for part in ("board", "write_results"):
        original = getattr(laboratory, part)

        def looked(*arguments: Any, original: Any = original) -> Any:
            with held(tmp_path / "lab" / "lab.json", wait=False) as mine:
                free.append(mine)
            return original(*arguments)

        monkeypatch.setattr(laboratory, part, looked)
    work(only=["text"])
    assert free
    assert not any(free)


@pytest.mark.parametrize("kind", [Failed, BadInput])
def test_a_run_that_fails_does_not_keep_the_others_from_their_turn(kind: type[Exception], work: Lab) -> None:
    original = unit.pretrain

    def diverges(recipe: Any, *arguments: Any, **named: Any) -> Any:
        if recipe.name == "xlm_r":
            raise kind("it diverged")
        return original(recipe, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unit, "pretrain", diverges)
        with pytest.raises(
            Failed, match=r"text-0: it diverged; what there is of the others is in .*results\.md, and the"
        ):
            work()
    assert states(work()) == {"text-0": "finished", "pairs-0": "finished"}


# ---- the verb -----------------------------------------------------------------------------------------------


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


def test_embedded_languages_are_made_once_with_every_vocabulary(
    crossling: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    embedded = {"languages": 2, "sentences": 120, "lemmas": 300, "pieces": 300, "test_sentences": 10}
    runs = {"joint": {"recipe": "xlm"}, "vocap": {"recipe": "xlm", "vocab": "vocap"}}
    claims = [{"claim": "VoCap helps", "better": "vocap", "worse": "joint", **RETRIEVAL}]
    file = written(tmp_path, embedded={**embedded, "alignment_sentences": 5}, runs=runs, claims=claims)
    status, out, err = crossling("lab", file, "-o", tmp_path / "lab", "--json")
    assert status == 0, err
    board = json.loads(out)
    assert board["command"] == "crossling lab mine.json -o LAB"
    assert len({*board["shards"].values()}) == len({*board["shards"]}) == 2
    page = (tmp_path / "lab" / "results.md").read_text(encoding="utf-8")
    assert "a joint vocabulary where a run names no other" in page
    assert "`vocab`" in page
    assert board["claims"][0]["views"]["equal steps"]["verdict"] == "undecided"  # there is one pair of languages only
    made = {file: file.stat().st_mtime_ns for file in (tmp_path / "lab").glob("shards-*/manifest.json")}
    status, out, _ = crossling("lab", file, "-o", tmp_path / "lab")
    assert status == 0
    assert "claims" in out
    assert out.endswith("results.md\n")
    assert made == {file: file.stat().st_mtime_ns for file in (tmp_path / "lab").glob("shards-*/manifest.json")}


def test_the_verb_ends_with_its_sentence(
    crossling: Callable[..., tuple[int, str, str]], shards: Shards, babel_folder: Path, tmp_path: Path
) -> None:
    command = [
        "lab",
        written(tmp_path),
        "-o",
        tmp_path / "lab",
        "--shards",
        shards.path,
        "--data",
        babel_folder / "data",
    ]
    with pytest.MonkeyPatch.context() as patch:
        stop_at(1, patch)
        status, out, err = crossling(*command)
    assert (status, out) == (130, "")
    assert "the same command goes on" in err.splitlines()[-1]
    status, _, err = crossling("lab", "embeded", "-o", tmp_path / "other")
    assert status == 2
    assert "did you mean 'embedded'" in err
    status, _, err = crossling(*command, "--minutes", "0")
    assert status == 2
    assert "--minutes 0: expected more than 0" in err
