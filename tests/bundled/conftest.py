"""A small model in place of the bundled one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from crossling import bundled, cli
from crossling.data.shards import Shards


class CommandResult(NamedTuple):
    status: int
    out: str
    err: str


Run = Callable[..., CommandResult]


@pytest.fixture(scope="session")
def run(shards: Shards, small_model: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    from crossling.recipes import get_recipe
    from crossling.recipes.pretrain import pretrain

    folder = tmp_path_factory.mktemp("bundled") / "run"
    scaled = ["mlm.length=32", "mlm.tokens=128", "steps=2", "lr=0.01", "optimizer.warmup=0", "model.layers=3"]
    pretrain(get_recipe("xlm_r", "tiny").set([*small_model, *scaled]), shards, folder)
    return folder


@pytest.fixture
def small_bundled(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace the bundled model by a small one and return its folder."""
    from crossling.export import export

    folder = export(run, tmp_path / "small_bundled", precision="int8", layers=2)
    monkeypatch.setattr(bundled, "FOLDER", folder)
    return folder


@pytest.fixture
def crossling(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> CommandResult:
        monkeypatch.setattr(sys, "argv", ["crossling", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return CommandResult(int(ended.value.code or 0), *capsys.readouterr())

    return run
