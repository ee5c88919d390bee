"""Imports point one way: a room may use its own shelves and the rooms to its left, never those to its right."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "crossling"
ORDER = [
    "errors", "hub", "box", "disk", "progress", "templates", "settings", "tasks", "distributed", "hardware", "babel",
    "corpora", "benchmarks", "metrics", "quality", "sampling", "vocabulary", "data", "model", "objectives", "train",
    "transfer", "translation", "evaluate", "recipe", "load", "finetune", "probes", "recipes", "inspect", "audit",
    "export", "examples", "demo", "laboratory", "bench", "cli", "__main__",
]  # fmt: skip
STRANGERS = {("model", room) for room in ("corpora", "quality", "sampling", "vocabulary", "data")} | {
    ("evaluate", "train"),
    ("transfer", "train"),
    ("translation", "train"),
}  # (room, room to its left that it does without all the same)
MODULES = sorted(PACKAGE.rglob("*.py"))


def dotted(file: Path) -> list[str]:
    """`crossling.corpora.corpus` for src/crossling/corpora/corpus.py, in parts; a package is named by its folder."""
    parts = ["crossling", *file.relative_to(PACKAGE).with_suffix("").parts]
    return parts[:-1] if parts[-1] == "__init__" else parts


def rooms_imported(source: str, package: list[str]) -> set[str]:
    """Rooms of crossling imported anywhere in a source, inside functions too; "" is crossling itself."""
    names: list[list[str]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            names += [[*base, alias.name] for alias in node.names]
    inside = [name[1:] for name in names if name[0] == "crossling"]
    return {name[0] if name and name[0] in ORDER else "" for name in inside}


def faults(room: str, imported: set[str]) -> list[str]:
    found = []
    for other in sorted(imported - {room}):
        if other == "":
            if room != "cli":  # the public names are made of all the rooms: only the door to the street uses them
                found.append(f"{room} imports crossling itself: import from the room that has the name")
        elif ORDER.index(other) > ORDER.index(room):
            found.append(f"{room} imports {other}, which lies to its right")
        elif (room, other) in STRANGERS:
            found.append(f"{room} imports {other}: the two do not know each other")
    return found


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_left(file: Path) -> None:
    name = dotted(file)
    if len(name) == 1:
        return  # crossling/__init__.py shows the public names of every room
    assert name[1] in ORDER, f"{name[1]} has no place in ORDER: give it one"
    package = name if file.name == "__init__.py" else name[:-1]
    assert not faults(name[1], rooms_imported(file.read_text(encoding="utf-8"), package))


@pytest.mark.parametrize(
    ("source", "rooms"),
    [
        ("import os, torch", set()),
        ("from crossling.errors import BadInput", {"errors"}),
        ("import crossling.train.trainer as t", {"train"}),
        ("from crossling import recipes", {"recipes"}),
        ("from crossling import pretrain", {""}),
        ("import crossling", {""}),
        ("def f():\n    from crossling.cli import main", {"cli"}),
        ("from . import corpus", {"data"}),
        ("from .corpus import Text", {"data"}),
        ("from .. import model", {"model"}),
        ("from ..model.shape import Shape", {"model"}),
    ],
)
def test_every_way_to_import_is_seen(source: str, rooms: set[str]) -> None:
    assert rooms_imported(source, ["crossling", "data"]) == rooms


@pytest.mark.parametrize(
    ("room", "imported"),
    [
        ("data", "model"),
        ("model", "data"),
        ("train", "evaluate"),
        ("evaluate", "train"),
        ("recipe", "recipes"),
        ("data", ""),
    ],
)
def test_wrong_directions_are_found(room: str, imported: str) -> None:
    assert len(faults(room, {room, imported, "errors"})) == 1


def test_right_directions_pass() -> None:
    assert faults("objectives", {"objectives", "model", "data", "errors"}) == []
    assert faults("recipes", {"recipe", "objectives"}) == []
    assert faults("cli", {"", "recipes", "errors"}) == []
