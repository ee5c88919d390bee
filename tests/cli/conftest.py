"""Run commands in the test process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from crossling import cli
from crossling.data.shards import Shards
from tests.known_cpu_speed import _known_cpu_speed  # noqa: F401 - a fixture

SMALL = [
    *("--size", "tiny", "--set", "steps=2", "--set", "model.layers=1", "--set", "model.width=16"),
    *("--set", "model.feed_forward=32", "--set", "model.generator_layers=1", "--set", "mrtd.tokens=128"),
    *("--set", "trtd.tokens=128", "--set", "mrtd.length=32", "--set", "trtd.length=32"),
]


@dataclass(frozen=True)
class Completed:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Command = Callable[..., Completed]


@pytest.fixture
def crossling(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `crossling ...` in this process."""

    def run(*arguments: str | Path) -> Completed:
        monkeypatch.setattr(sys, "argv", ["crossling", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        return Completed(int(exit_.value.code or 0), *capsys.readouterr())

    return run


def error_line(completed: Completed, code: int) -> str:
    """Return the only line that a failed command prints besides notes and finished progress bars."""
    assert completed.code == code, completed
    assert completed.out == ""
    lines = completed.err.splitlines(keepends=True)
    [line] = [line for line in lines if not line.startswith(("crossling: note: ", "read "))]
    assert line.startswith("crossling: ")
    assert line.endswith("\n")
    return line


def weights_file(run: Path) -> Path:
    [file] = (run / "checkpoints" / "0000002").glob("*.safetensors")
    return file


@pytest.fixture(scope="module")
def run_folder(shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from crossling.recipes import get_recipe
    from crossling.recipes.pretrain import pretrain

    out = tmp_path_factory.mktemp("cli") / "run"
    settings = [value for key, value in zip(SMALL[::2], SMALL[1::2], strict=True) if key == "--set"]
    pretrain(get_recipe("xlm_e", "tiny").set(settings), shards, out)
    return out
