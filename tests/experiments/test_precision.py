"""experiments/precision.py: loss curves in bf16 and fp8."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from crossling.data.shards import Shards
from tests.conftest import SMALL_MODEL
from tests.load_script import load_script

script: Any = load_script("experiments/precision.py")


def test_both_precisions_train_on_the_same_data(
    shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.import_module("crossling.recipes.pretrain"), "require_fp8", lambda _: None)
    sizes = [f"{name}.{what}" for name in ("mrtd", "trtd") for what in ("tokens=256", "length=32")]
    settings = [*SMALL_MODEL, *sizes, "log_every=1", "optimizer.warmup=1"]
    options = [word for setting in settings for word in ("--set", setting)]
    output = tmp_path / "results.json"
    monkeypatch.setattr(
        sys, "argv", ["precision.py", "--shards", str(shards.path), "-o", str(output), "--size", "tiny", *options,
                      "--steps", "3"]
    )  # fmt: skip
    script.main()
    results = json.loads(output.read_text())
    runs = results["runs"]
    assert [*runs] == ["bf16", "fp8"]
    for run in runs.values():
        assert [row["step"] for row in run["rows"]] == [1, 2, 3]
        assert run["loss"] == run["rows"][-1]["loss"]
        assert run["tokens_per_second"] > 0
    assert [row["tokens"] for row in runs["fp8"]["rows"]] == [row["tokens"] for row in runs["bf16"]["rows"]]
    assert runs["fp8"]["loss"] != runs["bf16"]["loss"]
    assert runs["fp8"]["loss"] == pytest.approx(runs["bf16"]["loss"], rel=0.02)
    assert "fp8 relative to bf16: loss" in capsys.readouterr().out
