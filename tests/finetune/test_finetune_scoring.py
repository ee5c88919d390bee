"""Scores of fine-tuned models: their fields, which languages are scored, and resumed evaluations."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from crossling.cli.score_tables import print_by_language
from crossling.core.errors import BadInput, Interrupted
from crossling.evaluate.evaluate import evaluate
from crossling.evaluate.significance import ModelPredictions, compare_models
from crossling.finetune.finetune import finetune
from crossling.finetune.finetune_scoring import evaluate_tuned, score_predictions
from crossling.finetune.tuned_model import TunedModel
from crossling.report.report import report
from crossling.report.runs import collect_runs
from crossling.tasks import predictions, scores
from crossling.tasks.metrics import METRICS
from crossling.tasks.registry import DATASETS

from .tiny_tasks import model_folder, write_xnli

QUICK: dict[str, Any] = {"steps": 2, "lr": 1e-3, "batch": 8, "length": 32}
LANGUAGES = {"train": ["en"], "dev": ["en", "de"], "test": ["de", "fr"]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write data without an English test set."""
    write_xnli(tmp_path / "data", {"train": 24, "dev": 12, "test": 12}, LANGUAGES)
    return tmp_path / "data"


@pytest.fixture
def tuned(model: Path, data: Path, tmp_path: Path) -> Path:
    finetune(model, "xnli", data, tmp_path / "tuned", **QUICK)
    return tmp_path / "tuned"


def test_scores_on_the_selection_set_are_marked(tuned: Path, model: Path, data: Path, tmp_path: Path) -> None:
    rows = {(row["language"], row["split"]): row for row in scores.read_scores(tuned / "scores.jsonl")}
    assert {key: row.get("selected_on_test", False) for key, row in rows.items()} == {
        ("en", "dev"): True,
        ("de", "test"): False,
        ("fr", "test"): False,
    }
    last = finetune(model, "xnli", data, tmp_path / "last", selection="last", **QUICK)
    assert not any("selected_on_test" in row for row in last)


def test_models_with_different_settings_are_two_models_in_a_report(
    tuned: Path, model: Path, data: Path, tmp_path: Path
) -> None:
    finetune(model, "xnli", data, tmp_path / "other", **QUICK | {"lr": 1e-5})
    runs, _ = collect_runs([tuned, tmp_path / "other"])
    assert [len(run.rows) for run in runs] == [3, 3]
    for folder in (tuned, tmp_path / "other"):
        evaluate_tuned(folder, data, tmp_path / "both")
    assert len(scores.read_scores(tmp_path / "both" / "scores.jsonl")) == 6
    assert [len(run.rows) for run in collect_runs([tmp_path / "both"])[0]] == [3, 3]


def test_seeds_of_the_same_settings_are_one_model_in_a_report(model: Path, data: Path, tmp_path: Path) -> None:
    finetune(model, "xnli", data, tmp_path / "seeds", seeds=2, **QUICK)
    [run], _ = collect_runs([tmp_path / "seeds"])
    assert {row["seed"] for row in run.rows} == {0, 1}


def test_other_training_data_is_refused_and_new_test_data_is_scored(tuned: Path, model: Path, data: Path) -> None:
    shutil.copy(data / "xnli" / "test-fr.tsv", data / "xnli" / "test-es.tsv")
    rows = finetune(model, "xnli", data, tuned, **QUICK)
    assert {row["language"] for row in rows} == {"de", "en", "es", "fr"}
    with (data / "xnli" / "train-en.tsv").open("a", encoding="utf-8") as file:
        file.write("one more\tred\tentailment\n")
    with pytest.raises(BadInput, match="trained or selected on other data"):
        finetune(model, "xnli", data, tuned, seeds=2, **QUICK)


def test_no_language_is_scored_on_training_data(data: Path) -> None:
    for file in (data / "xnli").iterdir():
        if file.name not in ("train-en.tsv",):
            file.unlink()
    (data / "xnli" / "train-en.tsv").rename(data / "xnli" / "train-de.tsv")
    shutil.copy(data / "xnli" / "train-de.tsv", data / "xnli" / "train-fr.tsv")
    assert DATASETS["xnli"].training_source(data) == ("xnli", "de")
    assert DATASETS["xnli"].scorable_languages(data) == ["fr"]
    with pytest.raises(BadInput):
        DATASETS["xnli"].read_test(data, "de")


def test_only_requested_languages_are_scored(tuned: Path, data: Path, tmp_path: Path) -> None:
    assert {row["language"] for row in evaluate(str(tuned), ["xnli"], data, languages=["de"])} == {"de"}
    for options, message in (
        ({"languages": ["frr"]}, "no data for language 'frr'.*fr"),
        ({"pooling": "cls"}, "apply to training-free tasks only"),
        ({"layers": [1]}, "apply to training-free tasks only"),
    ):
        with pytest.raises(BadInput, match=message):
            evaluate(str(tuned), ["xnli"], data, tmp_path / "out", **options)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"tatoeba/v1: no such folder"):
        evaluate(str(tuned), ["tatoeba"], data)


