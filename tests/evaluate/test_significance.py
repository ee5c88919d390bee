from __future__ import annotations

from pathlib import Path

import pytest

from crossling.core.errors import BadInput
from crossling.evaluate.significance import ModelPredictions, compare_models
from crossling.tasks import predictions
from crossling.tasks.predictions import ExamplePrediction


def write(folder: Path, language: str, correct: list[int], task: str = "xnli", first_id: int = 0) -> None:
    rows = [ExamplePrediction(str(first_id + k), "x", {"xtreme/accuracy": [hit, 1]}) for k, hit in enumerate(correct)]
    predictions.write_predictions(folder, task=task, split="test", language=language, rows=rows)


def models(*folders: Path) -> list[ModelPredictions]:
    return [ModelPredictions(folder.name, [folder], {}) for folder in folders]


def test_two_models_are_compared_on_the_same_examples(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    write(one, "de", [1, 0] * 20)
    write(one, "sw", [0] * 40)
    write(other, "de", [1] * 40)
    write(other, "sw", [0] * 30 + [1] * 10)
    [found] = compare_models(models(one, other))
    assert (found.task, found.metric, found.first, found.second) == ("xnli", "xtreme/accuracy", "one", "other")
    assert (found.languages, found.examples) == (2, 80)
    assert found.difference.value == pytest.approx((50 + 25) / 2)
    assert found.difference.p < 0.01
    [same] = compare_models(models(one, one))
    assert same.difference.p == 1


def test_different_examples_are_not_compared(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    write(one, "de", [1, 0])
    write(other, "de", [1, 0], first_id=7)
    write(other, "sw", [1, 0])
    assert compare_models(models(one, other)) == []


def test_seeds_are_averaged(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for seed, correct in (("seed-1", [1, 1, 0, 0]), ("seed-2", [1, 1, 1, 0])):
        write(one / seed, "de", correct)
    write(one, "de", [0, 0, 0, 0])  # a copy of the selected seed, not a third one
    write(other, "de", [1, 1, 1, 1])
    [found] = compare_models(models(one, other))
    assert found.difference.value == pytest.approx(100 - 62.5)


def test_each_model_is_compared_at_its_own_layer(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder, layers in zip(folders, ([[0, 1], [1, 1]], [[1, 1], None]), strict=True):
        rows = [ExamplePrediction(str(k), [], {"sweep/accuracy": layers}) for k in range(5)]
        predictions.write_predictions(folder, task="tatoeba", split="test", language="sw", rows=rows, direction="en-xx")
    at = [{("tatoeba", "sweep/accuracy"): layer} for layer in (0, 1)]
    both = [ModelPredictions(folder.name, [folder], at[0]) for folder in folders]
    [found] = compare_models(both)
    assert (found.variant, found.difference.value) == ("en-xx", 100)
    assert compare_models([both[0], ModelPredictions("other", [folders[1]], at[1])]) == []  # this layer was not scored


def test_damaged_statistics_are_refused(tmp_path: Path) -> None:
    rows = [ExamplePrediction("1", "x", {"xtreme/accuracy": [1, 1]}), ExamplePrediction("2", "x", {})]
    predictions.write_predictions(tmp_path, task="xnli", split="test", language="de", rows=rows)
    with pytest.raises(BadInput, match="not all examples have the statistics"):
        compare_models(models(tmp_path, tmp_path))
