"""Prediction on files: tags, classes, numbers and answers, in the order of the file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from crossling.cli.app import app
from crossling.core.errors import BadInput
from crossling.finetune.predict_file import predict
from crossling.finetune.task_type import HeadType, TaskConfig
from crossling.finetune.tuned_model import TUNED_INFO, TunedInfo, TunedModel, add_head
from crossling.tasks.examples import ClassificationExample, QAExample, TaggingExample

from .tiny_tasks import make_model, make_tokenizer

LABELS = ("no", "yes", "maybe")


def make_tuned(head_type: HeadType, plug_in: bool = False, columns: tuple[str, ...] = ()) -> TunedModel:
    labels = () if head_type in ("regression", "qa") else LABELS
    config = TaskConfig(head_type=head_type, labels=labels, length=24, plug_in=plug_in, columns=columns)
    model = add_head(make_model(), config, name="tiny", seed=1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(generator=torch.Generator().manual_seed(weight.numel()), std=0.3)
    return TunedModel(model, make_tokenizer(), config)


def write(tmp_path: Path, name: str, content: str | bytes) -> Path:
    file = tmp_path / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "the dog runs\r\n\r\nred bird\r\n"),
        ("a.conll", "-DOCSTART- O\n\nthe O\ndog B\nruns O\n\n\nred O\nbird X\n"),
        ("a.conllu", "# text\n1\tthe\tx\n2-3\tdogruns\n2\tdog\tx\n3\truns\n\n1\tred\n2\tbird\n"),
        ("a.tsv", "the\tO\ndog\nruns\n\nred\nbird\n".encode("utf-16")),
    ],
)
def test_words_are_tagged_in_every_format(tmp_path: Path, name: str, content: str | bytes) -> None:
    tuned = make_tuned("tagging")
    sentences = [("the", "dog", "runs"), ("red", "bird")]
    expected = tuned.predict([TaggingExample("0", words, None) for words in sentences])
    rows = predict(tuned, write(tmp_path, name, content))
    assert isinstance(rows, list)
    assert [tuple(row["words"]) for row in rows] == sentences
    assert [tuple(row["tags"]) for row in rows] == expected
    assert all(1 / 3 <= score <= 1 for row in rows for score in row["scores"])
    out = predict(tuned, tmp_path / name, out=tmp_path / "out.conll")
    lines = (tmp_path / "out.conll").read_text(encoding="utf-8").split("\n")
    assert out == tmp_path / "out.conll"
    assert lines[0] == f"the\t{expected[0][0]}\t{rows[0]['scores'][0]:.4f}"  # type: ignore[index]
    assert [line.split("\t")[0] for line in lines] == ["the", "dog", "runs", "", "red", "bird", "", ""]


def test_texts_and_pairs_are_classified(tmp_path: Path) -> None:
    tuned = make_tuned("classification")
    pairs = [("the dog runs", "old cat"), ("red bird", 'a "b" c')]
    examples = [ClassificationExample("0", pair, None) for pair in pairs]
    expected = tuned.predict_with_scores(examples)
    assert [label for label, _ in expected] == tuned.predict(examples)
    table = 'id,first,second\n1,the dog runs,old cat\n2,red bird,"a ""b"" c"\n'
    rows = predict(tuned, write(tmp_path, "a.csv", table), columns=["first", "second"])
    assert rows == [
        {"texts": [*pair], "prediction": label, "score": score}
        for pair, (label, score) in zip(pairs, expected, strict=True)
    ]
    single = predict(tuned, write(tmp_path, "a.txt", "the dog runs\nred bird\n"))
    [(label, score), _] = tuned.predict_with_scores([ClassificationExample("0", (side[0],), None) for side in pairs])
    assert isinstance(single, list)
    assert (single[0]["prediction"], single[0]["score"]) == (label, pytest.approx(score))
    assert predict(tuned, tmp_path / "a.csv", columns=[2, 3])[0]["texts"] == ["first", "second"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("sentence\nred bird\n", []),
        ("id,sentence,topic\n1,red bird,a\n", []),
        ("sentence,topic\nred bird,a\n", [1]),
        ("red bird\n", []),
    ],
)
def test_a_header_with_the_trained_columns_is_no_example(tmp_path: Path, content: str, columns: list[int]) -> None:
    tuned = make_tuned("classification", columns=("sentence",))
    [row] = predict(tuned, write(tmp_path, "a.csv", content), columns=columns)
    assert row["texts"] == ["red bird"]  # type: ignore[index]


def test_the_score_is_the_probability_of_the_class() -> None:
    task = make_tuned("classification").task_type
    logits = np.array([1.0, 3.0, -2.0])
    assert task.confidences([], [], [logits]) == [pytest.approx(np.exp(3) / np.exp(logits).sum())]


def test_numbers_and_answers(tmp_path: Path) -> None:
    [row, _] = predict(make_tuned("regression"), write(tmp_path, "a.tsv", "the dog\tred\nbird\tcat\n"))
    assert isinstance(row["prediction"], float)
    assert row["score"] is None
    tuned = make_tuned("qa")
    [row] = predict(tuned, write(tmp_path, "q.tsv", "what runs\tthe old dog runs\n"))
    assert [row["prediction"]] == tuned.predict([QAExample("0", "what runs", "the old dog runs", ())])
    assert row["texts"] == ["what runs"]
    assert isinstance(row["score"], float)


@pytest.mark.parametrize(
    ("head_type", "name", "content", "columns", "expected"),
    [
        ("classification", "a.tsv", "a\tb\tc\n", "", "3 columns, at most 2 are read"),
        ("classification", "a.tsv", "a\tb\n", "x", "no column 'x'"),
        ("classification", "a.tsv", "a\tb\nc\n", "", "row 2: 1 columns, expected 2"),
        ("classification", "a.docx", "a", "", "unknown kind of file"),
        ("classification", "a.txt", "\n", "", "no examples"),
        ("classification", "a.csv", 'a,"b\n', "", "unclosed quote"),
        ("tagging", "a.txt", "a\n", "1", "a tagger reads words"),
        ("tagging", "a.conllu", "1\n", "", "no word in '1'"),
        ("qa", "a.txt", "a\n", "", "expected two"),
        ("choice", "a.txt", "a\n", "", "multiple choice"),
    ],
)
def test_bad_files_are_refused_and_leave_no_output(
    tmp_path: Path, head_type: HeadType, name: str, content: str, columns: str, expected: str
) -> None:
    tuned = make_tuned(head_type)
    file = write(tmp_path, name, content)
    with pytest.raises(BadInput, match=expected):
        predict(tuned, file, columns=columns.split(",") if columns else (), out=tmp_path / "out.tsv")
    assert not (tmp_path / "out.tsv").exists()


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        predict(make_tuned("tagging"), tmp_path / "absent.txt")


def test_the_command(tmp_path: Path) -> None:
    tuned, folder = make_tuned("classification"), tmp_path / "tuned"
    folder.mkdir()
    tuned.save(folder)
    fields = {"task": "own", "model": "tiny", "setting": "zero-shot", "trained_on": "own", "selection": "last"}
    numbers = {"seed": 0, "steps": 1, "step": 1, "examples": 1}
    TUNED_INFO.write(folder, TunedInfo(config=tuned.task_type.config, hyperparameters={}, **fields, **numbers))  # type: ignore[arg-type]
    file = str(write(tmp_path, "a.txt", "the dog runs\n"))
    run = CliRunner()
    [row] = predict(tuned, file)
    printed = run.invoke(app, ["predict", str(folder), file], catch_exceptions=False)
    assert printed.stdout == f"{row['prediction']}\t{row['score']:.4f}\tthe dog runs\n"
    printed = run.invoke(app, ["predict", str(folder), file, "--json"], catch_exceptions=False)
    assert json.loads(printed.stdout)["prediction"] == row["prediction"]
    out = tmp_path / "out.jsonl"
    assert run.invoke(app, ["predict", str(folder), file, "-o", str(out)], catch_exceptions=False).exit_code == 0
    assert json.loads(out.read_text(encoding="utf-8"))["texts"] == ["the dog runs"]
