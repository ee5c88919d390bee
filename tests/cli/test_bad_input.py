"""Bad input and full disks: one line, the right exit code, nothing half-written."""

from __future__ import annotations

import errno
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from crossling.data.shards import Shards

from .conftest import SMALL, Command, error_line, weights_file


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        (["xlm-ee"], "xlm-ee: there is no such recipe; did you mean 'xlm_e'?"),
        (["xlm_e", "--size", "bse"], "size bse: there is no such size; did you mean 'base'?"),
        (["xlm_e", "--set", "stepps=5"], "stepps: there is no 'stepps'; did you mean 'steps'?"),
        (["xlm_e", "--set", "steps"], "'steps': expected key=value"),
        (["xlm_e", "--set", "steps=ten"], "steps=ten: expected a whole number"),
        (["xlm_e", "--set", "seed=-1"], "recipe xlm_e: seed must be at least 0 and less than 4294967296, found -1."),
        (["absent.json"], "absent.json: not a readable recipe.json"),
    ],
)
def test_a_wrong_recipe(
    differences: list[str], expected: str, crossling: Command, shards: Shards, tmp_path: Path
) -> None:
    completed = crossling("pretrain", *differences, "--shards", shards.path, "-o", tmp_path / "run")
    assert error_line(completed, 2).startswith(f"crossling: {expected}")
    assert not (tmp_path / "run").exists()


def test_missing_shards(crossling: Command, tmp_path: Path) -> None:
    completed = crossling("pretrain", "xlm_e", "--shards", tmp_path / "absent", "-o", tmp_path / "run")
    assert "absent: no shards found (no manifest.json; no such folder). Create them with" in error_line(completed, 2)


