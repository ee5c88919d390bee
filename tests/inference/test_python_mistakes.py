"""Mistakes in Python: arguments of a wrong type get an answer in place of a traceback from a library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crossling
from crossling.core.errors import BadInput
from crossling.inference.sentence_encoder import Encoder

WRONG: Any = None


def test_encode_and_similarity(encoder: Encoder) -> None:
    with pytest.raises(BadInput, match="expected a string or a list of strings, found NoneType"):
        encoder.encode(WRONG)
    with pytest.raises(BadInput, match="sentence 2: expected a string, found NoneType"):
        encoder.encode(["a", WRONG])
    for sentences in ("a", ["a", "b"]):
        with pytest.raises(BadInput, match=r"found sentences, expected vectors\. Use encode first"):
            encoder.similarity(sentences, sentences)  # type: ignore[arg-type]
    vectors = encoder.encode(["a b", "c"])
    assert encoder.similarity(vectors, vectors).shape == (2, 2)


def test_load_takes_a_device() -> None:
    assert crossling.load(device="cpu").model.device.type == "cpu"
    with pytest.raises(BadInput, match="device=nowhere: cannot be used"):
        crossling.load(device="nowhere")


def test_load_takes_a_name_or_a_folder() -> None:
    with pytest.raises(BadInput, match="model: expected a name or a folder, found int"):
        crossling.load(5)  # type: ignore[arg-type]


def test_settings_of_a_wrong_type() -> None:
    with pytest.raises(BadInput, match=r"steps must be a number, found '10' \(str\)"):
        crossling.recipes.xlm_e("tiny").replace(steps="10").check()
    with pytest.raises(BadInput, match="set: found the string"):
        crossling.recipes.xlm_e("tiny").set("steps=10")


def test_clean_without_rules(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none is chosen.*in Python Rules\(duplicates=True\)"):
        crossling.clean(tmp_path, tmp_path / "out")