def test_the_correlation_of_constant_predictions_is_undefined_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gold = [0.0, 1.5, 3.0, 4.0]
    guesses = {"constant": [2.0] * 4, "varied": [0.5, 1.0, 3.5, 3.0]}
    by_model = {}
    for name, predicted in guesses.items():
        place = {"task": "stsb", "language": "en", "split": "dev", "setting": "fine-tuned", "model": name}
        by_model[name] = score_predictions(
            [METRICS["spearman"], METRICS["pearson"]],
            gold,
            predicted,
            ids=list("abcd"),
            text_language="en",
            out=tmp_path / name,
            **place,
        )
        scores.add_scores(tmp_path / name / "scores.jsonl", by_model[name])
    assert [row["value"] for row in by_model["constant"]] == [None, None]
    assert not {"low", "high"} & by_model["constant"][0].keys()
    assert by_model["varied"][0]["value"] == pytest.approx(80)
    print_by_language([by_model["constant"][0], by_model["varied"][1]])
    assert capsys.readouterr().out.count("n.a.") == 2  # of the language, and of the mean
    folders = [tmp_path / name for name in guesses]
    runs, _ = collect_runs(folders)
    assert {run.name: len(run.scores) for run in runs} == {"constant": 0, "varied": 2}
    assert compare_models([ModelPredictions(name, [tmp_path / name], {}) for name in guesses]) == []
    assert report(folders, tmp_path / "page.html").is_file()


def test_predictions_are_written_to_the_output_folder(tuned: Path, data: Path, tmp_path: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in tuned.rglob("*.jsonl")}
    evaluate(str(tuned), ["xnli"], data)
    evaluate(str(tuned), ["xnli"], data, tmp_path / "out")
    assert {file: file.stat().st_mtime_ns for file in tuned.rglob("*.jsonl")} == before
    written = tmp_path / "out" / "seed-0" / "predictions" / "xnli"
    assert sorted(file.name for file in written.iterdir()) == ["dev-en.jsonl", "test-de.jsonl", "test-fr.jsonl"]


def test_stored_predictions_are_scored_without_the_model(tuned: Path, data: Path) -> None:
    expected = scores.read_scores(tuned / "scores.jsonl")
    for file in tuned.rglob("*.safetensors"):
        file.unlink()
    assert evaluate(str(tuned), ["xnli"], data, recompute=True) == expected


def test_an_interrupted_evaluation_resumes(
    tuned: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, out, predict = evaluate(str(tuned), ["xnli"], data), tmp_path / "out", TunedModel.predict
    read = []

    def stopping(self: TunedModel, examples: Any, *more: Any, **named: Any) -> Any:
        if len(read) == 2:
            raise KeyboardInterrupt
        read.append(examples)
        return predict(self, examples, *more, **named)

    monkeypatch.setattr(TunedModel, "predict", stopping)
    with pytest.raises(Interrupted, match="same command"):
        evaluate(str(tuned), ["xnli"], data, out)
    assert predictions.find_prediction_files(out) == []  # models are not compared on a part of the languages
    read.clear()
    assert evaluate(str(tuned), ["xnli"], data, out) == whole
    assert len(read) == 1
    assert scores.read_scores(out / "scores.jsonl") == whole
    assert len(predictions.find_prediction_files(out)) == 3


@pytest.mark.parametrize("name", ["model.safetensors", "languages/de/model.safetensors"])
def test_models_with_equal_settings_and_other_weights_share_no_predictions(
    name: str, model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in data.glob("xnli/dev-*"):
        file.unlink()
    finetune(model, "xnli", data, tmp_path / "tuned", selection="last", **QUICK)
    first, second, out = tmp_path / "tuned" / "seed-0", tmp_path / "second", tmp_path / "out"
    (first / name).parent.mkdir(parents=True, exist_ok=True)
    if not (first / name).exists():
        for file in (first / "model.safetensors", first / "config.json"):
            shutil.copy(file, (first / name).parent)
    shutil.copytree(first, second)
    weights = load_file(second / name)
    save_file({key: values + 1 for key, values in weights.items()}, second / name, {"format": "pt"})
    predict, read = TunedModel.predict, []

    def stopping(self: TunedModel, examples: Any, *more: Any, **named: Any) -> Any:
        read.append(examples)
        if len(read) == 2:
            raise KeyboardInterrupt
        return predict(self, examples, *more, **named)

    monkeypatch.setattr(TunedModel, "predict", stopping)
    with pytest.raises(Interrupted):
        evaluate(first, "xnli", data, out)
    evaluate(second, "xnli", data, out)
    assert len(read) == 2 + 2  # languages of the interrupted evaluation, and all of the second model


def test_a_damaged_file_of_another_language_is_not_read(tuned: Path, data: Path) -> None:
    [file] = data.glob("**/test-fr.*")
    file.write_bytes(b"\xff\n")
    assert {row["language"] for row in evaluate(str(tuned), ["xnli"], data, languages=["de"])} == {"de"}
    with pytest.raises(BadInput, match="not UTF-8"):
        evaluate(str(tuned), ["xnli"], data, languages=["de", "fr"])


def test_truncation_is_reported_once_per_dataset_with_its_languages(
    model: Path, data: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    for file in data.rglob("*.tsv"):
        file.write_text(file.read_text(encoding="utf-8").replace("the ", "the the the the the "), encoding="utf-8")
    finetune(model, "xnli", data, tmp_path / "short", **QUICK | {"length": 8})
    messages = [str(each.message) for each in recwarn if "longer than" in str(each.message)]
    assert [message.split(": ")[0] for message in messages] == [
        "xnli, training set",
        "xnli, dev set (en)",
        "xnli, dev set (de)",
        "xnli, seed-0 (de, en, fr)",
    ]


@pytest.mark.parametrize("task", ["tatoeba", "bucc2018", "word-alignment"])
def test_training_free_tasks_are_refused(task: str, model: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"task={task}: needs no fine-tuning. Score the model with crossling evaluate"):
        finetune(model, task, data, tmp_path / "out")
