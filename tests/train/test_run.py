"""A run's folder goes on as what it began, or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crossling.corpora.corpus import Corpora
from crossling.data.encode import encode
from crossling.data.shards import Shards
from crossling.errors import BadInput
from crossling.recipe import Recipe, pretrain
from crossling.train.run import Run
from crossling.vocabulary.vocab import vocab

RECIPE = {"name": "toy", "steps": 10, "mrtd": {"rate": 0.15, "lambda_": 50.0}, "trtd": None}


def steps(run: Run) -> list[int]:
    return [json.loads(line)["step"] for line in run.metrics.read_text().splitlines()]


def test_a_new_run_writes_what_it_is(tmp_path: Path) -> None:
    Run(tmp_path / "new" / "run", RECIPE, "abc")
    assert json.loads((tmp_path / "new" / "run" / "recipe.json").read_text()) == {
        **{"recipe": RECIPE, "shards": "abc"},
        **{"init": None, "data": None},
    }


def test_the_same_run_goes_on_and_its_recipe_is_not_written_again(tmp_path: Path) -> None:
    Run(tmp_path, RECIPE, "abc")
    before = (tmp_path / "recipe.json").stat().st_mtime_ns
    Run(tmp_path, RECIPE, "abc")
    assert (tmp_path / "recipe.json").stat().st_mtime_ns == before


def test_other_shards_are_refused_by_their_fingerprints(tmp_path: Path) -> None:
    Run(tmp_path, RECIPE, "abc")
    with pytest.raises(BadInput, match=r"trained on shards abc, these are xyz"):
        Run(tmp_path, RECIPE, "xyz")


def test_the_same_text_in_another_vocabulary_is_refused(
    corpora_folder: Path, shards: Shards, full_recipe: Recipe, tmp_path: Path
) -> None:
    vocab(Corpora(corpora_folder), shards.vocabulary_size - 20, tmp_path / "vocab")
    other = encode(Corpora(corpora_folder), tmp_path / "vocab", tmp_path / "shards")
    pretrain(full_recipe.but(steps=1), shards, tmp_path / "run")
    kept = (tmp_path / "run" / "vocab" / "vocab.json").read_bytes()
    with pytest.raises(BadInput, match=r"of other data or another vocabulary; give the shards it began with") as caught:
        pretrain(full_recipe.but(steps=1), other, tmp_path / "run")
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
    Run(tmp_path, RECIPE, "abc")
    with pytest.raises(BadInput) as caught:
        Run(tmp_path, RECIPE | difference, "abc")
    assert f"(different: {named})" in str(caught.value)


def test_a_folder_of_other_things_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("dear")
    with pytest.raises(BadInput, match="not empty and holds no run"):
        Run(tmp_path, RECIPE, "abc")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_run_that_was_killed_while_it_wrote_what_it_is_begins_again(tmp_path: Path) -> None:
    (tmp_path / ".recipe.json.x7_a").write_text('{"reci')
    Run(tmp_path, RECIPE, "abc")
    assert json.loads((tmp_path / "recipe.json").read_text())["shards"] == "abc"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(BadInput, match="this is a file"):
        Run(tmp_path / "run", RECIPE, "abc")


@pytest.mark.parametrize("content", ["", '{"recipe": ', "[]", '{"shards": "abc"}', b"\xff".decode("latin-1")])
def test_a_damaged_recipe_is_said_so(content: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text(content, encoding="latin-1")
    with pytest.raises(BadInput, match=r"recipe\.json: not the recipe\.json of a run"):
        Run(tmp_path, RECIPE, "abc")


def test_rewinding_forgets_later_rows_and_the_one_that_was_cut_off(tmp_path: Path) -> None:
    run = Run(tmp_path, RECIPE, "abc")
    for step in (2, 4, 6):
        run.log({"step": step, "loss": 1.0})
    with run.metrics.open("a") as file:
        file.write('{"step": 8, "lo')
    run.rewind(4)
    assert steps(run) == [2, 4]
    run.log({"step": 6, "loss": 0.5})
    run.close()
    assert steps(run) == [2, 4, 6]


@pytest.mark.parametrize("junk", ["7", "[]", "null", '{"loss": 1}', '{"step": "x"}', ""])
def test_rows_without_a_step_are_forgotten(junk: str, tmp_path: Path) -> None:
    run = Run(tmp_path, RECIPE, "abc")
    run.metrics.write_text(f'{{"step": 1}}\n{junk}\n')
    run.rewind(5)
    assert run.metrics.read_text() == '{"step": 1}\n'


def test_rewinding_a_run_without_metrics_does_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, RECIPE, "abc")
    run.rewind(0)
    assert not run.metrics.exists()


def test_tensorboard_gets_every_row_and_forgets_what_is_made_again(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for first, losses in ((0, {2: 9.0, 4: 8.0, 6: 7.0}), (4, {6: 6.5, 8: 6.0})):
        run = Run(tmp_path, RECIPE, "abc")
        run.rewind(first)
        for step, loss in losses.items():
            run.log({"step": step, "loss": loss})
        run.close()
        [file] = (tmp_path / "tensorboard").glob("events.out.tfevents.1*")
        # Files are read in the order of their names, which have the second they were made in.
        file.rename(file.with_name(f"events.out.tfevents.000000000{first}"))
    found = events.EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    assert [(event.step, event.value) for event in found.Scalars("loss")] == [(2, 9.0), (4, 8.0), (6, 6.5), (8, 6.0)]
