"""A run folder resumes with the same recipe, shards and initialization, or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crossling.core.errors import BadInput
from crossling.corpora.corpus import Corpora
from crossling.data.shards import Shards
from crossling.data.tokenize import tokenize
from crossling.recipes import get_recipe
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.train.run_folder import RunFolder
from crossling.vocabulary.build_vocabulary import vocab

RECIPE = {"name": "toy", "steps": 10, "mrtd": {"rate": 0.15, "lambda_": 50.0}, "trtd": None}


def steps(run: RunFolder) -> list[int]:
    return [json.loads(line)["step"] for line in run.metrics.read_text().splitlines()]


def test_a_new_run_writes_its_recipe(tmp_path: Path) -> None:
    RunFolder(tmp_path / "new" / "run", RECIPE, "abc")
    assert json.loads((tmp_path / "new" / "run" / "recipe.json").read_text()) == {
        **{"format": 2, "recipe": RECIPE, "shards": "abc"},
        **{"init": None, "data": None},
    }


def test_the_same_run_resumes_and_its_recipe_is_not_written_again(tmp_path: Path) -> None:
    RunFolder(tmp_path, RECIPE, "abc")
    before = (tmp_path / "recipe.json").stat().st_mtime_ns
    RunFolder(tmp_path, RECIPE, "abc")
    assert (tmp_path / "recipe.json").stat().st_mtime_ns == before


def test_run_from_before_the_setting_of_precision_resumes_in_bf16_only(tmp_path: Path) -> None:
    RunFolder(tmp_path, RECIPE, "abc")
    RunFolder(tmp_path, RECIPE | {"precision": "bf16"}, "abc")
    with pytest.raises(BadInput, match=r"another recipe \(different: precision\)"):
        RunFolder(tmp_path, RECIPE | {"precision": "fp8"}, "abc")


def test_a_run_from_before_a_setting_existed_resumes(tmp_path: Path) -> None:
    """An absent setting is None, which has the earlier behaviour."""
    today = get_recipe("veco", "tiny").dump()
    before = {name: value for name, value in today["model"].items() if name != "cross_query"}
    RunFolder(tmp_path, today | {"model": before}, "abc")
    RunFolder(tmp_path, today, "abc")
    assert Recipe.load(tmp_path / "recipe.json") == get_recipe("veco", "tiny")
    with pytest.raises(BadInput, match=r"different: model\.cross_query"):
        RunFolder(tmp_path, get_recipe("veco", "tiny").set(["model.cross_query=hidden"]).dump(), "abc")


def test_other_shards_are_refused_by_their_fingerprints(tmp_path: Path) -> None:
    RunFolder(tmp_path, RECIPE, "abc")
    with pytest.raises(BadInput, match=r"trained on shards abc, not on xyz"):
        RunFolder(tmp_path, RECIPE, "xyz")


def test_the_same_text_in_another_vocabulary_is_refused(
    corpora_folder: Path, shards: Shards, full_recipe: Recipe, tmp_path: Path
) -> None:
    vocab(Corpora(corpora_folder), tmp_path / "vocab", size=shards.vocabulary_size - 20)
    other = tokenize(Corpora(corpora_folder), tmp_path / "vocab", tmp_path / "shards")
    pretrain(full_recipe.replace(steps=1), shards, tmp_path / "run")
    kept = (tmp_path / "run" / "vocab" / "vocab.json").read_bytes()
    with pytest.raises(BadInput, match=r"other data or another vocabulary\. Give the original shards") as caught:
        pretrain(full_recipe.replace(steps=1), other, tmp_path / "run")
    assert shards.fingerprint in str(caught.value)
    assert other.fingerprint in str(caught.value)
    assert (tmp_path / "run" / "vocab" / "vocab.json").read_bytes() == kept


@pytest.mark.parametrize(
    ("difference", "named"),
    [
        ({"steps": 20}, "steps"),
        ({"mrtd": {"rate": 0.15, "lambda_": 40.0}}, "mrtd.lambda"),  # as --set spells it
        ({"mrtd": {"rate": 0.2, "lambda_": 40.0}, "steps": 1}, "mrtd.lambda, mrtd.rate, steps"),
        ({"trtd": {"rate": 0.15}}, "trtd"),
        ({"new": 1}, "new"),
    ],
)
def test_another_recipe_is_refused_and_its_differences_named(
    difference: dict[str, Any], named: str, tmp_path: Path
) -> None:
    RunFolder(tmp_path, RECIPE, "abc")
    with pytest.raises(BadInput) as caught:
        RunFolder(tmp_path, RECIPE | difference, "abc")
    assert f"(different: {named})" in str(caught.value)


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("dear")
    with pytest.raises(BadInput, match="is no output of crossling pretrain"):
        RunFolder(tmp_path, RECIPE, "abc")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_run_killed_while_writing_its_recipe_starts_again(tmp_path: Path) -> None:
    (tmp_path / ".recipe.json.x7_a").write_text('{"reci')
    RunFolder(tmp_path, RECIPE, "abc")
    assert json.loads((tmp_path / "recipe.json").read_text())["shards"] == "abc"


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(BadInput, match="expected a folder, found a file"):
        RunFolder(tmp_path / "run", RECIPE, "abc")


@pytest.mark.parametrize("content", ["", '{"recipe": ', "[]", '{"shards": "abc"}', b"\xff".decode("latin-1")])
def test_a_damaged_recipe_is_an_error(content: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text(content, encoding="latin-1")
    with pytest.raises(BadInput, match=r"recipe\.json: not (a readable recipe|the recipe)\.json"):
        RunFolder(tmp_path, RECIPE, "abc")


def test_truncation_removes_later_rows_and_a_truncated_one(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, RECIPE, "abc")
    for step in (2, 4, 6):
        run.log({"step": step, "loss": 1.0})
    with run.metrics.open("a") as file:
        file.write('{"step": 8, "lo')
    run.truncate_metrics(4)
    assert steps(run) == [2, 4]
    run.log({"step": 6, "loss": 0.5})
    run.close()
    assert steps(run) == [2, 4, 6]


def test_values_that_are_not_finite_are_null(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, RECIPE, "abc")
    run.log({"step": 2, "loss": float("inf"), "mlm": float("nan"), "lr": 0.5})
    run.close()
    assert run.metrics.read_text() == '{"step": 2, "loss": null, "mlm": null, "lr": 0.5}\n'


@pytest.mark.parametrize("junk", ["7", "[]", "null", '{"loss": 1}', '{"step": "x"}', ""])
def test_rows_without_a_step_are_removed(junk: str, tmp_path: Path) -> None:
    run = RunFolder(tmp_path, RECIPE, "abc")
    run.metrics.write_text(f'{{"step": 1}}\n{junk}\n')
    run.truncate_metrics(5)
    assert run.metrics.read_text() == '{"step": 1}\n'


def test_truncation_without_metrics_does_nothing(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, RECIPE, "abc")
    run.truncate_metrics(0)
    assert not run.metrics.exists()


def test_tensorboard_gets_every_row_and_removes_repeated_ones(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for first, losses in ((0, {2: 9.0, 4: 8.0, 6: 7.0}), (4, {6: 6.5, 8: 6.0})):
        run = RunFolder(tmp_path, RECIPE, "abc")
        run.truncate_metrics(first)
        for step, loss in losses.items():
            run.log({"step": step, "loss": loss})
        run.close()
        [file] = (tmp_path / "tensorboard").glob("events.out.tfevents.1*")
        # Files are read in the order of their names, which have the second they were made in.
        file.rename(file.with_name(f"events.out.tfevents.000000000{first}"))
    found = events.EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    assert [(event.step, event.value) for event in found.Scalars("loss")] == [(2, 9.0), (4, 8.0), (6, 6.5), (8, 6.0)]


@pytest.mark.parametrize("version", [None, 1, 9])
def test_another_format_is_an_error_that_names_the_command(version: int | None, tmp_path: Path) -> None:
    RunFolder(tmp_path, RECIPE, "abc")
    stored = json.loads((tmp_path / "recipe.json").read_text())
    stored.pop("format")
    (tmp_path / "recipe.json").write_text(json.dumps(stored | ({} if version is None else {"format": version})))
    with pytest.raises(
        BadInput, match=rf"format version {version or 1}, expected 2\. Train again with crossling pretrain"
    ):
        RunFolder(tmp_path, RECIPE, "abc")
