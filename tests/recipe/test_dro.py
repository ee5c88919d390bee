"""The settings of `dro` in a recipe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crossling.errors import BadInput
from crossling.recipe import Recipe
from crossling.sampling import DRO


def test_it_is_off_until_it_is_turned_on_by_itself_or_by_a_part(full_recipe: Recipe) -> None:
    assert full_recipe.dro is None
    assert full_recipe.set(["dro=on"]).dro == DRO(times=10, rho=0.05, floor=0.2, baseline=None)
    assert full_recipe.set(["dro.rho=0.2"]).dro == DRO(rho=0.2)
    assert full_recipe.set(["dro.rho=0.2", "dro=off"]).dro is None


def test_it_comes_back_from_a_run(full_recipe: Recipe, tmp_path: Path) -> None:
    recipe = full_recipe.set(["dro.times=3", "dro.baseline=runs/plain"])
    (tmp_path / "recipe.json").write_text(json.dumps({"recipe": recipe.dump()}))
    assert Recipe.load(tmp_path / "recipe.json") == recipe


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        (["dro.times=0"], "dro.times must be at least 1"),
        (["dro.rho=-0.1"], "dro.rho must be at least 0"),
        (["dro.floor=1.5"], "dro.floor must be from 0 to 1"),
        (["dro.times=8"], "dro.times is 8 and steps only 7; set it lower"),
        (["dro.times=3", "trtd=off", "xlco=off"], "no objective reads any; set tlm=on or trtd=on"),
    ],
)
def test_what_cannot_be_is_one_sentence(differences: list[str], expected: str, full_recipe: Recipe) -> None:
    with pytest.raises(BadInput, match=expected):
        full_recipe.set(differences).check()
