from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from crossling.report.analysis import GLUE_8, LANGUAGES, QA_MEAN, XTREME_7
from crossling.report.leaderboard import Leaderboard, LeaderboardCell, build_leaderboards
from crossling.report.runs import ReportRun

from .score_folders import row

Rows = list[dict[str, Any]]
RETRIEVAL = {"setting": "training-free", "pooling": "mean"}


def scored(task: str, value: float, **more: Any) -> Rows:
    return [row("m", task, code, value, **more) for code in LANGUAGES[task]]


def retrieved(protocol: str, direction: str, by_layer: dict[int, float]) -> Rows:
    return [
        row("m", "tatoeba", code, value, layer=layer, protocol=protocol, direction=direction, **RETRIEVAL)
        for layer, value in by_layer.items()
        for code in LANGUAGES["tatoeba-36"]
    ]


def aligned(protocol: str, value: float, pairs: Sequence[str]) -> Rows:
    result = {"metric": "aer", "protocol": protocol, "layer": 3}
    return [row("m", "word-alignment", pair, value, **result) for pair in pairs]


def leaderboards(rows: Rows) -> list[Leaderboard]:
    return build_leaderboards([ReportRun(name="m", rows=rows)])


def first_leaderboard(rows: Rows) -> Leaderboard:
    [leaderboard, *_] = leaderboards(rows)
    return leaderboard


def cells(rows: Rows) -> dict[str, LeaderboardCell]:
    leaderboard = first_leaderboard(rows)
    [run] = leaderboard.runs
    return dict(zip(leaderboard.columns, run.cells, strict=True))


@pytest.mark.parametrize("reversed_rows", [False, True])
def test_protocol_xtreme_is_preferred_to_sweep(reversed_rows: bool) -> None:
    rows = [
        *retrieved("sweep", "en-xx", {7: 60.0, 8: 55.0}),
        *retrieved("sweep", "xx-en", {7: 40.0, 8: 45.0}),
        *retrieved("xtreme", "en-xx", {8: 50.0}),
    ]
    found = cells(rows[::-1] if reversed_rows else rows)
    for task in ("Tatoeba-14", "Tatoeba-36"):
        ahead, back = found[f"{task} en→xx"], found[f"{task} xx→en"]
        assert (ahead.text, ahead.small) == ("50.0", "xtreme, layer 8")
        assert (back.text, back.small) == ("45.0", "sweep, best layer 8")


def test_sweep_is_used_without_protocol_xtreme_and_coverage_is_shown() -> None:
    rows = [each for each in retrieved("sweep", "en-xx", {7: 60.0}) if each["language"] in ("ar", "bg")]
    assert cells(rows)["Tatoeba-36 en→xx"].small == "sweep, best layer 7 (2 of 36)"


@pytest.mark.parametrize("reversed_rows", [False, True])
def test_alignment_protocol_is_that_of_the_papers(reversed_rows: bool) -> None:
    pairs = ("de-en", "en-fr", "en-hi")
    rows = [*aligned("mutual-argmax", 20.0, pairs), *aligned("xlm-align-ot", 30.0, pairs)]
    cell = cells(rows[::-1] if reversed_rows else rows)["AER"]
    assert (cell.text, cell.small) == ("30.0", "xlm-align-ot, best layer 3 (3 of 4)")
    assert leaderboards(aligned("itermax", 20.0, pairs)) == []


@pytest.mark.parametrize("reversed_rows", [False, True])
def test_test_set_selected_on_english_is_preferred(reversed_rows: bool) -> None:
    facts = {"setting": "zero-shot", "selection": "english-dev"}
    rows = [
        *scored("xnli", 70.0, split="test", **facts),
        *scored("xnli", 90.0, split="dev", **facts),
        *scored("xnli", 95.0, split="test", setting="zero-shot", selection="all-dev"),
    ]
    cell = cells(rows[::-1] if reversed_rows else rows)["XNLI acc."]
    assert (cell.text, cell.small, cell.notes) == ("70.0", "", ())


def fine_tuned(value: float, **facts: str) -> Rows:
    """Return rows with one value of every task and language of XTREME that is fine-tuned."""
    rows = []
    for task, metric in XTREME_7.items():
        for each in ("f1", "exact_match") if metric is QA_MEAN else (metric,):
            rows += scored(task, value, metric=each, setting="zero-shot", **facts)
    return rows


def test_the_average_of_nine_tasks_adds_retrieval() -> None:
    rows = fine_tuned(60.0)
    assert "avg of 9" not in cells(rows)
    rows += scored("bucc2018", 80.0, metric="f1", protocol="xtreme", layer=8)
    found = cells([*rows, *retrieved("xtreme", "en-xx", {8: 40.0})])
    assert (found["avg"].text, found["avg of 9"].text) == ("60.0", "60.0")
    partial = [each for each in retrieved("xtreme", "en-xx", {8: 40.0}) if each["language"] != "sw"]
    assert "avg of 9" not in cells([*rows, *partial])


def test_glue_has_a_leaderboard_with_its_average() -> None:
    facts = {"setting": "zero-shot", "split": "dev", "protocol": "glue"}
    rows = [row("m", task, "en", 10.0 * i, metric=metric, **facts) for i, (task, metric) in enumerate(GLUE_8.items())]
    glue = first_leaderboard(rows)
    assert glue.title == "GLUE, English dev sets"
    assert (glue.columns[4], glue.columns[-1]) == ("CoLA Matthews", "avg")
    assert glue.runs[0].cells[-1].text == "35.0"
    assert {each.reference for each in glue.published} == {"XY-LENT, Table 3"}
    [xlm_e] = [each for each in glue.published if each.name == "XLM-E Base"]
    assert (xlm_e.cells[0].text, xlm_e.cells[-1].text) == ("86.1", "86.4")
    assert "avg" not in first_leaderboard(rows[1:]).columns


def test_differences_from_the_papers_are_noted() -> None:
    rows = scored("xnli", 90.0, split="dev", setting="zero-shot", selection="each-dev", trained_on="mnli-subset")
    [trained, split, selection] = cells(rows)["XNLI acc."].notes
    assert (trained.startswith("Fine-tuned on mnli-subset"), split) == (
        True,
        "Measured on the dev set, which also selected the model: slightly optimistic.",
    )
    assert "each-dev" in selection
