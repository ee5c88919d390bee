"""The profile of a step divides its time among kinds of operations."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crossling import recipes
from crossling.bench.bench_results import read_results, results_markdown
from crossling.bench.step_profile import IDLE, OTHER, group_operations, profile_step
from crossling.bench.workload import CPU_SHAPE, BenchSetup
from crossling.cli.app import app
from crossling.core.errors import BadInput


def test_operations_are_grouped_by_kind() -> None:
    operations = {
        "nvjet_sm90_tst_192x192_64x3_1x2_h_bz_coopB_NNN": (0.040, 60.0),
        "aten::addmm": (0.010, 5.0),
        "backward_keys": (0.020, 16.0),
        "_row_kernel": (0.005, 5.0),
        "void multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata>": (0.002, 20.0),
        "_gelu_backward": (0.011, 16.0),
        "Memcpy HtoD (Pinned -> Device)": (0.001, 8.0),
        "triton_poi_fused_add_0": (0.003, 32.0),
        "aten::empty": (0.0, 100.0),
    }
    parts = {part.name: part for part in group_operations(operations, 0.1)}
    assert parts["matrix products"].seconds == pytest.approx(0.05)
    assert parts["matrix products"].operations == 65
    assert parts["attention"].fraction == pytest.approx(0.2)
    assert {"head", "optimizer", "norms and GELU", "copies"} <= parts.keys()
    assert parts[OTHER].operations == 32
    assert parts[IDLE].seconds == pytest.approx(0.1 - 0.092)
    assert parts["attention"].speedup == pytest.approx(1.25)
    assert sum(part.fraction for part in parts.values()) == pytest.approx(1)
    assert [part.seconds for part in parts.values()] == sorted((part.seconds for part in parts.values()), reverse=True)


def test_a_step_is_profiled() -> None:
    shape = replace(CPU_SHAPE, layers=1, width=16, feed_forward=32)
    at = replace(BenchSetup.of(), shape=shape, vocabulary=100, length=32, batches=(2,), times=2)
    found = profile_step("xlm_e", recipes.xlm_e().replace(trtd=None), at, 2)
    assert found.tokens == 2 * 32
    assert found.host_seconds > 0
    assert sum(part.fraction for part in found.parts) == pytest.approx(1)
    assert {"matrix products", "attention", IDLE} <= {part.name for part in found.parts}


def test_the_command_prints_and_stores_a_profile_for_each_batch_size(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "--profile", "--json", "-o", str(tmp_path / "profile.json")])
    assert result.exit_code == 0, result.output
    profiles = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["name"] for each in profiles] == ["xlm_e on text, batch 4", "xlm_e on text, batch 8"]
    stored = read_results(tmp_path / "profile.json")
    assert stored["profiles"] == profiles
    table = results_markdown([stored])
    assert table.count("| part | ms | % of the step | launches | speed without it |") == 2
    assert "xlm_e on text, batch 4: " in table
    for part in profiles[0]["parts"]:
        assert f"| {part['name']} | {part['seconds'] * 1e3:.2f} |" in table


def test_a_profile_takes_no_names_of_benchmarks() -> None:
    refused = CliRunner().invoke(app, ["bench", "step", "--profile"])
    assert isinstance(refused.exception, BadInput)
    assert "speed without it" in CliRunner().invoke(app, ["bench", "--profile"]).stdout
