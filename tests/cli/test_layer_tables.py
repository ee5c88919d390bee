"""Tables of training-free tasks: languages at the best layer, then the mean by layer."""

from __future__ import annotations

from typing import Any

import pytest

from crossling.cli.layer_tables import ModelLayers, print_training_free
from crossling.tasks.scores import Score


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def rows_of(task: str, values: dict[int, float], **fields: Any) -> list[dict[str, Any]]:
    common = {"model": "m", "task": task, "metric": "accuracy", "examples": 1000, **fields}
    return [Score(**common, layer=layer, value=value).row() for layer, value in values.items()]


def retrieval(languages: str, layers: int) -> list[dict[str, Any]]:
    """Rows whose best layer is the last but one."""
    rows = []
    values = {layer: 10.0 * layer for layer in range(layers)} | {layers: 5.0}
    for language in languages.split():
        for direction, gain in (("xx-en", 0.0), ("en-xx", 2.0)):
            shifted = {layer: value + gain for layer, value in values.items()}
            rows += rows_of(
                "tatoeba", shifted, protocol="sweep", language=language, direction=direction, pooling="mean"
            )
        at_xtreme = {round(layers * 2 / 3): 1.25}
        rows += rows_of("tatoeba", at_xtreme, protocol="xtreme", language=language, direction="en-xx", pooling="mean")
    return rows


def lines_of(rows: list[dict[str, Any]], layers: ModelLayers, capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_training_free(rows, layers)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_both_directions_of_every_language_at_the_best_layer(capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of(retrieval("sw de", 5), ModelLayers(5, 5), capsys)
    assert lines[0] == "tatoeba: accuracy, %, model m, best layer 4 of 5"
    assert lines[2] == "┃ language ┃ sentences ┃ en → xx ┃ xx → en ┃ mean ┃"
    assert "│ sw │ 1,000 │ 42.0 │ 40.0 │ 41.0 │" in lines
    assert "│ mean of 2 languages │ │ 42.0 │ 40.0 │ 41.0 │" in lines
    assert lines[-1].endswith("3: 31.0 4: 41.0 (best) 5: 6.0 (universal layer)")


def test_the_layer_of_xtreme_is_printed_only_for_the_depths_of_its_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert not any("xtreme" in line for line in lines_of(retrieval("sw de", 5), ModelLayers(5), capsys))
    lines = lines_of(retrieval("sw de", 12), ModelLayers(12), capsys)
    assert "┃ xtreme, layer 8 ┃" in lines[2]
    assert "│ sw │ 1,000 │ 112.0 │ 110.0 │ 111.0 │ 1.2 │" in lines


def test_mteb_has_a_column_of_its_direction(capsys: pytest.CaptureFixture[str]) -> None:
    rows = retrieval("sw de", 5)
    for direction, value in (("xx-en", 7.5), ("en-xx", 9.5)):
        extra = {"metric": "f1", "protocol": "mteb", "language": "sw", "direction": direction, "pooling": "mean"}
        rows += rows_of("tatoeba", {3: value}, **extra)
    lines = lines_of(rows, ModelLayers(5), capsys)
    assert lines[2] == "┃ language ┃ sentences ┃ en → xx ┃ xx → en ┃ mean ┃ mteb F1, layer 3 ┃"
    assert "│ sw │ 1,000 │ 42.0 │ 40.0 │ 41.0 │ 7.5 │" in lines


def test_lists_of_the_papers_that_are_at_least_half_complete_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert not any("tatoeba-14" in line for line in lines_of(retrieval("sw de", 5), ModelLayers(5), capsys))
    lines = lines_of(retrieval("ar bg de el es fr hi fi", 5), ModelLayers(5), capsys)
    assert "│ tatoeba-14 (7 of 14) │ │ 42.0 │ 40.0 │ 41.0 │" in lines
    assert not any("tatoeba-22" in line for line in lines)


def test_pairs_without_english_have_a_forward_and_a_backward_direction(capsys: pytest.CaptureFixture[str]) -> None:
    rows = []
    for direction, value in (("qaa-qab", 10.0), ("qab-qaa", 30.0)):
        rows += rows_of("tatoeba", {0: value}, protocol="sweep", language="qaa-qab", direction=direction)
    lines = lines_of(rows, ModelLayers(0), capsys)
    assert lines[2] == "┃ language ┃ sentences ┃ forward ┃ backward ┃ mean ┃"
    assert "│ qaa-qab │ 1,000 │ 10.0 │ 30.0 │ 20.0 │" in lines


def test_word_alignment_has_one_column_for_each_method(capsys: pytest.CaptureFixture[str]) -> None:
    aer = {"metric": "aer", "examples": 90}
    rows = rows_of("word-alignment", {0: 60, 1: 20, 2: 30}, protocol="xlm-align-ot", language="de-en", **aer)
    lines = lines_of(rows, ModelLayers(2, 1), capsys)
    assert lines[0].endswith("alignment error rate (lower is better), %, model m, best layer 1 of 2")
    assert "│ de-en │ 90 │ 20.0 │" in lines
    assert lines[-1] == "Mean by layer: 0: 60.0 1: 20.0 (best, universal layer) 2: 30.0"
    recall = rows_of("word-alignment", {0: 99, 1: 70, 2: 80}, protocol="xlm-align-ot", language="de-en", **aer)
    rows += [{**row, "metric": "recall"} for row in recall]
    lines = lines_of(rows, ModelLayers(2, 1), capsys)
    assert lines[2] == "┃ pair ┃ sentences ┃ aer ┃ recall ┃"
    assert "│ de-en │ 90 │ 20.0 │ 70.0 │" in lines  # at the best layer by AER
    rows += rows_of("word-alignment", {0: 50, 1: 40, 2: 10}, protocol="itermax", language="de-en", **aer)
    lines = lines_of(rows, ModelLayers(2, 1), capsys)
    assert lines[2] == "┃ pair ┃ sentences ┃ xlm-align-ot, layer 1 ┃ itermax, layer 2 ┃"
    assert "│ de-en │ 90 │ 20.0 │ 10.0 │" in lines
    assert lines[-1] == "itermax, mean by layer: 0: 50.0 1: 40.0 (universal layer) 2: 10.0 (best)"


def test_lines_of_many_layers_are_broken_between_layers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    print_training_free(retrieval("sw de", 24), ModelLayers(24, 16))
    lines = capsys.readouterr().out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("Mean by layer"))
    for line in lines[start:]:
        assert len(line) <= 60
        assert not line.rstrip().endswith(":")
