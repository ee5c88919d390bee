"""From a teacher and files to a student in a folder, with the comparison of both."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import crossling as xl
from crossling.cli.app import app
from crossling.core.errors import BadInput
from crossling.distill import distill as module
from crossling.distill.student_model import cut_teacher, parse_layers
from tests.finetune.tiny_tasks import WORDS, make_model, model_folder

SMALL = ["steps=3", "distillation.sentences=8", "distillation.length=32", "model.max_length=64", "model.width=16"]
SMALL += ["model.heads=2", "model.feed_forward=32", "model.layers=2", "model.universal_layer=2"]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    rng = np.random.default_rng(0)
    rows = [" ".join(rng.choice(WORDS, 4)) for _ in range(60)]
    (tmp_path / "de-en.tsv").write_text("".join(f"{row}\t{row[::-1]}\n" for row in rows))
    (tmp_path / "en.txt").write_text("\n".join(" ".join(rng.choice(WORDS, 5)) for _ in range(20)) + "\n")
    return tmp_path / "en.txt", tmp_path / "de-en.tsv"


def test_a_student_is_trained_compared_and_kept(
    tmp_path: Path, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher, (text, pairs) = model_folder(tmp_path / "teacher", "xlmr"), files
    out = tmp_path / "student"
    options = {"text": [text], "pairs": [pairs], "size": "tiny", "vocabulary_size": 45, "set": SMALL}
    with monkeypatch.context() as patch:
        patch.setattr(module, "_compare", None)  # interrupted after the training
        with pytest.raises(TypeError):
            xl.distill(teacher, out, **options)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="a student of other files or options"):
        xl.distill(teacher, out, **options | {"source": "de"})  # type: ignore[arg-type]
    result = xl.distill(teacher, out, **options)  # type: ignore[arg-type]
    assert not (out / "training").exists()
    one, other = result["models"]
    assert (one["layers"], one["width"], other["layers"], other["width"]) == (2, 32, 2, 32)  # by the dense layer
    assert other["megabytes"] > 0
    rows = [json.loads(line) for line in (out / "scores.jsonl").read_text().splitlines()]
    assert {(row["model"], row["direction"]) for row in rows} == {
        (str(model), direction) for model in (teacher, out) for direction in ("de-en", "en-de")
    }
    assert "| student |" in (out / "README.md").read_text()
    assert (out / "report.html").is_file()
    vectors = xl.load(out).encode(["red dog"])
    assert vectors.shape == (1, 32)
    library = pytest.importorskip("sentence_transformers")
    np.testing.assert_allclose(
        library.SentenceTransformer(str(out), device="cpu").encode(["red dog"]), vectors, atol=2e-6
    )
    monkeypatch.setattr(module, "_distill", None)
    assert xl.distill(teacher, out, **options) == result  # type: ignore[arg-type]
    (tmp_path / "moved").mkdir()
    options |= {"pairs": [pairs.rename(tmp_path / "moved" / pairs.name)]}
    assert xl.distill(teacher, out, **options) == result  # type: ignore[arg-type]
    make_model("xlmr", seed=1).save_pretrained(teacher)
    with pytest.raises(BadInput, match="or of another teacher"):
        xl.distill(teacher, out, **options)  # type: ignore[arg-type]


def test_plan_writes_nothing(tmp_path: Path, files: tuple[Path, Path]) -> None:
    teacher = model_folder(tmp_path / "teacher", "xlmr")
    command = ["distill", str(teacher), "--size", "tiny", "--pairs", str(files[1]), "-o", str(tmp_path / "out")]
    run = CliRunner().invoke(app, [*command, "--dry-run"], catch_exceptions=False)
    assert "sentences: de 54, en 54" in run.stdout
    assert "held out: de-en 6" in run.stdout
    assert "student: 4 layers of 128" in run.stdout
    assert not (tmp_path / "out").exists()


def test_layers_of_the_teacher_are_the_start(tmp_path: Path) -> None:
    teacher = str(model_folder(tmp_path / "teacher", "xlmr"))
    whole, cut = xl.InitialModel.load(teacher), cut_teacher(teacher, [2])
    weights = dict(whole.encoder.encoder.named_parameters())
    for name, values in cut.encoder.encoder.named_parameters():
        assert values.equal(weights[name.replace("blocks.0.", "blocks.1.")])
    with pytest.raises(BadInput, match=r"has no layer 3\. Give numbers from 1 to 2"):
        cut_teacher(teacher, [1, 3])
    assert parse_layers("1,3") == parse_layers([1, 3]) == (1, 3)


def test_a_world_of_processes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(BadInput, match="cannot run under torchrun"):
        xl.distill("bundled", tmp_path / "out", pairs=[__file__])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"size": "tny"}, "did you mean 'tiny'"),
        ({"layers": "2,1"}, "different numbers in ascending order"),
        ({"layers": "x"}, "expected numbers"),
        ({"layers": "1", "vocabulary": "new"}, "Omit vocabulary, or layers"),
        ({"vocabulary": "old"}, "expected new or trim"),
        ({"pairs": []}, "pairs: none are given"),
        ({"pairs": ["nothing.tsv"]}, "no such file"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, object], expected: str) -> None:
    given = {"pairs": [__file__], **options}
    with pytest.raises(BadInput, match=expected):
        xl.distill("bundled", tmp_path / "out", **given)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()
