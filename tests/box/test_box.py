"""Without a model named, the one that ships is taken; where none ships, one is asked for."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path, PurePath

import numpy as np
import pytest
from transformers import AutoModel

import crossling as xl
from crossling import box
from crossling.load import load
from crossling.recipes import named

from .conftest import Run

REPOSITORY = Path(__file__).parent.parent.parent
PACKAGE = REPOSITORY / "src" / "crossling"
REAL = box.FOLDER
LARGEST = 20 * 2**20


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    (tmp_path / "pairs").write_text("a b ||| b a\nc ||| d e\n")
    (tmp_path / "a.txt").write_text("a b\nc d e\n")
    (tmp_path / "b.txt").write_text("e d c\nb a\n")


# ---- where none ships ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        "align pairs",
        "embed a.txt -o a.npy",
        "mine a.txt b.txt",
        "evaluate --task tatoeba --data .",
    ],
)
def test_a_model_is_asked_for_in_one_sentence(
    given: str, crossling: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box, "FOLDER", tmp_path / "absent")
    ended = crossling(*given.split())
    assert (ended.status, ended.out) == (2, "")
    [line] = ended.err.splitlines()
    asked = "no model is named, and this installation has none in it; give a run, an exported folder, or a Hugging Face"
    assert line == f"crossling: {asked} encoder"
    with pytest.raises(xl.BadInput, match=asked):
        xl.load()
    assert not list(tmp_path.glob("*.npy*"))


# ---- where one does -----------------------------------------------------------------------------------------


def test_it_is_taken_where_none_is_named(shipped: Path, crossling: Run) -> None:
    named, lines = load(shipped), ["a b", "c d e"]
    found = xl.load()
    assert (found.name, found.layers) == ("box", 2)
    np.testing.assert_array_equal(found.embed(lines), named.embed(lines))
    folder = str(shipped)
    for given in (["align", "pairs"], ["mine", "a.txt", "b.txt"]):
        ended = crossling(*given)
        assert ended.status == 0
        assert ended.out == crossling(*given, "--model", folder).out != ""
    assert crossling("embed", "a.txt", "-o", "a.npy").status == 0
    np.testing.assert_allclose(np.load("a.npy"), named.embed(lines), atol=1e-6)


def test_another_that_is_named_comes_first(shipped: Path, run: Path, crossling: Run) -> None:
    assert load(shipped).layers == 2
    ended = crossling("align", "pairs", "--model", str(run), "--layer", "3")
    assert ended.status == 0
    assert "layer 3 does not exist" in crossling("align", "pairs", "--layer", "3").err


def test_vectors_need_no_model(crossling: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box, "FOLDER", tmp_path / "absent")
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.eye(2, dtype=np.float32))
    assert crossling("mine", "a.txt", "b.txt", "--vectors", "a.npy", "--vectors", "b.npy").status == 0


def test_it_is_measured_as_any_other(shipped: Path, babel_folder: Path, crossling: Run) -> None:
    data = str(babel_folder / "data")
    ended = crossling("evaluate", "--task", "tatoeba", "--data", data, "--json")
    assert ended.status == 0
    assert '"model": "box"' in ended.out
    assert str(shipped) not in ended.out
    told = crossling("evaluate", "--task", "xnli", "--data", data).err
    assert told == "crossling: xnli: the model that ships was not fine-tuned; name the model to score\n"


# ---- the real one -------------------------------------------------------------------------------------------


def test_it_is_small_and_complete() -> None:
    files = [file for file in REAL.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= LARGEST
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md", "box.json"} <= {
        file.name for file in files
    }


def test_it_finds_translations_and_links_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box, "FOLDER", REAL)
    model = load()
    english = ["Where is the railway station?", "The cat is sleeping on the bed.", "We must protect human rights."]
    german = ["Wo ist der Bahnhof?", "Die Katze schläft auf dem Bett.", "Wir müssen die Menschenrechte schützen."]
    near = model.embed(english) @ model.embed(german).T
    assert near.argmax(1).tolist() == [0, 1, 2]
    assert model.align("the white house", "la maison blanche") == [(0, 0), (1, 2), (2, 1)]


def test_its_card_tells_how_to_make_it_again() -> None:
    stored = json.loads((REAL / "export.json").read_text(encoding="utf-8"))
    made_again = named("rosetta", "small").set(stored["differences"])
    assert json.loads(json.dumps(made_again.dump())) == stored["recipe"]
    known, card = json.loads((REAL / "box.json").read_text(encoding="utf-8")), (REAL / "README.md").read_text("utf-8")
    assert "\n".join(known["commands"]) in card
    assert all(f"--set {difference}" in known["commands"][3] for difference in stored["differences"])
    figures = known["after"]
    assert f"| {figures['tatoeba'][str(figures['layer'])]:.2f} |" in card
    assert "AutoModel.from_pretrained(crossling.box.folder())" in card
    assert AutoModel.from_pretrained(REAL).config.vocab_size == len(load(REAL).tokenizer) == 24_000


def test_all_of_it_is_installed() -> None:
    patterns = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    names = {
        f"box/model/{name}" for name in ("README.md", "model.safetensors", "tokenizer.json", "1_Pooling/config.json")
    }
    names |= {str(file.relative_to(PACKAGE)) for file in REAL.rglob("*") if file.is_file()}
    for name in sorted(names):
        assert any(PurePath(name).match(pattern.replace("**/", "")) for pattern in patterns["crossling"]), name
