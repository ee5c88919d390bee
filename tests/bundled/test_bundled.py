"""The bundled model is used if no model is named."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path, PurePath

import numpy as np
import pytest
from transformers import AutoModel

import crossling as xl
from crossling import bundled
from crossling.inference.load import load
from crossling.recipes import get_recipe

from .conftest import Run

REPOSITORY = Path(__file__).parent.parent.parent
PACKAGE = REPOSITORY / "src" / "crossling"
REAL = bundled.FOLDER
LARGEST = 20 * 2**20


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    (tmp_path / "pairs").write_text("a b ||| b a\nc ||| d e\n")
    (tmp_path / "a.txt").write_text("a b\nc d e\n")
    (tmp_path / "b.txt").write_text("e d c\nb a\n")


# ---- installation without a bundled model -------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "align pairs",
        "embed a.txt -o a.npy",
        "mine a.txt b.txt",
        "evaluate --task tatoeba --data .",
    ],
)
def test_missing_bundled_model_is_reported(
    command: str, crossling: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundled, "FOLDER", tmp_path / "absent")
    ended = crossling(*command.split())
    assert (ended.status, ended.out) == (2, "")
    [line] = ended.err.splitlines()
    problem = "model: this installation has no bundled model."
    assert line == f"crossling: {problem} Name a run, an exported folder or a Hugging Face encoder."
    with pytest.raises(xl.BadInput, match=problem):
        xl.load()
    assert not list(tmp_path.glob("*.npy*"))


# ---- a small bundled model ----------------------------------------------------------------------------------


def test_bundled_model_is_the_default_and_has_a_name(small_bundled: Path, crossling: Run) -> None:
    named, lines = load(small_bundled), ["a b", "c d e"]
    for model in (xl.load(), xl.load("bundled")):
        assert (model.name, model.num_layers) == ("bundled", 2)
        np.testing.assert_array_equal(model.encode(lines), named.encode(lines))
    folder = str(small_bundled)
    for command in (["align", "pairs"], ["mine", "a.txt", "b.txt"]):
        ended = crossling(*command)
        assert ended.status == 0
        assert ended.out == crossling(*command, "--model", folder).out != ""
        assert ended.out == crossling(*command, "--model", "bundled").out
    assert crossling("embed", "a.txt", "-o", "a.npy").status == 0
    np.testing.assert_allclose(np.load("a.npy"), named.encode(lines), atol=1e-6)


def test_named_model_is_used(small_bundled: Path, run: Path, crossling: Run) -> None:
    assert load(small_bundled).num_layers == 2
    ended = crossling("align", "pairs", "--model", str(run), "--layer", "3")
    assert ended.status == 0
    assert "layer 3 does not exist" in crossling("align", "pairs", "--layer", "3").err


def test_vectors_need_no_model(crossling: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "FOLDER", tmp_path / "absent")
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.eye(2, dtype=np.float32))
    assert crossling("mine", "a.txt", "b.txt", "--vectors", "a.npy", "--vectors", "b.npy").status == 0


def test_bundled_model_is_evaluated_by_its_name(small_bundled: Path, synth_folder: Path, crossling: Run) -> None:
    data = str(synth_folder / "data")
    ended = crossling("evaluate", "--task", "tatoeba", "--data", data, "--json")
    assert ended.status == 0
    assert '"model": "bundled"' in ended.out
    assert str(small_bundled) not in ended.out
    error = crossling("evaluate", "--task", "xnli", "--data", data).err
    assert error == "crossling: xnli: the bundled model is not fine-tuned. Name a fine-tuned model.\n"


def test_bundled_model_initializes_other_models_by_name(small_bundled: Path) -> None:
    initial = xl.InitialModel.load("bundled")
    assert initial.name == "bundled"
    assert initial.encoder.config.num_hidden_layers == load(small_bundled).num_layers


# ---- the real bundled model ---------------------------------------------------------------------------------


def test_folder_is_small_and_complete() -> None:
    files = [file for file in REAL.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= LARGEST
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md", "provenance.json"} <= {
        file.name for file in files
    }


def test_retrieval_and_word_alignment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "FOLDER", REAL)
    model = load()
    english = ["Where is the railway station?", "The cat is sleeping on the bed.", "We must protect human rights."]
    german = ["Wo ist der Bahnhof?", "Die Katze schläft auf dem Bett.", "Wir müssen die Menschenrechte schützen."]
    similarity = model.encode(english) @ model.encode(german).T
    assert similarity.argmax(1).tolist() == [0, 1, 2]
    assert model.align("the white house", "la maison blanche") == [(0, 0), (1, 2), (2, 1)]


def test_card_has_the_commands_and_scores() -> None:
    stored = json.loads((REAL / "export.json").read_text(encoding="utf-8"))
    recipe = get_recipe("rosetta", "small").set(stored["differences"])
    settings = json.loads(json.dumps(recipe.dump()))
    parts = [(settings, stored["recipe"])]
    parts += [(part, stored["recipe"][name]) for name, part in settings.items() if isinstance(part, dict)]
    for part, known in parts:
        for newer in part.keys() - known.keys():
            assert newer in ("cuda_graphs", "keep_last", "precision") or part[newer] in (None, False), (
                newer
            )  # no effect on the model
            part.pop(newer)
    assert settings == stored["recipe"]
    provenance, card = (
        json.loads((REAL / "provenance.json").read_text(encoding="utf-8")),
        (REAL / "README.md").read_text("utf-8"),
    )
    assert "\n".join(provenance["commands"]) in card
    assert all(f"--set {difference}" in provenance["commands"][3] for difference in stored["differences"])
    figures = provenance["after"]
    assert f"| {figures['tatoeba'][str(figures['layer'])]:.2f} |" in card
    assert "AutoModel.from_pretrained(crossling.bundled.folder())" in card
    assert AutoModel.from_pretrained(REAL).config.vocab_size == len(load(REAL).tokenizer) == 24_000


def test_all_files_are_installed() -> None:
    patterns = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    names = {
        f"bundled/model/{name}"
        for name in ("README.md", "model.safetensors", "tokenizer.json", "1_Pooling/config.json")
    }
    names |= {str(file.relative_to(PACKAGE)) for file in REAL.rglob("*") if file.is_file()}
    for name in sorted(names):
        assert any(PurePath(name).match(pattern.replace("**/", "")) for pattern in patterns["crossling"]), name
