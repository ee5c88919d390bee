"""The language that a model was fine-tuned on is nowhere called zero-shot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crossling.cli.published_table import print_published
from crossling.cli.score_tables import print_by_language
from crossling.report.analysis import LANGUAGES, task_scores, transfer_gap
from crossling.report.report import report
from crossling.tasks.scores import Score, add_scores, describe_setting, read_scores

TUNED = {"seed": 0, "trained_on": "xnli", "selection": "english-dev", "tuned": "lr 1e-05, 10 steps"}


def row(task: str, language: str, value: float, setting: str, **facts: Any) -> dict[str, Any]:
    fields = {"protocol": "xtreme", "metric": "accuracy", "examples": 100, **TUNED, **facts}
    return Score(model="m", task=task, language=language, value=value, setting=setting, **fields).row()


@pytest.fixture
def xnli() -> list[dict[str, Any]]:
    others = [code for code in LANGUAGES["xnli"] if code != "en"]
    return [row("xnli", "en", 80.0, "supervised"), *(row("xnli", code, 70.0, "zero-shot") for code in others)]


def test_settings_in_words() -> None:
    assert describe_setting("zero-shot", ["de", "en"], ["en"]) == "zero-shot except en"
    assert describe_setting("zero-shot", ["en"], ["en"]) == "supervised"
    assert describe_setting("zero-shot", ["de"], ["en"]) == "zero-shot"
    assert describe_setting("translate-train", ["de", "en"], []) == "translate-train"


def test_a_row_replaces_that_of_an_earlier_version(tmp_path: Path) -> None:
    file = tmp_path / "scores.jsonl"
    add_scores(file, [row("xnli", "en", 79.0, "zero-shot")])
    add_scores(file, [row("xnli", "en", 80.0, "supervised")])
    assert [(each["setting"], each["value"]) for each in read_scores(file)] == [("supervised", 80.0)]


def test_the_mean_is_over_all_languages(xnli: list[dict[str, Any]]) -> None:
    [score] = task_scores(xnli)
    assert score.is_complete
    assert score.mean == pytest.approx((80 + 14 * 70) / 15)
    assert score.setting == "zero-shot except en"
    assert "zero-shot except en" in score.description
    gap = transfer_gap(score)
    assert gap is not None
    assert gap.mean == pytest.approx(10)


def test_tables_name_the_exception(xnli: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    for rows, expected in (
        (xnli, "xnli, zero-shot except en, %"),
        (xnli[:1], "xnli, supervised, %"),
        (xnli[1:], "xnli, zero-shot, %"),
    ):
        print_by_language(rows)
        assert expected in capsys.readouterr().out
    print_published(xnli)
    assert "xnli: accuracy, zero-shot except en, as published, 15 languages, %" in capsys.readouterr().out


def test_the_report_calls_no_training_language_zero_shot(xnli: list[dict[str, Any]], tmp_path: Path) -> None:
    glue = {"protocol": "glue", "trained_on": "sst2", "split": "dev"}
    add_scores(tmp_path / "scores.jsonl", [*xnli, row("sst2", "en", 90.0, "supervised", **glue)])
    page = report(tmp_path, tmp_path / "report.html")
    for text in (page.read_text(encoding="utf-8"), page.with_suffix(".md").read_text(encoding="utf-8")):
        found = text.split("zero-shot")[1:]
        assert found
        assert all(after.startswith(" except en") for after in found), [after[:40] for after in found]
        assert "supervised, dev set" in text
