"""Plug-in cross-attention: models learn from translations, each side keeps its label, and scoring reads them too."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from crossling.core.errors import BadInput
from crossling.finetune.finetune import finetune
from crossling.finetune.finetune_scoring import evaluate_tuned
from crossling.finetune.training_data import load_training_data
from crossling.finetune.tuned_model import TUNED_INFO, TunedModel
from crossling.inference.load import load
from crossling.report.runs import collect_runs
from crossling.tasks import scores
from crossling.tasks.examples import Example, TaggingExample
from crossling.tasks.registry import DATASETS

from .tiny_tasks import ANIMALS, CLASSES, COLOURS, DEEDS, model_folder, no_teacher

QUICK: dict[str, Any] = {"lr": 3e-3, "batch": 16, "warmup": 0.1, "length": 64}
SPLITS = {"train": 160, "dev": 32, "test": 32}
ScoreRows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("veco"), "veco")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write data that needs translations: German does not name the colour, which determines its label.

    The German label differs from the English one, so German needs its own labels too.
    """
    data = tmp_path_factory.mktemp("data")
    for split, size in SPLITS.items():
        rng = random.Random(split)
        colours = [rng.randrange(3) for _ in range(size)]
        animals = [(rng.choice(ANIMALS), rng.choice(DEEDS)) for _ in range(size)]
        _write(data, "xnli", "tsv", split, *_nli_files(colours, animals))
        _write(data, "udpos", "tsv", split, *_tagging_files(colours, animals))
        _write(data, "xquad", "json", split, *_qa_files(colours, animals))
        _write(data, "xcopa", "jsonl", split, *_choice_files(colours, animals))
    return data


def _write(data: Path, name: str, ending: str, split: str, en: str, de: str, bare_en: str, bare_de: str) -> None:
    own = {
        "xquad": f"{name}/xquad.{{}}.json" if split == "test" else f"{name}/{split}-{{}}.json",
        "xcopa": f"{name}/{'val' if split == 'dev' else split}.{{}}.jsonl",
    }.get(name, f"{name}/{split}-{{}}.{ending}")
    files = {own.format("en"): en}
    if split == "train":
        files[f"{name}/translated/de/train.{ending}"] = de
    else:
        files[own.format("de")] = de
        files[f"{name}/translated/en/{split}-de.{ending}"] = bare_en
        files[f"{name}/translated/de/{split}-en.{ending}"] = bare_de
    for file, text in files.items():
        (data / file).parent.mkdir(parents=True, exist_ok=True)
        (data / file).write_text(text, encoding="utf-8")


def _nli_files(colours: list[int], animals: list[tuple[str, str]]) -> tuple[str, ...]:
    rows = list(zip(colours, animals, strict=True))
    en = [(f"the {animal}", f"{COLOURS[colour]} {deed}", CLASSES[colour]) for colour, (animal, deed) in rows]
    de = [(f"old {animal}", f"old {deed}", CLASSES[(colour + 1) % 3]) for colour, (animal, deed) in rows]
    texts = ["".join("\t".join(row) + "\n" for row in each) for each in (en, de)]
    return *texts, *("".join("\t".join(row[:2]) + "\n" for row in each) for each in (en, de))


def _tagging_files(colours: list[int], animals: list[tuple[str, str]]) -> tuple[str, ...]:
    """Write sentences in which only the tag of the first word varies."""
    tags = ("ADJ", "NOUN", "VERB")
    rows = list(zip(colours, animals, strict=True))
    en = [[("the", tags[colour]), (COLOURS[colour], "X"), (animal, "X")] for colour, (animal, _) in rows]
    de = [[("old", tags[(colour + 1) % 3]), (animal, "X")] for colour, (animal, _) in rows]
    texts = ["".join("".join(f"{word}\t{tag}\n" for word, tag in row) + "\n" for row in each) for each in (en, de)]
    return *texts, *("".join("".join(f"{word}\n" for word, _ in row) + "\n" for row in each) for each in (en, de))


