"""Each rule names what it should, and leaves alone what it cannot judge."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.corpora.corpus import Corpora
from crossling.errors import BadInput
from crossling.quality.normal import plain
from crossling.quality.rules import (
    ALL,
    BIT,
    BLANK,
    COPY,
    FEWEST_ROWS,
    NEAR_COPY,
    TOO_LONG,
    TOO_SHORT,
    WRONG_LANGUAGE,
    RowJudge,
    Rules,
    chosen,
    length_ratio,
    proportion,
)
from crossling.quality.units import Unit, units

SENTENCE = "The suspension of the national team was unfair to all of them."


def unit(tmp_path: Path, name: str) -> Unit:
    """A bitext of these two languages."""
    file = tmp_path / name / "pairs" / f"{name}.tsv"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("a\tb\n")
    return units(Corpora(tmp_path / name))[0]


def faults(tmp_path: Path, row: tuple[str, str], rules: Rules = ALL, languages: str = "en-sw") -> int:
    return RowJudge(rules, unit(tmp_path, languages)).faults(row, (plain(row[0]), plain(row[1])))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (("Good morning.", "Habari ya asubuhi."), 0),
        (("Good morning.", "."), BIT[TOO_SHORT]),
        (("Cat", "猫"), 0),
        (("a" * 10_001, "b"), BIT[TOO_SHORT] | BIT[TOO_LONG]),
        ((SENTENCE, SENTENCE), BIT[COPY] | BIT[WRONG_LANGUAGE]),
        (
            (SENTENCE, "  the SUSPENSION of the national team – was unfair to all of them"),
            BIT[COPY] | BIT[WRONG_LANGUAGE],
        ),
        ((SENTENCE, SENTENCE.replace("unfair", "just")), BIT[NEAR_COPY] | BIT[WRONG_LANGUAGE]),
        (("", "Habari"), BLANK),
    ],
)
def test_faults_of_a_row(row: tuple[str, str], expected: int, tmp_path: Path) -> None:
    assert faults(tmp_path, row) == expected


@pytest.mark.parametrize(
    "row",
    [
        ("1994 - 2000, 12:30 (+254 20 123 4567 890)", "1994 - 2000, 12:30 (+254 20 123 4567 890)"),
        ("Barack Obama", "Barack Obama"),
        ("Tanzania, Uganda, Zambia and Malaysia.", "Tanzania, Uganda, Zambia na Malaysia."),
    ],
)
def test_numbers_and_names_are_no_copies(row: tuple[str, str], tmp_path: Path) -> None:
    assert faults(tmp_path, row) == 0


def test_close_languages_may_say_the_same(tmp_path: Path) -> None:
    sentence = "Svako ima pravo na život, slobodu i osobnu sigurnost u svojoj zemlji."
    assert faults(tmp_path, (sentence, sentence), languages="bs-hr") == 0
    assert faults(tmp_path, (sentence, sentence), Rules(copies=True), languages="bs-sw") == BIT[COPY]


def test_a_rule_that_was_not_chosen_names_nothing(tmp_path: Path) -> None:
    assert faults(tmp_path, (SENTENCE, SENTENCE), Rules(length=(1, 10), duplicates=True)) == BIT[TOO_LONG]
    assert faults(tmp_path, (SENTENCE, SENTENCE), Rules(near_copies=True)) == 0


def test_what_was_seen_instead_and_what_is_unknown_is_kept(tmp_path: Path) -> None:
    judge = RowJudge(ALL, unit(tmp_path, "sw-xh"))
    judge.faults((SENTENCE, "x"), (plain(SENTENCE), "x"))
    assert judge.instead["sw"] == {"en": 1}
    assert judge.unknown == ["xh"]


# ---- length ratio -------------------------------------------------------------------------------------------


def test_what_is_usual_is_learned_from_the_corpus() -> None:
    chinese = [proportion("字" * n, "letter" * n) for n in range(10, 60)]
    wrong = [proportion("字" * 20, "word"), proportion("字", "letter" * 50)]
    proportions = np.array([*chinese, *wrong])
    found = length_ratio(proportions, np.ones(len(proportions), dtype=bool), 4.0, drop=False)
    assert np.flatnonzero(found).tolist() == [50, 51]


def test_short_texts_may_differ_more() -> None:
    assert abs(proportion("Yes.", "Naam, ndiyo hivyo")) < math.log(4)
    assert abs(proportion("Yes." * 10, "Naam, ndiyo hivyo" * 20)) > math.log(4)


def test_a_small_corpus_is_not_judged() -> None:
    proportions = np.array([0.0] * (FEWEST_ROWS - 2) + [9.0])
    assert not length_ratio(proportions, np.ones(len(proportions), dtype=bool), 4.0, drop=True).any()


@given(st.lists(st.tuples(st.floats(-6, 6), st.booleans()), max_size=60), st.floats(1.1, 8))
def test_of_what_is_left_nothing_is_out_of_proportion(rows: list[tuple[float, bool]], most: float) -> None:
    proportions = np.array([value for value, _ in rows])
    there = np.array([is_there for _, is_there in rows], dtype=bool)
    found = length_ratio(proportions, there, most, drop=True)
    assert not (found & ~there).any()
    assert not length_ratio(proportions, there & ~found, most, drop=True).any()
    once = length_ratio(proportions, there, most, drop=False)
    assert not (once & ~found).any()


# ---- choosing -----------------------------------------------------------------------------------------------


def test_rules_as_a_command_line_chooses_them() -> None:
    assert not chosen(False)
    assert chosen(True) == ALL
    assert chosen(True, "3:500", ratio=2.0, copies=False).ratio == 2.0
    assert chosen(True, "3:500").length == (3, 500)
    assert chosen(False, copies=True, min_pairs=None) == Rules(copies=True)
    assert ALL.min_pairs is None
    assert ALL.against is None


@pytest.mark.parametrize(
    ("length", "asked", "message"),
    [
        ("5", {}, "--length 5: expected MIN:MAX"),
        ("a:b", {}, "--length a:b: expected MIN:MAX"),
        ("9:3", {}, "length 9:3: expected MIN:MAX with MIN up to MAX"),
        (None, {"ratio": 1.0}, "ratio 1.0: expected a number above 1"),
        (None, {"ratio": float("nan")}, "ratio nan"),
        (None, {"ratio": 0.0}, "ratio 0.0"),
        (None, {"many_to_one": 0}, "many-to-one 0: expected at least 1"),
        (None, {"min_pairs": 0}, "min-pairs 0: expected at least 1"),
    ],
)
def test_rules_that_make_no_sense(length: str | None, asked: dict[str, float], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        chosen(False, length, **asked)
