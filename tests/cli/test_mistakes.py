"""Mistakes of new users: each gets one line with the problem and the fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossling.data.shards import Shards

from .conftest import SMALL, Command, error_line

SHARDS_AND_OUT = ["--shards", "shards", "-o", "out"]


@pytest.fixture
def folders(
    shards: Shards, run_folder: Path, synth_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Return a folder with shards, a run and synthetic languages in it."""
    monkeypatch.chdir(tmp_path)
    Path("shards").symlink_to(shards.path)
    Path("run").symlink_to(run_folder)
    Path("synth").symlink_to(synth_folder)
    Path("lines.txt").write_text("a b\n", encoding="utf-8")
    Path("empty.txt").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        # Folders of the wrong kind.
        (["pretrain", "xlm_e", "--shards", "run", "-o", "out"], "this is a run of crossling pretrain"),
        (["pretrain", "xlm_e", "--shards", "synth/corpora", "-o", "out"], "this is a folder of corpora"),
        (["check", "run"], "run: this is a run of crossling pretrain, expected corpora"),
        (["vocab", "synth", "--size", "300", "-o", "out"], "expected corpora. Give synth/corpora."),
        (["check", "lines.txt"], "lines.txt: a file, expected a folder. Put it into CORPORA/text/LL.txt"),
        (["tokenize", "synth/corpora", "--vocab", "synth/corpora", "-o", "out"], "no vocabulary (expected"),
        (["evaluate", "shards", "--task", "tatoeba", "--data", "synth/data"], "this is a folder of shards"),
        (["evaluate", "run", "--task", "tatoeba", "--data", "synth"], "Give synth/data."),
        (["evaluate", "run", "--task", "tatoeba", "--data", "synth/data/tatoeba"], "Give synth/data."),
        (["finetune", "run", "--task", "xnli", "--data", "synth/data/xnli", "-o", "out"], "Give synth/data."),
        (["export", "synth/corpora", "-o", "out"], "this is a folder of corpora"),
        (["translate", "run", "lines.txt"], "no translator.json here; this is a run"),
        (["demo", "-o", "run"], "is no output of crossling demo"),
        # Settings and options.
        (["pretrain", "xlm_e", *SHARDS_AND_OUT, "--steps", "100"], "Settings are given as --set steps=100."),
        (["pretrain", "xlm_e", *SHARDS_AND_OUT, "--learning-rate", "1"], "--set lr=1"),
        (["pretrain", "xlm_e", *SHARDS_AND_OUT, "--precision", "fp16"], "GPUs train in bfloat16"),
        (["embed", "lines.txt", "-o", "out.npy", "--precision", "int4"], "precision=int4: no such precision"),
        (["pretrain", "xlm_e", *SHARDS_AND_OUT, "--precision", "fp8"], "give --set precision=fp8."),
        (["pretrain", "xlm_e", *SHARDS_AND_OUT, "--set", "precision=fp16"], "expected one of bf16, fp8."),
        (["pretrain", "xlm_e", *SHARDS_AND_OUT, "--set", "steps", "5"], "5: unexpected. Settings have the form"),
        (["pretrain", "xlm_e", *SHARDS_AND_OUT, "--set", "lr=1,steps=3"], "Give each setting on its own."),
        (["pretrain", "xlm_e", *SHARDS_AND_OUT, "--set", f"steps={'9x' * 5000}"], "…: expected a whole number."),
        (
            ["pretrain", "xlm_e", *SHARDS_AND_OUT, "--set", f"model.width={2**63}"],
            "model.width must be at least 1",
        ),
        # Names.
        (
            ["pretrain", "bundled", *SHARDS_AND_OUT],
            "not a recipe. Use `crossling pretrain rosetta --init bundled`",
        ),
        (["pretrain", "synth/corpora", *SHARDS_AND_OUT], "this is a folder of corpora, not a recipe. Give the name"),
        (["pretrain", "mlm", *SHARDS_AND_OUT], "this is an objective, not a recipe. Use a recipe that has it: xlm_r"),
        (["evaluate", "run", "--task", "retrieval", "--data", "synth/data"], "did you mean 'tatoeba'?"),
        (["finetune", "run", "--task", "ner", "--data", "synth/data", "-o", "out"], "did you mean 'panx'?"),
        # Missing options, rules and lines.
        (
            ["evaluate", "run", "--task", "tatoeba"],
            "--data is missing. Folder of benchmark data. See",
        ),
        (["mine", "lines.txt"], "B is missing. Sentences in the other language."),
        (["clean", "synth/corpora", "-o", "out"], "on the command line --duplicates or --all"),
        (["align", "empty.txt"], "empty.txt: the file is empty. Check the file"),
    ],
)
def test_the_answer_names_the_fix(command: list[str], answer: str, crossling: Command, folders: Path) -> None:
    line = error_line(crossling(*command), 2)
    assert answer in line
    assert len(line) < 400
    assert not (folders / "out").exists()


def test_a_misspelt_model_gets_a_suggestion(crossling: Command, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    line = error_line(crossling("embed", "lines.txt", "-o", "x.npy", "--model", "xlm-roberta-bse"), 2)
    assert "Did you mean 'xlm-roberta-base'?" in line
    (folders / "my-encoder").mkdir()
    line = error_line(crossling("embed", "lines.txt", "-o", "x.npy", "--model", "my-encodr"), 2)
    assert "Did you mean 'my-encoder'?" in line


def test_shards_are_not_replaced_by_those_of_another_vocabulary(crossling: Command, tmp_path: Path) -> None:
    text = tmp_path / "corpora" / "text" / "sw.txt"
    text.parent.mkdir(parents=True)
    text.write_text("".join(f"habari ya asubuhi {number}\n" for number in range(200)), encoding="utf-8")
    for size in ("40", "45"):
        vocabulary = crossling("vocab", tmp_path / "corpora", "--size", size, "-o", tmp_path / size)
        assert vocabulary.code == 0, vocabulary
    command = ["tokenize", tmp_path / "corpora", "-o", tmp_path / "shards", "--vocab"]
    assert "text in 1 language (" in crossling(*command, tmp_path / "40").out
    line = error_line(crossling(*command, tmp_path / "45"), 2)
    assert "these shards have another vocabulary, of 40 entries. Give that vocabulary, or a new folder." in line
    assert crossling(*command, tmp_path / "40").code == 0


@pytest.mark.usefixtures("folders")
def test_a_task_that_is_named_twice_is_scored_once(crossling: Command) -> None:
    data = ["--data", "synth/data", "--languages", "qaa-qab"]
    completed = crossling("evaluate", "run", "--task", "tatoeba,tatoeba", *data)
    assert completed.code == 0
    assert completed.out.count("tatoeba: accuracy") == 1


@pytest.mark.usefixtures("folders")
def test_whole_numbers_in_scientific_notation(crossling: Command) -> None:
    options = [*SMALL, "--set", "steps=1e3", "--device", "a100", "--json"]
    assert '"steps": 1000,' in crossling("plan", "xlm_e", "--shards", "shards", *options).out
