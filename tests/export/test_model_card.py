"""Content of the model card and of export.json."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from crossling.core.errors import BadInput
from crossling.export import export
from crossling.export.model_card import nearest_recipe
from crossling.recipes import get_recipe, veco, xlm_e
from crossling.recipes.recipe import Recipe
from crossling.tasks import scores
from crossling.tasks.scores import Score

from .conftest import Train


@pytest.fixture
def run(train: Train, tmp_path: Path) -> Path:
    """Return a run folder that a test may change."""
    return Path(shutil.copytree(train("xlm_e"), tmp_path / "run"))


def change_recipe_file(run: Path, **values: Any) -> None:
    file = run / "recipe.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def header(card: str) -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    return dict(yaml.safe_load(card.split("---\n")[1]))


def test_card_has_recipe_data_cost_and_scores(run: Path, tmp_path: Path) -> None:
    change_recipe_file(
        run,
        data={"text": {"no": 3_000_000, "zh-Hant": 20}, "pairs": [["no", "zh-Hant", 700], ["no", "sw", 41]]},
        init={"model": "FacebookAI/xlm-roberta-base"},
    )
    own = [
        Score(
            model=str(run),
            task="tatoeba",
            protocol="sweep",
            metric="accuracy",
            language="sw",
            examples=10,
            value=value,
            direction=direction,
            layer=layer,
        )
        for layer, values in {0: (10.0, 20.0), 2: (60.0, 71.5)}.items()
        for value, direction in zip(values, ("en-xx", "xx-en"), strict=True)
    ]
    other = Score(
        model="runs/another",
        task="tatoeba",
        protocol="sweep",
        metric="accuracy",
        language="sw",
        examples=10,
        value=99.9,
        direction="en-xx",
        layer=1,
    )
    scores.add_scores(run / "scores.jsonl", [score.row() for score in [*own, other]])
    folder = export(run, tmp_path / "exported")
    card = (folder / "README.md").read_text(encoding="utf-8")

    assert header(card)["language"] == ["no", "sw", "zh-Hant"]  # quoted: YAML reads a bare `no` as False
    assert header(card)["tags"][-1] == "xlm_e"
    assert "license" not in header(card)
    for row in ("| no | 3,000,000 | 741 |", "| zh-Hant | 20 | 700 |", "| sw | 0 | 41 |"):
        assert row in card
    assert "Monolingual text in 2 languages, 3M tokens; 741 translation pairs in 2 language pairs" in card
    assert "| initialized from | FacebookAI/xlm-roberta-base |" in card
    assert "| tatoeba | sweep | accuracy | test | 2 | 65.8 |" in card
    assert "99.9" not in card
    assert "`sw` has 0 tokens and 41 pairs" in card

    info = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    state = json.loads((run / "checkpoints" / "0000002" / "state.json").read_text())
    assert (info["step"], info["tokens"], info["seconds"]) == (2, state["tokens"], state["seconds"])
    assert info["recipe"] == Recipe.load(run / "recipe.json").dump()
    assert info["scores"][0] | {"value": 65.75} == info["scores"][0]
    assert "2 steps, " in card
    assert "Training stopped" not in card


def test_card_of_a_run_without_records(run: Path, tmp_path: Path) -> None:
    stored = json.loads((run / "recipe.json").read_text())
    stored.pop("data", None)
    stored["recipe"]["steps"] = 5
    (run / "recipe.json").write_text(json.dumps(stored))
    card = (export(run, tmp_path / "exported") / "README.md").read_text(encoding="utf-8")
    assert "language" not in header(card)
    assert "The run has no record of its languages." in card
    assert "No scores yet." in card
    assert "Training stopped at step 2 of 5." in card
    assert "initialized from" not in card


def test_card_shows_how_to_load_the_folder(train: Train, tmp_path: Path) -> None:
    def card(run: Path, **options: Any) -> str:
        return (export(run, tmp_path / "model", **options) / "README.md").read_text(encoding="utf-8")

    plain = card(train("xlm_e"))
    assert 'xl.load("model")' in plain
    assert 'pipeline("fill-mask", model="model/generator")' in plain
    assert "`AutoModelForPreTraining` has the replaced token detection head" in plain
    assert "trust_remote_code" not in plain
    assert "trust_remote_code=True" in card(train("xlm_e"), standalone=True)
    masked = card(train("xlm_r"), as_="xlm-roberta")
    assert 'pipeline("fill-mask", model="model")' in masked
    assert "With transformers, without crossling" in masked
    assert "AutoModelForPreTraining" not in masked
    bare = card(train("infoxlm", "mlm=off", "tlm=off"))
    assert "fill-mask" not in bare
    assert "No objective trained sentence vectors" not in bare


@pytest.mark.parametrize(
    ("size", "differences"),
    [
        ("base", []),
        ("tiny", ["steps=7", "model.gate=false", "mrtd.lambda=25.0"]),
        ("large", ["trtd=off", "xlco=on", "xlco.temperature=0.05", "xlco.layer=3", "sampling.pivot=en"]),
        ("small", ["mrtd=off", "trtd=off", "mlm=on", "tlm=on", "mlm.span=3.0"]),
    ],
)
def test_differences_change_the_named_recipe_to_this_one(size: str, differences: list[str]) -> None:
    recipe = xlm_e(size).set(differences)
    found_size, found = nearest_recipe(recipe)
    assert found_size == size
    assert sorted(found) == sorted(differences)
    assert get_recipe("xlm_e", size).set(found) == recipe


def test_recipe_with_another_name_has_no_nearest_recipe() -> None:
    assert nearest_recipe(xlm_e("base").replace(name="mine")) == (None, [])
    assert nearest_recipe(veco("ablation")) == ("ablation", [])


def test_damaged_run_is_refused(run: Path, tmp_path: Path) -> None:
    (run / "checkpoints" / "0000002" / "state.json").write_text("{")
    with pytest.raises(BadInput, match=r"no valid checkpoint \(.*state\.json is damaged"):
        export(run, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()
