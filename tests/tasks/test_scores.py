from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crossling.core.errors import BadInput
from crossling.tasks import scores
from crossling.tasks.scores import Score


def row(**changes: Any) -> dict[str, Any]:
    fields = {"protocol": "sweep", "metric": "accuracy", "language": "sw", "direction": "en-xx", "layer": 1}
    return Score(**{"model": "a", "task": "tatoeba", "examples": 10, "value": 50.0, **fields, **changes}).row()


def test_fields_that_do_not_apply_are_absent() -> None:
    assert "seed" not in row()
    assert row(seed=0)["seed"] == 0
    assert list(row(seed=0))[-3:] == ["split", "examples", "value"]


def test_scores_round_trip_and_replace_older_ones(tmp_path: Path) -> None:
    path = tmp_path / "out" / "scores.jsonl"
    scores.add_scores(path, [row(), row(layer=2)])
    scores.add_scores(path, [row(layer=2, value=60.0), row(layer=3), {**row(task="translation"), "signature": "é"}])
    found = scores.read_scores(path)
    assert [(each["layer"], each["value"]) for each in found] == [(1, 50), (2, 60), (3, 50), (1, 50)]
    assert found[-1]["signature"] == "é"
    assert [file.name for file in path.parent.iterdir()] == ["scores.jsonl"]


def test_rows_have_a_version_and_those_without_one_are_of_version_1(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    old = {name: value for name, value in row().items() if name != "version"}
    path.write_text(json.dumps(old) + "\n")
    assert scores.read_scores(path) == [old]
    scores.add_scores(path, [row(layer=2)])
    assert [(each["layer"], each["version"]) for each in scores.read_scores(path)] == [(1, 1), (2, 1)]
    scores.add_scores(path, [row(value=60.0)])  # replaces the row that had no version
    assert [each["value"] for each in scores.read_scores(path)] == [60, 50]


@pytest.mark.parametrize("version", [2, "1", None, True])
def test_rows_of_another_version_are_refused(tmp_path: Path, version: object) -> None:
    path = tmp_path / "scores.jsonl"
    path.write_text(json.dumps({"version": version, "new": 1}) + "\n")
    message = rf"scores.jsonl: line 1: format version {version!r}, expected 1. Score the model again with crossling"
    with pytest.raises(BadInput, match=message):
        scores.read_scores(path)


def test_an_undefined_value_is_null_and_in_no_mean(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    scores.add_scores(path, [row(value=None), row(language="de")])
    assert [each["value"] for each in scores.read_scores(path)] == [None, 50]
    assert [each.by_layer for each in scores.summarize_layers(scores.read_scores(path))] == [{1: 50}]


def test_nan_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        scores.add_scores(tmp_path / "scores.jsonl", [row(value=float("nan"))])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: not JSON"),
        ("[]", "line 2: not a score row, expected an object"),
        ('{"model": "a", "task": "t", "value": 1}', "expected text under 'metric'"),
        ('{"model": "a", "task": "t", "metric": "m"}', "finite number under 'value'"),
        ('{"model": "a", "task": "t", "metric": "m", "value": NaN}', "finite number under 'value'"),
        ('{"model": "a", "task": "t", "metric": "m", "value": 1, "layer": "6"}', "whole number under 'layer'"),
    ],
)
def test_malformed_lines_are_refused(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "scores.jsonl"
    path.write_text(json.dumps(row()) + "\n" + line + "\n")
    with pytest.raises(BadInput, match=message):
        scores.read_scores(path)


def test_summaries_average_by_layer() -> None:
    rows = [
        row(layer=1, value=10.0),
        row(layer=1, value=30.0, direction="xx-en"),
        row(layer=2, value=25.0),
        row(layer=2, value=15.0, direction="xx-en"),
        row(layer=2, value=99.0, protocol="xtreme"),
        row(layer=2, value=90.0, task="word-alignment", metric="aer"),
        row(layer=3, value=80.0, task="word-alignment", metric="aer"),
        row(layer=3, value=0.0, task="word-alignment", metric="aer", split="dev"),
        row(layer=None, value=77.0, task="xnli"),
    ]
    sweep, xtreme, aer, dev = scores.summarize_layers(rows)
    assert (sweep.by_layer, sweep.best_layer, sweep.best) == ({1: 20, 2: 20}, 1, 20)
    assert (xtreme.protocol, xtreme.by_layer) == ("xtreme", {2: 99})
    assert (aer.best_layer, aer.best) == (3, 80)
    assert (dev.split, dev.best) == ("dev", 0)


def test_training_data_identifies_a_score_but_its_interval_does_not(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    scores.add_scores(path, [row(low=40.0, high=60.0)])
    scores.add_scores(path, [row(low=41.0, high=59.0), row(trained_on="mnli-subset"), row(selection="all-dev")])
    found = scores.read_scores(path)
    assert [each.get("low") for each in found] == [41, None, None]
    assert list(found[0])[-4:] == ["examples", "value", "low", "high"]


@pytest.mark.parametrize("number", ["high", "low"])
def test_interval_bounds_must_be_numbers(tmp_path: Path, number: str) -> None:
    path = tmp_path / "scores.jsonl"
    path.write_text(json.dumps({**row(), number: "much"}) + "\n")
    with pytest.raises(BadInput, match=f"finite number under '{number}'"):
        scores.read_scores(path)


def test_seed_statistics() -> None:
    statistics = scores.SeedStatistics((1.0, 2.0, 6.0))
    assert (statistics.mean, statistics.median) == (3, 2)
    assert statistics.deviation == pytest.approx(7**0.5)
    assert scores.SeedStatistics((1.0,)).deviation is None


def test_poolings_are_not_averaged() -> None:
    mean, first = scores.summarize_layers([row(pooling="mean", value=10.0), row(pooling="cls", value=90.0)])
    assert (mean.pooling, mean.best, first.pooling, first.best) == ("mean", 10, "cls", 90)
