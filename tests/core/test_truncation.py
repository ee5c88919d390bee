"""Tests of warnings about truncated inputs."""

from __future__ import annotations

import warnings

import pytest

from crossling.core.progress import count_truncations, record_truncation

LONG = "inputs are longer than 8 tokens; truncated at the end"


def messages(recorded: list[warnings.WarningMessage]) -> list[str]:
    return [str(warning.message) for warning in recorded]


def test_a_dataset_has_one_warning_per_kind() -> None:
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        with count_truncations("xnli") as counter:
            for counter.language, truncated in (("de", 1), ("fr", 0), ("sw", 1200), ("de", 1)):
                record_truncation(truncated, 2000, LONG)
            record_truncation(1, 5, "questions are long")
            assert recorded == []
    assert messages(recorded) == [f"xnli (de, sw): 1,202 of 6,000 {LONG}", "xnli (de): 1 of 5 questions are long"]


def test_without_a_counter_each_truncation_warns_at_once() -> None:
    with pytest.warns(UserWarning, match=f"^1 of 2 {LONG}$"):
        record_truncation(1, 2, LONG)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        record_truncation(0, 2, LONG)


def test_nested_datasets_are_counted_separately() -> None:
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        with count_truncations("outer"):
            with count_truncations("inner"):
                record_truncation(1, 2, LONG)
            record_truncation(2, 2, LONG)
    assert messages(recorded) == [f"inner: 1 of 2 {LONG}", f"outer: 2 of 2 {LONG}"]


def test_a_failing_block_warns_as_well() -> None:
    def broken() -> None:
        with count_truncations("xnli"):
            record_truncation(1, 2, LONG)
            raise ValueError("oh")

    with pytest.warns(UserWarning, match=f"^xnli: 1 of 2 {LONG}$"), pytest.raises(ValueError, match="oh"):
        broken()
