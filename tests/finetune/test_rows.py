"""Rows of fine-tuned models say what they are: made how, chosen by what, in which languages."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from transfer.toys import model_folder, write_xnli

from crossling.benchmarks.sets import SETS
from crossling.errors import BadInput, Interrupted
from crossling.evaluate import predictions, scores
from crossling.evaluate.evaluate import evaluate
from crossling.evaluate.runs import collect
from crossling.evaluate.tuned import evaluate_tuned
from crossling.finetune.finetune import finetune
from crossling.transfer.tuned import Tuned

QUICK: dict[str, Any] = {"steps": 2, "lr": 1e-3, "batch": 8, "length": 32}
LANGUAGES = {"train": ["en"], "dev": ["en", "de"], "test": ["de", "fr"]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """No English test part."""
    write_xnli(tmp_path / "data", {"train": 24, "dev": 12, "test": 12}, LANGUAGES)
    return tmp_path / "data"


@pytest.fixture
def tuned(model: Path, data: Path, tmp_path: Path) -> Path:
    finetune(model, "xnli", data, tmp_path / "tuned", **QUICK)
    return tmp_path / "tuned"


def test_a_score_on_what_the_model_was_chosen_by_says_so(tuned: Path, model: Path, data: Path, tmp_path: Path) -> None:
    rows = {(row["language"], row["split"]): row for row in scores.read(tuned / "scores.jsonl")}
    assert {key: row.get("selected_on_test", False) for key, row in rows.items()} == {
        ("en", "dev"): True,
        ("de", "test"): False,
        ("fr", "test"): False,
    }
    last = finetune(model, "xnli", data, tmp_path / "last", selection="last", **QUICK)
    assert not any("selected_on_test" in row for row in last)


def test_models_fine_tuned_in_two_ways_are_two(tuned: Path, model: Path, data: Path, tmp_path: Path) -> None:
    finetune(model, "xnli", data, tmp_path / "other", **QUICK | {"lr": 1e-5})
    runs, _ = collect([tuned, tmp_path / "other"])
    assert [len(run.rows) for run in runs] == [3, 3]
    for folder in (tuned, tmp_path / "other"):
        evaluate_tuned(folder, data, tmp_path / "both")
    assert len(scores.read(tmp_path / "both" / "scores.jsonl")) == 6
    assert [len(run.rows) for run in collect([tmp_path / "both"])[0]] == [3, 3]


def test_seeds_of_one_way_are_one_model(model: Path, data: Path, tmp_path: Path) -> None:
    finetune(model, "xnli", data, tmp_path / "seeds", seeds=2, **QUICK)
    [run], _ = collect([tmp_path / "seeds"])
    assert {row["seed"] for row in run.rows} == {0, 1}


def test_other_training_data_is_refused_and_new_test_data_is_scored(tuned: Path, model: Path, data: Path) -> None:
    shutil.copy(data / "xnli" / "test-fr.tsv", data / "xnli" / "test-es.tsv")
    rows = finetune(model, "xnli", data, tuned, **QUICK)
    assert {row["language"] for row in rows} == {"de", "en", "es", "fr"}
    with (data / "xnli" / "train-en.tsv").open("a", encoding="utf-8") as file:
        file.write("one more\tred\tentailment\n")
    with pytest.raises(BadInput, match="other data"):
        finetune(model, "xnli", data, tuned, seeds=2, **QUICK)


def test_no_language_is_scored_on_what_was_trained_on(data: Path) -> None:
    for file in (data / "xnli").iterdir():
        if file.name not in ("train-en.tsv",):
            file.unlink()
    (data / "xnli" / "train-en.tsv").rename(data / "xnli" / "train-de.tsv")
    shutil.copy(data / "xnli" / "train-de.tsv", data / "xnli" / "train-fr.tsv")
    assert SETS["xnli"].source(data) == ("xnli", "de")
    assert SETS["xnli"].tested(data) == ["fr"]
    with pytest.raises(BadInput):
        SETS["xnli"].test(data, "de")


def test_only_what_is_asked_for_is_scored(tuned: Path, data: Path, tmp_path: Path) -> None:
    assert {row["language"] for row in evaluate(str(tuned), ["xnli"], data, languages=["de"])} == {"de"}
    for options, sentence in (
        ({"languages": ["frr"]}, "nothing to score in 'frr'.*fr"),
        ({"pooling": "cls"}, "for tasks without training"),
        ({"layers": [1]}, "for tasks without training"),
    ):
        with pytest.raises(BadInput, match=sentence):
            evaluate(str(tuned), ["xnli"], data, tmp_path / "out", **options)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="takes a loaded model"):
        evaluate(str(tuned), ["tatoeba"], data)


def test_predictions_are_kept_where_it_is_said(tuned: Path, data: Path, tmp_path: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in tuned.rglob("*.jsonl")}
    evaluate(str(tuned), ["xnli"], data)
    evaluate(str(tuned), ["xnli"], data, tmp_path / "out")
    assert {file: file.stat().st_mtime_ns for file in tuned.rglob("*.jsonl")} == before
    kept = tmp_path / "out" / "seed-0" / "predictions" / "xnli"
    assert sorted(file.name for file in kept.iterdir()) == ["dev-en.jsonl", "test-de.jsonl", "test-fr.jsonl"]


def test_stored_predictions_are_scored_without_the_model(tuned: Path, data: Path) -> None:
    expected = scores.read(tuned / "scores.jsonl")
    for file in tuned.rglob("*.safetensors"):
        file.unlink()
    assert evaluate(str(tuned), ["xnli"], data, recompute=True) == expected


def test_scoring_that_was_stopped_goes_on(
    tuned: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, out, predict = evaluate(str(tuned), ["xnli"], data), tmp_path / "out", Tuned.predict
    read = []

    def stopping(self: Tuned, examples: Any, *more: Any, **named: Any) -> Any:
        if len(read) == 2:
            raise KeyboardInterrupt
        read.append(examples)
        return predict(self, examples, *more, **named)

    monkeypatch.setattr(Tuned, "predict", stopping)
    with pytest.raises(Interrupted, match="the same command goes on"):
        evaluate(str(tuned), ["xnli"], data, out)
    assert predictions.paths(out) == []  # nobody compares models by a part
    read.clear()
    assert evaluate(str(tuned), ["xnli"], data, out) == whole
    assert len(read) == 1
    assert scores.read(out / "scores.jsonl") == whole
    assert len(predictions.paths(out)) == 3


def test_what_is_broken_in_another_language_does_no_harm(tuned: Path, data: Path) -> None:
    [file] = data.glob("**/test-fr.*")
    file.write_bytes(b"\xff\n")
    assert {row["language"] for row in evaluate(str(tuned), ["xnli"], data, languages=["de"])} == {"de"}
    with pytest.raises(BadInput, match="not UTF-8"):
        evaluate(str(tuned), ["xnli"], data, languages=["de", "fr"])


def test_what_is_too_long_is_told_once_with_the_set_and_its_languages(
    model: Path, data: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    for file in data.rglob("*.tsv"):
        file.write_text(file.read_text(encoding="utf-8").replace("the ", "the the the the the "), encoding="utf-8")
    finetune(model, "xnli", data, tmp_path / "short", **QUICK | {"length": 8})
    told = [str(each.message) for each in recwarn if "longer than" in str(each.message)]
    assert [message.split(": ")[0] for message in told] == [
        "xnli, training part",
        "xnli, dev part (en)",
        "xnli, dev part (de)",
        "xnli, seed-0 (de, en, fr)",
    ]


@pytest.mark.parametrize("task", ["tatoeba", "bucc2018", "word-alignment"])
def test_tasks_without_training_are_measured_instead(task: str, model: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"{task} needs no training; .* crossling evaluate .* --task {task}"):
        finetune(model, task, data, tmp_path / "out")
