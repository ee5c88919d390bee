"""Fine-tuning: it learns, resumes exactly, and its stored predictions give its scores."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from crossling.core.errors import BadInput
from crossling.data.batches import StepWork
from crossling.evaluate.evaluate import evaluate
from crossling.finetune.finetune import finetune
from crossling.finetune.finetune_scoring import evaluate_tuned
from crossling.finetune.finetune_training import FeatureBatches
from crossling.finetune.tuned_model import TUNED_INFO, TunedModel
from crossling.inference.load import load
from crossling.tasks import scores
from crossling.tasks.registry import DATASETS

from .tiny_tasks import model_folder, write_squad, write_udpos, write_xnli

QUICK: dict[str, Any] = {"lr": 3e-3, "batch": 16, "warmup": 0.1, "length": 64}
TIMES = {"seconds", "tokens_per_second", "loader_wait"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("data")
    languages = {"train": ["en"], "dev": ["en", "de"], "test": ["en", "de", "fr"]}
    write_xnli(data, {"train": 240, "dev": 40, "test": 40}, languages)
    write_udpos(data, {"train": 150, "dev": 30, "test": 30}, languages)
    write_squad(data / "squad" / "train-v1.1.json", 400, "train")
    write_squad(data / "squad" / "dev-v1.1.json", 40, "dev")
    write_squad(data / "xquad" / "xquad.de.json", 40, "test")
    write_squad(data / "squad2" / "train-v2.0.json", 400, "train", impossible=True)
    write_squad(data / "squad2" / "dev-v2.0.json", 40, "dev", impossible=True)
    write_xcopa(data)
    write_stsb(data)
    return data


def write_xcopa(data: Path) -> None:
    """Write examples whose right choice has the colour that the premise names."""
    for split, size in (("train", 240), ("val", 40), ("test", 40)):
        rows = []
        for number in range(size):
            right, wrong = ("red", "blue") if number % 3 else ("blue", "red")
            choices = [right, wrong] if number % 2 else [wrong, right]
            row = {"premise": f"the {right} dog", "question": "cause", "choice1": choices[0], "choice2": choices[1]}
            rows.append(json.dumps({**row, "idx": number, "label": 0 if number % 2 else 1}))
        file = data / "xcopa" / "it" / f"{split}.it.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{row}\n" for row in rows))


def write_stsb(data: Path) -> None:
    columns = "index genre filename year old_index source1 source2 sentence1 sentence2 score"
    header = "\t".join(columns.split()) + "\n"
    for split, size in (("train", 240), ("dev", 40)):
        rows = []
        for number in range(size):
            colour = ("red", "blue", "green")[number % 3]
            rows.append(f"{number}\ta\tb\tc\td\te\tf\tthe dog\tthe {colour} cat\t{number % 3}.0\n")
        file = data / "glue" / "STS-B" / f"{split}.tsv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(header + "".join(rows))


@pytest.mark.parametrize(
    ("task", "epochs", "languages"),
    [
        ("xnli", 8, {"de", "en", "fr"}),
        ("udpos", 8, {"de", "en", "fr"}),
        ("xquad", 9, {"de"}),
        ("squad2", 9, {"en"}),
        ("xcopa", 16, {"it"}),
        ("stsb", 8, {"en"}),
    ],
)
def test_every_head_type_learns_a_simple_task(
    task: str, epochs: int, languages: set[str], model: Path, data: Path, tmp_path: Path
) -> None:
    rows = finetune(model, task, data, tmp_path / "tuned", epochs=epochs, **QUICK)
    assert {row["language"] for row in rows} == languages
    assert all(row["value"] >= 95 for row in rows), [(row["language"], row["metric"], row["value"]) for row in rows]
    assert rows == scores.read_scores(tmp_path / "tuned" / "scores.jsonl")
    first = rows[0]
    assert (first["model"], first["selection"], first["seed"]) == (str(model), "english-dev", 0)
    trained = TUNED_INFO.read(tmp_path / "tuned").source_language
    assert all((row["setting"] == "supervised") == (row["language"] == trained) for row in rows)
    assert {row["setting"] for row in rows} <= {"supervised", "zero-shot"}
    assert first["low"] <= first["value"] <= first["high"]
    # Stored predictions and the model itself give the same rows.
    assert evaluate_tuned(tmp_path / "tuned", data, recompute=True) == rows
    assert evaluate_tuned(tmp_path / "tuned", data) == rows


@pytest.mark.parametrize("kind", ["xlmr", "bert"])
@pytest.mark.parametrize("task", ["xnli", "udpos", "xquad"])
def test_other_encoders_get_the_heads_of_transformers(kind: str, task: str, data: Path, tmp_path: Path) -> None:
    auto = {
        "xnli": AutoModelForSequenceClassification,
        "udpos": AutoModelForTokenClassification,
        "xquad": AutoModelForQuestionAnswering,
    }[task]
    rows = finetune(model_folder(tmp_path / "model", kind), task, data, tmp_path / "tuned", steps=3, **QUICK)
    assert rows
    network = auto.from_pretrained(tmp_path / "tuned")
    assert network.config.model_type == ("bert" if kind == "bert" else "xlm-roberta")
    if task != "xquad":
        assert tuple(network.config.id2label.values()) == DATASETS[task].labels
    for name, weight in network.state_dict().items():
        torch.testing.assert_close(weight, load_file(tmp_path / "tuned" / "model.safetensors")[name])


def test_a_tuned_folder_is_loaded_as_an_encoder(model: Path, data: Path, tmp_path: Path) -> None:
    finetune(model, "xnli", data, tmp_path / "tuned", steps=3, **QUICK)
    network = AutoModelForSequenceClassification.from_pretrained(tmp_path / "tuned" / "seed-0").eval()
    tuned = TunedModel.load(tmp_path / "tuned")
    text = tuned.tokenizer("the red dog", return_tensors="pt")
    torch.testing.assert_close(network(text["input_ids"]).logits, tuned.model(text["input_ids"]).logits)
    hidden = network.encoder(text["input_ids"]).last_hidden_state.mean(1)[0]
    encoder = load(tmp_path / "tuned")
    torch.testing.assert_close(torch.tensor(encoder.encode(["the red dog"], layer=2)[0]), hidden)


# ---- resuming ------------------------------------------------------------------------------------------------


def read_metrics(tuned: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (tuned / "seed-0" / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows if row["step"]]


@pytest.mark.parametrize("task", ["xnli", "udpos", "xquad"])
def test_a_resumed_run_equals_an_uninterrupted_one(
    task: str, model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**QUICK, "steps": 12, "checkpoint_every": 4, "micro_tokens": 64, "log_every": 3}
    whole = finetune(model, task, data, tmp_path / "whole", **settings)
    original = FeatureBatches.__getitem__

    def crashing(self: FeatureBatches, step: int) -> StepWork:
        if step == 10:
            raise RuntimeError("the machine went down")
        return original(self, step)

    monkeypatch.setattr(FeatureBatches, "__getitem__", crashing)
    with pytest.raises(RuntimeError, match="went down"):
        finetune(model, task, data, tmp_path / "stopped", **settings)
    assert not (tmp_path / "stopped" / "seed-0").exists()
    monkeypatch.setattr(FeatureBatches, "__getitem__", original)
    with pytest.warns(UserWarning, match="resume.* step 8"):
        again = finetune(model, task, data, tmp_path / "stopped", **settings)
    assert again == whole
    whole_weights, resumed_weights = (
        load_file(tmp_path / out / "seed-0" / "model.safetensors") for out in ("whole", "stopped")
    )
    assert all(torch.equal(whole_weights[name], resumed_weights[name]) for name in whole_weights)
    assert read_metrics(tmp_path / "whole") == read_metrics(tmp_path / "stopped")
    assert not (tmp_path / "stopped" / "training").exists()


@pytest.fixture
def trained_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the steps that are trained."""
    steps: list[int] = []
    original = FeatureBatches.__getitem__

    def counting(self: FeatureBatches, step: int) -> StepWork:
        steps.append(step)
        return original(self, step)

    monkeypatch.setattr(FeatureBatches, "__getitem__", counting)
    return steps


