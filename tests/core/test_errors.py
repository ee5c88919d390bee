"""Tests of errors and of suggestions for unknown names."""

from __future__ import annotations

import pytest

from crossling.core.errors import BadInput, suggestion


def test_a_similar_name_is_suggested() -> None:
    assert suggestion("xlm-e", ["xlm", "xlm_e", "xlm_r"]) == "; did you mean 'xlm_e'?"


def test_few_names_are_listed_if_none_is_similar() -> None:
    assert suggestion("banana", ["tlm", "mlm"]) == "; valid: mlm, tlm"


def test_many_names_are_not_listed() -> None:
    assert suggestion("zzzz", [f"a{i}" for i in range(25)]) == ""
    assert suggestion("zzzz", [f"a{i}" for i in range(24)]).startswith("; valid: a0, a1, a10")


def test_no_valid_names_give_no_suggestion() -> None:
    assert suggestion("anything", []) == ""


def test_names_can_come_from_a_generator() -> None:
    assert suggestion("mlm", (name for name in ["tlm", "mlm"])) == "; did you mean 'mlm'?"


def test_bad_input_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="give a number"):
        raise BadInput("steps=many: give a number")
