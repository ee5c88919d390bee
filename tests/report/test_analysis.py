from __future__ import annotations

from statistics import fmean, stdev
from typing import Any

import pytest

from crossling.report.analysis import (
    FAMILIES,
    LANGUAGES,
    QA_MEAN,
    XTREME_7,
    TaskScore,
    compare_languages,
    family_order,
    group_by_family,
    group_by_training_data,
    task_average,
    task_scores,
    transfer_gap,
)
from crossling.report.published import published_table

from .score_folders import row


def scored(task: str, values: dict[str, float], **more: Any) -> list[dict[str, Any]]:
    return [row("m", task, code, value, setting="zero-shot", **more) for code, value in values.items()]


def only(scores: list[TaskScore], metric: str = "accuracy") -> TaskScore:
    [found] = [score for score in scores if score.measure.metric == metric]
    return found


def test_mean_is_over_languages_for_each_seed() -> None:
    rows = scored("xcopa", {"a": 10, "b": 30}, seed=2) + scored("xcopa", {"a": 20, "b": 60}, seed=1)
    score = only(task_scores(rows))
    assert score.seeds.values == (40, 20)  # of seeds 1 and 2
    assert (score.mean, score.seeds.median) == (30, 30)
    assert score.seeds.deviation == pytest.approx(stdev([20, 40]))
    assert score.languages["b"].values == (60, 30)
    assert score.coverage == "2 languages"


def test_seed_without_all_languages_has_no_mean() -> None:
    rows = scored("xcopa", {"a": 10, "b": 30}, seed=1) + scored("xcopa", {"a": 90}, seed=2)
    score = only(task_scores(rows))
    assert score.seeds.values == (20,)
    assert score.seeds.deviation is None


def test_settings_and_protocols_are_not_mixed() -> None:
    rows = scored("xnli", {"en": 10})
    for change in ({"protocol": "other"}, {"setting": "translate-train"}, {"split": "dev"}, {"selection": "all-dev"},
                   {"trained_on": "mnli"}, {"pooling": "cls"}, {"direction": "en-xx"}):  # fmt: skip
        rows.append({**rows[0], **change, "value": 50})
    assert [score.mean for score in task_scores(rows)] == [10] + [50] * 7


def test_coverage_of_the_papers_languages() -> None:
    codes = LANGUAGES["xnli"]
    whole = only(task_scores(scored("xnli", dict.fromkeys(codes, 50.0))))
    assert (whole.coverage, whole.is_complete) == ("15 languages", True)
    part = only(task_scores(scored("xnli", dict.fromkeys(codes[:12], 50.0))))
    assert (part.coverage, part.is_complete) == ("12 of 15", False)
    more = only(task_scores(scored("xnli", dict.fromkeys([*codes, "ko"], 50.0) | {"ko": 0.0})))
    assert (more.coverage, more.mean) == ("15 languages", 50)  # Korean is not in XNLI's mean
    other = only(task_scores(scored("xnli", {"qaa": 10.0, "qab": 20.0})))
    assert (other.coverage, other.is_complete, other.mean) == ("2 languages", False, 15)


def test_tatoeba_is_also_scored_by_the_papers_lists_at_the_best_layer() -> None:
    rows = [
        row("m", "tatoeba", code, value + 10 * (layer == 3), layer=layer, direction="en-xx", protocol="sweep")
        for layer in (2, 3)
        for code, value in {"ar": 10.0, "af": 30.0}.items()
    ]
    found = {score.measure.task: (score.mean, score.layer, score.coverage) for score in task_scores(rows)}
    assert found == {
        "tatoeba": (30, 3, "2 languages"),
        "tatoeba-14": (20, 3, "1 of 14"),
        "tatoeba-22": (40, 3, "1 of 22"),
        "tatoeba-36": (30, 3, "2 of 36"),
    }


def test_best_layer_has_the_lowest_alignment_error_rate() -> None:
    rows = [
        row("m", "word-alignment", "de-en", value, layer=layer, metric="aer") for layer, value in enumerate((9, 5, 7))
    ]
    assert only(task_scores(rows), "aer").layer == 1