def test_seeds_differ_and_the_best_is_at_the_root(
    model: Path, data: Path, tmp_path: Path, trained_steps: list[int]
) -> None:
    tuned = tmp_path / "tuned"
    rows = finetune(model, "xnli", data, tuned, seeds=2, steps=6, seed=5, **QUICK)
    assert {row["seed"] for row in rows} == {5, 6}
    one, other = (load_file(tuned / f"seed-{seed}" / "model.safetensors") for seed in (5, 6))
    assert not torch.equal(one["classifier.out.weight"], other["classifier.out.weight"])
    dev = {seed: TUNED_INFO.read(tuned / f"seed-{seed}").dev["english-dev"] for seed in (5, 6)}
    best = max(dev, key=lambda seed: dev[seed])
    assert TUNED_INFO.read(tuned).seed == best
    assert (tuned / "model.safetensors").stat().st_ino == (tuned / f"seed-{best}" / "model.safetensors").stat().st_ino
    # One more seed is trained, and the others are kept.
    taken = len(trained_steps)
    more = finetune(model, "xnli", data, tuned, seeds=3, steps=6, seed=5, **QUICK)
    assert len(trained_steps) == taken + 6
    assert [row for row in more if row["seed"] != 7] == rows
    assert finetune(model, "xnli", data, tuned, seeds=3, steps=6, seed=5, **QUICK) == more
    assert len(trained_steps) == taken + 6


