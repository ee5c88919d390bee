"""Fine-tuning on labels of the user: files, held-out examples, and a model that predicts the labels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crossling.cli.app import app
from crossling.core.errors import BadInput
from crossling.finetune.finetune import finetune
from crossling.finetune.own_labels import OwnLabels, read_own_data
from crossling.finetune.predict_file import predict
from crossling.tasks.examples import ClassificationExample, TaggingExample

from .tiny_tasks import model_folder, write_squad

COLOURS = ["red", "blue", "green"]


def write(tmp_path: Path, name: str, text: str) -> Path:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return file


def test_tables_with_and_without_a_header(tmp_path: Path) -> None:
    rows = [f"text {number},{COLOURS[number % 2]}" for number in range(20)]
    data = read_own_data(OwnLabels("classification", write(tmp_path, "sw.csv", "\n".join(["sentence,label", *rows]))))
    assert data.dataset.labels == ("blue", "red")
    assert data.source_language == "sw"
    assert [example.texts for example in data.dev["sw"]] == [("text 9",), ("text 19",)]  # type: ignore[union-attr]
    assert len(data.train) == 18
    assert data.train[0] == ClassificationExample("0", ("text 0",), "red")
    table = write(tmp_path, "pairs.tsv", "id\ty\ta\tb\n1\tyes\tone\ttwo\n2\tno\tthree\tfour\n")
    pairs = read_own_data(OwnLabels("pair-classification", table, table, ("a", "b", "y"), "eng"))
    assert pairs.dev["en"] == pairs.train
    assert pairs.train[0] == ClassificationExample("0", ("one", "two"), "yes")


def test_a_row_that_seems_to_be_a_header_is_refused(tmp_path: Path) -> None:
    rows = [f"text {number},{COLOURS[number % 2]}" for number in range(20)]
    file = write(tmp_path, "a.csv", "\n".join(["sentence,colour", *rows]))
    with pytest.raises(
        BadInput, match=r"seems to be a header: its label 'colour' occurs once.*columns=sentence,colour"
    ):
        read_own_data(OwnLabels("classification", file))
    named = read_own_data(OwnLabels("classification", file, columns=("sentence", "colour")))
    file = write(tmp_path, "a.csv", "\n".join(["text,label", "sentence,colour", "sentence,colour", *rows]))
    assert (named.dataset.labels, named.columns) == (("blue", "red"), ("sentence",))
    assert read_own_data(OwnLabels("classification", file)).dataset.labels == ("blue", "colour", "red")


@pytest.mark.parametrize("columns", [(), (1, 2), ("sentence", "Topic")])
def test_common_names_of_labels_are_headers(tmp_path: Path, columns: tuple[str | int, ...]) -> None:
    rows = [f"text {number},{'yn'[number % 2]}" for number in range(20)]
    data = read_own_data(
        OwnLabels("classification", write(tmp_path, "a.csv", "\n".join(["sentence,Topic", *rows])), columns=columns)
    )
    assert (data.dataset.labels, data.columns, len(data.train)) == (("n", "y"), ("sentence",), 18)
    data = read_own_data(OwnLabels("classification", write(tmp_path, "a.csv", "\n".join(rows))))
    assert (len(data.train), data.columns) == (18, ())  # the label y of the first row is no header


def test_words_with_tags(tmp_path: Path) -> None:
    file = write(tmp_path, "train.conll", "-DOCSTART- -X- O\n\nAda NNP B-PER\nsleeps VB O\n\n\nred\tB-COL\n")
    data = read_own_data(OwnLabels("tagging", file, file))
    assert data.train == [
        TaggingExample("0", ("Ada", "sleeps"), ("B-PER", "O")),
        TaggingExample("1", ("red",), ("B-COL",)),
    ]
    assert data.dataset.labels == ("B-COL", "B-PER", "O")
    assert [*data.dev] == ["und"]


def test_questions(tmp_path: Path) -> None:
    data = read_own_data(OwnLabels("qa", write_squad(tmp_path / "q.json", 20, "a")))
    assert (len(data.train), len(data.dev["und"]), data.dataset.labels) == (18, 2, ())


@pytest.mark.parametrize(
    ("kind", "text", "columns", "expected"),
    [
        ("ner", "a\tb\n", "", "no such type; valid: classification"),
        ("classification", "a\tx\nb\ty\n", "", "too few examples"),
        ("classification", "a\n", "", "1 columns, expected 2"),
        ("classification", "a\tx\nb\t\n", "", "no label"),
        ("classification", "a\tx\n" * 20, "", r"one label \('x'\)"),
        ("classification", "a\tx\n" * 9 + "b\ty\n", "", "label 'y' is not in the training examples"),
        ("tagging", "a\n", "", "expected a word and a tag"),
        ("tagging", "a\tb\n", "1", "apply to classification only"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, kind: str, text: str, columns: str, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        read_own_data(OwnLabels(kind, write(tmp_path, "train.tsv", text), columns=tuple(filter(None, [columns]))))
    with pytest.raises(BadInput, match="no such"):
        read_own_data(OwnLabels(kind, tmp_path / "absent.tsv"))


def test_a_model_learns_own_labels_and_predicts_them(tmp_path: Path) -> None:
    model, out = model_folder(tmp_path / "model"), tmp_path / "tuned"
    rows = [f"the {COLOURS[number % 3]} dog\tis-{COLOURS[number % 3]}\n" for number in range(60)]
    train = write(tmp_path, "train.tsv", "".join(["sentence\ttopic\n", *rows]))
    options = ["--type", "classification", "--train", str(train), "--language", "swh", "-o", str(out)]
    settings = [word for each in ("steps=60", "batch=16", "lr=3e-3", "length=16") for word in ("--set", each)]
    run = CliRunner()
    done = run.invoke(app, ["finetune", str(model), *options, *settings], catch_exceptions=False)
    assert done.exit_code == 0
    [row] = [json.loads(line) for line in (out / "scores.jsonl").read_text(encoding="utf-8").splitlines()]
    assert (row["task"], row["language"], row["setting"], row["split"]) == (
        *("own-classification", "sw"),
        *("own-labels", "dev"),
    )
    assert row["selected_on_test"]
    assert row["value"] == 100.0
    texts = write(tmp_path, "new.txt", "the blue dog\nthe green dog\n")
    assert [each["prediction"] for each in predict(out, texts)] == ["is-blue", "is-green"]  # type: ignore[index]
    assert [each["texts"] for each in predict(out, train)][:2] == [["the red dog"], ["the blue dog"]]  # type: ignore[index]


def test_options_of_benchmarks_are_refused(tmp_path: Path) -> None:
    train = write(tmp_path, "train.tsv", "a\tx\n")
    for options in ({"task": "xnli"}, {"data": tmp_path}, {"grid": "xlm-e"}, {"train": None}):
        with pytest.raises(BadInput, match="type=classification: needs train"):
            finetune("x", out=tmp_path / "o", type="classification", **{"train": train, **options})  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="one is missing"):
        finetune("x", "xnli", out=tmp_path / "o")
    with pytest.raises(BadInput, match="out: missing"):
        finetune("x", "xnli", tmp_path)
