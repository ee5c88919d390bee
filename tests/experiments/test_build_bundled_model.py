"""experiments/bundled_model.py: selection of the training data, and the built folder."""

from __future__ import annotations

import json
import lzma
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest

from crossling.core.errors import BadInput
from crossling.corpora.corpus import Corpora
from crossling.data.shards import Shards
from crossling.data.tokenize import tokenize
from crossling.inference.load import load
from crossling.inference.pooling import normalize_vectors
from crossling.recipes import get_recipe
from crossling.recipes.pretrain import pretrain as train
from crossling.vocabulary.build_vocabulary import vocab
from tests.load_script import load_script

LEAK = "the benchmark has this very sentence about a lighthouse"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("experiments/bundled_model.py")


def text_of(script: ModuleType) -> ModuleType:
    """Return the module that defines `write_corpora`."""
    return sys.modules[script.write_corpora.__module__]


def pack(file: Path, lines: list[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(lzma.compress("".join(f"{line}\n" for line in lines).encode()))


def unpack(file: Path) -> list[str]:
    return lzma.decompress(file.read_bytes()).decode().splitlines()


def blocks(name: str, *sizes: int) -> list[str]:
    """Return documents of the given numbers of lines."""
    return [line for number, size in enumerate(sizes) for line in (*(f"{name} {number} {k}" for k in range(size)), "")]


def fill(folder: Path, script: ModuleType) -> Path:
    """Write corpora in data sets and languages that are allowed, and in others."""
    for name in [*text_of(script).SETS, "quran", "storybooks"]:
        for code in ("en", "de", "tr", "th", "cs"):
            pack(
                folder / "multi" / name / f"{code}.txt.xz", [f"{code} one", "", f"{code} three {LEAK}", f"{code} four"]
            )
    pack(folder / "pairs" / "lafand.en-sw.en.xz", ["one"])
    for code in ("en", "ru", "cs"):
        pack(folder / "text" / f"{code}.txt.xz", blocks(code, 200, 12))
    pack(folder / "text" / "af.txt.xz", blocks("af", 60, 59, 8, 200, 198, 31))
    pack(folder / "text" / "bn.txt.xz", blocks("bn", 60, 60, 12))
    return folder


@pytest.fixture
def pretrain(script: ModuleType, tmp_path: Path) -> Path:
    return fill(tmp_path / "pretrain", script)


# ---- corpora ------------------------------------------------------------------------------------------------


def test_only_allowed_data_in_the_model_languages_is_used(script: ModuleType, pretrain: Path, tmp_path: Path) -> None:
    rows = {row.name: row for row in script.write_corpora(pretrain, tmp_path / "corpora", None)}
    found = Corpora(tmp_path / "corpora")
    kept = {str(file.relative_to(found.path)) for file in Path(found.path).rglob("*.xz")}
    free = {f"multi/{name}/{code}.txt.xz" for name in text_of(script).SETS for code in ("en", "de", "tr", "th")}
    free -= {"multi/bible/tr.txt.xz", "multi/bible/th.txt.xz"}  # no derivatives, rights reserved
    # ru has no licence, all of bn is from TED, and cs is not a language of the model.
    assert kept == free | {"text/en.txt.xz", "text/af.txt.xz"}
    assert rows["multi/bible"].languages == ["de", "en"]
    assert "CC BY-SA 4.0" in rows["multi/bible"].source
    assert rows["text/en"].lines == 212
    stored = json.loads((tmp_path / "corpora" / "sources.json").read_text())
    assert [row["name"] for row in stored["kept"]] == list(rows)
    assert "quran" in stored["excluded"]


def test_exceptions_name_languages_of_the_model(script: ModuleType) -> None:
    text = text_of(script)
    named = {*text.TED, *text.NO_TEXT, *text.TEXTS, *text.TATOEBA}
    assert named.union(*(known.without for known in text.SETS.values())) <= {*text.LANGUAGES}
    assert {code for pair in script.ALIGNED for code in pair.split("-")} <= {*text.LANGUAGES}


def test_talks_are_removed_from_text(script: ModuleType, pretrain: Path, tmp_path: Path) -> None:
    script.write_corpora(pretrain, tmp_path / "corpora", None)
    kept = unpack(tmp_path / "corpora" / "text" / "af.txt.xz")
    assert [line for line in kept if line] == [
        line for line in blocks("af", 60, 59, 8, 200, 198, 31) if line and int(line.split()[1]) >= 3
    ]
    assert kept.count("") == 3  # documents stay separate


def test_benchmark_sentences_are_removed_and_translations_stay_aligned(
    script: ModuleType, pretrain: Path, tmp_path: Path
) -> None:
    pytest.importorskip("rensa")
    data = tmp_path / "data" / "tatoeba" / "v1"
    data.mkdir(parents=True)
    (data / "tatoeba.deu-eng.eng").write_text(f"de three {LEAK}.\n")
    pack(pretrain / "text" / "en.txt.xz", ["one line", f"De three {LEAK}!", "another line", "", "last"])
    rows = {row.name: row for row in script.write_corpora(pretrain, tmp_path / "corpora", tmp_path / "data")}
    out = tmp_path / "corpora"
    assert unpack(out / "multi" / "wesnoth" / "de.txt.xz") == ["de one", "", "", "de four"]
    assert len(unpack(out / "multi" / "wesnoth" / "en.txt.xz")) == 4
    assert unpack(out / "text" / "en.txt.xz") == ["one line", "another line", "", "last", ""]
    assert rows["text/en"].in_benchmarks == 1
    assert json.loads((out / "sources.json").read_text())["without"] == ["tatoeba"]


def test_missing_data_is_refused(script: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no such corpus, or none in en. Give the folder that contains multi/bible"):
        script.write_corpora(tmp_path, tmp_path / "corpora", None)
    assert not (tmp_path / "corpora").exists()


# ---- build --------------------------------------------------------------------------------------------------


class BuildInputs(NamedTuple):
    """A run and its inputs."""

    run: Path
    shards: Path
    corpora: Path
    data: Path


@pytest.fixture(scope="module")
def made(script: ModuleType, small_model: list[str], tmp_path_factory: pytest.TempPathFactory) -> BuildInputs:
    """Run the commands of the model card on small data."""
    pytest.importorskip("rensa")
    folder = tmp_path_factory.mktemp("made")
    found = BuildInputs(folder / "run", folder / "shards", folder / "corpora", benchmarks(folder / "data"))
    script.write_corpora(fill(folder / "pretrain", script), found.corpora, found.data)
    text = Corpora(found.corpora)
    vocab(text, folder / "vocab", size=60)
    shards = tokenize(text, folder / "vocab", found.shards)
    scaled = ["mlm.length=32", "mlm.tokens=128", "steps=2", "lr=0.01", "optimizer.warmup=0", "model.layers=3"]
    train(get_recipe("xlm_r", "tiny").set([*small_model, *scaled]), shards, found.run)
    return found


def benchmarks(folder: Path) -> Path:
    (folder / "tatoeba" / "v1").mkdir(parents=True)
    for code, name in (("deu", "de"), ("swh", "sw")):
        for side in (code, "eng"):
            lines = "".join(f"{name if side == code else 'en'} {k} word, three, four and some more\n" for k in range(5))
            (folder / "tatoeba" / "v1" / f"tatoeba.{code}-eng.{side}").write_text(lines)
    (folder / "word-alignment" / "deen").mkdir(parents=True)
    (folder / "word-alignment" / "deen" / "deen.src-tgt").write_text("a b ||| c d\n")
    (folder / "word-alignment" / "deen" / "deen.gold").write_text("1-1 2-2\n")
    return folder


def test_built_folder_has_scores_and_provenance(script: ModuleType, made: BuildInputs, tmp_path: Path) -> None:
    known = script.build(*made, tmp_path / "model", 2)
    assert known["size"] < 2**20
    assert known["cosine"]["mean"] > 0.999
    folder = tmp_path / "model"
    assert not (folder / "sentencepiece.model").exists()
    ours, whole = load(folder), load(made.run)
    lines = ["de 1 word", "en 2 word"]
    assert ours.num_layers == 2
    near_NN = normalize_vectors(ours.encode(lines)) @ normalize_vectors(whole.encode(lines)).T
    assert np.diag(near_NN).min() > 0.999
    stored = json.loads((folder / "provenance.json").read_text())
    assert set(stored["after"]["languages"]) == {"de", "sw"}
    assert set(stored["after"]["aer"]) == {"de-en"}
    assert set(stored["before"]["tatoeba"]) == {"0", "1", "2"}  # without the removed layer
    card = (folder / "README.md").read_text()
    assert "license: apache-2.0" in card
    assert "xl.load()  # this model" in card
    # Training data and its licences.
    assert "| multi/wesnoth | de en th tr | 12 | Battle for Wesnoth 1.16, dialogue, GPL-2.0-or-later |" in card
    assert "no sentence of 20 letters or more from these benchmarks: tatoeba, word-alignment." in card
    assert "copyleft" in card
    assert f"| en | 212 | {3 * len(text_of(script).SETS)} |" in card
    assert f"| tr | none | {3 * len(text_of(script).SETS) - 3} |" in card  # no Bible
    assert "| Tatoeba, 2 languages, layer 2, % |" in card
    assert "crossling vocab CORPORA --size 60 --alpha 0.5" in card
    assert "--set model.layers=3" in card
    assert "build --run RUN --shards SHARDS --corpora CORPORA --data DATA --layers 2" in card
    assert str(tmp_path) not in card + (folder / "provenance.json").read_text() + (folder / "export.json").read_text()


def test_model_may_end_below_the_universal_layer(script: ModuleType, made: BuildInputs, tmp_path: Path) -> None:
    assert load(made.run).universal_layer == 2
    known = script.build(*made, tmp_path / "model", 1)
    assert known["before"]["layer"] == known["after"]["layer"] == load(tmp_path / "model").universal_layer == 1
    assert "| Tatoeba, 2 languages, layer 1, % |" in (tmp_path / "model" / "README.md").read_text()
    with pytest.raises(BadInput, match="layers 0"):
        script.build(*made, tmp_path / "none", 0)


def test_too_large_model_is_refused(
    script: ModuleType, made: BuildInputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "MAX_BYTES", 2**16)
    with pytest.raises(BadInput, match="MiB as int8"):
        script.build(*made, tmp_path / "model", 2)
    assert not (tmp_path / "model").exists()


# ---- training data of the card and of the run ---------------------------------------------------------------


def test_run_with_other_training_data_is_refused(
    script: ModuleType, made: BuildInputs, shards: Shards, small_model: list[str], tmp_path: Path
) -> None:
    """A run of synthetic languages, with its own shards and with others."""
    run = tmp_path / "run"
    scaled = ["mlm.length=32", "mlm.tokens=128", "steps=2", "optimizer.warmup=0"]
    train(get_recipe("xlm_r", "tiny").set([*small_model, *scaled]), shards, run)
    with pytest.raises(BadInput, match="was not tokenized from"):
        script.build(run, shards.path, made.corpora, made.data, tmp_path / "model", 2)
    with pytest.raises(BadInput, match=r"run: trained on shards \w+, but .*shards is \w+. Give the shards of the run"):
        script.build(run, made.shards, made.corpora, made.data, tmp_path / "model", 2)
    assert not (tmp_path / "model").exists()


def test_changed_training_data_is_reported(script: ModuleType, made: BuildInputs, tmp_path: Path) -> None:
    corpora = tmp_path / "corpora"
    shutil.copytree(made.corpora, corpora)

    def assert_refused(why: str) -> None:
        with pytest.raises(BadInput, match=why):
            script.build(made.run, made.shards, corpora, made.data, tmp_path / "model", 2)

    changed = unpack(corpora / "text" / "af.txt.xz")
    pack(corpora / "text" / "af.txt.xz", ["another line", *changed[1:]])
    assert_refused("text/af was not tokenized from")
    pack(corpora / "text" / "ru.txt.xz", ["from nowhere"])
    assert_refused("sources.json and the files differ in text/ru. Write the folder again")
    shutil.rmtree(corpora)
    script.write_corpora(fill(tmp_path / "pretrain", script), corpora, None)
    assert_refused("may contain sentences of benchmarks. Write it again with --against")


def test_initialized_run_is_refused(script: ModuleType, made: BuildInputs, tmp_path: Path) -> None:
    def assert_refused(file: str, change: dict[str, object], why: str) -> None:
        run = tmp_path / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(made.run, run)
        stored = json.loads((run / file).read_text())
        (run / file).write_text(json.dumps(stored | change))
        with pytest.raises(BadInput, match=why):
            script.build(run, *made[1:], tmp_path / "model", 2)

    assert_refused("recipe.json", {"init": {"model": "xlm-roberta-base"}}, "initialized from xlm-roberta-base")
    report = json.loads((made.run / "vocab" / "vocab.json").read_text())
    other_text = "its vocabulary was not trained on"
    assert_refused("vocab/vocab.json", {"settings": report["settings"] | {"from": "xlm-roberta-base"}}, other_text)
    other = report["languages"] | {"de": report["languages"]["de"] | {"fertility": 9.0}}
    assert_refused("vocab/vocab.json", {"languages": other}, other_text)
    more = report["languages"] | {"pl": report["languages"]["de"]}
    assert_refused("vocab/vocab.json", {"languages": more}, other_text)
