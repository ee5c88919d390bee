"""Notes on what is too long for a model."""

from __future__ import annotations

import warnings

import pytest

from crossling.transfer.cuts import gathered, note

LONG = "inputs are longer than 8 tokens; their ends were left out"


def told(recorded: list[warnings.WarningMessage]) -> list[str]:
    return [str(each.message) for each in recorded]


def test_a_set_has_one_note_for_each_kind() -> None:
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        with gathered("xnli") as cuts:
            for cuts.part, cut in (("de", 1), ("fr", 0), ("sw", 1200), ("de", 1)):
                note(cut, 2000, LONG)
            note(1, 5, "questions are long")
            assert recorded == []
    assert told(recorded) == [f"xnli (de, sw): 1,202 of 6,000 {LONG}", "xnli (de): 1 of 5 questions are long"]


def test_by_itself_each_is_told_at_once() -> None:
    with pytest.warns(UserWarning, match=f"^1 of 2 {LONG}$"):
        note(1, 2, LONG)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        note(0, 2, LONG)


def test_sets_inside_each_other_are_told_apart() -> None:
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        with gathered("outer"):
            with gathered("inner"):
                note(1, 2, LONG)
            note(2, 2, LONG)
    assert told(recorded) == [f"inner: 1 of 2 {LONG}", f"outer: 2 of 2 {LONG}"]


def test_what_fails_is_told_of_all_the_same() -> None:
    def broken() -> None:
        with gathered("xnli"):
            note(1, 2, LONG)
            raise ValueError("oh")

    with pytest.warns(UserWarning, match=f"^xnli: 1 of 2 {LONG}$"), pytest.raises(ValueError, match="oh"):
        broken()
