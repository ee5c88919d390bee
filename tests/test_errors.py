"""The sentence that helps out."""

from __future__ import annotations

import pytest

from crossling.errors import BadInput, nearest


def test_the_nearest_name_is_offered() -> None:
    assert nearest("xlm-e", ["xlm", "xlm_e", "xlm_r"]) == "; did you mean 'xlm_e'?"


def test_without_a_near_one_few_names_are_listed_in_order() -> None:
    assert nearest("banana", ["tlm", "mlm"]) == "; valid: mlm, tlm"


def test_many_names_are_not_listed() -> None:
    assert nearest("zzzz", [f"a{i}" for i in range(25)]) == ""
    assert nearest("zzzz", [f"a{i}" for i in range(24)]).startswith("; valid: a0, a1, a10")


def test_nothing_is_said_where_nothing_is_valid() -> None:
    assert nearest("anything", []) == ""


def test_names_may_come_from_a_generator() -> None:
    assert nearest("mlm", (name for name in ["tlm", "mlm"])) == "; did you mean 'mlm'?"


def test_bad_input_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="give a number"):
        raise BadInput("steps=many: give a number")
