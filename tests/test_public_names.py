"""`import crossling as xl`: every public name is importable, documented, and not hidden by a package of its name."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

import crossling

NAMES = [
    *("BadInput", "BitextNoise", "Corpora", "Encoder", "ExampleCounts", "Failed", "InitialModel", "Interrupted"),
    *("FastVocabulary", "NativeInitialModel", "SpecialTokens"),
    *("Recipe", "Rules", "Shards", "Share", "Translator", "TunedModel", "Vocabulary"),
    *(
        "CAMLM",
        "CATLM",
        "Denoising",
        "Distillation",
        "MLM",
        "MRTD",
        "PairDenoising",
        "TLM",
        "TRTD",
        "XLCo",
        "ModelShape",
        "OptimizerSettings",
        "Sampling",
    ),
    *("ClassificationExample", "MinedPair", "QAExample", "TaggingExample"),
    *(
        "adapt",
        "align",
        "attention_map",
        "audit",
        "bench",
        "check",
        "clean",
        "demo",
        "distill",
        "encode_file",
        "evaluate",
        "export",
        "finetune",
        "ingest",
        "lab",
    ),
    *("load", "merge", "mine", "plan", "predict", "pretrain", "report", "synth", "tokenize", "translate", "vocab"),
]
# Packages and modules with the name of a public function.
PACKAGES = [
    *("crossling.audit", "crossling.bench", "crossling.synthetic", "crossling.report.report", "crossling.export"),
    *("crossling.finetune", "crossling.planning", "crossling.inference.load", "crossling.demo", "crossling.lab"),
    *("crossling.distill", "crossling.ingest.ingest", "crossling.adapt.adapt"),
]


def test_the_public_names() -> None:
    assert set(crossling.__all__) == {*NAMES, "recipes"}
    assert dir(crossling) == sorted([*crossling.__all__, "__version__"])


@pytest.mark.parametrize("packages", [[], PACKAGES], ids=["before", "after"])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_a_class_or_function_also_after_its_package_is_imported(name: str, packages: list[str]) -> None:
    for package in packages:
        importlib.import_module(package)
    value = getattr(crossling, name)
    assert inspect.isclass(value) if name[0].isupper() else inspect.isfunction(value)
    assert value.__name__ == name
    assert value.__module__.startswith("crossling.")


@pytest.mark.parametrize("name", NAMES)
def test_public_names_have_google_docstrings_with_an_example(name: str) -> None:
    value = getattr(crossling, name)
    documentation = inspect.getdoc(value) or ""
    assert re.search(r"^Examples?:$", documentation, re.MULTILINE), f"{name} has no example"
    if inspect.isfunction(value):
        assert "Args:\n" in documentation
        for parameter in inspect.signature(value).parameters.values():
            assert re.search(rf"^    \**{parameter.name}\b.*:", documentation, re.MULTILINE), parameter.name
        if inspect.signature(value).return_annotation not in (None, "None"):
            assert "Returns:\n" in documentation or "Yields:\n" in documentation


def public_methods(value: type) -> dict[str, Callable[..., object]]:
    """Return the methods that a class defines itself."""
    members = {name: getattr(member, "__func__", member) for name, member in vars(value).items() if name[0] != "_"}
    return {name: member for name, member in members.items() if inspect.isfunction(member)}


# Methods without an example, and methods that raise BadInput without a Raises. Shrink them.
NO_EXAMPLE = {"Encoder.check_cross_attention", "Encoder.fingerprint", "Encoder.resolve_layer", "Recipe.stream_steps"}
NO_RAISES = {"Encoder.check_cross_attention", "Encoder.resolve_layer"}
OBJECTIVES = {
    "CAMLM",
    "CATLM",
    "Denoising",
    "Distillation",
    "MLM",
    "MRTD",
    "PairDenoising",
    "TLM",
    "TRTD",
    "XLCo",
}  # their methods are for the trainer
SETTINGS = {"ModelShape", "OptimizerSettings", "Sampling"}


@pytest.mark.parametrize("name", [name for name in NAMES if name[0].isupper()])
def test_methods_of_public_classes_are_documented(name: str) -> None:
    for method, function in public_methods(getattr(crossling, name)).items():
        full, documentation = f"{name}.{method}", inspect.getdoc(function) or ""
        if name not in OBJECTIVES:
            assert documentation, f"{full} has no docstring"
        if name not in OBJECTIVES | SETTINGS and full not in NO_EXAMPLE:
            assert "Example" in documentation, f"{full} has no example"
        if "raise BadInput" in inspect.getsource(function) and full not in NO_RAISES:
            assert "Raises:\n" in documentation, f"{full} raises BadInput"


@pytest.mark.parametrize("name", [name for name in NAMES if name[0].islower()])
def test_functions_document_bad_input(name: str) -> None:
    function = getattr(crossling, name)
    if "raise BadInput" in inspect.getsource(function):
        assert "Raises:\n" in (inspect.getdoc(function) or "")


@pytest.mark.parametrize("name", sorted(crossling.recipes.RECIPES))
def test_recipes_are_documented(name: str) -> None:
    assert inspect.getdoc(getattr(crossling.recipes, name))


def test_recipes_is_the_package() -> None:
    assert isinstance(crossling.recipes, ModuleType)
    assert crossling.recipes.xlm_e("tiny").name == "xlm_e"
    functions = {"RECIPES", "adapt_recipe", "can_resume", "get_recipe", "has_size", "recipe_name"}
    assert {*dir(crossling.recipes)} == functions | {*crossling.recipes.RECIPES}


def test_star_imports_all_names() -> None:
    names: dict[str, object] = {}
    exec("from crossling import *", names)
    assert set(crossling.__all__) <= set(names)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'pretrane'"):
        _ = crossling.pretrane  # type: ignore[attr-defined]
    assert not hasattr(crossling, "torch")


def test_packages_imported_first_do_not_hide_a_function_in_a_new_process() -> None:
    rest = "print(*(name for name in crossling.__all__ if not callable(getattr(crossling, name))))"
    program = f"import {', '.join(PACKAGES)}; {rest}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["recipes"]
