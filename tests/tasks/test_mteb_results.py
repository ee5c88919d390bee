from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crossling.core.errors import BadInput
from crossling.tasks.mteb_results import add_results, read_results
from crossling.tasks.scores import read_scores


def bitext(f1: float, subset: str, *languages: str) -> dict[str, Any]:
    """Return the scores of a subset as MTEB 2.26 writes them."""
    metrics = {"precision": f1 / 2, "recall": 0.5, "f1": f1, "accuracy": 0.5, "main_score": f1}
    return {**metrics, "hf_subset": subset, "languages": [*languages], "mteb_version": "2.26.24"}


def write_result(folder: Path, task: str, *subsets: dict[str, Any], split: str = "test") -> Path:
    result = {"dataset_revision": "1", "task_name": task, "mteb_version": "2.26.24", "evaluation_time": 1.5}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model_meta.json").write_text(json.dumps({"name": "crossling/bundled", "revision": "1", "loader": None}))
    file = folder / f"{task}.json"
    file.write_text(json.dumps({**result, "scores": {split: [*subsets]}, "kg_co2_emissions": None}))
    return file


@pytest.fixture
def results(tmp_path: Path) -> Path:
    home = tmp_path / "mteb/results/crossling__bundled/c3273180"
    german = bitext(0.25, "deu-eng", "deu-Latn", "eng-Latn")
    write_result(home, "Tatoeba", german, bitext(0.5, "cmn-eng", "cmn-Hans", "eng-Latn"))
    write_result(home, "BUCC.v2", bitext(0.9, "de-en", "deu-Latn", "eng-Latn"))
    flores = [bitext(0.1, f"{pair}_Latn", "fra-Latn", "eng-Latn") for pair in ("fra_Latn-eng", "eng_Latn-fra")]
    direct = bitext(0.2, "zho_Hant-deu_Latn", "zho-Hant", "deu-Latn")
    write_result(home, "FloresBitextMining", *flores, direct, split="devtest")
    topics = {"accuracy": 0.4, "f1": 0.4, "main_score": 0.4, "scores_per_experiment": [{"accuracy": 0.4}]}
    write_result(home, "SIB200Classification", {**topics, "hf_subset": "swh_Latn", "languages": ["swh-Latn"]})
    write_result(home, "STS22", {"main_score": 0.3, "odd": 0.3, "hf_subset": "default", "languages": ["a", "b", "c"]})
    return tmp_path / "mteb"


def test_results_become_score_rows(results: Path) -> None:
    rows = read_results(results)
    assert all((row["model"], row["setting"]) == ("bundled", "training-free") for row in rows)
    found = [
        (*(row[name] for name in ("task", "protocol", "metric", "language", "value")), row.get("direction"))
        for row in rows
    ]
    assert found == [
        ("bucc2018", "mteb-v2", "f1", "de", 90.0, "xx-en"),
        ("flores", "mteb", "f1", "fr", 10.0, "xx-en"),
        ("flores", "mteb", "f1", "fr", 10.0, "en-xx"),
        ("flores", "mteb", "f1", "de-zh-Hant", 20.0, "zh-Hant-de"),
        ("SIB200Classification", "mteb", "accuracy", "sw", 40.0, None),
        ("STS22", "mteb", "odd", "default", 30.0, None),
        ("tatoeba", "mteb", "f1", "de", 25.0, "xx-en"),
        ("tatoeba", "mteb", "f1", "zh", 50.0, "xx-en"),
    ]
    assert {row["split"] for row in rows if row["task"] == "flores"} == {"devtest"}


@pytest.mark.parametrize("part", ["", "results", "results/crossling__bundled", "results/crossling__bundled/c3273180"])
def test_any_folder_of_the_cache_may_be_given(results: Path, part: str) -> None:
    assert len(read_results(results / part)) == 8


def test_rows_are_added_to_scores(results: Path, tmp_path: Path) -> None:
    rows = add_results(results, tmp_path / "scores")
    assert add_results(results, tmp_path / "scores") == rows
    stored = read_scores(tmp_path / "scores/scores.jsonl")
    assert [{key: row[key] for key in row if key != "version"} for row in stored] == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "no result of MTEB, expected 'task_name' and 'scores'. Remove the file"),
        (
            '{"task_name": "a", "scores": {"test": [{"main_score": "0.5"}]}}',
            "split 'test': no number under 'main_score'",
        ),
        ("{", "line 1: invalid JSON"),
    ],
)
def test_damaged_results_are_refused(results: Path, text: str, message: str) -> None:
    (results / "results/crossling__bundled/c3273180/BUCC.v2.json").write_text(text)
    with pytest.raises(BadInput, match=message):
        read_results(results)


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no results of MTEB here, expected TASK\.json beside model_meta\.json"):
        read_results(tmp_path)
