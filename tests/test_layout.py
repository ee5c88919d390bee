"""Structure of the package: direction of imports, unique names, file sizes, and tests that mirror the source."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "crossling"
# A package imports from those before it, never from those after it.
ORDER = [
    "core", "bundled", "synthetic", "corpora", "ingest", "tasks", "cleaning", "sampling", "vocabulary", "data", "model",
    "objectives", "train", "recipes", "inference", "finetune", "evaluate", "mteb", "pretraining", "report", "planning",
    "audit", "export", "distill", "adapt", "demo", "lab", "bench", "cli", "__main__",
]  # fmt: skip
# (package, earlier package that it must not import): models know nothing of text, evaluation nothing of training.
FORBIDDEN = {("model", package) for package in ("corpora", "cleaning", "sampling", "vocabulary", "data")} | {
    ("evaluate", "train"),
    ("inference", "train"),
}
MODULES = sorted(PACKAGE.rglob("*.py"))
LONGEST_FILE = 400  # lines
LONGEST_FUNCTION = 60  # lines of code
MOST_POSITIONAL = 4  # arguments of a class


def module_name(file: Path) -> list[str]:
    """Return `crossling.corpora.corpus` for src/crossling/corpora/corpus.py, in parts."""
    parts = ["crossling", *file.relative_to(PACKAGE).with_suffix("").parts]
    return parts[:-1] if parts[-1] == "__init__" else parts


def imported_packages(source: str, package: list[str]) -> set[str]:
    """Return the packages that a source imports, also inside functions; "" stands for crossling itself."""
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


def import_errors(package: str, imported: set[str]) -> list[str]:
    errors = []
    for other in sorted(imported - {package}):
        if other == "":
            if package != "cli":  # only the command line uses the public names
                errors.append(f"{package} imports crossling itself: import from the defining module")
        elif ORDER.index(other) > ORDER.index(package):
            errors.append(f"{package} imports {other}, which comes later in ORDER")
        elif (package, other) in FORBIDDEN:
            errors.append(f"{package} must not import {other}")
    return errors


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_follow_the_order(file: Path) -> None:
    name = module_name(file)
    if len(name) == 1:
        return  # crossling/__init__.py exports names of every package
    assert name[1] in ORDER, f"add {name[1]} to ORDER"
    package = name if file.name == "__init__.py" else name[:-1]
    assert not import_errors(name[1], imported_packages(file.read_text(encoding="utf-8"), package))


@pytest.mark.parametrize(
    ("source", "packages"),
    [
        ("import os, torch", set()),
        ("from crossling.core.errors import BadInput", {"core"}),
        ("import crossling.train.trainer as t", {"train"}),
        ("from crossling import recipes", {"recipes"}),
        ("from crossling import pretrain", {""}),
        ("import crossling", {""}),
        ("def f():\n    from crossling.cli import main", {"cli"}),
        ("from . import corpus", {"data"}),
        ("from .corpus import Text", {"data"}),
        ("from .. import model", {"model"}),
        ("from ..model.config import ModelShape", {"model"}),
    ],
)
def test_every_form_of_import_is_recognized(source: str, packages: set[str]) -> None:
    assert imported_packages(source, ["crossling", "data"]) == packages


@pytest.mark.parametrize(
    ("package", "imported"),
    [
        ("data", "model"),
        ("model", "data"),
        ("train", "evaluate"),
        ("evaluate", "train"),
        ("sampling", "data"),
        ("data", ""),
    ],
)
def test_wrong_directions_are_found(package: str, imported: str) -> None:
    assert len(import_errors(package, {package, imported, "core"})) == 1


def test_right_directions_pass() -> None:
    assert import_errors("objectives", {"objectives", "model", "data", "core"}) == []
    assert import_errors("recipes", {"train", "objectives"}) == []
    assert import_errors("cli", {"", "recipes", "core"}) == []


def test_module_names_are_unique() -> None:
    names = Counter(file.stem for file in MODULES if file.stem != "__init__")
    names.update(file.parent.name for file in MODULES if file.stem == "__init__" and file.parent != PACKAGE)
    # A package and its main module may have one name: `lab/lab.py`.
    same = {file.stem for file in MODULES if file.stem == file.parent.name}
    assert not {name: count for name, count in names.items() if count > (2 if name in same else 1)}


def test_class_names_are_unique() -> None:
    names = Counter(
        node.name
        for file in MODULES
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert not {name: count for name, count in names.items() if count > 1}


def test_files_are_short() -> None:
    files = [*MODULES, *(ROOT / "tests").rglob("*.py")]
    lengths = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    assert not {str(file.relative_to(ROOT)): lines for file, lines in lengths.items() if lines > LONGEST_FILE}


def test_test_folders_mirror_the_packages() -> None:
    packages = {file.parent.relative_to(PACKAGE) for file in MODULES if file.name == "__init__.py"}
    tests = {folder.relative_to(ROOT / "tests") for folder in (ROOT / "tests").rglob("*") if folder.is_dir()}
    extra = {folder for folder in tests - packages if "__pycache__" not in folder.parts}
    assert extra <= {Path("docs"), Path("examples"), Path("tools"), Path("experiments")}


def test_tests_lie_in_the_folder_of_their_module() -> None:
    folders = {file.stem: file.parent.relative_to(PACKAGE) for file in MODULES if file.stem != "__init__"}
    tests = {file: file.stem.removeprefix("test_") for file in (ROOT / "tests").rglob("test_*.py")}
    scripts = {"examples", "experiments", "tools"}
    assert not {
        str(file.relative_to(ROOT)): str(folders[name])
        for file, name in tests.items()
        if name in folders and file.parent.name not in scripts and file.parent != ROOT / "tests" / folders[name]
    }


def lines_of_code(function: ast.FunctionDef, source: list[str]) -> int:
    """Count the lines of a function without its signature, docstring and comments."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    lines = source[body[0].lineno - 1 : function.end_lineno] if body else []
    return sum(1 for line in lines if line.strip() and not line.lstrip().startswith("#"))


def test_functions_are_short() -> None:
    long = {}
    for file in [*MODULES, *(ROOT / "examples").rglob("*.py"), *(ROOT / "experiments").rglob("*.py")]:
        source = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                long[f"{file.relative_to(ROOT)}: {node.name}"] = lines_of_code(node, source.splitlines())
    assert not {name: lines for name, lines in long.items() if lines > LONGEST_FUNCTION}


def test_classes_are_called_with_keywords() -> None:
    trees = {file.relative_to(PACKAGE).as_posix(): ast.parse(file.read_text(encoding="utf-8")) for file in MODULES}
    classes = {node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    found = {
        (file, name)
        for file, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and len(node.args) > MOST_POSITIONAL
        if (name := getattr(node.func, "id", getattr(node.func, "attr", ""))) in classes
    }
    assert not found