def test_the_best_point_of_a_grid_is_used_and_none_is_trained_twice(
    model: Path, data: Path, tmp_path: Path, trained_steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from crossling.tasks import registry as sets
    from crossling.tasks.hyperparameters import HyperparameterGrid

    grid = HyperparameterGrid("nobody", lr=(1e-6, 3e-3), batch=(16,))
    monkeypatch.setitem(sets.DATASETS, "xnli", replace(DATASETS["xnli"], grids={"mine": grid}))
    tuned, settings = tmp_path / "tuned", {"steps": 40, "warmup": 0.1, "length": 64}
    rows = finetune(model, "xnli", data, tuned, seeds=2, grid="mine", **settings)
    assert len(trained_steps) == 3 * 40  # two points and a second seed; the first is that of the best point
    assert {path.name for path in (tuned / "grid").iterdir()} == {"lr-1e-06", "lr-0.003"}
    assert TUNED_INFO.read(tuned).hyperparameters["lr"] == 3e-3
    assert not list((tuned / "grid" / "lr-1e-06").glob("*.safetensors"))
    (tuned / "scores.jsonl").unlink()
    shutil.rmtree(tuned / "seed-0")
    assert finetune(model, "xnli", data, tuned, seeds=2, grid="mine", **settings) == rows
    assert len(trained_steps) == 3 * 40


# ---- selection -----------------------------------------------------------------------------------------------


@pytest.fixture
def dev_scores(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, list[float]]], None]:
    """Replace the dev scores of each language, from the evaluation before the first step on."""
    from crossling.finetune.finetune_training import FinetuneRun

    def replace_scores(values: dict[str, list[float]]) -> None:
        remaining = {language: iter(own) for language, own in values.items()}
        original = FinetuneRun._score_dev

        def fake(self: Any, tuned: Any, languages: Any) -> dict[str, float]:
            if tuned is self.tuned:  # during training
                return {language: next(remaining[language]) for language in languages}
            return original(self, tuned, languages)

        monkeypatch.setattr(FinetuneRun, "_score_dev", fake)

    return replace_scores


