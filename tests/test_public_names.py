"""`import crossling as xl`: every public name is there, is the right thing, and stays so."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import crossling

HOMES = {
    "BadInput": "crossling.errors",
    "Corpora": "crossling.corpora.corpus",
    "Encoder": "crossling.evaluate.encode",
    "Recipe": "crossling.recipe.recipe",
    "Shards": "crossling.data.shards",
    "Start": "crossling.recipe.start",
    "Vocabulary": "crossling.vocabulary.vocabulary",
    "align": "crossling.evaluate.alignment",
    "audit": "crossling.audit.ranking",
    "babel": "crossling.babel.folder",
    "check": "crossling.quality.check",
    "clean": "crossling.quality.clean",
    "demo": "crossling.demo",
    "embed": "crossling.evaluate.embedding",
    "encode": "crossling.data.encode",
    "evaluate": "crossling.evaluate.evaluate",
    "export": "crossling.export.folder",
    "finetune": "crossling.finetune.finetune",
    "inspect": "crossling.inspect.inspection",
    "lab": "crossling.laboratory.lab",
    "load": "crossling.load",
    "mine": "crossling.evaluate.mining",
    "pretrain": "crossling.recipe.pretrain",
    "report": "crossling.evaluate.report",
    "translate": "crossling.translation.translate",
    "vocab": "crossling.vocabulary.vocab",
}
ROOMS = [
    "crossling.audit",
    "crossling.babel",
    "crossling.evaluate.encode",
    "crossling.evaluate.report",
    "crossling.export",
    "crossling.finetune",
    "crossling.inspect",
    "crossling.load",
    "crossling.demo",
]


def test_these_are_the_public_names() -> None:
    assert set(crossling.__all__) == {*HOMES, "recipes"}
    assert set(crossling.__all__) <= set(dir(crossling))


@pytest.mark.parametrize("rooms", [[], ROOMS], ids=["before", "after"])
@pytest.mark.parametrize("name", HOMES)
def test_a_name_is_what_it_should_be_also_after_its_room_was_imported(name: str, rooms: list[str]) -> None:
    for room in rooms:
        importlib.import_module(room)
    found = getattr(crossling, name)
    assert inspect.isclass(found) if name[0].isupper() else inspect.isfunction(found)
    assert (found.__name__, found.__module__) == (name, HOMES[name])


def test_recipes_is_the_room() -> None:
    assert isinstance(crossling.recipes, ModuleType)
    assert crossling.recipes.xlm_e("tiny").name == "xlm_e"


def test_all_names_come_with_a_star() -> None:
    names: dict[str, object] = {}
    exec("from crossling import *", names)
    assert set(crossling.__all__) <= set(names)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'pretrane'"):
        _ = crossling.pretrane  # type: ignore[attr-defined]
    assert not hasattr(crossling, "torch")


def test_rooms_imported_first_do_not_take_a_name_in_a_new_process() -> None:
    rest = "print(*(name for name in crossling.__all__ if not callable(getattr(crossling, name))))"
    program = f"import {', '.join(ROOMS)}; {rest}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["recipes"]