def test_a_folder_that_is_no_run_is_not_trained_into(crossling: Command, shards: Shards, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("keep me")
    completed = crossling("pretrain", "xlm_e", "--shards", shards.path, "-o", tmp_path, *SMALL)
    assert "notes.txt is no output of crossling pretrain" in error_line(completed, 2)
    completed = crossling("pretrain", "xlm_e", "--shards", shards.path, "-o", tmp_path / "notes.txt", *SMALL)
    assert "notes.txt: expected a folder, found a file" in error_line(completed, 2)
    assert (tmp_path / "notes.txt").read_text() == "keep me"


def missing_folder(_: Path) -> str:
    return "corpora: no such folder"


def unknown_language(corpora: Path) -> str:
    write(corpora / "text" / "xx1.txt", "a b c\n")
    return "xx1.txt: "


def empty_text(corpora: Path) -> str:
    write(corpora / "text" / "sw.txt", "\n\n")
    return "sw.txt: no usable line"


def mismatched_sides(corpora: Path) -> str:
    write(corpora / "pairs" / "opus.en-fr.en", "one\ntwo\nthree\n")
    write(corpora / "pairs" / "opus.en-fr.fr", "un\ndeux\n")
    return "translations need the same number of lines"


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


@pytest.mark.parametrize("damage", [missing_folder, unknown_language, empty_text, mismatched_sides])
@pytest.mark.parametrize("verb", ["vocab", "tokenize"])
def test_wrong_corpora(
    verb: str, damage: Callable[[Path], str], crossling: Command, vocabulary_folder: Path, tmp_path: Path
) -> None:
    expected = damage(tmp_path / "corpora")
    options = ["--size", "300"] if verb == "vocab" else ["--vocab", vocabulary_folder]
    completed = crossling(verb, tmp_path / "corpora", *options, "-o", tmp_path / "out")
    assert expected in error_line(completed, 2)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_vocabulary_of_an_impossible_size(crossling: Command, corpora_folder: Path, tmp_path: Path) -> None:
    for size in ("5", "1000000", "-5", "0"):
        completed = crossling("vocab", corpora_folder, "--size", size, "-o", tmp_path / "vocab")
        assert completed.code == 2
        assert f"cannot train {size} vocabulary entries" in completed.err.splitlines()[-1]  # after those of bars


@pytest.mark.parametrize("content", [None, b"", b"no model"])
def test_a_wrong_vocabulary(content: bytes | None, crossling: Command, corpora_folder: Path, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "sentencepiece.model").write_bytes(content)
    completed = crossling("tokenize", corpora_folder, "--vocab", tmp_path, "-o", tmp_path / "shards")
    assert "Make one with `crossling vocab`" in error_line(completed, 2)


@pytest.mark.parametrize(
    ("task", "data", "expected"),
    [
        ("tatoba", "data", "task=tatoba: no such task; did you mean 'tatoeba'?"),
        ("tatoeba", "absent", "absent: no such folder"),
        ("tatoeba", ".", "tatoeba/v1: no such folder"),
        ("word-alignment", ".", "word-alignment: no such folder"),
    ],
)
def test_a_wrong_task_or_wrong_data(
    task: str, data: str, expected: str, crossling: Command, run_folder: Path, synth_folder: Path
) -> None:
    completed = crossling("evaluate", run_folder, "--task", task, "--data", synth_folder / data)
    assert expected in error_line(completed, 2)


def test_a_wrong_model(crossling: Command, synth_folder: Path, run_folder: Path, tmp_path: Path) -> None:
    options = ["--task", "tatoeba", "--data", synth_folder / "data"]
    assert "absent: no such folder" in error_line(crossling("evaluate", tmp_path / "absent", *options), 2)
    shutil.copytree(run_folder, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert "no checkpoint yet" in error_line(crossling("evaluate", tmp_path / "run", *options), 2)
    (tmp_path / "run" / "recipe.json").write_text("{")
    shutil.copytree(run_folder / "checkpoints", tmp_path / "run" / "checkpoints")
    assert "not a readable recipe.json" in error_line(crossling("evaluate", tmp_path / "run", *options), 2)
    shutil.copy(run_folder / "recipe.json", tmp_path / "run" / "recipe.json")
    weights_file(tmp_path / "run").write_bytes(b"half")
    assert "no valid checkpoint" in error_line(crossling("evaluate", tmp_path / "run", *options), 2)


def test_lines_that_cannot_be_aligned(crossling: Command, run_folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "pairs.txt", "a cat\n")
    completed = crossling("align", tmp_path / "pairs.txt", "--model", run_folder)
    assert "line 1: expected `source ||| target`" in error_line(completed, 2)
    assert "no such file" in error_line(crossling("align", tmp_path / "absent.txt", "--model", run_folder), 2)


def test_nothing_to_report(crossling: Command, tmp_path: Path) -> None:
    assert "no scores.jsonl and no run" in error_line(crossling("report", tmp_path, "-o", tmp_path / "r.html"), 2)


def test_a_file_where_a_folder_should_be(crossling: Command, corpora_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("keep me")
    for verb, options in (("vocab", ["--size", "300"]), ("synth", [])):
        source = [corpora_folder] if verb == "vocab" else []
        error_line(crossling(verb, *source, *options, "-o", tmp_path / "taken"), 2)
        error_line(crossling(verb, *source, *options, "-o", tmp_path / "taken" / "below"), 2)
    assert (tmp_path / "taken").read_text() == "keep me"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "out/x"),
            "out/x: No space left on device. Finished parts are kept",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), "the output folder: No space left on device"),
        (OSError("100000 requested and 12784 written"), "no space left (100000 requested and 12784 written)"),
        (PermissionError(errno.EACCES, "Permission denied", "out"), "out: Permission denied"),
    ],
)
def test_a_full_or_closed_disk_is_one_error_line(
    error: OSError,
    expected: str,
    crossling: Command,
    corpora_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from crossling.vocabulary import build_vocabulary as vocab

    def full(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(vocab, "vocab", full)
    completed = crossling("vocab", corpora_folder, "--size", "300", "-o", tmp_path / "vocab")
    assert expected in error_line(completed, 1)


def test_a_full_disk_while_training(
    crossling: Command, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crossling.train import checkpoint_storage as stored

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(stored, "write_tensors", full)
    completed = crossling("pretrain", "xlm_e", "--shards", shards.path, "-o", tmp_path / "run", *SMALL)
    assert completed.code == 1
    assert "checkpoints/0000002: No space left on device" in completed.err.splitlines()[-1]
    assert "Traceback" not in completed.err


def test_an_error_of_ours_is_not_hidden(
    crossling: Command, corpora_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crossling.vocabulary import build_vocabulary as vocab

    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(vocab, "vocab", broken)
    with pytest.raises(OSError, match="Input/output"):
        crossling("vocab", corpora_folder, "--size", "300", "-o", tmp_path / "vocab")


def test_a_diverged_run_is_one_error_line(crossling: Command, shards: Shards, tmp_path: Path) -> None:
    extreme = [*SMALL, "--set", "lr=1e30", "--set", "optimizer.warmup=0", "--set", "steps=8"]
    completed = crossling("pretrain", "xlm_e", "--shards", shards.path, "-o", tmp_path / "run", *extreme)
    line = error_line(completed, 1)
    assert "step 8: 5 consecutive steps were skipped" in line
    assert "Set a lower lr" in line


def test_ctrl_c_outside_of_training(
    crossling: Command, corpora_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crossling.vocabulary import build_vocabulary as vocab

    def slow(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(vocab, "vocab", slow)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    completed = crossling("vocab", corpora_folder, "--size", "300", "-o", tmp_path / "vocab")
    signal.signal(signal.SIGINT, before)
    assert error_line(completed, 130) == "crossling: interrupted. Run the same command again to resume.\n"