EN, DE = [0.0, 5.0, 9.0, 7.0, 1.0], [0.0, 9.0, 2.0, 8.0, 1.0]  # at steps 0, 2, 4, 6 and 8


@pytest.mark.parametrize(("selection", "step"), [("english-dev", 4), ("all-dev", 6), ("each-dev", 6), ("last", 8)])
def test_the_selection_determines_the_checkpoint(
    selection: Any, step: int, model: Path, data: Path, tmp_path: Path, dev_scores: Callable[..., None]
) -> None:
    dev_scores({"en": EN, "de": DE})
    tuned = tmp_path / "tuned"
    settings = {**QUICK, "steps": 8, "checkpoint_every": 2}
    rows = finetune(model, "xnli", data, tuned, selection=selection, **settings)
    info = TUNED_INFO.read(tuned)
    assert (info.step, info.selection) == (step, selection)
    assert info.dev["all-dev"] == pytest.approx((info.dev["dev/en"] + info.dev["dev/de"]) / 2)  # type: ignore[operator]
    assert info.dev["english-dev"] == info.dev["dev/en"]
    assert {row["selection"] for row in rows} == {selection}
    own = {path.name for path in (tuned / "seed-0" / "languages").glob("*")}
    assert own == ({"en", "de"} if selection == "each-dev" else set())
    if selection == "each-dev":  # each language is scored with its own model
        places = [tuned / "seed-0", *(tuned / "seed-0" / "languages" / language for language in ("en", "de"))]
        weights = [load_file(place / "model.safetensors")["classifier.out.weight"] for place in places]
        assert not torch.equal(weights[0], weights[1])
        assert not torch.equal(weights[1], weights[2])
        torch.testing.assert_close(
            TunedModel.load(tuned / "seed-0", "de").model.classifier.out.weight.cpu(), weights[2]
        )
        torch.testing.assert_close(
            TunedModel.load(tuned / "seed-0", "fr").model.classifier.out.weight.cpu(), weights[0]
        )


# ---- translated training data --------------------------------------------------------------------------------


def test_translate_train_adds_the_translations(model: Path, data: Path, tmp_path: Path) -> None:
    own = tmp_path / "data"
    shutil.copytree(data / "xnli", own / "xnli")
    (own / "xnli" / "translated" / "fr").mkdir(parents=True)
    shutil.copy(data / "xnli" / "train-en.tsv", own / "xnli" / "translated" / "fr" / "train.tsv")
    rows = finetune(model, "xnli", own, tmp_path / "tuned", setting="translate-train", steps=3, **QUICK)
    assert {row["setting"] for row in rows} == {"translate-train"}
    assert TUNED_INFO.read(tmp_path / "tuned").examples == 480


def test_a_teacher_tags_translations_that_have_no_tags(model: Path, data: Path, tmp_path: Path) -> None:
    own = tmp_path / "data"
    shutil.copytree(data / "udpos", own / "udpos")
    untagged = write_udpos(tmp_path / "untagged", {"train": 60}, {"train": ["fr"]}, tagged=False)
    (own / "udpos" / "translated" / "fr").mkdir(parents=True)
    shutil.copy(untagged / "udpos" / "train-fr.tsv", own / "udpos" / "translated" / "fr" / "train.tsv")
    rows = finetune(model, "udpos", own, tmp_path / "tuned", setting="translate-train", epochs=8, **QUICK)
    assert TUNED_INFO.read(tmp_path / "tuned").examples == 210
    assert TUNED_INFO.read(tmp_path / "tuned" / "teacher").setting == "zero-shot"
    assert all(row["value"] >= 95 for row in rows)


