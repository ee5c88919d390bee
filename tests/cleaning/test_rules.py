"""Each rule finds its faults, and ignores rows that it cannot check."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.cleaning import rules
from crossling.cleaning.plain_text import plain_form
from crossling.cleaning.rules import (
    ALL_RULES,
    BIT,
    BLANK,
    MIN_ROWS_FOR_RATIO,
    NEAR_COPY_OVERLAP,
    Reason,
    RowFilter,
    Rules,
    find_length_outliers,
    find_median,
    log_length_ratio,
    rules_from_options,
)
from crossling.core.errors import BadInput

SENTENCE = "The suspension of the national team was unfair to all of them."


def faults(row: tuple[str, str], rules: Rules = ALL_RULES, languages: tuple[str, str] = ("en", "sw")) -> int:
    return RowFilter(rules, languages, languages).find_faults(row, (plain_form(row[0]), plain_form(row[1])))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (("Good morning.", "Habari ya asubuhi."), 0),
        (("Good morning.", "."), BIT[Reason.TOO_SHORT]),
        (("Cat", "猫"), 0),
        (("a" * 10_001, "b"), BIT[Reason.TOO_SHORT] | BIT[Reason.TOO_LONG]),
        ((SENTENCE, SENTENCE), BIT[Reason.COPY] | BIT[Reason.WRONG_LANGUAGE]),
        (
            (SENTENCE, "  the SUSPENSION of the national team – was unfair to all of them"),
            BIT[Reason.COPY] | BIT[Reason.WRONG_LANGUAGE],
        ),
        ((SENTENCE, SENTENCE.replace("unfair", "just")), BIT[Reason.NEAR_COPY] | BIT[Reason.WRONG_LANGUAGE]),
        (("", "Habari"), BLANK),
    ],
)
def test_faults_of_a_row(row: tuple[str, str], expected: int) -> None:
    assert faults(row) == expected


@pytest.mark.parametrize(
    "row",
    [
        ("1994 - 2000, 12:30 (+254 20 123 4567 890)", "1994 - 2000, 12:30 (+254 20 123 4567 890)"),
        ("Barack Obama", "Barack Obama"),
        ("Tanzania, Uganda, Zambia and Malaysia.", "Tanzania, Uganda, Zambia na Malaysia."),
    ],
)
def test_equal_numbers_and_names_are_no_copies(row: tuple[str, str]) -> None:
    assert faults(row) == 0


def test_equal_sentences_of_similar_languages_are_no_copies() -> None:
    sentence = "Svako ima pravo na život, slobodu i osobnu sigurnost u svojoj zemlji."
    assert faults((sentence, sentence), languages=("bs", "hr")) == 0
    assert faults((sentence, sentence), Rules(copies=True), ("bs", "sw")) == BIT[Reason.COPY]


def test_a_rule_that_is_not_chosen_finds_nothing() -> None:
    assert faults((SENTENCE, SENTENCE), Rules(length=(1, 10), duplicates=True)) == BIT[Reason.TOO_LONG]
    assert faults((SENTENCE, SENTENCE), Rules(near_copies=True)) == 0


def test_detected_and_unchecked_languages_are_counted() -> None:
    row_filter = RowFilter(ALL_RULES, ("sw", "xh"), ("sw", "xh"))
    row_filter.find_faults((SENTENCE, "x"), (plain_form(SENTENCE), "x"))
    assert row_filter.detected["sw"] == {"en": 1}
    assert row_filter.unchecked_languages == ["xh"]


@given(st.text("abcd", min_size=3, max_size=60), st.lists(st.integers(0, 59), max_size=8))
def test_a_near_copy_has_most_trigrams_in_common(left: str, changed: list[int]) -> None:
    right = "".join("x" if position in changed else letter for position, letter in enumerate(left)) + "xyz"
    a, b = ({text[i : i + 3] for i in range(len(text) - 2)} for text in (left, right))
    overlap = 2 * len(a & b) / (len(a) + len(b))
    assert (rules._trigram_overlap(left, right) >= NEAR_COPY_OVERLAP) == (overlap >= NEAR_COPY_OVERLAP)


# ---- length ratio -------------------------------------------------------------------------------------------


def outliers(log_ratios: np.ndarray, mask: np.ndarray, most: float, drop: bool) -> np.ndarray:
    """Mask of the outliers of rows in three slices."""
    edges = [len(log_ratios) // 3, len(log_ratios) // 2]
    found = find_length_outliers(np.split(log_ratios, edges), np.split(mask, edges), most, drop)
    masks = [np.isin(np.arange(size), part) for size, part in zip(np.diff([0, *edges, len(mask)]), found, strict=True)]
    return np.concatenate(masks)


@given(st.lists(st.lists(st.floats(-9, 9, width=32), max_size=8), max_size=4))
def test_the_median_of_slices_is_that_of_all_values(slices: list[list[float]]) -> None:
    arrays = [np.array(values, dtype=np.float32) for values in slices]
    values = np.concatenate([np.empty(0, dtype=np.float32), *arrays])
    if len(values):
        assert find_median(lambda: arrays) == np.median(values)


def test_the_usual_ratio_is_that_of_the_corpus() -> None:
    chinese = [log_length_ratio("字" * n, "letter" * n) for n in range(10, 60)]
    wrong = [log_length_ratio("字" * 20, "word"), log_length_ratio("字", "letter" * 50)]
    log_ratios = np.array([*chinese, *wrong])
    found = outliers(log_ratios, np.ones(len(log_ratios), dtype=bool), 4.0, drop=False)
    assert np.flatnonzero(found).tolist() == [50, 51]


def test_ratios_of_short_texts_may_vary_more() -> None:
    assert abs(log_length_ratio("Yes.", "Naam, ndiyo hivyo")) < math.log(4)
    assert abs(log_length_ratio("Yes." * 10, "Naam, ndiyo hivyo" * 20)) > math.log(4)


def test_a_small_corpus_is_not_checked() -> None:
    log_ratios = np.array([0.0] * (MIN_ROWS_FOR_RATIO - 2) + [9.0])
    assert not outliers(log_ratios, np.ones(len(log_ratios), dtype=bool), 4.0, drop=True).any()


@given(st.lists(st.tuples(st.floats(-6, 6), st.booleans()), max_size=60), st.floats(1.1, 8))
def test_no_outlier_is_left_after_dropping(rows: list[tuple[float, bool]], most: float) -> None:
    log_ratios = np.array([value for value, _ in rows])
    mask = np.array([is_included for _, is_included in rows], dtype=bool)
    found = outliers(log_ratios, mask, most, drop=True)
    assert not (found & ~mask).any()
    assert not outliers(log_ratios, mask & ~found, most, drop=True).any()
    once = outliers(log_ratios, mask, most, drop=False)
    assert not (once & ~found).any()


# ---- options ------------------------------------------------------------------------------------------------


def test_rules_from_command_line_options() -> None:
    assert not rules_from_options(False)
    assert rules_from_options(True) == ALL_RULES
    assert rules_from_options(True, "3:500", ratio=2.0, copies=False).ratio == 2.0
    assert rules_from_options(True, "3:500").length == (3, 500)
    assert rules_from_options(False, copies=True, min_pairs=None) == Rules(copies=True)
    assert ALL_RULES.min_pairs is None
    assert ALL_RULES.against is None


@pytest.mark.parametrize(
    ("length", "options", "message"),
    [
        ("5", {}, "length=5: expected MIN:MAX"),
        ("a:b", {}, "length=a:b: expected MIN:MAX"),
        ("9:3", {}, "length=9:3: expected MIN:MAX with MIN up to MAX"),
        (None, {"ratio": 1.0}, "rules: ratio must be more than 1 and less than inf, found 1.0"),
        (None, {"ratio": float("nan")}, "ratio must be .* found nan"),
        (None, {"ratio": 0.0}, "ratio must be .* found 0.0"),
        (None, {"many_to_one": 0}, "many_to_one must be at least 1, found 0"),
        (None, {"min_pairs": 0}, "min_pairs must be at least 1, found 0"),
    ],
)
def test_invalid_thresholds_are_refused(length: str | None, options: dict[str, float], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        rules_from_options(False, length, **options)
