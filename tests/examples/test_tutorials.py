"""The scripts of the tutorials run on a few sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossling import bundled
from crossling.data.shards import Shards
from tests.load_script import load_script

SMALL_BATCH = ("mlm.tokens=256", "tlm.tokens=256", "mlm.length=32", "tlm.length=32", "xlco.length=32", "xlco.pairs=8")


def run_script(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr("sys.argv", [name, *map(str, arguments)])
    load_script(f"examples/{name}.py").main()


def set_options(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def test_train(
    tmp_path: Path, small_model: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ("--steps", 2, "--vocabulary", 600, "--limit", 200, "--held-out", 20)
    settings = set_options(*SMALL_BATCH, *small_model, "optimizer.warmup=0")
    run_script("tutorial_train", monkeypatch, "-o", tmp_path, *sizes, *settings)
    printed = capsys.readouterr().out
    assert [line.split(":")[0] for line in printed.splitlines()[:4]] == ["de-en", "en-is", "de", "is"]
    assert (tmp_path / "exported" / "model.safetensors").exists()
    assert (tmp_path / "run" / "scores.jsonl").exists()
    assert sum(1 for _ in (tmp_path / "cleaned" / "pairs").iterdir()) == 3


def test_adapt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--steps", 2, "--new-entries", 50, "--limit", 200, "--held-out", 10)
    run_script("tutorial_adapt", monkeypatch, "-o", tmp_path, *sizes, *set_options(*SMALL_BATCH))
    printed = capsys.readouterr().out
    assert "en-is: 0." in printed
    assert "is: retrieval " in printed
    assert "de: retrieval " in printed
    assert (tmp_path / "adapted" / "model.safetensors").exists()


def test_paper(
    shards: Shards,
    synth_folder: Path,
    small_model: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    batch = [f"{name}.{key}" for name in ("mrtd", "trtd", "mlm", "tlm") for key in ("tokens=256", "length=32")]
    data = ("--shards", shards.path, "--data", synth_folder / "data", "-o", tmp_path)
    settings = set_options(*batch, *small_model, "optimizer.warmup=0")
    run_script("tutorial_paper", monkeypatch, *data, "--steps", 2, *settings)
    printed = capsys.readouterr().out
    assert printed.startswith("base: ")
    assert "days on 8 x h100" in printed
    assert {path.name for path in tmp_path.iterdir()} >= {"xlm_e", "no-trtd", "no-trtd-no-bias", "mlm-tlm"}
    assert "no-trtd" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_report(
    tmp_path: Path, synth_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.symlink_to(bundled.folder())
    models = ("bundled", other)
    run_script("tutorial_report", monkeypatch, "--data", synth_folder / "data", "-o", tmp_path / "out", *models)
    printed = capsys.readouterr().out
    assert "% at layer " in printed
    assert "p = 1.000" in printed  # the same model twice
    assert (tmp_path / "out" / "report.html").exists()
