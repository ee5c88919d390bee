"""The script experiments/audit.py: damaged corpora, and how many of them a ranking finds."""

from __future__ import annotations

import random
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import pytest

from tests.load_script import load_script

TRUTH = {"a": "wrong", "b": "many_to_one", "c": "copies", "d": "near_duplicates"}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("experiments/audit.py")


def rank_scores(names: str) -> dict[str, float]:
    """Scores of corpora that are named from hard to easy."""
    return {name: -float(position) for position, name in enumerate(names)}


@pytest.mark.parametrize(
    ("names", "both", "hard", "easy"),
    [
        ("abwxyzcd", 1.0, 1.0, 1.0),
        ("awbxyczd", 0.5, 0.5, 0.5),
        ("cdwxyzab", 1.0, 0.0, 0.0),  # at both ends, but at the wrong ones
        ("wxabcdyz", 0.0, 0.0, 0.0),
        ("abwcxydz", 0.75, 1.0, 0.5),
    ],
)
def test_each_end_has_as_many_corpora_as_were_damaged(
    names: str, both: float, hard: float, easy: float, script: ModuleType
) -> None:
    found = script._recall_at_ends(rank_scores(names), TRUTH)
    assert (found["both ends"], found["hard end"], found["easy end"]) == (both, hard, easy)
    assert found["ranks"] == {kind: [1 + names.index(name)] for name, kind in TRUTH.items()}


@pytest.mark.parametrize(
    ("called", "precision", "recall", "kinds"),
    [
        ("", 0.0, 0.0, (0, 0, 0, 0)),
        ("a", 1.0, 0.2, (0.5, 0, 0, 0)),
        ("axyz", 0.25, 0.2, (0.5, 0, 0, 0)),
        ("aebcd", 1.0, 1.0, (1, 1, 1, 1)),
        ("aebcdxyzwv", 0.5, 1.0, (1, 1, 1, 1)),
    ],
)
def test_precision_and_recall_of_found_corpora(
    called: str, precision: float, recall: float, kinds: tuple[float, ...], script: ModuleType
) -> None:
    found = script._precision_and_recall({*called}, TRUTH | {"e": "wrong"})
    assert (found["precision"], found["recall"]) == (precision, recall)
    assert found["by kind"] == dict(zip(TRUTH.values(), kinds, strict=True))


def test_only_damaged_kinds_are_reported(script: ModuleType) -> None:
    assert script._precision_and_recall({"c"}, {"c": "copies"})["by kind"] == {"copies": 1.0}


def test_misaligned_lines_swap_their_targets(script: ModuleType) -> None:
    rows = [(f"s{number}", f"t{number}") for number in range(40)]
    wrong = script._misalign(rows, 0.5, random.Random(0))
    assert sum(row != changed for row, changed in zip(rows, wrong, strict=True)) == 20
    assert [source for source, _ in wrong] == [source for source, _ in rows]
    assert sorted(target for _, target in wrong) == sorted(target for _, target in rows)


def test_each_kind_damages_as_many_corpora_and_others_are_unchanged(script: ModuleType, tmp_path: Path) -> None:
    groups = {
        f"set{number}.en-de": [(f"one two {row} {number}", f"eins zwei {row} {number}") for row in range(20)]
        for number in range(33)
    }
    truth = script._write_damaged(groups, tmp_path / "pairs", Namespace(seed=0, share=0.25, proportion=0.5))
    assert sorted(truth.values()) == sorted(2 * script.KINDS)
    for name, rows in groups.items():
        written = (tmp_path / "pairs" / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
        assert (written != ["\t".join(row) for row in rows]) == (f"{name} en-de" in truth)