def test_qa_score_is_the_mean_of_f1_and_exact_match() -> None:
    rows = scored("xquad", {"en": 80, "de": 60}, metric="f1") + scored(
        "xquad", {"en": 60, "de": 40}, metric="exact_match"
    )
    score = only(task_scores(rows), QA_MEAN)
    assert score.mean == 60
    assert score.languages["de"].mean == 50


def test_cross_lingual_questions_are_excluded_from_the_mean() -> None:
    rows = scored("mlqa", {"en": 80, "en-de": 10}, metric="f1")
    assert only(task_scores(rows), "f1").mean == 80


def test_xtreme_average_of_xlm_e_is_that_of_the_paper() -> None:
    """Its published means, assigned to every language, average to 69.3."""
    [published] = [each for each in published_table("XLM-E", "1") if each.model == "XLM-E"]
    rows = []
    for task in XTREME_7:
        for metric in ("accuracy", "f1", "exact_match"):
            value = published.values.get(f"{task}/{metric}/mean")
            if value is not None:
                rows += scored(task, dict.fromkeys(LANGUAGES[task], value), metric=metric)
    scores = task_scores(rows)
    selected = {score.measure.task: score for score in scores if score.measure.metric == XTREME_7[score.measure.task]}
    found = task_average(selected)
    assert found is not None
    assert round(found.mean, 1) == 69.3
    assert task_average({task: score for task, score in selected.items() if task != "xnli"}) is None


def test_interval_of_the_mean() -> None:
    rows = scored("xcopa", {"a": 50, "b": 70}, low=47, high=54)
    rows[1] |= {"low": 66, "high": 73}
    low, high = only(task_scores(rows)).interval or (0, 0)
    assert (low, high) == pytest.approx((60 - 5 / 2, 60 + 5 / 2))
    assert only(task_scores(scored("xcopa", {"a": 50}, low=1, high=99) + scored("xcopa", {"b": 50}))).interval is None


def test_transfer_gap() -> None:
    rows = scored("xnli", {"en": 90, "de": 80, "sw": 60}, seed=1) + scored(
        "xnli", {"en": 80, "de": 80, "sw": 60}, seed=2
    )
    found = transfer_gap(only(task_scores(rows)))
    assert found is not None
    assert found.values == (20, 10)
    assert transfer_gap(only(task_scores(scored("xnli", {"de": 80})))) is None


def test_group_by_family() -> None:
    assert sorted(code for codes in FAMILIES.values() for code in codes) == sorted(LANGUAGES["panx"])
    groups = group_by_family({"de": 80, "nl": 60, "sw": 30, "qaa": 0})
    assert [(group.name, group.languages, group.value) for group in groups] == [
        ("Germanic", ["de", "nl"], 70),
        ("Niger-Congo", ["sw"], 30),
    ]
    assert family_order(["qaa", "sw", "nl", "de"]) == ["de", "nl", "sw", "qaa"]


def test_group_by_training_data() -> None:
    data = {"text": {"de": 10, "sw": 5, "qaa": 3, "qab": 3, "yo": 0}, "pairs": [["de", "en", 7], ["en", "yo", 0]]}
    groups = group_by_training_data({"en": 99, "de": 80, "sw": 60, "yo": 10}, data)
    assert {group.name: (group.languages, group.value) for group in groups} == {
        "text and bitext": (["de"], 80),
        "text only": (["sw"], 60),
        "unseen": (["yo"], 10),
    }
    pairs = group_by_training_data({"qaa-qab": 5, "de-en": 50, "qaa-qac": 1}, data)
    assert [group.languages for group in pairs] == [["de-en"], ["qaa-qab"], ["qaa-qac"]]


def test_relative_losses_are_those_of_xy_lents_table_6() -> None:
    rows = {each.model: each for each in published_table("XY-LENT", "6")}
    before, after = (rows[name].languages("xnli", "accuracy") for name in ("XY-LENT", "XY-LENT, continued"))
    found = {change.language: change.drop for change in compare_languages(before, after)}
    assert found["mean"] == pytest.approx(5.9, abs=0.1)
    assert found["sw"] == pytest.approx(21.9, abs=0.1)
    assert found["en"] == pytest.approx(0.5, abs=0.1)
    assert compare_languages({"a": 1.0}, {"b": 1.0}) == []
    assert fmean(before.values()) == pytest.approx(80.3, abs=0.1)
