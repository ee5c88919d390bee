"""The commands evaluate, align, embed and mine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crossling import cli
from crossling.inference.load import load
from crossling.inference.sentence_encoder import Encoder

Write = Callable[[Path, str], Path]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def crossling(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, encoder: Encoder
) -> Run:
    """Run the command line in a folder with a model named `model`."""
    monkeypatch.chdir(tmp_path)
    encoder.model.save_pretrained("model")
    encoder.tokenizer.save_pretrained("model")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["crossling", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


def test_embed_and_mine(crossling: Run, tmp_path: Path, write: Write) -> None:
    lines = ["the white house", "zebra quilt", "a b c d"]
    write(tmp_path / "a.txt", "\n".join(lines))
    write(tmp_path / "b.txt", "\n".join(["quilt\tzebra", "house white the", "d c b a"]))
    status, out, _ = crossling("embed", "a.txt", "-o", "a.npy", "--model", "model", "--layer", "1", "--json")
    assert (status, json.loads(out)) == (0, {"out": "a.npy", "sentences": 3, "width": 16})
    np.testing.assert_allclose(np.load("a.npy"), load("model").encode(lines, layer=1), atol=1e-5)
    assert crossling("embed", "b.txt", "-o", "b.npy", "--model", "model", "--layer", "1")[1] == "b.npy\n"
    status, out, _ = crossling("mine", "a.txt", "b.txt", "--model", "model", "--layer", "1")
    rows = [line.split("\t") for line in out.splitlines()]
    assert status == 0
    assert {len(row) for row in rows} == {3}
    assert len({row[1] for row in rows} & {*lines}) == len(rows) > 0
    assert sorted((float(row[0]) for row in rows), reverse=True) == [float(row[0]) for row in rows]
    assert crossling("mine", "a.txt", "b.txt", "--vectors", "a.npy", "--vectors", "b.npy")[1] == out
    [first, *_] = crossling("mine", "a.txt", "b.txt", "--model", "model", "--layer", "1", "--json")[1].splitlines()
    found = json.loads(first)
    assert found.keys() == {"score", "source", "target"}
    assert (found["source"], found["target"].replace("\t", " ")) == (rows[0][1], rows[0][2])
    highest = str(found["score"])
    assert crossling("mine", "a.txt", "b.txt", "--model", "model", "--layer", "1", "--threshold", highest)[1] == ""


def test_align_prints_links(crossling: Run, tmp_path: Path, write: Write) -> None:
    write(tmp_path / "pairs", "the white house ||| house the zebra x\n")
    encoder = load("model")
    for method in ("ot", "argmax", "itermax"):
        links = encoder.align("the white house", "house the zebra x", layer=0, method=method)
        given = ("align", "pairs", "--model", "model", "--layer", "0", "--method", method)
        assert crossling(*given)[1] == " ".join(f"{i}-{j}" for i, j in links) + "\n"
        assert json.loads(crossling(*given, "--json")[1]) == [list(link) for link in links]


def test_evaluate_prints_rows_or_tables(crossling: Run, tmp_path: Path, write: Write) -> None:
    for code in ("swh", "deu"):
        write(tmp_path / f"data/tatoeba/v1/tatoeba.{code}-eng.{code}", "a b\nc\n")
        write(tmp_path / f"data/tatoeba/v1/tatoeba.{code}-eng.eng", "d\ne f\n")
    given = ("evaluate", "model", "--task", "tatoeba", "--data", "data")
    _, out, _ = crossling(*given, "--languages", "sw", "--pooling", "cls", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert {(row["language"], row["pooling"]) for row in rows} == {("sw", "cls")}
    out = " ".join(crossling(*given)[1].split())
    assert "tatoeba: accuracy, %, model model, best layer" in out
    assert "│ language │ sentences │ en → xx │ xx → en │ mean │".replace("│", "┃") in out
    assert re.search(r"│ sw │ 2 │ [\d.]+ │ [\d.]+ │ [\d.]+ │", out)
    assert "│ mean of 2 languages │" in out
    assert "Mean by layer: 0: " in out
    assert re.search(r"tatoeba: F1, mteb, xx-en, as published, 2 languages, % .* │ LaBSE │ MTEB, Tatoeba │ 91.8 │", out)
    assert "VECO Large │ VECO, Table 17" in out  # accuracy en-xx
    assert "MTEB: Public results of the Massive Text Embedding Benchmark, https://" in out
    assert "as published" not in crossling(*given, "--languages", "sw", "--json")[1]
    out = " ".join(crossling(*given, "--dimensions", "4,8")[1].split())
    assert "tatoeba: mean by dimension, sweep, layer 2" in out
    assert re.search(r"│ 4 │ [\d.]+ │ [\d.]+ │ [\d.]+ │ │ 8 │ [\d. │]+ │ all │ [\d.]+ │ [\d.]+ │ [\d.]+ │", out)
    assert "xtreme" not in out  # three layers: not a model that XTREME's scripts know


def test_bucc_scores_are_one_table(crossling: Run, tmp_path: Path, write: Write) -> None:
    for split in ("dev", "test"):
        write(tmp_path / f"data/bucc2018/de-en.{split}.de", "1\ta b\n2\tc\n")
        write(tmp_path / f"data/bucc2018/de-en.{split}.en", "1\tb a\n2\te f\n")
        write(tmp_path / f"data/bucc2018/de-en.{split}.gold", "1\t1\n")
    _, out, _ = crossling("evaluate", "model", "--task", "bucc2018", "--data", "data", "--layers", "1,3")
    assert out.count("bucc2018: f1, precision, recall, %") == 1
    assert "bucc2018: F1, mteb-v2, as published, 1 of 4, %" in out
    cells = [[cell.strip() for cell in line.split("│")[1:5]] for line in out.splitlines() if "margin" in line]
    rows = [[split, "margin", layer] for split in ("dev", "test") for layer in ("1", "3")]
    assert cells == [["de", *row] for row in rows] + [["mean of 1 language", *row] for row in rows]
    assert "xtreme" not in out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("mine a.txt a.txt --vectors a.npy", "--vectors: expected it twice"),
        ("embed a.txt -o a.npy --model model --layer 4", "model: layer 4 does not exist. Give one from 0"),
        ("embed empty.txt -o a.npy --model model", "empty.txt: line 2: empty, expected a sentence"),
        ("mine a.txt empty.txt --model model", "empty.txt: line 2: empty, expected a sentence"),
        ("align pairs --model model --method itermx", "did you mean 'itermax'?"),
        (
            "evaluate model --task bucc2018 --data . --dimensions 8",
            "dimensions: applies to tatoeba and flores",
        ),
        ("evaluate model --task bucc2018 --data . --layers 1,x", "--layers 1,x: expected numbers separated by commas"),
        ("evaluate model --task tatoeba --data . --languages sw", "tatoeba/v1: no such folder"),
    ],
)
def test_invalid_input_is_reported_in_one_line(
    crossling: Run, tmp_path: Path, write: Write, given: str, message: str
) -> None:
    write(tmp_path / "a.txt", "a b\nc\n")
    write(tmp_path / "empty.txt", "a b\n\nc\n")
    write(tmp_path / "pairs", "a ||| b\n")
    status, out, err = crossling(*given.split())
    assert (status, out) == (2, "")
    [line] = err.splitlines()
    assert line.startswith("crossling: ")
    assert message in line
    assert not list(tmp_path.rglob("*.npy*"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("evaluate . --task tatoba --data .", "did you mean 'tatoeba'"),
        ("evaluate . --task tatoeba --data nowhere", "nowhere: no such folder"),
        ("evaluate . --task tatoeba --data . --pooling men", "pooling=men: no such pooling"),
        ("evaluate . --task xnli --data . --languages sw", "xnli has no data for language 'sw'"),
        ("evaluate ./no/model --task tatoeba --data .", "no/model: no such folder"),
        ("finetune . --task tatoeba --data . -o out", "Score the model with crossling evaluate"),
        ("finetune . --task xnly --data . -o out", "did you mean 'xnli'"),
        ("finetune ./no/model --task xnli --data . -o out", "no/model: no such folder"),
        ("align nowhere --model .", "nowhere: no such file"),
        ("embed nowhere -o a.npy --model .", "nowhere: no such file"),
        ("mine nowhere nowhere --model .", "nowhere: no such file"),
    ],
)
def test_invalid_input_is_refused_before_torch_is_imported(given: str, message: str, tmp_path: Path) -> None:
    program = (
        f"import sys; sys.argv = ['crossling', *{given.split()!r}]\n"
        "from crossling import cli\n"
        "try: cli.main()\n"
        "finally: print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert message in result.stderr
    assert (result.returncode, result.stdout) == (2, "False\n")
