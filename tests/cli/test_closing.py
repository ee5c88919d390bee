"""The last lines of a command on standard error: what it wrote, and the next command."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from crossling.cli.closing import finish, python_command, this_command, training_command, unused, vocab_command
from crossling.data.shards import Shards

from .conftest import SMALL, Command


def test_nothing_is_printed_beside_json(capsys: pytest.CaptureFixture[str]) -> None:
    finish("Wrote x.", ["export", "x"], json=True)
    assert capsys.readouterr() == ("", "")
    finish("Wrote x.", ["export", "a run"], "open it.")
    assert capsys.readouterr() == ("", "Wrote x.\nNext: crossling export 'a run'\n  or: open it.\n")


def test_suggested_folders_do_not_exist(tmp_path: Path) -> None:
    assert unused(tmp_path / "run") == tmp_path / "run"
    (tmp_path / "run").mkdir()
    (tmp_path / "page.html").touch()
    assert unused(tmp_path / "run") == tmp_path / "run-2"
    assert unused(tmp_path / "page.html") == tmp_path / "page-2.html"


def test_sizes_follow_the_data() -> None:
    assert vocab_command("hf://owner/name", 2_000_000)[-3:] == [32_000, "-o", Path("vocab")]
    assert vocab_command("a/corpora", 80)[-3:] == [400, "-o", Path("a/vocab")]
    few = {"text": {"sw": {"tokens": 1000}}, "pairs": {}, "multi": {}}
    many = {"text": {"sw": {"tokens": 10**9}}, "pairs": {"x": {}}, "multi": {}}
    assert training_command("plan", Path("s"), few) == ["plan", "xlm_r", "--shards", Path("s"), "--size", "tiny"]
    assert training_command("pretrain", Path("s"), many)[1:6] == ["rosetta", "--shards", Path("s"), "--size", "small"]


def test_commands_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["crossling", "mine", "a b.txt", "c.txt"])
    assert shlex.split(this_command("--k", 2)) == ["crossling", "mine", "a b.txt", "c.txt", "--k", "2"]
    for program in ("print('a')", "print('$HOME')", 'print("a")'):
        assert shlex.split(python_command(program)) == ["python", "-c", program]


def test_the_next_command_of_each_command_works(
    crossling: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From synthetic languages to a page, with the commands that are printed, at a smaller size."""
    monkeypatch.chdir(tmp_path)

    def next_command(completed: object) -> list[str]:
        assert completed.code == 0, completed  # type: ignore[attr-defined]
        [line] = [line for line in completed.err.splitlines() if line.startswith("Next: crossling ")]  # type: ignore[attr-defined]
        return shlex.split(line)[2:]

    words = next_command(crossling("synth", "-o", "synth", "--languages", "2", "--sentences", "80", "--lemmas", "300"))
    assert words == ["vocab", "synth/corpora", "--size", "400", "-o", "synth/vocab"]
    words = next_command(crossling(*words))
    assert words[:4] == ["tokenize", "synth/corpora", "--vocab", "synth/vocab"]
    words = next_command(crossling(*words))
    assert words[0] == "plan"
    words = next_command(crossling(*words, "-o", "plan.html", *SMALL[2:4]))
    assert words[-4:] == ["--set", "steps=2", "-o", "run"]
    words = next_command(crossling(*words, "--set", "model.layers=1", "--probe", "synth/data"))
    assert words[:2] == ["evaluate", "run"]
    words = next_command(crossling(*words))
    assert words == ["report", "run", "-o", "run/report.html"]
    written = crossling(*words)
    assert (written.code, written.err) == (
        0,
        "Wrote the page to run/report.html, and its tables to run/report.md.\n"
        "Next: open run/report.html in a browser.\n",
    )
    exported = crossling("export", "run", "-o", "exported")
    [line] = [line for line in exported.err.splitlines() if line.startswith("Next: ")]
    assert "xl.load('exported')" in shlex.split(line)[-1]
    cleaned = next_command(crossling("clean", "synth/corpora", "--duplicates", "-o", "clean"))
    assert cleaned == ["vocab", "clean", "--size", "400", "-o", "vocab"]
    assert next_command(crossling("check", "clean"))[:2] == ["vocab", "clean"]


def test_json_output_ends_without_a_next_command(crossling: Command, shards: Shards) -> None:
    for command in (["plan", "rosetta", "--shards", shards.path, "--size", "tiny"], ["check", shards.path]):
        assert "Next" not in crossling(*command, "--json").err
