from __future__ import annotations

from pathlib import Path

import pytest

from crossling.errors import BadInput
from crossling.evaluate import predictions
from crossling.evaluate.predictions import Predicted
from crossling.evaluate.significance import Model, compare


def write(folder: Path, language: str, right: list[int], task: str = "xnli", first_id: int = 0) -> None:
    rows = [Predicted(str(first_id + k), "x", {"xtreme/accuracy": [hit, 1]}) for k, hit in enumerate(right)]
    predictions.write(folder, task, "test", language, rows)


def models(*folders: Path) -> list[Model]:
    return [Model(folder.name, [folder], {}) for folder in folders]


def test_two_models_on_the_same_examples(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    write(one, "de", [1, 0] * 20)
    write(one, "sw", [0] * 40)
    write(other, "de", [1] * 40)
    write(other, "sw", [0] * 30 + [1] * 10)
    [found] = compare(models(one, other))
    assert (found.task, found.metric, found.first, found.second) == ("xnli", "xtreme/accuracy", "one", "other")
    assert (found.languages, found.examples) == (2, 80)
    assert found.difference.value == pytest.approx((50 + 25) / 2)
    assert found.difference.p < 0.01
    [same] = compare(models(one, one))
    assert same.difference.p == 1


def test_what_is_not_the_same_is_not_compared(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    write(one, "de", [1, 0])
    write(other, "de", [1, 0], first_id=7)
    write(other, "sw", [1, 0])
    assert compare(models(one, other)) == []


def test_seeds_are_averaged(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for seed, right in (("seed-1", [1, 1, 0, 0]), ("seed-2", [1, 1, 1, 0])):
        write(one / seed, "de", right)
    write(one, "de", [0, 0, 0, 0])  # those of the chosen seed once more: not a third one
    write(other, "de", [1, 1, 1, 1])
    [found] = compare(models(one, other))
    assert found.difference.value == pytest.approx(100 - 62.5)


def test_layers_are_compared_at_the_one_of_each_model(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder, layers in zip(folders, ([[0, 1], [1, 1]], [[1, 1], None]), strict=True):
        rows = [Predicted(str(k), [], {"sweep/accuracy": layers}) for k in range(5)]
        predictions.write(folder, "tatoeba", "test", "sw", rows, "en-xx")
    at = [{("tatoeba", "sweep/accuracy"): layer} for layer in (0, 1)]
    both = [Model(folder.name, [folder], at[0]) for folder in folders]
    [found] = compare(both)
    assert (found.variant, found.difference.value) == ("en-xx", 100)
    assert compare([both[0], Model("other", [folders[1]], at[1])]) == []  # that layer was not measured


def test_damaged_statistics(tmp_path: Path) -> None:
    rows = [Predicted("1", "x", {"xtreme/accuracy": [1, 1]}), Predicted("2", "x", {})]
    predictions.write(tmp_path, "xnli", "test", "de", rows)
    with pytest.raises(BadInput, match="have not all the same statistics"):
        compare(models(tmp_path, tmp_path))
