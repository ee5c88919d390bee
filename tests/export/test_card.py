"""The model card and export.json say what the run knows, and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from crossling.errors import BadInput
from crossling.evaluate import scores
from crossling.evaluate.scores import Score
from crossling.export import export
from crossling.export.facts import nearest_recipe
from crossling.recipe import Recipe
from crossling.recipes import named, veco, xlm_e

from .conftest import Train


@pytest.fixture
def run(train: Train, tmp_path: Path) -> Path:
    """A run that may be changed."""
    return Path(shutil.copytree(train("xlm_e"), tmp_path / "run"))


def noted(run: Path, **more: Any) -> None:
    file = run / "recipe.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | more))


def header(card: str) -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    return dict(yaml.safe_load(card.split("---\n")[1]))


def test_it_tells_of_recipe_data_cost_and_scores(run: Path, tmp_path: Path) -> None:
    noted(
        run,
        data={"text": {"no": 3_000_000, "zh-Hant": 20}, "pairs": [["no", "zh-Hant", 700], ["no", "sw", 41]]},
        init={"model": "FacebookAI/xlm-roberta-base"},
    )
    measured = [
        Score(str(run), "tatoeba", "sweep", "accuracy", "sw", 10, value, direction, layer)
        for layer, values in {0: (10.0, 20.0), 2: (60.0, 71.5)}.items()
        for value, direction in zip(values, ("en-xx", "xx-en"), strict=True)
    ]
    strange = Score("runs/another", "tatoeba", "sweep", "accuracy", "sw", 10, 99.9, "en-xx", 1)
    scores.add(run / "scores.jsonl", [score.row() for score in [*measured, strange]])
    folder = export(run, tmp_path / "exported")
    card = (folder / "README.md").read_text(encoding="utf-8")

    assert header(card)["language"] == ["no", "sw", "zh-Hant"]  # not [False, ...], as YAML would have it
    assert header(card)["tags"][-1] == "xlm_e"
    assert "license" not in header(card)
    for row in ("| no | 3,000,000 | 741 |", "| zh-Hant | 20 | 700 |", "| sw | 0 | 41 |"):
        assert row in card
    assert "2 languages of text, 3M tokens; 741 translation pairs of 2 language pairs" in card
    assert "| started from | FacebookAI/xlm-roberta-base |" in card
    assert "| tatoeba | sweep | accuracy | test | 2 | 65.8 |" in card
    assert "99.9" not in card
    assert "`sw` has 0 tokens and 41 pairs" in card

    known = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    state = json.loads((run / "checkpoints" / "0000002" / "state.json").read_text())
    assert (known["step"], known["tokens"], known["seconds"]) == (2, state["tokens"], state["seconds"])
    assert known["recipe"] == Recipe.load(run / "recipe.json").dump()
    assert known["scores"][0] | {"value": 65.75} == known["scores"][0]
    assert "2 steps, " in card
    assert "Training stopped" not in card


def test_it_claims_nothing_that_the_run_does_not_know(run: Path, tmp_path: Path) -> None:
    stored = json.loads((run / "recipe.json").read_text())
    stored.pop("data", None)
    stored["recipe"]["steps"] = 5
    (run / "recipe.json").write_text(json.dumps(stored))
    card = (export(run, tmp_path / "exported") / "README.md").read_text(encoding="utf-8")
    assert "language" not in header(card)
    assert "The run did not note its languages." in card
    assert "Nothing has been measured yet." in card
    assert "Training stopped at step 2 of 5." in card
    assert "started from" not in card


def test_it_says_how_this_folder_is_used(train: Train, tmp_path: Path) -> None:
    def card(run: Path, **options: Any) -> str:
        return (export(run, tmp_path / "model", **options) / "README.md").read_text(encoding="utf-8")

    plain = card(train("xlm_e"))
    assert 'xl.load("model")' in plain
    assert 'pipeline("fill-mask", model="model/generator")' in plain
    assert "`AutoModelForPreTraining` has the head" in plain
    assert "trust_remote_code" not in plain
    assert "trust_remote_code=True" in card(train("xlm_e"), standalone=True)
    masked = card(train("xlm_r"), family="xlm-roberta")
    assert 'pipeline("fill-mask", model="model")' in masked
    assert "With transformers alone" in masked
    assert "AutoModelForPreTraining" not in masked
    bare = card(train("infoxlm", "mlm=off", "tlm=off"))
    assert "fill-mask" not in bare
    assert "No objective shaped sentence vectors" not in bare


@pytest.mark.parametrize(
    ("size", "differences"),
    [
        ("base", []),
        ("tiny", ["steps=7", "model.gate=false", "mrtd.lambda=25.0"]),
        ("large", ["trtd=off", "xlco=on", "xlco.temperature=0.05", "xlco.layer=3", "sampling.pivot=en"]),
        ("small", ["mrtd=off", "trtd=off", "mlm=on", "tlm=on", "mlm.span=3.0"]),
    ],
)
def test_differences_lead_from_the_named_recipe_to_this_one(size: str, differences: list[str]) -> None:
    recipe = xlm_e(size).set(differences)
    found_size, found = nearest_recipe(recipe)
    assert found_size == size
    assert sorted(found) == sorted(differences)
    assert named("xlm_e", size).set(found) == recipe


def test_a_recipe_of_ones_own_is_compared_with_none() -> None:
    assert nearest_recipe(xlm_e("base").but(name="mine")) == (None, [])
    assert nearest_recipe(veco("ablation")) == ("ablation", [])


def test_a_damaged_run_is_one_sentence(run: Path, tmp_path: Path) -> None:
    (run / "checkpoints" / "0000002" / "state.json").write_text("{")
    with pytest.raises(BadInput, match=r"no checkpoint there is whole \(.*state\.json is damaged"):
        export(run, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()
