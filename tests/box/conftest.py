"""The model that ships, as a small one in its place."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from crossling import box, cli
from crossling.data.shards import Shards


class Ended(NamedTuple):
    status: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture(scope="session")
def run(shards: Shards, small_model: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    from crossling.recipe import pretrain
    from crossling.recipes import named

    folder = tmp_path_factory.mktemp("boxed") / "run"
    scaled = ["mlm.length=32", "mlm.tokens=128", "steps=2", "lr=0.01", "optimizer.warmup=0", "model.layers=3"]
    pretrain(named("xlm_r", "tiny").set([*small_model, *scaled]), shards, folder)
    return folder


@pytest.fixture
def shipped(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model in the box's place."""
    from crossling.export import export

    folder = export(run, tmp_path / "shipped", precision="int8", layers=2)
    monkeypatch.setattr(box, "FOLDER", folder)
    return folder


@pytest.fixture
def crossling(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["crossling", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return Ended(int(ended.value.code or 0), *capsys.readouterr())

    return run
