"""benchmarks/box.py: which text is kept, and what it puts in the box."""

from __future__ import annotations

import importlib.util
import json
import lzma
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest

from crossling.corpora.corpus import Corpora
from crossling.data.encode import encode
from crossling.data.shards import Shards
from crossling.errors import BadInput
from crossling.evaluate.cosine import unit
from crossling.load import load
from crossling.recipe import pretrain as train
from crossling.recipes import named
from crossling.vocabulary.vocab import vocab

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "box.py"
LEAK = "the benchmark has this very sentence about a lighthouse"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("box_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["box_script"] = importlib.util.module_from_spec(spec)  # dataclasses look there
    sys.path.insert(0, str(SCRIPT.parent))  # as for any script: what lies beside it
    spec.loader.exec_module(module)
    sys.path.remove(str(SCRIPT.parent))
    return module


def text_of(script: ModuleType) -> ModuleType:
    """Its other half, where `corpora` is written."""
    return sys.modules[script.corpora.__module__]


def pack(file: Path, lines: list[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(lzma.compress("".join(f"{line}\n" for line in lines).encode()))


def unpack(file: Path) -> list[str]:
    return lzma.decompress(file.read_bytes()).decode().splitlines()


def blocks(name: str, *sizes: int) -> list[str]:
    """Documents of so many lines."""
    return [line for number, size in enumerate(sizes) for line in (*(f"{name} {number} {k}" for k in range(size)), "")]


def fill(folder: Path, script: ModuleType) -> Path:
    """With text in sets and languages that are free, and in others."""
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


def test_only_free_text_in_the_languages_of_the_box_is_kept(script: ModuleType, pretrain: Path, tmp_path: Path) -> None:
    rows = {row.name: row for row in script.corpora(pretrain, tmp_path / "corpora", None)}
    found = Corpora(tmp_path / "corpora")
    kept = {str(file.relative_to(found.path)) for file in Path(found.path).rglob("*.xz")}
    free = {f"multi/{name}/{code}.txt.xz" for name in text_of(script).SETS for code in ("en", "de", "tr", "th")}
    free -= {"multi/bible/tr.txt.xz", "multi/bible/th.txt.xz"}  # no derivatives, rights kept
    # ru is of a collection without a licence, all of bn is of TED, cs is no language of the box.
    assert kept == free | {"text/en.txt.xz", "text/af.txt.xz"}
    assert rows["multi/bible"].languages == ["de", "en"]
    assert "CC BY-SA 4.0" in rows["multi/bible"].source
    assert rows["text/en"].lines == 212
    stored = json.loads((tmp_path / "corpora" / "sources.json").read_text())
    assert [row["name"] for row in stored["kept"]] == list(rows)
    assert "quran" in stored["left out"]


def test_every_exception_is_of_a_language_of_the_box(script: ModuleType) -> None:
    text = text_of(script)
    named = {*text.TED, *text.NO_TEXT, *text.TEXTS, *text.TATOEBA}
    assert named.union(*(known.without for known in text.SETS.values())) <= {*text.LANGUAGES}
    assert {code for pair in script.ALIGNED for code in pair.split("-")} <= {*text.LANGUAGES}


def test_of_text_with_talks_the_rest_is_kept(script: ModuleType, pretrain: Path, tmp_path: Path) -> None:
    script.corpora(pretrain, tmp_path / "corpora", None)
    kept = unpack(tmp_path / "corpora" / "text" / "af.txt.xz")
    assert [line for line in kept if line] == [
        line for line in blocks("af", 60, 59, 8, 200, 198, 31) if line and int(line.split()[1]) >= 3
    ]
    assert kept.count("") == 3  # documents stay documents


def test_sentences_of_benchmarks_go_and_translations_do_not_shift(
    script: ModuleType, pretrain: Path, tmp_path: Path
) -> None:
    pytest.importorskip("rensa")
    data = tmp_path / "data" / "tatoeba" / "v1"
    data.mkdir(parents=True)
    (data / "tatoeba.deu-eng.eng").write_text(f"de three {LEAK}.\n")
    pack(pretrain / "text" / "en.txt.xz", ["one line", f"De three {LEAK}!", "another line", "", "last"])
    rows = {row.name: row for row in script.corpora(pretrain, tmp_path / "corpora", tmp_path / "data")}
    out = tmp_path / "corpora"
    assert unpack(out / "multi" / "wesnoth" / "de.txt.xz") == ["de one", "", "", "de four"]
    assert len(unpack(out / "multi" / "wesnoth" / "en.txt.xz")) == 4
    assert unpack(out / "text" / "en.txt.xz") == ["one line", "another line", "", "last", ""]
    assert rows["text/en"].in_benchmarks == 1
    assert json.loads((out / "sources.json").read_text())["without"] == ["tatoeba"]


def test_text_that_is_not_there_is_one_sentence(script: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such set, or none with en; give the folder that has multi/bible"):
        script.corpora(tmp_path, tmp_path / "corpora", None)
    assert not (tmp_path / "corpora").exists()


# ---- build --------------------------------------------------------------------------------------------------


class Made(NamedTuple):
    """A run and all it comes from."""

    run: Path
    shards: Path
    corpora: Path
    data: Path


@pytest.fixture(scope="module")
def made(script: ModuleType, small_model: list[str], tmp_path_factory: pytest.TempPathFactory) -> Made:
    """By the commands of the card, small."""
    pytest.importorskip("rensa")
    folder = tmp_path_factory.mktemp("made")
    found = Made(folder / "run", folder / "shards", folder / "corpora", benchmarks(folder / "data"))
    script.corpora(fill(folder / "pretrain", script), found.corpora, found.data)
    text = Corpora(found.corpora)
    vocab(text, 60, folder / "vocab")
    shards = encode(text, folder / "vocab", found.shards)
    scaled = ["mlm.length=32", "mlm.tokens=128", "steps=2", "lr=0.01", "optimizer.warmup=0", "model.layers=3"]
    train(named("xlm_r", "tiny").set([*small_model, *scaled]), shards, found.run)
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


def test_what_ships_is_measured_and_says_where_it_comes_from(script: ModuleType, made: Made, tmp_path: Path) -> None:
    known = script.build(*made, tmp_path / "model", 2)
    assert known["size"] < 2**20
    assert known["cosine"]["mean"] > 0.999
    folder = tmp_path / "model"
    assert not (folder / "sentencepiece.model").exists()
    ours, whole = load(folder), load(made.run)
    lines = ["de 1 word", "en 2 word"]
    assert ours.layers == 2
    near_NN = unit(ours.embed(lines)) @ unit(whole.embed(lines)).T
    assert np.diag(near_NN).min() > 0.999
    stored = json.loads((folder / "box.json").read_text())
    assert set(stored["after"]["languages"]) == {"de", "sw"}
    assert set(stored["after"]["aer"]) == {"de-en"}
    assert set(stored["before"]["tatoeba"]) == {"0", "1", "2"}  # not the layer that was left out
    card = (folder / "README.md").read_text()
    assert "license: apache-2.0" in card
    assert "xl.load()  # this model" in card
    # The text that the run has seen, and what its licences mean for those who use it.
    assert "| multi/wesnoth | de en th tr | 12 | Battle for Wesnoth 1.16, dialogue, GPL-2.0-or-later |" in card
    assert "No sentence (of 20 letters or more) of these benchmarks is in it: tatoeba, word-alignment." in card
    assert "copyleft" in card
    assert f"| en | 212 | {3 * len(text_of(script).SETS)} |" in card
    assert f"| tr | none | {3 * len(text_of(script).SETS) - 3} |" in card  # no Bible
    assert "| Tatoeba, 2 languages, layer 2, % |" in card
    assert "crossling vocab CORPORA --size 60 --alpha 0.5" in card
    assert "--set model.layers=3" in card
    assert "build --run RUN --shards SHARDS --corpora CORPORA --data DATA --layers 2" in card
    assert str(tmp_path) not in card + (folder / "box.json").read_text() + (folder / "export.json").read_text()


def test_the_box_may_end_below_the_universal_layer(script: ModuleType, made: Made, tmp_path: Path) -> None:
    assert load(made.run).universal_layer == 2
    known = script.build(*made, tmp_path / "model", 1)
    assert known["before"]["layer"] == known["after"]["layer"] == load(tmp_path / "model").universal_layer == 1
    assert "| Tatoeba, 2 languages, layer 1, % |" in (tmp_path / "model" / "README.md").read_text()
    with pytest.raises(BadInput, match="--layers 0"):
        script.build(*made, tmp_path / "none", 0)


def test_what_is_too_large_does_not_ship(
    script: ModuleType, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "LARGEST", 2**16)
    with pytest.raises(BadInput, match="MiB in 8 bits"):
        script.build(*made, tmp_path / "model", 2)
    assert not (tmp_path / "model").exists()


# ---- the text of the card is the text of the run ------------------------------------------------------------


def test_a_run_of_other_text_does_not_ship(
    script: ModuleType, made: Made, run: Path, shards: Shards, tmp_path: Path
) -> None:
    """That of constructed languages, with its own shards and without."""
    with pytest.raises(BadInput, match="was not encoded from"):
        script.build(run, shards.path, made.corpora, made.data, tmp_path / "model", 2)
    with pytest.raises(BadInput, match=r"run: trained on shards \w+, and .*shards is \w+; give its own"):
        script.build(run, made.shards, made.corpora, made.data, tmp_path / "model", 2)
    assert not (tmp_path / "model").exists()


def test_text_that_is_not_that_of_the_run_is_told(script: ModuleType, made: Made, tmp_path: Path) -> None:
    corpora = tmp_path / "corpora"
    shutil.copytree(made.corpora, corpora)

    def refused(why: str) -> None:
        with pytest.raises(BadInput, match=why):
            script.build(made.run, made.shards, corpora, made.data, tmp_path / "model", 2)

    changed = unpack(corpora / "text" / "af.txt.xz")
    pack(corpora / "text" / "af.txt.xz", ["another line", *changed[1:]])
    refused("text/af was not encoded from")
    pack(corpora / "text" / "ru.txt.xz", ["from nowhere"])
    refused("sources.json and the files differ in text/ru; make the folder again")
    shutil.rmtree(corpora)
    script.corpora(fill(tmp_path / "pretrain", script), corpora, None)
    refused("sentences of benchmarks may be in it; make it again with --against")


def test_what_the_run_began_with_is_text_too(script: ModuleType, made: Made, tmp_path: Path) -> None:
    def refused(file: str, change: dict[str, object], why: str) -> None:
        run = tmp_path / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(made.run, run)
        stored = json.loads((run / file).read_text())
        (run / file).write_text(json.dumps(stored | change))
        with pytest.raises(BadInput, match=why):
            script.build(run, *made[1:], tmp_path / "model", 2)

    refused("recipe.json", {"init": {"model": "xlm-roberta-base"}}, "began as xlm-roberta-base, whose text")
    told = json.loads((made.run / "vocab" / "vocab.json").read_text())
    other_text = "its vocabulary was not made from"
    refused("vocab/vocab.json", {"made": told["made"] | {"from": "xlm-roberta-base"}}, other_text)
    other = told["languages"] | {"de": told["languages"]["de"] | {"fertility": 9.0}}
    refused("vocab/vocab.json", {"languages": other}, other_text)
    more = told["languages"] | {"pl": told["languages"]["de"]}
    refused("vocab/vocab.json", {"languages": more}, other_text)
