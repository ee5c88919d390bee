"""The commands `crossling finetune` and `crossling evaluate` of a fine-tuned model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crossling.cli.app import app
from crossling.core.errors import BadInput

from .tiny_tasks import model_folder, write_xnli

QUICK = ["--set", "steps=3", "--set", "batch=8", "--set", "length=64", "--set", "lr=1e-3"]


def test_fine_tune_and_score_again(tmp_path: Path) -> None:
    model, out = str(model_folder(tmp_path / "model")), str(tmp_path / "tuned")
    languages = {"train": ["qaa"], "dev": ["qaa"], "test": ["qaa", "qab"]}
    data = str(write_xnli(tmp_path / "data", {"train": 40, "dev": 10, "test": 10}, languages))
    options = ["--task", "xnli", "--data", data]
    run = CliRunner()
    result = run.invoke(app, ["finetune", model, *options, "-o", out, "--seeds", "2", *QUICK], catch_exceptions=False)
    assert result.exit_code == 0
    for word in (
        "xnli, zero-shot except qaa, %",
        "accuracy (xtreme)",
        "qaa",
        "qab",
        "median of 2 seeds",
        "deviation",
        out,
    ):
        assert word in result.stdout
    rows = [json.loads(line) for line in (tmp_path / "tuned" / "scores.jsonl").read_text().splitlines()]
    assert len(rows) == 4
    for more in ([], ["--recompute"]):
        found = run.invoke(app, ["evaluate", out, *options, "--json", *more], catch_exceptions=False)
        assert [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")] == rows
    with pytest.raises(BadInput, match=f"crossling finetune {model} --task xnli"):
        run.invoke(app, ["evaluate", model, *options], catch_exceptions=False)
    with pytest.raises(BadInput, match="there is no 'epoch'; did you mean 'epochs'"):
        run.invoke(app, ["finetune", model, *options, "-o", out, "--set", "epoch=3"], catch_exceptions=False)
    with pytest.raises(BadInput, match="--set lr: expected KEY=VALUE"):
        run.invoke(app, ["finetune", model, *options, "-o", out, "--set", "lr"], catch_exceptions=False)
