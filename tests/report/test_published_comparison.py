from __future__ import annotations

from typing import Any

import pytest

from crossling.report.analysis import LANGUAGES, TaskScore, task_scores
from crossling.report.published_comparison import published_means


def score(task: str, languages: dict[str, float], **facts: Any) -> TaskScore:
    rows = [
        {"model": "m", "task": task, "language": code, "value": value, "examples": 10, **facts}
        for code, value in languages.items()
    ]
    return next(each for each in task_scores(rows) if each.measure.task == task)


MTEB = {"metric": "f1", "protocol": "mteb", "direction": "xx-en"}


def test_means_are_over_the_languages_of_the_score() -> None:
    means = {each.row.name: each.value for each in published_means(score("tatoeba", {"sw": 1.0, "de": 2.0}, **MTEB))}
    assert means["LaBSE"] == pytest.approx((84.5 + 99.2) / 2)
    assert {*means} >= {"multilingual-e5-base", "paraphrase-multilingual-MiniLM-L12-v2"}


def test_models_without_one_of_the_languages_are_omitted() -> None:
    assert not published_means(score("tatoeba", {"is": 1.0}, **MTEB))
    assert not published_means(score("tatoeba", {"sw": 1.0}, **{**MTEB, "direction": "en-xx"}))


def test_protocols_are_not_mixed() -> None:
    pair = {"de": 50.0, "fr": 50.0, "ru": 50.0, "zh": 50.0}
    scores = {
        protocol: score("bucc2018", pair, metric="f1", protocol=protocol)
        for protocol in ("xtreme", "mteb", "mteb-v2", "margin")
    }
    names = {protocol: {each.row.reference for each in published_means(one)} for protocol, one in scores.items()}
    assert names == {
        "xtreme": {"VECO, Table 11"},
        "mteb": {"MTEB, BUCC"},
        "mteb-v2": {"MTEB, BUCC.v2"},
        "margin": set(),
    }


def test_zero_shot_scores_meet_those_of_the_papers() -> None:
    languages = dict.fromkeys(LANGUAGES["xnli"], 50.0)
    facts = {"metric": "accuracy", "protocol": "xtreme", "setting": "zero-shot", "split": "test"}
    means = {each.row.name: round(each.value, 1) for each in published_means(score("xnli", languages, **facts))}
    assert {"XLM-R Base", "InfoXLM Base", "XLM-E Base", "XY-LENT Base"} <= {*means}