# ---- bad input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "xnly"}, "task=xnly: no such task; did you mean 'xnli'"),
        ({"setting": "zeroshot"}, "setting=zeroshot: no such setting; did you mean 'zero-shot'"),
        ({"selection": "dev"}, "selection=dev: no such selection"),
        ({"seeds": 0}, "seeds=0: expected at least 1"),
        ({"grid": "xlm"}, "grid=xlm: xnli has no such grid"),
        ({"setting": "translate-train"}, "has no translated training data"),
        ({"task": "panx"}, "panx has no train split. Expected files: panx/train"),
        ({"epoch": 3}, "there is no 'epoch'; did you mean 'epochs'"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    changes: dict[str, Any], message: str, model: Path, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=message) as error:
        finetune(**{"model": model, "task": "xnli", "data": data, "out": tmp_path / "tuned", **changes})
    assert "\n" not in str(error.value)
    assert not (tmp_path / "tuned").exists()


def test_a_folder_with_other_files_is_refused(model: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="is no output of crossling finetune"):
        finetune(model, "xnli", data, tmp_path)


def test_a_finished_model_with_other_settings_is_refused(model: Path, data: Path, tmp_path: Path) -> None:
    finetune(model, "xnli", data, tmp_path / "tuned", steps=2, **QUICK)
    with pytest.raises(BadInput, match="trained with steps 2, not 3"):
        finetune(model, "xnli", data, tmp_path / "tuned", steps=3, **QUICK)
    with pytest.raises(BadInput, match="trained with task xnli, not udpos"):
        finetune(model, "udpos", data, tmp_path / "tuned", steps=2, **QUICK)


def test_without_a_dev_set_the_last_checkpoint_can_be_selected(model: Path, data: Path, tmp_path: Path) -> None:
    own = tmp_path / "data"
    shutil.copytree(data / "xnli", own / "xnli")
    for file in own.glob("xnli/dev*"):
        file.unlink()
    with pytest.raises(
        BadInput, match=r"xnli has no dev split.*Or select the last checkpoint of each run with selection=last"
    ):
        finetune(model, "xnli", own, tmp_path / "tuned", steps=2, **QUICK)
    finetune(model, "xnli", own, tmp_path / "tuned", steps=2, selection="last", **QUICK)
    assert TUNED_INFO.read(tmp_path / "tuned").dev == {"english-dev": None, "all-dev": None}


def test_evaluate_scores_tuned_models_and_names_the_command_to_train_one(
    model: Path, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=rf"crossling finetune {model} --task xnli --data {data} -o TUNED"):
        evaluate(load(model), ["xnli"], data)
    rows = finetune(model, "xnli", data, tmp_path / "tuned", steps=2, **QUICK)
    assert evaluate(load(tmp_path / "tuned"), ["xnli"], data, tmp_path / "scores") == rows
    assert scores.read_scores(tmp_path / "scores" / "scores.jsonl") == rows
    with pytest.raises(BadInput, match="udpos: it has other labels than xnli"):
        evaluate(load(tmp_path / "tuned"), ["udpos"], data)
    shutil.rmtree(tmp_path / "tuned" / "seed-0" / "predictions")
    with pytest.raises(BadInput, match="no stored predictions of xnli"):
        evaluate_tuned(tmp_path / "tuned", data, recompute=True)


def test_qnli_without_training_files_is_trained_on_rte(model: Path, tmp_path: Path) -> None:
    glue = tmp_path / "data" / "glue"
    for folder, split, texts in (("RTE", "train", "sentence1\tsentence2"), ("QNLI", "dev", "question\tsentence")):
        (glue / folder).mkdir(parents=True)
        rows = [
            f"{row}\twhat\tthe {('red', 'blue')[row % 2]} dog\t{('', 'not_')[row % 2]}entailment" for row in range(8)
        ]
        (glue / folder / f"{split}.tsv").write_text("\n".join([f"index\t{texts}\tlabel", *rows, ""]))
    rows = finetune(model, "qnli", tmp_path / "data", tmp_path / "tuned", steps=2, **QUICK)
    assert {(row["task"], row["trained_on"], row["split"]) for row in rows} == {("qnli", "rte", "dev")}