def _qa_files(colours: list[int], animals: list[tuple[str, str]]) -> tuple[str, ...]:
    """Write questions whose answer is one of three words. The translated question names its position by a colour."""
    context = "dog cat bird"
    found = []
    for code, shift, bare in (("en", 0, False), ("de", 1, False), ("en", 0, True), ("de", 1, True)):
        questions = []
        for number, colour in enumerate(colours):
            answer = ANIMALS[(colour + shift) % 3]
            answers = [] if bare else [{"text": answer, "answer_start": context.index(answer)}]
            question = f"what {COLOURS[colour]}" if code == "en" else f"where {animals[number][1]}"
            questions.append({"id": str(number), "question": question, "answers": answers})
        found.append(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": questions}]}]}))
    return tuple(found)


def _choice_files(colours: list[int], animals: list[tuple[str, str]]) -> tuple[str, ...]:
    """Write choices between two animals. One of two colours determines the right one."""
    found = []
    for code, shift in (("en", 0), ("de", 1)):
        rows = []
        for number, (colour, (_, deed)) in enumerate(zip(colours, animals, strict=True)):
            premise = COLOURS[colour % 2] if code == "en" else f"old {deed}"
            row = {"premise": premise, "question": "cause", "choice1": "dog", "choice2": "cat", "idx": number}
            rows.append(json.dumps(row | {"label": (colour + shift) % 2}))
        found.append("".join(f"{row}\n" for row in rows))
    return *found, *found


def tune(model: Path, task: str, data: Path, out: Path, **more: Any) -> ScoreRows:
    more = QUICK | {"selection": "all-dev"} | more
    return finetune(model, task, data, out, setting="translate-train", plug_in=True, **more)


def rotate_lines(file: Path) -> None:
    """Give each row the translation of the next one."""
    rows = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join([*rows[1:], rows[0]]), encoding="utf-8")


@pytest.mark.parametrize(("task", "epochs"), [("xnli", 6), ("udpos", 6), ("xquad", 8), ("xcopa", 12)])
def test_information_of_the_translation_alone_is_learned(
    task: str, epochs: int, model: Path, data: Path, tmp_path: Path
) -> None:
    rows = tune(model, task, data, tmp_path / "tuned", epochs=epochs)
    assert {(row["language"], row["paired"]) for row in rows} == {("de", "en"), ("en", "de")}
    assert {(row["setting"], row["plug"]) for row in rows} == {("translate-train", "in")}
    assert all(row["value"] >= 90 for row in rows), [(row["language"], row["metric"], row["value"]) for row in rows]
    assert TUNED_INFO.read(tmp_path / "tuned").examples == 2 * SPLITS["train"]
    # Scoring the folder and its stored predictions gives the same rows.
    assert evaluate_tuned(tmp_path / "tuned", data) == rows
    assert evaluate_tuned(tmp_path / "tuned", data, recompute=True) == rows


def test_scores_drop_to_chance_with_translations_of_other_rows(model: Path, data: Path, tmp_path: Path) -> None:
    own = tmp_path / "data"
    shutil.copytree(data / "xnli", own / "xnli")
    rows = tune(model, "xnli", own, tmp_path / "tuned", epochs=6)
    rotate_lines(own / "xnli" / "translated" / "en" / "test-de.tsv")
    again = {row["language"]: row["value"] for row in evaluate_tuned(tmp_path / "tuned", own)}
    assert {row["language"]: row["value"] >= 90 for row in rows} == {"de": True, "en": True}
    assert again["en"] >= 90  # English needs no translation
    assert again["de"] < 60


def test_without_plug_in_the_label_cannot_be_learned(model: Path, data: Path, tmp_path: Path) -> None:
    rows = finetune(model, "xnli", data, tmp_path / "tuned", setting="translate-train", epochs=6, **QUICK)
    assert {row["language"]: row["value"] >= 60 for row in rows} == {"de": False, "en": True}
    assert all("plug" not in row and "paired" not in row for row in rows)


def test_a_folder_is_loaded_by_transformers_and_fine_tuned_without_plug_in(
    model: Path, data: Path, tmp_path: Path
) -> None:
    tune(model, "xnli", data, tmp_path / "in", steps=2)
    network = AutoModelForSequenceClassification.from_pretrained(tmp_path / "in").eval()
    tuned = TunedModel.load(tmp_path / "in")
    x, y = (tuned.tokenizer(text, return_tensors="pt") for text in ("old dog", "the red dog"))
    given = {**x, **{f"paired_{name}": values for name, values in y.items()}}
    torch.testing.assert_close(network(**given).logits, tuned.model(**given).logits)
    finetune(tmp_path / "in", "xnli", data, tmp_path / "out", steps=2, **QUICK)
    assert not AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").config.plug_in
    assert load(tmp_path / "in").model.config.cross_attention


def test_a_report_has_two_entries_with_and_without_plug_in(model: Path, data: Path, tmp_path: Path) -> None:
    tune(model, "xnli", data, tmp_path / "in", steps=2)
    finetune(model, "xnli", data, tmp_path / "out", setting="translate-train", steps=2, **QUICK)
    found, _ = collect_runs([tmp_path])
    assert len(found) == 2
    assert sum("plug-in" in run.name for run in found) == 1


def test_a_finished_model_with_plug_in_is_not_one_without(model: Path, data: Path, tmp_path: Path) -> None:
    rows = tune(model, "xnli", data, tmp_path / "tuned", steps=2)
    assert tune(model, "xnli", data, tmp_path / "tuned", steps=2) == rows
    with pytest.raises(BadInput, match="trained with plug_in True, not False"):
        finetune(
            model, "xnli", data, tmp_path / "tuned", setting="translate-train", selection="all-dev", steps=2, **QUICK
        )


def test_a_teacher_tags_translations_that_have_no_tags(model: Path, data: Path, tmp_path: Path) -> None:
    own = tmp_path / "data"
    shutil.copytree(data / "udpos", own / "udpos")
    file = own / "udpos" / "translated" / "de" / "train.tsv"
    file.write_text("".join(f"{line.split(chr(9))[0]}\n" for line in file.read_text().splitlines()))

    def teacher(untagged: Sequence[Example]) -> list[tuple[str, ...]]:
        return [("VERB",) * len(each.words) for each in untagged if isinstance(each, TaggingExample)]

    found = load_training_data(DATASETS["udpos"], own, "translate-train", teacher=teacher, needs_dev=True, plug_in=True)
    half = SPLITS["train"]
    assert found.train_translations is not None
    assert [example.words for example in found.train[:half]] == [each.words for each in found.train_translations[half:]]
    assert found.train[half:] == found.train_translations[:half]
    assert {tag for example in found.train[half:] for tag in example.tags} == {"VERB"}
    tune(model, "udpos", own, tmp_path / "tuned", steps=2)
    assert TUNED_INFO.read(tmp_path / "tuned" / "teacher").setting == "zero-shot"
    assert not TUNED_INFO.read(tmp_path / "tuned" / "teacher").config.plug_in


def test_a_question_without_an_answer_is_read_as_a_translation_but_not_trained_on(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data / "xquad", tmp_path / "xquad")
    file = tmp_path / "xquad" / "translated" / "de" / "train.json"
    stored = json.loads(file.read_text())
    stored["data"][0]["paragraphs"][0]["qas"][3]["answers"][0]["text"] = "nowhere"
    file.write_text(json.dumps(stored))
    with pytest.warns(UserWarning, match="excluded 1 of 320 questions without an answer in their context"):
        found = load_training_data(
            DATASETS["xquad"], tmp_path, "translate-train", teacher=no_teacher, needs_dev=True, plug_in=True
        )
    assert found.train_translations is not None
    trained = [(one.id, one.question[:4]) for one in found.train]
    assert ("3", "what") in trained
    assert ("3", "wher") not in trained
    assert len(found.train_translations) == len(trained) == 2 * SPLITS["train"] - 1


# ---- bad input -----------------------------------------------------------------------------------------------


def test_bad_input_is_refused(model: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "tuned"
    with pytest.raises(BadInput, match=r"plug_in=true: the zero-shot setting has no translated pairs \(x, y\)"):
        finetune(model, "xnli", data, out, plug_in=True)
    without = model_folder(tmp_path / "without")
    with pytest.raises(BadInput, match=r"no cross-attention to plug in. Give a model of the recipe veco"):
        tune(without, "xnli", data, out)
    own = tmp_path / "data"
    shutil.copytree(data / "xnli", own / "xnli")
    (own / "xnli" / "translated" / "de" / "train.tsv").unlink()
    with pytest.raises(BadInput, match=r"train split of xnli for language 'en' has no translations. Expected files"):
        tune(model, "xnli", own, out)
    shutil.rmtree(own / "xnli" / "translated")
    with pytest.raises(BadInput, match="test split of xnli for language 'de' has no translations"):
        tune(model, "xnli", own, out)
    assert not out.exists()


def test_the_selection_set_needs_translations(model: Path, data: Path, tmp_path: Path) -> None:
    own = tmp_path / "data"
    shutil.copytree(data / "xnli", own / "xnli")
    (own / "xnli" / "translated" / "de" / "dev-en.tsv").unlink()
    with pytest.raises(
        BadInput, match=r"dev set of xnli in 'en' has no translations, but models are selected on it.*selection=last"
    ):
        tune(model, "xnli", own, tmp_path / "tuned")
    rows = tune(model, "xnli", own, tmp_path / "tuned", steps=2, selection="last")
    assert {*TUNED_INFO.read(tmp_path / "tuned").dev} == {"english-dev", "all-dev", "dev/de"}
    assert scores.read_scores(tmp_path / "tuned" / "scores.jsonl") == rows


def test_a_short_file_of_translations_is_refused_before_training(model: Path, data: Path, tmp_path: Path) -> None:
    own = tmp_path / "data"
    shutil.copytree(data / "xnli", own / "xnli")
    file = own / "xnli" / "translated" / "en" / "test-de.tsv"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(BadInput, match=rf"{file}: 31 rows, but .*test-de.tsv has 32"):
        tune(model, "xnli", own, tmp_path / "tuned")
    assert not (tmp_path / "tuned").exists()
